/* The way from one awaited message to the next, where nothing can happen any
   more: from a message to its other end on another rank, from there back along
   that rank's DAG to what that one is behind, which is a message again, and so
   on: until the way comes round, or ends with a rank that is to blame.

       rank 0   recv#0 ------waits for-----> send#1   rank 1
                  ^                            |
              is behind                    is behind
                  |                            v
                send#1 <-----waits for----- recv#0

   Nothing is allocated, so that any number of ranks gets its answer. */
#ifndef BATON_SIM_WAIT_GRAPH_H
#define BATON_SIM_WAIT_GRAPH_H

#include "sim/sim.h"

/* A message that is awaited. */
typedef struct baton__spot {
    const baton_schedule_t *schedule;
    uint32_t node;
} baton__spot_t;

typedef struct baton__hop {
    baton__spot_t from;
    const baton_schedule_t *peer; /* NULL: there is no other end any more */
    uint32_t other;               /* the other end, a node of `peer` */
    uint32_t held;   /* of `peer`: the same, or what an earlier epoch waits for
                      */
    uint32_t node;   /* of `peer`: what that is behind */
    uint32_t choice; /* node in between that needs k of n; BATON__NO_NODE */
    bool goes_on;    /* `node` is a message that is awaited */
} baton__hop_t;

/* From what an epoch waits for on its own rank; `from` and `other` are unset.
 */
baton__hop_t baton__way_begin(const baton_sim_t *sim,
                              const baton_schedule_t *schedule);

baton__hop_t baton__way_hop(const baton_sim_t *sim, baton__spot_t from);

static inline baton__spot_t baton__way_landing(const baton__hop_t *hop)
{
    return (baton__spot_t){hop->peer, hop->node};
}

/* Follows the way from *first. True: it comes round; *first is then where the
   cycle begins, and *count how many hops it has. False: *count hops lead to its
   end. */
bool baton__way_is_cycle(const baton_sim_t *sim, baton__spot_t *first,
                         size_t *count);

/* What a node that has not fired waits for: an awaited message if there is one,
   an armed receive only if there is nothing else; BATON__NO_NODE. *edges_out:
   how many edges it has. */
uint32_t baton__way_before(const baton_schedule_t *schedule, uint32_t node,
                           uint32_t *edges_out);

/* A call that was done, and yet has not satisfied this node; BATON__NO_NODE. */
uint32_t baton__way_skip(const baton_schedule_t *schedule, uint32_t node);

#endif
