/* Compares the sends and receives of all ranks. */
#ifndef BATON_SIM_MATCH_H
#define BATON_SIM_MATCH_H

#include "sim/sim.h"

/* BATON_ERR_MISMATCH names both ranks and nodes of a send and a receive that do
   not match. */
baton_status_t baton__sim_match(baton_sim_t *sim);

/* Returns the node that matches a message node, or BATON__NO_NODE when there is
   none; *peer_out is the peer's schedule, or NULL. */
uint32_t baton__sim_find_match(const baton_sim_t *sim,
                               const baton_schedule_t *schedule,
                               const baton__op_t *op,
                               const baton_schedule_t **peer_out);

#endif
