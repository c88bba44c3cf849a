/* The conservation law of partial all-reduces, checked exactly: every
   contribution is in the result of one epoch, or still pending.

   Elements are u64, and sums wrap: element 0 has the sum of the contributions'
   values, which only a rank and a step have; element 1 + r how many of rank r's
   there are. So a result tells exactly what is in it. It is recorded in every
   epoch, seen by the application or not, by a call node behind the inner
   all-reduce. For ranks that are threads, and for ranks that are processes. */
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

/* What a rank brings to the comparison with the others. */
typedef struct conserve_totals {
    uint64_t contributed; /* sum of the values */
    uint64_t pending;     /* likewise */
    uint64_t results;     /* likewise; the same on all ranks */
    uint64_t hash;        /* of all bytes of all results; the same */
} conserve_totals_t;

/* Runs one rank through all steps, and checks included, active, staleness and
   what each result consists of. NULL when all is right, else a sentence, valid
   until this thread's next call. One run at a time in a process. */
const char *conserve_run(baton_group_t *group,
                         const conserve_options_t *options,
                         conserve_totals_t *out);

/* Of the ranks' totals: NULL when nothing was lost. */
const char *conserve_compare(const conserve_totals_t *totals, int ranks);

#endif
