/* Messages of device memory, over any transport: a transport around another
   one, for the groups of an engine that has a device. */
#pragma once

#include <baton/device.h>
#include <baton/transport.h>

/* Makes an endpoint around the inner one of this rank, which it closes when it
   is closed. The transport that it has is part of the endpoint: a group copies
   it. All ranks of the group must do this, or none. The port and the device
   must outlive the endpoint. Pinned memory is allocated here, and none later.

   All functions of the endpoint are called as transport.h says, and by the
   thread that drives the device; `allocate` and `release` are the inner ones.
   Progress of copies is found by poll, which queries the device: the engine
   arms the device before it sleeps, once for all endpoints; the endpoint's arm
   returns false only while poll has something to do at once.

   On an error the inner endpoint is still the caller's. BATON_ERR_NO_MEMORY, or
   what the device reports. */
baton_status_t baton__staged_open(const baton_transport_t *inner,
                                  void *inner_endpoint, int rank, int size,
                                  const baton_device_port_t *port, void *device,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out);

/* Frees an endpoint through which nothing has gone; the inner one is the
   caller's again. */
void baton__staged_undo(void *endpoint);
