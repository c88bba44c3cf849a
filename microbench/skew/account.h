/* The account of one system's contributions and results on one rank. It checks
   every result down to single contributions.

   A contribution is a linear model (skew/linear_model.h), and so is a sum of
   contributions. So a torn or misplaced result fits no model: it is detected at
   once, and the message names the element. And two 64-bit numbers determine
   which contributions a result contains: two different sets of contributions
   agree with a probability of about 2^-128.

   A partial collective takes a rank's whole pending sum. So the contributions
   taken in iteration i are a range of the rank's iterations, which ends where
   the range of iteration i + 1 begins; `staleness` tells where
   (skew_account_record). After the ranks have exchanged where their ranges
   begin, every result except the last one has a single possible value
   (skew_account_audit).

   All of this happens outside the measured time. */
#ifndef MICROBENCH_SKEW_ACCOUNT_H
#define MICROBENCH_SKEW_ACCOUNT_H

#include "skew/linear_model.h"
#include <baton/baton.h>
#include <stdbool.h>

typedef struct skew_entry {
    linear_model_t result;
    /* The oldest iteration whose contribution no earlier call has taken. */
    uint32_t from;
    uint32_t active;
    bool included;
} skew_entry_t;

typedef struct skew_account {
    uint64_t salt;
    int rank;
    int ranks;
    size_t count; /* number of elements of a contribution */
    uint32_t iterations;
    bool synchronous;      /* each call must include all ranks */
    skew_entry_t *entries; /* an array of [iterations], which the caller owns */
    uint32_t failed_at;    /* the iteration of the first failure, or 0 */
    char failure[192];     /* the message of the first failure */
} skew_account_t;

/* Records this rank's result of `iteration`. Also makes the checks that a rank
   can make alone. The number of the result's epoch must be `iteration`. */
void skew_account_record(skew_account_t *account, uint32_t iteration,
                         const baton_partial_result_t *outcome);

/* Checks every result except the last one against the ranges that all ranks
   have recorded. `from` is an array of [ranks][iterations]. */
void skew_account_audit(skew_account_t *account, const uint32_t *from);

/* Records a failure in `iteration`. Only the earliest failure is kept. */
void skew_account_fail(skew_account_t *account, uint32_t iteration,
                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the number of ranks that have their contribution of this iteration in
   the iteration's result; the paper calls it the number of active processes.
   `iteration` must not be the last one. The field `active` of an outcome
   differs: it also counts ranks that have only older contributions in the
   result. */
uint32_t skew_account_active(const skew_account_t *account,
                             const uint32_t *from, uint32_t iteration);

#endif
