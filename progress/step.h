/* One iteration of progress: what the engine's driver repeats, and what any
   other driver of schedules calls.

       drain the mailbox -> issue ready nodes -> poll the transports
             ^                                          |
             +------- completions make nodes ready <----+

   No thread, clock or wait in here: the caller decides when to step. One thread
   at a time steps a stepper; mail may come from any. */
#ifndef BATON_PROGRESS_STEP_H
#define BATON_PROGRESS_STEP_H

#include "sched/schedule.h"

typedef struct baton__stepper {
    baton_group_t *groups;
    baton_schedule_t *runnable_head;
    baton_schedule_t *runnable_tail;
    uint32_t waited;   /* messages in flight that some epoch waits for */
    uint32_t running;  /* epochs that have begun and not ended */
    size_t bytes_left; /* computing that this step may still do */
    _Atomic(baton_schedule_t *) mail; /* newest first */
    baton_schedule_t *schedules;      /* committed */
    /* Simulated: whether the rank is at work until later. Its epochs end then.
       NULL: computing takes the time that it takes. */
    bool (*is_busy)(const baton_schedule_t *schedule);
    /* An epoch has begun; it has ended: wake who waits. NULL: nobody cares. */
    void (*on_begin)(baton_schedule_t *schedule);
    void (*on_end)(baton_schedule_t *schedule);
} baton__stepper_t;

/* Steps once; at most about `bytes` of operands are computed on, SIZE_MAX: no
   bound. True when anything happened. */
bool baton__step(baton__stepper_t *stepper, size_t bytes);

/* Puts a schedule in the mailbox: it is due to start, to be cancelled, or its
   limit was raised. Any thread; a schedule is in it once at most, so it never
   fills. */
void baton__step_mail(baton__stepper_t *stepper, baton_schedule_t *schedule);

static inline bool baton__step_has_mail(baton__stepper_t *stepper)
{
    /* Pairs with the push in baton__step_mail: see baton__engine_leave. */
    return atomic_load_explicit(&stepper->mail, memory_order_seq_cst) != NULL;
}

/* Takes in a schedule after its commit, and posts its armed receives; takes it
   out again: not while anything of it is in flight. */
baton_status_t baton__step_add(baton__stepper_t *stepper,
                               baton_schedule_t *schedule);
void baton__step_remove(baton__stepper_t *stepper, baton_schedule_t *schedule);

/* Takes a schedule from the mailbox and from those that have a turn. Only where
   one thread has both: in a simulation. */
void baton__step_forget(baton__stepper_t *stepper,
                        const baton_schedule_t *schedule);

/* Ends the running epoch with an error; the thread's error message is kept for
   who waits. Without an epoch it withdraws the armed receives. */
void baton__step_fail(baton__stepper_t *stepper, baton_schedule_t *schedule,
                      baton_status_t status);

#endif
