/* The conservation law: what is given is in one result, or is left over.

   The vectors of partial all-reduces are made so that results tell what they
   consist of. For each rank a result has the number of its contributions in it,
   and the sum of their ordinals, which are consecutive; its first element is
   the sum of random values. So every result is checked by itself: the values,
   `included`, `active`, `staleness`, and that no contribution is in two. */
#pragma once

#include "support/collective.h"

/* ---- the account of one rank ------------------------------------------- */

enum {
    CONSERVE_RANKS = 17,
    CONSERVE_GIVEN = 4096,
    CONSERVE_MOST = 3001 /* elements */
};

/* Elements of a vector of so many ranks. */
#define CONSERVE_COUNT(ranks) (1 + 2 * (size_t)(ranks))

typedef struct conserve_account {
    uint64_t seed;
    int rank, size;
    bool sees_all;                         /* each epoch's result */
    uint64_t epoch;                        /* of the last result */
    uint64_t given, taken[CONSERVE_RANKS]; /* the last ones' ordinals, from 1 */
    uint64_t steps[CONSERVE_GIVEN + 1];    /* of this rank's contributions */
} conserve_account_t;

/* Writes the rank's next contribution, of a step. */
void conserve_give(conserve_account_t *account, uint64_t step, double *vector);

/* Returns NULL, or what is wrong with the result that the rank has got at the
   end of a step. What a stream is not told is written to own->seen. */
const char *conserve_check(conserve_account_t *account, uint64_t step,
                           support_collective_t *own, const double *result);

/* The same of what is pending at the end; and after a recovery, of step 1. */
const char *conserve_check_pending(conserve_account_t *account,
                                   const double *pending);
void conserve_recover(conserve_account_t *account);

/* ---- ranks that are threads or processes ------------------------------- */

typedef struct conserve_options {
    support_row_t row;
    baton_sparse_options_t options; /* count is set where it has to be */
    uint64_t seed, steps;
    uint64_t sleep_us; /* longest; a quarter of the steps sleep */
    uint64_t failures; /* of a sparse one, each followed by a recovery, ahead
                          of the steps */
} conserve_options_t;

/* A rank's totals, exact sums over weighted elements. */
typedef struct conserve_totals {
    double given, left;
    double results, hash; /* equal on all ranks, unless they miss results */
} conserve_totals_t;

/* Runs one rank through all steps, at random paces. Returns NULL, or a message
   that is valid until this thread's next call. */
const char *conserve_run(baton_group_t *group,
                         const conserve_options_t *options,
                         conserve_totals_t *out);

/* Returns NULL when the totals of all ranks agree and add up, or a message. */
const char *conserve_compare(support_row_t row, const conserve_totals_t *totals,
                             int ranks);
