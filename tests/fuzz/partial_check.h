/* What a partial all-reduce is checked by: a record of who contributed what,
   what each epoch took and what came out. (Lemma 6.1 of Li et al. 2020; papers:
   eager-sgd.) The inner all-reduce is watched at both ends:

       take --> copy --> enter --> inner --> copy --> leave --> publish

   safety       what enters is exactly what the rank had pending; what leaves is
                the reduction of all that entered, the same bits on every rank;
                `included` and `active` are right
   quorum       nothing enters before those who must have arrived
   staleness    is what partial.h says, less than 2P with MAJORITY, at most W
                with KEEP_ALL, 0 with FULL
   recovery     what a failed epoch had taken is pending again, unless a rank
   has completed the epoch */
#ifndef TESTS_FUZZ_PARTIAL_CHECK_H
#define TESTS_FUZZ_PARTIAL_CHECK_H

#include "fuzz/cluster.h"
#include "fuzz/values.h"

/* A contribution: the step that it was made for, the epoch that took it. */
typedef struct fuzz_contribution {
    uint32_t step;
    uint32_t epoch; /* 0: pending */
} fuzz_contribution_t;

struct fuzz_state {
    baton_partial_t *partial;
    uint64_t *pending; /* what no epoch has taken */
    uint64_t *values;  /* of one contribution, */
    char *elements;    /* and as elements */
    char *entering;    /* copies, with room for the count that rides */
    char *leaving;
    fuzz_contribution_t *contributions;
    uint32_t made; /* contributions so far */
    uint32_t
        contributed; /* in this incarnation, or before and still pending then */
    uint32_t taken;  /* of those contributed, the first ones */
    uint32_t incarnation; /* that this is the record of */
    uint32_t entered;     /* epochs */
    uint32_t left;
    uint64_t *took;      /* by the last epoch that entered */
    uint64_t seen;       /* the latest epoch whose result was returned */
    const void *held;    /* the last result, */
    uint64_t held_epoch; /* of this epoch, */
    const char *held_as; /* and what it is to be */
};

/* An epoch, over all ranks. */
typedef struct fuzz_epoch {
    uint64_t *expected;
    char *result; /* NULL: it has not left anywhere */
    int entered;
    uint32_t active;
} fuzz_epoch_t;

struct fuzz_account {
    fuzz_epoch_t *epochs;  /* by incarnation and epoch, from 1 */
    uint64_t *contributed; /* all contributions */
};

/* The task whose schedules are being built: the builder of an all-reduce has no
   argument of its own. */
extern fuzz_task_t *fuzz_partial_building;

/* The record of an epoch in a incarnation. */
static inline fuzz_epoch_t *fuzz_epoch_of(const fuzz_task_t *task,
                                          uint32_t incarnation, uint64_t epoch)
{
    return &task->account
                ->epochs[incarnation * ((uint64_t)task->plan->steps + 1) +
                         epoch];
}

/* Goes on to the record of the rank's incarnation. */
void fuzz_partial_catch_up(fuzz_participant_t *participant);

/* The inner builder: the task's own, watched. */
void fuzz_partial_inner(baton_schedule_t *schedule,
                        const baton_allreduce_t *args);

/* What the rank was told in its last wait. */
void fuzz_partial_check_result(fuzz_participant_t *participant,
                               const baton_partial_result_t *seen);

/* That the last result is still what it was. */
void fuzz_partial_check_held(fuzz_participant_t *participant);

#endif
