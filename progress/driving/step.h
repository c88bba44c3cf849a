/* One iteration of progress, which the driver of an engine, simulated or not,
   repeats.

       drain the mailbox -> issue ready nodes -> poll -> notices
             ^                                    |
             +-- events make schedules runnable --+

   This file has no thread, clock or wait: the caller decides when to step. Any
   thread may send mail. */
#pragma once

#include "progress/state/stepper.h"

/* Makes one step, which computes and copies about `bytes` bytes at most.
   Returns true if anything happened. */
bool baton__step(baton__stepper_t *stepper, size_t bytes);

/* The part of a step that a start does itself: takes the mail, handles the
   requests for one schedule, as if it had been mailed, and issues up to `nodes`
   of its nodes. */
void baton__step_start(baton_schedule_t *schedule, uint32_t nodes,
                       size_t bytes);

/* Puts a schedule in the mailbox, because it was started or cancelled, its
   limit was raised, or an async node has completed. Any thread. A schedule is
   in the mailbox at most once, so the mailbox never fills. */
void baton__step_mail(baton_schedule_t *schedule);

static inline bool baton__step_has_mail(baton__stepper_t *stepper)
{
    /* Pairs with the push in baton__step_mail: see stop_driving(), engine.c. */
    return atomic_load_explicit(&stepper->mail, memory_order_seq_cst) != NULL;
}

/* True if the caller should step again at once: a schedule is runnable, or the
   next poll that brings no event fails an epoch in which a message has failed
   (baton__epoch_end_doubts). */
static inline bool baton__step_is_due(const baton__stepper_t *stepper)
{
    return stepper->runnable_head != NULL || stepper->doubts;
}

/* Adds a schedule that was created to the stepper's uncommitted ones. */
void baton__step_attach(baton_schedule_t *schedule);
/* Moves a schedule that was committed to the list of the schedules that are
   stepped. */
void baton__step_commit(baton_schedule_t *schedule);
/* Removes a schedule. None of its nodes may be in motion, unless it was
   abandoned. */
void baton__step_detach(baton_schedule_t *schedule);

/* Prepares a new group that shares its root's endpoint: passes on to the group
   which ranks the root knows to be lost, and the notices that peers sent to the
   group before it was created here. */
void baton__step_adopt(baton_group_t *group);
