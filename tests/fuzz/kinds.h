/* Kinds of plain schedules, in which every rank takes part in every epoch.
   Their results are checked, and that no epoch ends too early. */
#ifndef TESTS_FUZZ_KINDS_H
#define TESTS_FUZZ_KINDS_H

#include "fuzz/cluster.h"
#include "fuzz/values.h"

enum {
    FUZZ_HOPS = 2,  /* branch: ranks on either side */
    FUZZ_WORDS = 64 /* lengths: the longest message */
};

/* An operation that an async node has begun. */
typedef struct fuzz_begun fuzz_begun_t;

struct fuzz_state {
    baton_schedule_t *schedule;
    char *source;
    char *target;
    /* Quorum: the step's number (fuzz_number) as sent to the root, and as sent
       back; at the root, the last number of each rank. Branch, async: the
       number sent to the next rank, and the one from the previous rank. */
    uint64_t number;
    uint64_t answer;
    uint64_t *received;
    /* Alarm: the last epoch with an alarm, and its incarnation. */
    uint64_t alarmed;
    uint32_t alarm_incarnation;
    uint64_t *values; /* the values that the target must hold */
    bool cancelled;   /* a cancel of this step was tried, perhaps too late */
    /* Branch: messages by distance, and their copies when the epoch ended. */
    uint64_t inbox[FUZZ_HOPS];
    uint64_t copied[FUZZ_HOPS];
    uint64_t last_inbox[FUZZ_HOPS];
    /* Lengths. */
    baton_length_t own_length;
    baton_length_t lengths[FUZZ_HOPS];
    uint64_t out[FUZZ_WORDS];
    uint64_t added[FUZZ_WORDS];
    uint64_t middle[FUZZ_WORDS];
    uint64_t in[FUZZ_HOPS][FUZZ_WORDS];
    uint64_t end[FUZZ_WORDS];
    /* Async. */
    fuzz_begun_t *begun; /* all so far, newest first */
    uint32_t open;       /* begun operations that have not completed */
    uint32_t recoveries; /* calls of on_recover */
};

/* A kind of plain schedule. */
typedef struct fuzz_plain {
    void (*build)(baton_schedule_t *schedule, fuzz_participant_t *participant);
    /* Puts the data of the next step in place. */
    void (*fill)(fuzz_participant_t *participant);
    /* Checks the result of the step. */
    void (*check)(fuzz_participant_t *participant);
    void (*on_recover)(fuzz_participant_t *participant); /* may be NULL */
    void (*close)(fuzz_state_t *state);                  /* may be NULL */
    bool has_injection; /* one of its own nodes can be made to fail */
} fuzz_plain_t;

extern const fuzz_plain_t fuzz_allreduce, fuzz_broadcast, fuzz_barrier,
    fuzz_quorum, fuzz_alarm, fuzz_local; /* kinds_fixed.c */
extern const fuzz_plain_t fuzz_branch, fuzz_lengths, fuzz_async; /* _dynamic */

/* A view of all of a new buffer. */
static inline baton_view_t fuzz_bind(baton_schedule_t *schedule, void *memory,
                                     size_t bytes)
{
    return baton_view(baton_buffer_bind(schedule, memory, bytes), 0, bytes);
}

#endif
