/* Simulated devices, one a rank: the port of an engine's device in virtual
   time. Streams are the times at which they will be free; what is put into one
   is done to the data at once, and is known to be done when its time has come.

   A copy from the host takes the link of its direction for alpha + n * beta,
   behind what is in its stream and in the link; so does one to the host. All
   else is a kernel: its launch time and gamma a byte, in its stream alone. The
   processor pays for neither. */
#ifndef BATON_SIM_DEVICE_H
#define BATON_SIM_DEVICE_H

#include "sim/net.h"
#include "transport/device.h"

enum { BATON__SIM_STREAMS = 4 };

typedef struct baton__sim_stream {
    double free_us;
} baton__sim_stream_t;

typedef struct baton__sim_device {
    baton__device_t shared; /* what the rank's group has */
    baton__sim_port_t *port;
    double link_free_us[2]; /* from the host, to it */
    baton__sim_stream_t streams[BATON__SIM_STREAMS];
} baton__sim_device_t;

/* The device of the rank that has this endpoint. */
void baton__sim_device_init(baton__sim_device_t *device,
                            baton__sim_port_t *port);
void baton__sim_device_fini(baton__sim_device_t *device);

#endif
