/* The account of one system's contributions and results on one rank. It checks
   every result down to single contributions.

   A contribution is a linear model, and so is a sum of contributions. So a torn
   or misplaced result fits no model: it is detected at once, and the message
   names the element. And two 64-bit numbers determine which contributions a
   result contains: two different sets of contributions agree with a probability
   of about 2^-128.

   A partial collective takes a rank's whole pending sum. So the contributions
   taken in iteration i are a range of the rank's iterations, which ends where
   the range of iteration i + 1 begins; `staleness` tells where
   (skew_account_record). After the ranks have exchanged where their ranges
   begin, every result except the last one has a single possible value
   (skew_account_audit).

   All of this happens outside the measured time. */
#pragma once

#include "common/splitmix.h"
#include <baton/baton.h>

/* ---- contributions ------------------------------------------------------ */

/* A contribution is a linear model of its elements: element j is base + j *
   slope modulo 2^64, where base and slope are hashes of the rank and the
   iteration. A sum of linear models is a linear model. */
typedef struct linear_model {
    uint64_t base;
    uint64_t slope;
} linear_model_t;

/* Returns the contribution of `rank` in `iteration`. Iterations are numbered
   from 1. Runs with a different `salt` have different contributions. */
static inline linear_model_t linear_model_of(uint64_t salt, int rank,
                                             uint32_t iteration)
{
    uint64_t key = (uint64_t)(uint32_t)rank << 32 | iteration;
    uint64_t base = splitmix(salt ^ splitmix(key));
    return (linear_model_t){.base = base, .slope = splitmix(base)};
}

static inline linear_model_t linear_model_add(linear_model_t a,
                                              linear_model_t b)
{
    return (linear_model_t){a.base + b.base, a.slope + b.slope};
}

static inline uint64_t linear_model_at(linear_model_t model, size_t element)
{
    return model.base + element * model.slope;
}

static inline void linear_model_fill(linear_model_t model, uint64_t *data,
                                     size_t count)
{
    for (size_t j = 0; j < count; j++) {
        data[j] = linear_model_at(model, j);
    }
}

/* Returns the first element that the model does not fit. Returns `count` if it
   fits all. */
static inline size_t linear_model_find_mismatch(linear_model_t model,
                                                const uint64_t *data,
                                                size_t count)
{
    size_t j = 0;
    while (j < count && data[j] == linear_model_at(model, j)) {
        j++;
    }
    return j;
}

/* ---- the account -------------------------------------------------------- */

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
    /* Each result must include the contributions of all ranks. */
    bool synchronous;
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
