/* The conservation law of partial all-reduces (Lemma 6.1 of Li et al. 2020),
   checked in a simulated cluster with faults and recoveries. An account of
   contributions says which rank made which, and which epoch took it. Call nodes
   record both ends of the inner all-reduce:

       take --> copy --> enter --> inner --> copy --> leave --> publish

   safety       what enters is exactly what the rank had pending; what leaves is
                the reduction of all that entered, the same bits on every rank;
                `included` and `active` are right
   quorum       nothing enters on a rank that has not started, and no result
                is returned, before those have arrived who must
   staleness    is what partial.h says, less than 2P with MAJORITY, at most W
                with KEEP_ALL, 0 with FULL
   recovery     what a failed epoch had taken is pending again, unless a rank
   has completed the epoch */
#ifndef TESTS_FUZZ_PARTIAL_CHECK_H
#define TESTS_FUZZ_PARTIAL_CHECK_H

#include "fuzz/cluster.h"
#include "fuzz/values.h"

/* A contribution, made for a step and taken by an epoch. */
typedef struct fuzz_contribution {
    uint32_t step;
    uint32_t epoch; /* 0: pending */
} fuzz_contribution_t;

struct fuzz_state {
    baton_partial_t *partial;
    uint64_t *pending; /* sum of what no epoch has taken */
    uint64_t *values;  /* of one contribution */
    char *elements;    /* the same as elements */
    char *entering;    /* copies, with the count of active ranks */
    char *leaving;
    fuzz_contribution_t *contributions;
    uint32_t made;        /* contributions so far */
    uint32_t contributed; /* in this incarnation, or pending at its begin */
    uint32_t taken;       /* how many of these, oldest first, are taken */
    uint32_t incarnation; /* of which all this is recorded */
    uint32_t entered;     /* epochs */
    uint32_t left;
    uint64_t *took;      /* what the last epoch that entered took */
    uint64_t seen;       /* the latest epoch whose result was returned */
    const void *held;    /* the last result */
    uint64_t held_epoch; /* its epoch */
    const char *held_as; /* its expected bytes */
};

/* An epoch, over all ranks. */
typedef struct fuzz_epoch {
    uint64_t *expected;
    char *result; /* NULL until it has left on some rank */
    int entered;
    uint32_t active;
} fuzz_epoch_t;

struct fuzz_account {
    fuzz_epoch_t *epochs;  /* by incarnation and epoch, from 1 */
    uint64_t *contributed; /* sum of all contributions */
};

/* The task whose schedules are being built. The builder of an inner all-reduce
   has no argument, so it reads this. */
extern fuzz_task_t *fuzz_partial_building;

/* The record of an epoch of an incarnation. */
static inline fuzz_epoch_t *fuzz_epoch_of(const fuzz_task_t *task,
                                          uint32_t incarnation, uint64_t epoch)
{
    return &task->account
                ->epochs[incarnation * ((uint64_t)task->plan->steps + 1) +
                         epoch];
}

/* Closes the records of the incarnations that the rank has left since the last
 * call. */
void fuzz_partial_catch_up(fuzz_participant_t *participant);

/* The inner builder: the task's algorithm between two recording call nodes. */
void fuzz_partial_inner(baton_schedule_t *schedule,
                        const baton_allreduce_t *args);

/* Checks the result that the rank's last wait returned. */
void fuzz_partial_check_result(fuzz_participant_t *participant,
                               const baton_partial_result_t *seen);

/* Checks that the last result has not changed since. */
void fuzz_partial_check_held(fuzz_participant_t *participant);

#endif
