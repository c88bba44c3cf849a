#include "support/conserve.h"

#include <baton/partial.h>
#include <inttypes.h>
#include <time.h>

static _Thread_local char message[300];

/* ---- the account of one rank ------------------------------------------- */

static double value_of(uint64_t seed, int rank, uint64_t ordinal)
{
    support_random_t random =
        support_random(seed, ordinal * CONSERVE_RANKS + (uint64_t)rank);
    return (double)support_random_below(&random, 1u << 20);
}

void conserve_give(conserve_account_t *account, uint64_t step, double *vector)
{
    uint64_t ordinal = ++account->given;
    int rank = account->rank;
    account->steps[ordinal] = step;
    memset(vector, 0, CONSERVE_COUNT(account->size) * sizeof *vector);
    vector[0] = value_of(account->seed, rank, ordinal);
    vector[1 + 2 * rank] = 1;
    vector[2 + 2 * rank] = (double)ordinal;
}

/* A rank numbers its contributions from 1. A result contains the contributions
   from `first` to `last`. */
typedef struct range {
    uint64_t first, last; /* first: 0 if the result contains no contribution */
} range_t;

static bool range_of(const double *result, int rank, range_t *out)
{
    double count = result[1 + 2 * rank];
    double first = (result[2 + 2 * rank] / count) - (count - 1) / 2;
    *out = (range_t){0, 0};
    if (count > 0) {
        *out = (range_t){(uint64_t)first, (uint64_t)(first + count) - 1};
    }
    return count > 0 ? first == (double)out->first && first > 0
                     : count == 0 && result[2 + 2 * rank] == 0;
}

/* Returns the step of this rank's oldest contribution that no earlier epoch has
   taken. Returns 0 if there is none, or if it is unknown. */
static uint64_t oldest_in(const conserve_account_t *account, range_t own)
{
    uint64_t next = account->taken[account->rank] + 1;
    if (own.first != 0) {
        return account->steps[own.first];
    }
    return account->sees_all && next <= account->given ? account->steps[next]
                                                       : 0;
}

static const char *check_claims(const conserve_account_t *account,
                                uint64_t step, range_t own, uint32_t active,
                                support_collective_t *collective)
{
    baton_partial_result_t *seen = &collective->seen;
    uint64_t all = 0, inside = 0, oldest = oldest_in(account, own);
    for (uint64_t i = account->given; i > 0 && account->steps[i] >= step; i--) {
        all += account->steps[i] == step;
        inside += account->steps[i] == step && own.first <= i && i <= own.last;
    }
    bool old = oldest != 0 && oldest < seen->epoch;
    uint64_t staleness = old ? seen->epoch - oldest : 0;
    if (collective->unseen) {
        collective->included = seen->included = all > 0 && all == inside;
        seen->active = active;
        seen->staleness = staleness;
    }
    if (all > 0 && seen->included != (all == inside)) {
        return "included is wrong";
    }
    if (seen->active != active) {
        return "active is wrong";
    }
    bool knows = own.first != 0 || account->sees_all;
    return knows && seen->staleness != staleness ? "staleness is wrong" : NULL;
}

const char *conserve_check(conserve_account_t *account, uint64_t step,
                           support_collective_t *own, const double *result)
{
    baton_partial_result_t *seen = &own->seen;
    seen->epoch = own->unseen ? step : seen->epoch;
    bool again = seen->epoch == account->epoch && !account->sees_all;
    uint32_t active = 0;
    double values = 0;
    range_t ranges[CONSERVE_RANKS];
    if (account->sees_all
            ? seen->epoch != step
            : seen->epoch < account->epoch || seen->epoch < step) {
        return "another epoch's result";
    }
    for (int r = 0; r < account->size; r++) {
        uint64_t taken = account->taken[r];
        if (!range_of(result, r, &ranges[r])) {
            return "contributions that are not consecutive";
        }
        if (ranges[r].first == 0) {
            continue;
        }
        active++;
        for (uint64_t i = ranges[r].first; i <= ranges[r].last; i++) {
            values += value_of(account->seed, r, i);
        }
        if (again ? ranges[r].last != taken
                  : ranges[r].first <= taken ||
                        (account->sees_all && ranges[r].first != taken + 1)) {
            return "a contribution is in two results, or in none";
        }
    }
    if (values != result[0] || ranges[account->rank].last > account->given) {
        return "not the values of those who are in it";
    }
    const char *what =
        check_claims(account, step, ranges[account->rank], active, own);
    for (int r = 0; r < account->size; r++) {
        account->taken[r] =
            ranges[r].last > 0 ? ranges[r].last : account->taken[r];
    }
    account->epoch = seen->epoch;
    return what;
}

const char *conserve_check_pending(conserve_account_t *account,
                                   const double *pending)
{
    range_t own;
    uint64_t taken = account->taken[account->rank];
    if (!range_of(pending, account->rank, &own)) {
        return "what is pending is not consecutive";
    }
    uint64_t first = own.first != 0 ? own.first : account->given + 1;
    if ((own.first != 0 && own.last != account->given) || first <= taken ||
        (account->sees_all && first != taken + 1)) {
        return "what is pending is wrong";
    }
    account->taken[account->rank] = first - 1;
    return NULL;
}

void conserve_recover(conserve_account_t *account)
{
    account->epoch = 0;
    for (uint64_t i = 1; i <= account->given; i++) {
        account->steps[i] = i > account->taken[account->rank] ? 1 : 0;
    }
}

/* ---- ranks that are threads or processes ------------------------------- */

typedef struct run {
    const conserve_options_t *options;
    baton_sparse_options_t sparse;
    support_collective_t own;
    support_random_t random;
    conserve_totals_t totals;
    conserve_account_t account;
    uint64_t results; /* number of results that the rank has got */
    bool open;        /* the rank's last step has no result yet */
    /* The weighted sum of the rank's gradient in the last step. */
    double started;
    double vector[CONSERVE_MOST], residual[CONSERVE_MOST];
} run_t;

static void sleep_sometimes(run_t *run)
{
    if (support_random_below(&run->random, 4) == 0) {
        uint64_t us =
            support_random_below(&run->random, run->options->sleep_us + 1);
        nanosleep(&(struct timespec){0, (long)us * 1000}, NULL);
    }
}

/* Returns a weighted sum of the elements, with different weights. If the totals
   of these sums are right, the total of every element is nearly certainly
   right, too. */
static double weigh(const double *vector, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)(1 + i % 7) * vector[i];
    }
    return sum;
}

static baton_status_t start(run_t *run, uint64_t step)
{
    double *vector = run->vector;
    bool partial = support_is_partial(run->options->row), given = false;
    if (partial && support_random_below(&run->random, 8) == 0) {
        /* Starts without a contribution. */
        return baton_partial_start(run->own.partial);
    }
    for (size_t i = 0; i < run->sparse.count && !partial; i++) {
        vector[i] = (double)support_random_below(&run->random, 201) - 100;
    }
    if (partial) {
        conserve_give(&run->account, step, vector);
    }
    double sum = weigh(vector, run->sparse.count);
    baton_status_t status = support_collective_start(&run->own, vector, &given);
    run->open = status == BATON_OK;
    run->started = sum;
    run->totals.given += run->open ? sum : 0;
    return status;
}

static void count_result(run_t *run)
{
    double sum = weigh(run->vector, run->sparse.count);
    run->open = false;
    run->totals.results += sum;
    run->totals.hash += sum * (double)(++run->results % 1000);
}

static baton_status_t run_step(run_t *run, uint64_t step)
{
    double *vector = run->vector;
    sleep_sometimes(run);
    baton_status_t status = start(run, step);
    sleep_sometimes(run);
    if (status == BATON_OK) {
        status = support_collective_wait(&run->own, vector, NULL);
    }
    if (status == BATON_OK && run->options->row == SUPPORT_PARTIAL_SPARSE) {
        /* May be called while epochs of peers run. */
        status = baton_sparse_residual(run->own.sparse, run->residual);
        status = status == BATON_ERR_BUSY ? BATON_OK : status;
    }
    if (status != BATON_OK) {
        return status;
    }
    count_result(run);
    if (support_is_partial(run->options->row)) {
        const char *what =
            conserve_check(&run->account, step, &run->own, vector);
        if (what != NULL) {
            (void)snprintf(message, sizeof message,
                           "rank %d, step %" PRIu64 ": %s", run->account.rank,
                           step, what);
            return BATON_ERR_FAILED;
        }
    }
    return BATON_OK;
}

/* Adds up the contributions that are in no result after the rank's last
   step. */
static baton_status_t take_stock(run_t *run)
{
    double *vector = run->vector;
    if (support_is_partial(run->options->row)) {
        support_collective_rest(&run->own, vector);
        baton_status_t status = BATON_OK;
        const char *what = conserve_check_pending(&run->account, vector);
        if (what != NULL) {
            (void)snprintf(message, sizeof message, "rank %d: %s",
                           run->account.rank, what);
            status = BATON_ERR_FAILED;
        }
        run->totals.left = weigh(vector, run->sparse.count);
        return status;
    }
    bool done;
    baton_status_t status = BATON_ERR_BUSY;
    while (status == BATON_ERR_BUSY) {
        (void)!support_collective_test(&run->own, &done);
        status = baton_sparse_residual(run->own.sparse, vector);
    }
    run->totals.left = weigh(vector, run->sparse.count);
    return status;
}

/* Runs a few steps, and then recovers the group: one rank, chosen at random,
   recovers in the middle of the next step. The other ranks may complete that
   step, or fail in it. Each rank gets every result that any rank has got. (If
   steps wait for every rank, the interrupted step has at most one result. If it
   has none, its gradient is in no result.) */
static baton_status_t fail_and_recover(run_t *run, baton_group_t *group,
                                       uint64_t ordinal)
{
    support_random_t common = support_random(run->options->seed, ordinal);
    uint64_t ranks = (uint64_t)run->account.size;
    bool leaves =
        support_random_below(&common, ranks) == (uint64_t)run->account.rank;
    uint64_t last = support_random_below(&common, 12);
    baton_status_t status = BATON_OK;
    for (uint64_t s = 1; status == BATON_OK && (!leaves || s <= last); s++) {
        status = run_step(run, s);
    }
    bool partial = run->options->row == SUPPORT_PARTIAL_SPARSE;
    if (leaves && support_random_below(&run->random, 2) == 0 &&
        (partial || run->options->row == SUPPORT_SPARSE)) {
        /* This rank only contributes to a step, and does not start it. The step
           fails on the other ranks. */
        run->open = false;
        (void)!baton_sparse_contribute(run->own.sparse, 0, 9, run->vector);
    } else if (status == BATON_OK && start(run, last + 1) == BATON_OK) {
        sleep_sometimes(run);
    }
    status = baton_group_recover(group, -1);
    while (status == BATON_OK && (partial || run->open)) {
        status = support_collective_wait(&run->own, run->vector, NULL);
        if (status == BATON_OK) {
            count_result(run);
        }
    }
    support_collective_settle(&run->own);
    run->totals.given -= run->open && !partial ? run->started : 0;
    /* BATON_ERR_STATE means that there is no further step to wait for. */
    return status == BATON_ERR_STATE ? BATON_OK : status;
}

static baton_status_t run_all(run_t *run, baton_group_t *group)
{
    baton_status_t status = support_collective_prepare(
        &run->own, run->options->row, group, &run->sparse);
    for (int round = 0; round < 2 && status == BATON_OK; round++) {
        status = support_collective_connect(&run->own, round);
    }
    for (uint64_t i = 0; i < run->options->failures && status == BATON_OK;
         i++) {
        status = fail_and_recover(run, group, i);
    }
    for (uint64_t s = 1; s <= run->options->steps && status == BATON_OK; s++) {
        status = run_step(run, s);
    }
    return status == BATON_OK ? take_stock(run) : status;
}

const char *conserve_run(baton_group_t *group,
                         const conserve_options_t *options,
                         conserve_totals_t *out)
{
    run_t *run = calloc(1, sizeof *run);
    if (run == NULL) {
        return "no memory";
    }
    int rank = baton_group_rank(group), size = baton_group_size(group);
    message[0] = '\0';
    run->options = options;
    run->sparse = options->options;
    run->account =
        (conserve_account_t){.seed = options->seed,
                             .rank = rank,
                             .size = size,
                             .sees_all = options->row == SUPPORT_PARTIAL};
    run->random = support_random(options->seed, UINT64_MAX - (uint64_t)rank);
    if (support_is_partial(options->row)) {
        run->sparse.count = CONSERVE_COUNT(size);
    }
    baton_status_t status = run_all(run, group);
    if (status != BATON_OK && message[0] == '\0') {
        (void)snprintf(message, sizeof message, "rank %d: %s: %s", rank,
                       baton_status_name(status), baton_error_message());
    }
    (void)!support_collective_destroy(&run->own);
    *out = run->totals;
    free(run);
    return status == BATON_OK ? NULL : message;
}

const char *conserve_compare(support_row_t row, const conserve_totals_t *totals,
                             int ranks)
{
    double rest = -totals[0].results;
    for (int r = 0; r < ranks; r++) {
        rest += totals[r].given - totals[r].left;
        if (row != SUPPORT_PARTIAL_LATEST &&
            (totals[r].hash != totals[0].hash ||
             totals[r].results != totals[0].results)) {
            return "the results are not the same on all ranks";
        }
    }
    return row == SUPPORT_PARTIAL_LATEST || rest == 0
               ? NULL
               : "results and what is left over are not all that was given";
}
