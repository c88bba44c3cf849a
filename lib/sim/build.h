/* A builder on every rank. */
#ifndef BATON_SIM_BUILD_H
#define BATON_SIM_BUILD_H

#include "sim/sim.h"

/* Destroys the schedules that baton_sim_build has built, if any. */
void baton__sim_destroy_built(baton_sim_t *sim);

#endif
