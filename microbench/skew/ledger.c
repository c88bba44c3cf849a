#include "skew/ledger.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- lines ------------------------------------------------------------ */

/* The line through the first two elements; one element lies on any. */
static line_t read_line(const uint64_t *data, size_t count)
{
    return (line_t){data[0], count > 1 ? data[1] - data[0] : 0};
}

static line_t sum_range(const skew_ledger_t *ledger, int rank, uint32_t from,
                        uint32_t to)
{
    line_t sum = {0, 0};
    for (uint32_t i = from; i < to; i++) {
        sum = line_add(sum, line_of(ledger->salt, rank, i));
    }
    return sum;
}

void skew_ledger_fail(skew_ledger_t *ledger, uint32_t iteration,
                      const char *format, ...)
{
    if (ledger->failed_at != 0 && ledger->failed_at <= iteration) {
        return;
    }
    ledger->failed_at = iteration;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(ledger->failure, sizeof(ledger->failure), format, args);
    va_end(args);
}

/* ---- one rank --------------------------------------------------------- */

/* The oldest pending iteration, from the value of the pending sum: that of the
   suffix of this rank's contributions that adds up to it. 0: none does. */
static uint32_t find_oldest(const skew_ledger_t *ledger, uint32_t oldest_before,
                            uint32_t iteration, const uint64_t *pending)
{
    line_t sum = {0, 0};
    for (uint32_t i = iteration; i >= oldest_before; i--) {
        sum = line_add(sum, line_of(ledger->salt, ledger->rank, i));
        if (line_first_off(sum, pending, ledger->count) == ledger->count) {
            return i;
        }
    }
    return 0;
}

static uint32_t pending_before(const skew_ledger_t *ledger, uint32_t iteration)
{
    return iteration > 1 ? ledger->entries[iteration - 2].pending_from : 1;
}

static uint32_t check_pending(skew_ledger_t *ledger, uint32_t iteration,
                              const uint64_t *pending)
{
    if (pending == NULL) {
        return iteration + 1;
    }
    uint32_t oldest = find_oldest(ledger, pending_before(ledger, iteration),
                                  iteration, pending);
    if (oldest == 0) {
        skew_ledger_fail(
            ledger, iteration,
            "element 0 of what is pending is %#" PRIx64
            ", the sum of no run of this rank's last contributions",
            pending[0]);
        return iteration + 1; /* so that later iterations can go on */
    }
    return oldest;
}

static void check_flags(skew_ledger_t *ledger, uint32_t iteration,
                        const skew_outcome_t *outcome, uint32_t pending_from)
{
    uint32_t oldest = pending_before(ledger, iteration);
    bool included = pending_from == iteration + 1;
    if (outcome->epoch != iteration) {
        skew_ledger_fail(ledger, iteration, "the result is of epoch %" PRIu64,
                         outcome->epoch);
    }
    if (outcome->included != included) {
        skew_ledger_fail(
            ledger, iteration,
            "included is %d, but what is pending begins with iteration "
            "%" PRIu32,
            outcome->included, pending_from);
    }
    if (ledger->synchronous && !included) {
        skew_ledger_fail(ledger, iteration,
                         "a synchronous call left a rank out");
    }
    if (outcome->staleness != iteration - oldest) {
        skew_ledger_fail(ledger, iteration,
                         "staleness is %" PRIu64 ", expected %" PRIu32,
                         outcome->staleness, iteration - oldest);
    }
}

void skew_ledger_record(skew_ledger_t *ledger, uint32_t iteration,
                        const skew_outcome_t *outcome, const uint64_t *pending)
{
    line_t result = read_line(outcome->data, ledger->count);
    size_t off = line_first_off(result, outcome->data, ledger->count);
    if (off < ledger->count) {
        skew_ledger_fail(ledger, iteration,
                         "element %zu of the sum is %#" PRIx64 ", but %#" PRIx64
                         " would fit the others: torn or misplaced",
                         off, outcome->data[off], line_at(result, off));
    }
    uint32_t pending_from = check_pending(ledger, iteration, pending);
    check_flags(ledger, iteration, outcome, pending_from);
    ledger->entries[iteration - 1] = (skew_entry_t){
        .result = result,
        .pending_from = pending_from,
        .active = outcome->active,
    };
}

/* ---- all ranks -------------------------------------------------------- */

static uint32_t pending_of(const skew_ledger_t *ledger,
                           const uint32_t *pending_from, int rank,
                           uint32_t iteration)
{
    if (iteration == 0) {
        return 1;
    }
    return pending_from[(size_t)rank * ledger->iterations + iteration - 1];
}

static void audit_sum(skew_ledger_t *ledger, uint32_t iteration,
                      line_t expected)
{
    line_t got = ledger->entries[iteration - 1].result;
    if (got.base != expected.base) {
        skew_ledger_fail(ledger, iteration,
                         "element 0 of the sum is %#" PRIx64
                         ", expected %#" PRIx64,
                         got.base, expected.base);
    } else if (ledger->count > 1 && got.slope != expected.slope) {
        skew_ledger_fail(ledger, iteration,
                         "element 1 of the sum is %#" PRIx64
                         ", expected %#" PRIx64,
                         line_at(got, 1), line_at(expected, 1));
    }
}

static void audit_iteration(skew_ledger_t *ledger, const uint32_t *pending_from,
                            uint32_t iteration)
{
    line_t expected = {0, 0};
    uint32_t contributors = 0;
    for (int rank = 0; rank < ledger->ranks; rank++) {
        uint32_t from = pending_of(ledger, pending_from, rank, iteration - 1);
        uint32_t to = pending_of(ledger, pending_from, rank, iteration);
        expected = line_add(expected, sum_range(ledger, rank, from, to));
        contributors += from < to;
    }
    audit_sum(ledger, iteration, expected);
    uint32_t active = ledger->entries[iteration - 1].active;
    if (active != contributors) {
        skew_ledger_fail(ledger, iteration,
                         "active is %" PRIu32 ", but %" PRIu32
                         " ranks are in the sum",
                         active, contributors);
    }
}

void skew_ledger_audit(skew_ledger_t *ledger, const uint32_t *pending_from)
{
    for (uint32_t i = 1; i <= ledger->iterations; i++) {
        audit_iteration(ledger, pending_from, i);
    }
}

uint32_t skew_ledger_active(const skew_ledger_t *ledger,
                            const uint32_t *pending_from, uint32_t iteration)
{
    uint32_t active = 0;
    for (int rank = 0; rank < ledger->ranks; rank++) {
        active +=
            pending_of(ledger, pending_from, rank, iteration) == iteration + 1;
    }
    return active;
}
