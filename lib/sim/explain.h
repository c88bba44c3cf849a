/* Describes in words why an epoch can't end. */
#ifndef BATON_SIM_EXPLAIN_H
#define BATON_SIM_EXPLAIN_H

#include "sim/sim.h"

/* Returns BATON_ERR_DEADLOCK with a message that says why `schedule` can't go
   on: the cycle in which ranks wait, or the rank at which the chain of waits
   ends. Nothing may be left to happen in the simulator. */
baton_status_t baton__sim_explain(const baton_sim_t *sim,
                                  const baton_schedule_t *schedule);

#endif
