/* Plain schedules: every rank takes part in every epoch. Checked are their
   results, and that no epoch ends before it may. */
#ifndef MICROBENCH_FUZZ_PLAIN_H
#define MICROBENCH_FUZZ_PLAIN_H

#include "fuzz_values.h"
#include "fuzz_world.h"

struct fuzz_part {
    baton_schedule_t *schedule;
    char *source;
    char *target;
    /* A quorum: the epoch's number as it is sent to the root, and sent back; at
       the root, what each rank has sent last. */
    uint64_t number;
    uint64_t answer;
    uint64_t *heard;
    uint64_t alarmed; /* the last epoch in which an alarm came */
    uint64_t *values; /* what the target must hold */
    bool cancelled;   /* this step's epoch, perhaps too late */
};

/* A kind's builder; fill puts the next step's data in place, judge looks at
   what came out. */
typedef struct fuzz_plain {
    void (*build)(baton_schedule_t *schedule, fuzz_seat_t *seat);
    void (*fill)(fuzz_seat_t *seat);
    void (*judge)(fuzz_seat_t *seat);
} fuzz_plain_t;

/* By kind; a partial all-reduce is none. */
extern const fuzz_plain_t fuzz_plains[FUZZ_KIND_COUNT];

#endif
