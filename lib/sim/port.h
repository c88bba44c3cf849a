/* The transport port over the simulated network. */
#ifndef BATON_SIM_PORT_H
#define BATON_SIM_PORT_H

#include <baton/transport.h>

/* Its endpoints are the network's ports (sim/net.h). */
extern const baton_transport_t baton__sim_transport;

#endif
