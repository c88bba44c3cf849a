/* What the parts of an epoch's life have in common; see epoch.h. */
#ifndef BATON_PROGRESS_EPOCH_PARTS_H
#define BATON_PROGRESS_EPOCH_PARTS_H

#include "progress/epoch.h"

/* What functions of nodes get. */
baton__context_t baton__epoch_context(baton_schedule_t *schedule);

/* The run's changes, with the stepper's count of what is waited for. */
static inline void baton__epoch_enter(baton__stepper_t *stepper,
                                      baton_schedule_t *schedule, uint32_t node,
                                      baton__node_state_t state)
{
    uint32_t before = schedule->run.waited;
    baton__run_enter(&schedule->run, node, state);
    stepper->waited += schedule->run.waited - before;
}

static inline void baton__epoch_complete(baton__stepper_t *stepper,
                                         baton_schedule_t *schedule,
                                         uint32_t node)
{
    uint32_t before = schedule->run.waited;
    baton__run_complete(&schedule->run, node);
    stepper->waited += schedule->run.waited - before;
}

static inline void baton__epoch_skip(baton__stepper_t *stepper,
                                     baton_schedule_t *schedule, uint32_t node)
{
    uint32_t before = schedule->run.waited;
    baton__run_skip(&schedule->run, node);
    stepper->waited += schedule->run.waited - before;
}

/* Fails the epoch at a node; the error message so far says why. */
void baton__epoch_fail_at(baton__stepper_t *stepper, baton_schedule_t *schedule,
                          uint32_t node, baton_status_t status);

/* A failure of a peer that this rank had not got to yet, and has now. */
void baton__epoch_fail_if_due(baton__stepper_t *stepper,
                              baton_schedule_t *schedule);

/* A failed schedule comes to rest once nothing of it moves: from here on its
   memory is the caller's. */
void baton__epoch_settle(baton__stepper_t *stepper, baton_schedule_t *schedule);

/* Something of a failed schedule has come to its end. */
void baton__epoch_end_draining(baton__stepper_t *stepper,
                               baton_schedule_t *schedule, uint32_t node);

/* ---- issue.c ---------------------------------------------------------- */

/* Issues up to `nodes` nodes that are ready, until one fails the epoch or has
   to wait for another step. */
void baton__epoch_issue(baton__stepper_t *stepper, baton_schedule_t *schedule,
                        uint32_t nodes);

/* Whether memory is bound to what the node works on, `bytes` of it; else the
   epoch fails. */
bool baton__epoch_has_memory(baton__stepper_t *stepper,
                             baton_schedule_t *schedule, uint32_t node,
                             size_t bytes);

/* Whether an async node that was begun has not been completed elsewhere. */
static inline bool baton__epoch_is_open(const baton_schedule_t *schedule,
                                        uint32_t node)
{
    const baton__async_t *async =
        &schedule->run.asyncs[schedule->ops[node].async.ordinal];
    return baton__async_what(atomic_load_explicit(
               &async->state, memory_order_relaxed)) == BATON__ASYNC_BEGUN;
}

/* ---- arrive.c --------------------------------------------------------- */

/* A receive fires: false when that failed the epoch. */
bool baton__epoch_fire_receive(baton__stepper_t *stepper,
                               baton_schedule_t *schedule, uint32_t node);

/* A send fires, and its peer has not committed the schedule; likewise. */
bool baton__epoch_hold_send(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, uint32_t node);

/* The message of this epoch that came for a receive before it, taken out of
   those; NULL. */
baton_message_t *baton__epoch_find_early(baton__run_t *run, uint32_t ordinal);

/* An activation counts for an armed receive. */
void baton__epoch_activate(baton_schedule_t *schedule, uint32_t node,
                           baton_message_t *message);

#endif
