/* The conservation law of partial all-reduces, checked exactly: every
   contribution is in the result of one epoch, or still pending.

   Elements are u64, and sums wrap. Element 0 is the sum of the contributions'
   values, which are unique to a rank and a step; element 1 + r counts rank r's
   contributions. So a result tells which contributions it consists of. A call
   node behind the inner all-reduce records the result of every epoch, whether
   or not the application sees it. Ranks may be threads or processes. */
#ifndef TESTS_SUPPORT_CONSERVE_H
#define TESTS_SUPPORT_CONSERVE_H

#include <baton/baton.h>

#define CONSERVE_RANKS 16

typedef struct conserve_options {
    baton_partial_mode_t mode;
    baton_keep_t keep;
    baton_allreduce_fn inner;
    uint64_t seed;
    uint64_t steps;
    uint64_t sleep_us; /* longest; a quarter of the steps sleep */
} conserve_options_t;

/* A rank's totals, which conserve_compare adds up. */
typedef struct conserve_totals {
    uint64_t contributed; /* sum of the values */
    uint64_t pending;     /* likewise */
    uint64_t results;     /* likewise; equal on all ranks */
    uint64_t hash;        /* of all results; equal on all ranks */
} conserve_totals_t;

/* Runs one rank through all steps, and checks included, active, staleness and
   what each result consists of. Returns NULL, or a message that is
   valid until this thread's next call. One run at a time in a process. */
const char *conserve_run(baton_group_t *group,
                         const conserve_options_t *options,
                         conserve_totals_t *out);

/* Returns NULL when the totals of all ranks agree and add up, or a message. */
const char *conserve_compare(const conserve_totals_t *totals, int ranks);

#endif
