/* One iteration of one system:

     prepare | barrier | sleep | call | sleep | barrier | check
                               |<---->|
                                latency

   A rank that returns early leaves work to its progress thread, and sleeps
   until all ranks have arrived. The second barrier makes sure that no system's
   work runs into the next system's iteration. Both barriers are Baton's, for
   all systems: see harness.h. */
#include "common/job.h"
#include "skew/account.h"
#include "skew/skew.h"
#include <baton/partial.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ------------------------------------------------------------- */

/* A system that sums 64-bit integers of all ranks, and its measurements on this
   rank. */
typedef struct measurement {
    skew_choice_t choice;
    baton_partial_t *partial; /* NULL for MPI's systems */
    uint64_t *vector;         /* the target of MPI's systems */
    skew_account_t account;
    double *latency_us; /* an array of [counted iterations] */
} measurement_t;

typedef struct run {
    const harness_t *harness;
    const skew_options_t *options;
    uint64_t bytes;
    uint64_t *source; /* this rank's next contribution */
    measurement_t measurements[CLI_MOST_ITEMS];
} run_t;

/* Returns the least number of ranks that are active in an iteration's sum. The
   check of the sums expects this in warm-up iterations, too. */
static uint32_t least_active(skew_choice_t choice, int ranks)
{
    bool several =
        choice.mode == BATON_QUORUM || choice.mode == BATON_CANDIDATES_ALL;
    if (choice.mode == BATON_FULL) {
        return (uint32_t)ranks;
    }
    return several ? choice.ranks : 1;
}

/* Opens a measurement. Collective, in the same order on all ranks. The last
   iteration only serves to check the one before it, and is not counted in
   results. */
static void open_measurement(const run_t *run, skew_choice_t choice,
                             measurement_t *out)
{
    const skew_options_t *options = run->options;
    uint32_t ranks = (uint32_t)run->harness->size;
    uint32_t iterations = SKEW_WARM_UP + (uint32_t)options->iterations + 1;
    *out = (measurement_t){
        .choice = choice,
        .vector = harness_alloc((size_t)run->bytes, 1),
        .account =
            {
                .salt = options->seed * UINT64_C(0x9e3779b97f4a7c15) +
                        run->bytes + (uint64_t)choice.mode +
                        ((uint64_t)choice.is_mpi << 63) +
                        ((uint64_t)choice.ranks << 32),
                .rank = run->harness->rank,
                .ranks = run->harness->size,
                .count = (size_t)(run->bytes / sizeof(uint64_t)),
                .iterations = iterations,
                .synchronous = least_active(choice, (int)ranks) == ranks,
                .entries = harness_alloc(iterations, sizeof(skew_entry_t)),
            },
        .latency_us = harness_alloc(iterations, sizeof(double)),
    };
    const baton_partial_options_t partial = {
        .size = sizeof(partial),
        .name = choice.name,
        .mode = choice.mode,
        .mode_ranks = choice.ranks,
        /* The paper's algorithm returns the result of the latest epoch. */
        .keep = BATON_KEEP_LATEST,
        .seed = options->seed,
        .count = out->account.count,
        .dtype = BATON_U64,
    };
    if (!choice.is_mpi) {
        must(
            baton_partial_create(run->harness->group, &partial, &out->partial));
    }
}

/* Closes a measurement. Collective. No rank may be inside a call. */
static void close_measurement(measurement_t *measurement)
{
    (void)!baton_partial_destroy(measurement->partial);
    free(measurement->vector);
    free(measurement->account.entries);
    free(measurement->latency_us);
}

/* ---- the call --------------------------------------------------------- */

/* The timed call: contributes `source`, starts and waits. The data of the
   outcome stay valid until the next call. */
static void call_system(const measurement_t *measurement,
                        const uint64_t *source, uint64_t iteration, int ranks,
                        baton_partial_result_t *out)
{
    baton_partial_t *partial = measurement->partial;
    if (partial == NULL) {
        job_sum_by_mpi(source, measurement->vector, measurement->account.count);
        *out = (baton_partial_result_t){
            .epoch = iteration,
            .data = measurement->vector,
            .included = true,
            .active = (uint32_t)ranks,
        };
        return;
    }
    must(baton_partial_contribute(partial, source));
    must(baton_partial_start(partial));
    must(baton_partial_wait(partial, -1, out));
}

/* ---- iterations ------------------------------------------------------- */

/* Shuffles the systems of one iteration, in the same way on all ranks, so that
   no system always follows the same other system. */
static void shuffle(const skew_options_t *options, uint32_t iteration,
                    size_t *order)
{
    uint64_t random = linear_model_of(options->seed, 0, iteration).base;
    for (size_t i = 0; i < options->systems.count; i++) {
        size_t place = (size_t)(random % (i + 1));
        random /= i + 1;
        order[i] = order[place];
        order[place] = i;
    }
}

/* Makes one call. Each rank arrives a skew after the rank before it, and rank 0
   a skew after the barrier. */
static void measure_call(const run_t *run, measurement_t *measurement,
                         uint32_t iteration, baton_partial_result_t *outcome)
{
    const harness_t *harness = run->harness;
    harness_barrier(harness);
    double begin_us = clock_now_us(), skew_us = run->options->skew_ms * 1e3;
    clock_sleep_until(begin_us + (harness->rank + 1) * skew_us);

    double call_us = clock_now_us();
    call_system(measurement, run->source, iteration, harness->size, outcome);
    double done_us = clock_now_us();

    clock_sleep_until(begin_us + (harness->size + 1) * skew_us);
    harness_barrier(harness);
    if (iteration > SKEW_WARM_UP) {
        measurement->latency_us[iteration - SKEW_WARM_UP - 1] =
            done_us - call_us;
    }
}

static void skew_run_iteration(const run_t *run, measurement_t *measurement,
                               uint32_t iteration)
{
    skew_account_t *account = &measurement->account;
    linear_model_fill(linear_model_of(account->salt, account->rank, iteration),
                      run->source, account->count);
    baton_partial_result_t outcome;
    measure_call(run, measurement, iteration, &outcome);
    /* If MAJORITY elects this rank, the epoch begins with its start, so it must
       be included. */
    if (measurement->choice.mode == BATON_MAJORITY && !outcome.included &&
        baton_partial_elect(run->options->seed, iteration, account->ranks) ==
            account->rank) {
        skew_account_fail(account, iteration,
                          "the elected rank is not in its own epoch");
    }
    skew_account_record(account, iteration, &outcome);
}

static void skew_run_iterations(run_t *run)
{
    size_t order[CLI_MOST_ITEMS] = {0};
    uint32_t iterations = run->measurements->account.iterations;
    for (uint32_t iteration = 1; iteration <= iterations; iteration++) {
        shuffle(run->options, iteration, order);
        for (size_t i = 0; i < run->options->systems.count; i++) {
            skew_run_iteration(run, &run->measurements[order[i]], iteration);
        }
    }
}

/* ---- check ------------------------------------------------------------ */

/* Gathers the field `from` of the entries of all ranks, as an array of
   [ranks][iterations]: the oldest iteration whose contribution was taken. */
static uint32_t *gather_from(const skew_account_t *account)
{
    uint32_t iterations = account->iterations;
    uint32_t *mine = harness_alloc(iterations, sizeof(*mine));
    for (uint32_t i = 0; i < iterations; i++) {
        mine[i] = account->entries[i].from;
    }
    uint32_t *all = harness_gather(mine, iterations * sizeof(*mine));
    free(mine);
    return all;
}

/* Checks the number of active ranks in each iteration, and summarizes it. */
static void check_active(measurement_t *measurement, const uint32_t *from,
                         skew_result_t *out)
{
    skew_account_t *account = &measurement->account;
    uint32_t least = least_active(measurement->choice, account->ranks);
    out->active_min = UINT32_MAX;
    for (uint32_t i = 1; i < account->iterations; i++) {
        uint32_t active = skew_account_active(account, from, i);
        if (active < least) {
            skew_account_fail(account, i,
                              "%" PRIu32 " active ranks, expected at least "
                              "%" PRIu32,
                              active, least);
        }
        if (i > SKEW_WARM_UP) {
            out->active_mean +=
                active / (double)(account->iterations - SKEW_WARM_UP - 1);
            out->active_min =
                active < out->active_min ? active : out->active_min;
            out->active_max =
                active > out->active_max ? active : out->active_max;
        }
    }
}

/* ---- summary ---------------------------------------------------------- */

/* Computes robust_us of a result: the median over the iterations of the mean
   over the ranks. `all` has the latencies, as an array of
   [ranks][iterations]. */
static double robust_us(const double *all, size_t iterations, size_t ranks)
{
    double *means = harness_alloc(iterations, sizeof(double));
    for (size_t i = 0; i < iterations; i++) {
        for (size_t r = 0; r < ranks; r++) {
            means[i] += all[r * iterations + i] / (double)ranks;
        }
    }
    double median_us = stats_of(means, iterations).median;
    free(means);
    return median_us;
}

static void summarize_latency(const run_t *run,
                              const measurement_t *measurement,
                              skew_result_t *out)
{
    size_t own = (size_t)run->options->iterations;
    size_t count = own * (size_t)run->harness->size;
    double *all = harness_gather(measurement->latency_us, own * sizeof(double));
    out->robust_us = robust_us(all, own, (size_t)run->harness->size);
    out->latency = stats_of(all, count);
    free(all);
}

/* Checks and summarizes the results that all ranks have of one system. Ends the
   job if one was wrong. */
static void finish_measurement(const run_t *run, measurement_t *measurement,
                               skew_result_t *out)
{
    skew_account_t *account = &measurement->account;
    uint32_t *from = gather_from(account);
    *out = (skew_result_t){
        .limit_us = skew_limit_us(measurement->choice, account->ranks,
                                  run->options->skew_ms * 1e3)};
    skew_account_audit(account, from);
    check_active(measurement, from, out);
    free(from);
    if (account->failed_at != 0) {
        harness_fail("wrong result of %s, %zu elements, in iteration %" PRIu32
                     ": %s",
                     measurement->choice.name, account->count,
                     account->failed_at, account->failure);
    }
    summarize_latency(run, measurement, out);
}

/* Returns the largest of the numbers of all ranks. Collective. */
static double largest_of(const harness_t *harness, double mine)
{
    double *all = harness_gather(&mine, sizeof mine);
    for (int r = 0; r < harness->size; r++) {
        mine = all[r] > mine ? all[r] : mine;
    }
    free(all);
    return mine;
}

void skew_run(const harness_t *harness, const skew_options_t *options,
              uint64_t bytes, skew_result_t *results)
{
    run_t run = {.harness = harness, .options = options, .bytes = bytes};
    run.source = harness_alloc((size_t)bytes, 1);
    for (size_t i = 0; i < options->systems.count; i++) {
        open_measurement(&run, options->choices[i], &run.measurements[i]);
    }
    steal_t before = steal_read();
    skew_run_iterations(&run);
    double stolen = steal_share(before, steal_read());
    stolen = largest_of(harness, stolen);
    for (size_t i = 0; i < options->systems.count; i++) {
        finish_measurement(&run, &run.measurements[i], &results[i]);
        results[i].steal_share = stolen;
    }
    /* No rank may destroy a partial all-reduce while another rank still starts
       it. */
    harness_barrier(harness);
    for (size_t i = 0; i < options->systems.count; i++) {
        close_measurement(&run.measurements[i]);
    }
    free(run.source);
}
