/* The law of conservation: each contribution is in exactly one result, or is
   left over, in no result.

   The vectors of partial all-reduces tell what a result contains. A result has
   two elements for each rank: how many of the rank's contributions are in the
   result, and the sum of the ordinals of these contributions, which are
   consecutive. The first element of the vector is the sum of random values. So
   every single result can be checked: the values, `included`, `active`,
   `staleness`, and that no contribution is in two results. */
#pragma once

#include "support/collective.h"

/* ---- the account of one rank ------------------------------------------- */

enum {
    CONSERVE_RANKS = 17,
    CONSERVE_GIVEN = 4096,
    CONSERVE_MOST = 3001 /* the most elements of a vector */
};

/* The number of elements of a vector for `ranks` ranks. */
#define CONSERVE_COUNT(ranks) (1 + 2 * (size_t)(ranks))

typedef struct conserve_account {
    uint64_t seed;
    int rank, size;
    bool sees_all;  /* this rank gets the result of every epoch */
    uint64_t epoch; /* the epoch of the rank's last result */
    /* Ordinals number a rank's contributions from 1. given: the ordinal of this
       rank's last contribution. taken: for each rank, the ordinal of its last
       contribution that was in a result. */
    uint64_t given, taken[CONSERVE_RANKS];
    /* For each ordinal, the step in which this rank made the contribution. */
    uint64_t steps[CONSERVE_GIVEN + 1];
} conserve_account_t;

/* Writes the rank's next contribution to `vector`, and notes the step for which
   the rank makes it. */
void conserve_give(conserve_account_t *account, uint64_t step, double *vector);

/* Checks the result that the rank has got at the end of a step. Returns NULL,
   or a text that says what is wrong. A step in a stream only gets the vector of
   a result. After such a step sets the other fields of the result in
   own->seen. */
const char *conserve_check(conserve_account_t *account, uint64_t step,
                           support_collective_t *own, const double *result);

/* conserve_check_pending checks the contributions that are pending at the end.
   conserve_recover adapts the account to a recovery, after which steps count
   from 1 again. */
const char *conserve_check_pending(conserve_account_t *account,
                                   const double *pending);
void conserve_recover(conserve_account_t *account);

/* ---- ranks that are threads or processes ------------------------------- */

typedef struct conserve_options {
    support_row_t row;
    /* The options of the collective. For rows of support_is_partial
       conserve_run sets `count`, which depends on the number of ranks. */
    baton_sparse_options_t options;
    uint64_t seed, steps;
    /* The longest sleep in us. A rank sleeps before a quarter of its steps, and
       after the start of another quarter. */
    uint64_t sleep_us;
    /* The number of times that the collective is made to fail before the first
       step. The group recovers after each of these failures. */
    uint64_t failures;
} conserve_options_t;

/* The totals of one rank: exact sums of weighted elements. */
typedef struct conserve_totals {
    double given, left;
    /* The two values are equal on all ranks, unless the row lets ranks miss
       results. */
    double results, hash;
} conserve_totals_t;

/* Runs one rank through all steps, at a random pace. Returns NULL or an error
   message, which is valid until this thread's next call. */
const char *conserve_run(baton_group_t *group,
                         const conserve_options_t *options,
                         conserve_totals_t *out);

/* Compares the totals of all ranks. Returns NULL if they agree and add up.
   Otherwise returns an error message. */
const char *conserve_compare(support_row_t row, const conserve_totals_t *totals,
                             int ranks);
