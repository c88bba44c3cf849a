/* The staged transport sends messages of device memory over any transport. It
   is a transport around another one, for the groups of an engine that has a
   device. */
#pragma once

#include <baton/device.h>
#include <baton/transport.h>

/* Makes an endpoint around the inner endpoint of this rank. Closing this
   endpoint closes the inner one, too. The transport in *transport_out is part
   of the endpoint, so a group must copy it. Either all ranks of the group do
   this, or none. The port and the device must outlive the endpoint. Pinned
   memory is allocated here and not later.

   All functions of the endpoint are called as transport.h says, by the thread
   that drives the device. `allocate` and `release` are those of the inner
   transport. Poll finds the progress of copies by querying the device. The
   engine arms the device once for all endpoints before it sleeps, so the
   endpoint's arm returns false only while poll has something to do at once.

   Errors: BATON_ERR_NO_MEMORY, or the device's error. After an error the caller
   still owns the inner endpoint. */
baton_status_t baton__staged_open(const baton_transport_t *inner,
                                  void *inner_endpoint, int rank, int size,
                                  const baton_device_port_t *port, void *device,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out);

/* Frees an endpoint that was not used yet. The caller owns the inner endpoint
   again. */
void baton__staged_undo(void *endpoint);
