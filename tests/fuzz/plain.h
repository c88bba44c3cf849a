/* Plain schedules: every rank takes part in every epoch. Checked are their
   results, and that no epoch ends before it may. */
#ifndef MICROBENCH_FUZZ_PLAIN_H
#define MICROBENCH_FUZZ_PLAIN_H

#include "fuzz/values.h"
#include "fuzz/world.h"

enum {
    FUZZ_HOPS = 2,  /* branch: ranks on either side */
    FUZZ_WORDS = 64 /* lengths: the longest message */
};

/* An async node that was begun. */
typedef struct fuzz_begun fuzz_begun_t;

struct fuzz_part {
    baton_schedule_t *schedule;
    char *source;
    char *target;
    /* A quorum: the step's number (fuzz_number) as it is sent to the root, and
       sent back; at the root, what each rank has sent last. Branch, async: as
       it is sent to the next rank, and what came from the one before. */
    uint64_t number;
    uint64_t answer;
    uint64_t *heard;
    uint64_t alarmed;    /* the last epoch in which an alarm came, */
    uint32_t alarm_life; /* in this life */
    uint64_t *values;    /* what the target must hold */
    bool cancelled;      /* this step's epoch, perhaps too late */
    /* Branch: what has come, by distance, and its copy when the epoch ended. */
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
    uint32_t open;       /* that have not completed */
    uint32_t recoveries; /* that its schedule was told of */
};

/* A kind's builder; fill puts the next step's data in place, judge looks at
   what came out. */
typedef struct fuzz_plain {
    void (*build)(baton_schedule_t *schedule, fuzz_seat_t *seat);
    void (*fill)(fuzz_seat_t *seat);
    void (*judge)(fuzz_seat_t *seat);
    void (*on_recover)(fuzz_seat_t *seat); /* may be NULL */
    bool upsets; /* has a node that fails when it is upset */
} fuzz_plain_t;

/* By kind; a partial all-reduce is none. */
extern const fuzz_plain_t *const fuzz_plains[FUZZ_KIND_COUNT];

/* All memory of a new buffer. */
baton_view_t fuzz_bind(baton_schedule_t *schedule, void *memory, size_t bytes);

/* Those of epochs.c. */
extern const fuzz_plain_t fuzz_branch, fuzz_lengths, fuzz_async;

/* Completes what is still begun, and frees it. */
void fuzz_async_close(fuzz_part_t *part);

#endif
