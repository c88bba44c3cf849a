/* One iteration of progress, which drivers repeat: the engine's, and that of a
   simulated engine.

       drain the mailbox -> turns: issue ready nodes -> notices -> poll
             ^                                                      |
             +---- completions and arrivals make schedules runnable +

   No thread, clock or wait in here: the caller decides when to step. One thread
   at a time steps a stepper; mail may come from any. */
#pragma once

#include "progress/stepper.h"

/* Steps once, computing and copying about `bytes` at most. True if anything
   happened. */
bool baton__step(baton__stepper_t *stepper, size_t bytes);

/* The part of a step that a start does itself: takes the mail, does what is
   asked of one schedule, as if it were mailed, and issues up to `nodes` nodes
   of it. */
void baton__step_start(baton_schedule_t *schedule, uint32_t nodes,
                       size_t bytes);

/* Puts a schedule in the mailbox, because it was started or cancelled, its
   limit was raised, or an async node has completed. Any thread. A schedule is
   in it at most once, so it never fills. */
void baton__step_mail(baton_schedule_t *schedule);

static inline bool baton__step_has_mail(baton__stepper_t *stepper)
{
    /* Pairs with the push in baton__step_mail: see stop_driving(), engine.c. */
    return atomic_load_explicit(&stepper->mail, memory_order_seq_cst) != NULL;
}

/* True if the caller should step again at once: a schedule is runnable. */
static inline bool baton__step_is_due(const baton__stepper_t *stepper)
{
    return stepper->runnable_head != NULL;
}

/* Adds a schedule that was created, and marks it as committed; removes it,
   which must not be while anything of it is in motion. */
void baton__step_attach(baton_schedule_t *schedule);
void baton__step_commit(baton_schedule_t *schedule);
void baton__step_detach(baton_schedule_t *schedule);

/* A group that shares its root's endpoint is new: it learns what the root knows
   of it, which ranks are lost, and what peers have sent that made theirs
   before. */
void baton__step_adopt(baton_group_t *group);
