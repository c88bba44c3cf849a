/* Checks that the machine has memory for a simulation before it is used. */
#ifndef BATON_SIM_MEMORY_H
#define BATON_SIM_MEMORY_H

#include "sim/sim.h"

/* BATON_ERR_NO_MEMORY when `bytes` more are not available: the message names
   the `consumer` that needs them, and `advice` says what to lower. */
baton_status_t baton__sim_check_memory(double bytes, const char *consumer,
                                       const char *advice);

/* Called before each commit. Fails like baton__sim_check_memory when the
   machine has no memory for schedules like this one on every rank. */
baton_status_t baton__sim_check_schedule(const baton_schedule_t *schedule);

#endif
