/* The ledger of one system on one rank: what was contributed, what came out, so
   that every result can be checked to the last contribution.

   A contribution is a line (common/linear_model.h), and so is a sum of them:

   - a result that was torn or misplaced is not a line: seen at once, with the
     element;
   - which contributions are in a result is decided by two 64-bit numbers; two
     different sets of them agree by a chance of about 2^-128.

   A partial collective takes what is pending as a whole, so what it took from a
   rank in iteration i is a range of that rank's iterations: from the oldest one
   that was pending after i - 1 up to the last before the oldest one that is
   pending after i. Each rank sees its own pending sum after each iteration
   (skew_ledger_record); once the ranks have told each other where theirs begin,
   every result has one possible value (skew_ledger_audit). That the results
   plus what is pending at the end equal the sum of all contributions follows:
   the ranges of a rank follow each other without a gap.

   All of it happens outside the measured time. */
#ifndef MICROBENCH_SKEW_LEDGER_H
#define MICROBENCH_SKEW_LEDGER_H

#include "common/linear_model.h"
#include <stdbool.h>

/* What a system returned from one call. */
typedef struct skew_outcome {
    uint64_t epoch; /* one a call, so the iteration */
    const uint64_t *data;
    bool included;
    uint32_t active; /* ranks of which anything is in the data */
    uint64_t staleness;
} skew_outcome_t;

typedef struct skew_entry {
    line_t result;
    uint32_t pending_from; /* oldest iteration that no call has taken yet; the
                              next one when nothing is pending */
    uint32_t active;
} skew_entry_t;

typedef struct skew_ledger {
    uint64_t salt;
    int rank;
    int ranks;
    size_t count; /* elements */
    uint32_t iterations;
    bool synchronous;      /* every call must include every rank */
    skew_entry_t *entries; /* [iterations], the caller's */
    uint32_t failed_at;    /* iteration of the first failure; 0: none */
    char failure[192];     /* what it was */
} skew_ledger_t;

/* Enters what this rank got in `iteration`, and what is pending here then
   (NULL: nothing). Checks all that one rank can tell. */
void skew_ledger_record(skew_ledger_t *ledger, uint32_t iteration,
                        const skew_outcome_t *outcome, const uint64_t *pending);

/* Checks every result against the ranges that the ranks' entries say it must
   hold. `pending_from`: [ranks][iterations], of all ranks. */
void skew_ledger_audit(skew_ledger_t *ledger, const uint32_t *pending_from);

/* Enters a failure in `iteration`; the earliest one is kept. */
void skew_ledger_fail(skew_ledger_t *ledger, uint32_t iteration,
                      const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* How many ranks' contributions of this very iteration are in its result: the
   number of active processes of the paper. (The outcome's `active` counts the
   late ones with what they left pending, too.) */
uint32_t skew_ledger_active(const skew_ledger_t *ledger,
                            const uint32_t *pending_from, uint32_t iteration);

#endif
