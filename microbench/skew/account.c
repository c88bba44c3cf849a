#include "skew/account.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- models ----------------------------------------------------------- */

static linear_model_t sum_range(const skew_account_t *account, int rank,
                                uint32_t from, uint32_t to)
{
    linear_model_t sum = {0, 0};
    for (uint32_t i = from; i < to; i++) {
        sum = linear_model_add(sum, linear_model_of(account->salt, rank, i));
    }
    return sum;
}

void skew_account_fail(skew_account_t *account, uint32_t iteration,
                       const char *format, ...)
{
    if (account->failed_at != 0 && account->failed_at <= iteration) {
        return;
    }
    account->failed_at = iteration;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(account->failure, sizeof(account->failure), format, args);
    va_end(args);
}

/* ---- one rank --------------------------------------------------------- */

static void check_flags(skew_account_t *account, uint32_t iteration,
                        const baton_partial_result_t *outcome)
{
    const skew_entry_t *entry = &account->entries[iteration - 1];
    const skew_entry_t *before = iteration > 1 ? entry - 1 : NULL;
    if (outcome->epoch != iteration) {
        skew_account_fail(account, iteration, "the result is of epoch %" PRIu64,
                          outcome->epoch);
    }
    if (account->synchronous && !outcome->included) {
        skew_account_fail(account, iteration,
                          "a synchronous call left a rank out");
    }
    if (iteration - entry->from != outcome->staleness) {
        skew_account_fail(account, iteration,
                          "staleness is %" PRIu64 ", of an iteration that was "
                          "taken before, or of none",
                          outcome->staleness);
    } else if (before != NULL &&
               before->included != (entry->from == iteration)) {
        skew_account_fail(account, iteration - 1,
                          "included is %d, but the pending contributions begin "
                          "with iteration "
                          "%" PRIu32,
                          before->included, entry->from);
    }
}

void skew_account_record(skew_account_t *account, uint32_t iteration,
                         const baton_partial_result_t *outcome)
{
    const uint64_t *data = outcome->data;
    /* The linear model that fits the data's first two elements. If there is a
       single element, any slope fits. */
    linear_model_t result = {data[0],
                             account->count > 1 ? data[1] - data[0] : 0};
    size_t bad = linear_model_find_mismatch(result, data, account->count);
    if (bad < account->count) {
        skew_account_fail(account, iteration,
                          "element %zu of the sum is %#" PRIx64
                          ", but %#" PRIx64
                          " would fit the others: torn or misplaced",
                          bad, data[bad], linear_model_at(result, bad));
    }
    uint32_t before = iteration > 1 ? account->entries[iteration - 2].from : 1;
    account->entries[iteration - 1] = (skew_entry_t){
        .result = result,
        .from = outcome->staleness <= iteration - before
                    ? iteration - (uint32_t)outcome->staleness
                    : iteration,
        .active = outcome->active,
        .included = outcome->included,
    };
    check_flags(account, iteration, outcome);
}

/* ---- all ranks -------------------------------------------------------- */

static const uint32_t *from_of(const skew_account_t *account,
                               const uint32_t *from, int rank,
                               uint32_t iteration)
{
    return &from[(size_t)rank * account->iterations + iteration - 1];
}

static void audit_iteration(skew_account_t *account, const uint32_t *from,
                            uint32_t iteration)
{
    const skew_entry_t *entry = &account->entries[iteration - 1];
    linear_model_t expected = {0, 0};
    uint32_t contributors = 0;
    for (int rank = 0; rank < account->ranks; rank++) {
        const uint32_t *first = from_of(account, from, rank, iteration);
        expected = linear_model_add(
            expected, sum_range(account, rank, first[0], first[1]));
        contributors += first[0] < first[1];
    }
    bool right = entry->result.base == expected.base &&
                 (account->count == 1 || entry->result.slope == expected.slope);
    if (!right) {
        skew_account_fail(account, iteration,
                          "the sum begins with %#" PRIx64 ", expected %#" PRIx64
                          ", and goes on by %#" PRIx64 ", expected %#" PRIx64,
                          entry->result.base, expected.base,
                          entry->result.slope, expected.slope);
    }
    if (entry->active != contributors) {
        skew_account_fail(account, iteration,
                          "active is %" PRIu32 ", but %" PRIu32
                          " ranks are in the sum",
                          entry->active, contributors);
    }
}

void skew_account_audit(skew_account_t *account, const uint32_t *from)
{
    for (uint32_t i = 1; i < account->iterations; i++) {
        audit_iteration(account, from, i);
    }
}

uint32_t skew_account_active(const skew_account_t *account,
                             const uint32_t *from, uint32_t iteration)
{
    uint32_t active = 0;
    for (int rank = 0; rank < account->ranks; rank++) {
        active += *from_of(account, from, rank, iteration + 1) == iteration + 1;
    }
    return active;
}
