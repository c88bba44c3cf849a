#include "skew/account.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- models ----------------------------------------------------------- */

/* The model of the first two elements; a single element fits any slope. */
static linear_model_t read_model(const uint64_t *data, size_t count)
{
    return (linear_model_t){data[0], count > 1 ? data[1] - data[0] : 0};
}

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

/* Finds the oldest pending iteration from the pending sum: the first of this
   rank's last contributions that add up to it. 0 if none do. */
static uint32_t find_oldest(const skew_account_t *account,
                            uint32_t oldest_before, uint32_t iteration,
                            const uint64_t *pending)
{
    linear_model_t sum = {0, 0};
    for (uint32_t i = iteration; i >= oldest_before; i--) {
        sum = linear_model_add(
            sum, linear_model_of(account->salt, account->rank, i));
        if (linear_model_find_mismatch(sum, pending, account->count) ==
            account->count) {
            return i;
        }
    }
    return 0;
}

static uint32_t pending_before(const skew_account_t *account,
                               uint32_t iteration)
{
    return iteration > 1 ? account->entries[iteration - 2].pending_from : 1;
}

static uint32_t check_pending(skew_account_t *account, uint32_t iteration,
                              const uint64_t *pending)
{
    if (pending == NULL) {
        return iteration + 1;
    }
    uint32_t oldest = find_oldest(account, pending_before(account, iteration),
                                  iteration, pending);
    if (oldest == 0) {
        skew_account_fail(
            account, iteration,
            "element 0 of what is pending is %#" PRIx64
            ", the sum of no run of this rank's last contributions",
            pending[0]);
        return iteration + 1; /* so that later iterations can go on */
    }
    return oldest;
}

static void check_flags(skew_account_t *account, uint32_t iteration,
                        const baton_partial_result_t *outcome,
                        uint32_t pending_from)
{
    uint32_t oldest = pending_before(account, iteration);
    bool included = pending_from == iteration + 1;
    if (outcome->epoch != iteration) {
        skew_account_fail(account, iteration, "the result is of epoch %" PRIu64,
                          outcome->epoch);
    }
    if (outcome->included != included) {
        skew_account_fail(
            account, iteration,
            "included is %d, but what is pending begins with iteration "
            "%" PRIu32,
            outcome->included, pending_from);
    }
    if (account->synchronous && !included) {
        skew_account_fail(account, iteration,
                          "a synchronous call left a rank out");
    }
    if (outcome->staleness != iteration - oldest) {
        skew_account_fail(account, iteration,
                          "staleness is %" PRIu64 ", expected %" PRIu32,
                          outcome->staleness, iteration - oldest);
    }
}

void skew_account_record(skew_account_t *account, uint32_t iteration,
                         const baton_partial_result_t *outcome,
                         const uint64_t *pending)
{
    const uint64_t *data = outcome->data;
    linear_model_t result = read_model(data, account->count);
    size_t bad = linear_model_find_mismatch(result, data, account->count);
    if (bad < account->count) {
        skew_account_fail(account, iteration,
                          "element %zu of the sum is %#" PRIx64
                          ", but %#" PRIx64
                          " would fit the others: torn or misplaced",
                          bad, data[bad], linear_model_at(result, bad));
    }
    uint32_t pending_from = check_pending(account, iteration, pending);
    check_flags(account, iteration, outcome, pending_from);
    account->entries[iteration - 1] = (skew_entry_t){
        .result = result,
        .pending_from = pending_from,
        .active = outcome->active,
    };
}

/* ---- all ranks -------------------------------------------------------- */

static uint32_t pending_of(const skew_account_t *account,
                           const uint32_t *pending_from, int rank,
                           uint32_t iteration)
{
    if (iteration == 0) {
        return 1;
    }
    return pending_from[(size_t)rank * account->iterations + iteration - 1];
}

static void audit_sum(skew_account_t *account, uint32_t iteration,
                      linear_model_t expected)
{
    linear_model_t got = account->entries[iteration - 1].result;
    if (got.base != expected.base) {
        skew_account_fail(account, iteration,
                          "element 0 of the sum is %#" PRIx64
                          ", expected %#" PRIx64,
                          got.base, expected.base);
    } else if (account->count > 1 && got.slope != expected.slope) {
        skew_account_fail(
            account, iteration,
            "element 1 of the sum is %#" PRIx64 ", expected %#" PRIx64,
            linear_model_at(got, 1), linear_model_at(expected, 1));
    }
}

static void audit_iteration(skew_account_t *account,
                            const uint32_t *pending_from, uint32_t iteration)
{
    linear_model_t expected = {0, 0};
    uint32_t contributors = 0;
    for (int rank = 0; rank < account->ranks; rank++) {
        uint32_t from = pending_of(account, pending_from, rank, iteration - 1);
        uint32_t to = pending_of(account, pending_from, rank, iteration);
        expected =
            linear_model_add(expected, sum_range(account, rank, from, to));
        contributors += from < to;
    }
    audit_sum(account, iteration, expected);
    uint32_t active = account->entries[iteration - 1].active;
    if (active != contributors) {
        skew_account_fail(account, iteration,
                          "active is %" PRIu32 ", but %" PRIu32
                          " ranks are in the sum",
                          active, contributors);
    }
}

void skew_account_audit(skew_account_t *account, const uint32_t *pending_from)
{
    for (uint32_t i = 1; i <= account->iterations; i++) {
        audit_iteration(account, pending_from, i);
    }
}

uint32_t skew_account_active(const skew_account_t *account,
                             const uint32_t *pending_from, uint32_t iteration)
{
    uint32_t active = 0;
    for (int rank = 0; rank < account->ranks; rank++) {
        active +=
            pending_of(account, pending_from, rank, iteration) == iteration + 1;
    }
    return active;
}
