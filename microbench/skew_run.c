/* One turn of one system:

       prepare | barrier | sleep | call | rest | barrier | check
                         |       |<---->|      |         |
                         |       latency       |         |
                         |<- processor time -->|<------->|
                                               barrier's own

   Processor time counts on after the call, because a rank that is done early
   leaves work to its progress thread. Until all have arrived it rests, asleep;
   then the second barrier takes care that what one system still does is not
   charged to the one whose turn is next. The processor time of this barrier is
   the measurement's, alike for all systems, and shown apart. Preparing and
   checking are charged to none. Both barriers are Baton's, for all systems:
   see harness.h. */
#include "skew_run.h"
#include "skew_systems.h"
#include "steal.h"
#include <inttypes.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One system with its measurements on this rank. */
typedef struct lane {
    skew_system_t system;
    skew_ledger_t ledger;
    double *latency_us;  /* [counted iterations] */
    double processor_us; /* sums */
    double barrier_us;
} lane_t;

typedef struct run {
    const harness_t *harness;
    const skew_options_t *options;
    uint64_t bytes;
    uint64_t *source; /* what this rank contributes next */
    lane_t lanes[SKEW_KIND_COUNT];
} run_t;

/* ---- life ------------------------------------------------------------- */

static void open_lane(const run_t *run, skew_kind_t kind, lane_t *lane)
{
    const skew_options_t *options = run->options;
    uint32_t iterations = (uint32_t)(options->warmup + options->iterations);
    size_t count = (size_t)(run->bytes / sizeof(uint64_t));
    skew_system_open(run->harness, kind, count, options->seed, &lane->system);
    lane->latency_us = harness_alloc(options->iterations, sizeof(double));
    lane->processor_us = 0;
    lane->barrier_us = 0;
    lane->ledger = (skew_ledger_t){
        .salt = options->seed * UINT64_C(0x9e3779b97f4a7c15) + run->bytes +
                (uint64_t)kind,
        .rank = run->harness->rank,
        .ranks = run->harness->size,
        .count = count,
        .iterations = iterations,
        .synchronous = kind != SKEW_SOLO && kind != SKEW_MAJORITY,
        .entries = harness_alloc(iterations, sizeof(skew_entry_t)),
    };
}

static void close_lane(lane_t *lane)
{
    skew_system_close(&lane->system);
    free(lane->ledger.entries);
    free(lane->latency_us);
}

/* ---- turns ------------------------------------------------------------ */

/* Position of each system in iteration `iteration`: a shuffle that all ranks
   draw alike, so that no system always follows the same other one. */
static void draw_order(const skew_options_t *options, uint32_t iteration,
                       size_t *order)
{
    for (size_t i = 0; i < options->system_count; i++) {
        order[i] = i;
    }
    uint64_t draw = line_of(options->seed, 0, iteration).base;
    for (size_t left = options->system_count; left > 1; left--) {
        size_t chosen = (size_t)(draw % left);
        draw /= left;
        size_t swap = order[left - 1];
        order[left - 1] = order[chosen];
        order[chosen] = swap;
    }
}

/* When the rank arrives that is `place`-th of all, counted from 1. */
static double arrival_us(const run_t *run, double begin_us, int place)
{
    return begin_us + place * run->options->skew_ms * 1e3;
}

static void measure_call(const run_t *run, lane_t *lane, uint32_t iteration,
                         skew_outcome_t *outcome)
{
    const harness_t *harness = run->harness;
    harness_barrier(harness);
    double begin_us = clock_now_us();
    double began_us = clock_processor_us();
    clock_sleep_until(arrival_us(run, begin_us, harness->rank + 1));

    double call_us = clock_now_us();
    skew_system_call(&lane->system, run->source, iteration, harness->size,
                     outcome);
    double done_us = clock_now_us();

    clock_sleep_until(arrival_us(run, begin_us, harness->size + 1));
    double rested_us = clock_processor_us();
    harness_barrier(harness);
    double ended_us = clock_processor_us();
    if (iteration > run->options->warmup) {
        size_t index = (size_t)(iteration - run->options->warmup - 1);
        lane->latency_us[index] = done_us - call_us;
        lane->processor_us += rested_us - began_us;
        lane->barrier_us += ended_us - rested_us;
    }
}

/* In MAJORITY the rank drawn begins the epoch, so it is in it. */
static void check_draw(const run_t *run, lane_t *lane, uint32_t iteration,
                       const skew_outcome_t *outcome)
{
    int drawn =
        baton_partial_draw(run->options->seed, iteration, run->harness->size);
    if (lane->system.kind == SKEW_MAJORITY && drawn == run->harness->rank &&
        !outcome->included) {
        skew_ledger_fail(&lane->ledger, iteration,
                         "the rank drawn is not in its own epoch");
    }
}

static void take_turn(const run_t *run, lane_t *lane, uint32_t iteration)
{
    skew_ledger_t *ledger = &lane->ledger;
    line_fill(line_of(ledger->salt, ledger->rank, iteration), run->source,
              ledger->count);
    skew_outcome_t outcome;
    measure_call(run, lane, iteration, &outcome);
    check_draw(run, lane, iteration, &outcome);
    skew_ledger_record(ledger, iteration, &outcome,
                       skew_system_pending(&lane->system));
}

static void show(progress_t *progress, uint64_t bytes)
{
    if (progress_due(progress)) {
        char size[16];
        char text[128];
        (void)snprintf(text, sizeof(text),
                       "measuring %s bytes: iteration %" PRIu64 " of %" PRIu64
                       " in all",
                       cli_format_bytes(bytes, size, sizeof(size)),
                       progress->done + 1, progress->planned);
        progress_say(progress, text);
    }
    progress->done++;
}

static void take_turns(run_t *run, progress_t *progress)
{
    const skew_options_t *options = run->options;
    uint32_t iterations = (uint32_t)(options->warmup + options->iterations);
    for (uint32_t iteration = 1; iteration <= iterations; iteration++) {
        size_t order[SKEW_KIND_COUNT];
        draw_order(options, iteration, order);
        show(progress, run->bytes);
        for (size_t i = 0; i < options->system_count; i++) {
            take_turn(run, &run->lanes[order[i]], iteration);
        }
    }
}

/* ---- check ------------------------------------------------------------ */

/* Where each rank's pending contributions begin after each iteration:
   [ranks][iterations]. */
static uint32_t *gather_pending(const skew_ledger_t *ledger)
{
    uint32_t iterations = ledger->iterations;
    uint32_t *mine = harness_alloc(iterations, sizeof(*mine));
    for (uint32_t i = 0; i < iterations; i++) {
        mine[i] = ledger->entries[i].pending_from;
    }
    uint32_t *all =
        harness_alloc((size_t)ledger->ranks * iterations, sizeof(*all));
    MPI_Allgather(mine, (int)iterations, MPI_UINT32_T, all, (int)iterations,
                  MPI_UINT32_T, MPI_COMM_WORLD);
    free(mine);
    return all;
}

/* Agrees on the earliest failure of all ranks, and rank 0 prints it. */
static bool passed_everywhere(const lane_t *lane)
{
    const skew_ledger_t *ledger = &lane->ledger;
    struct {
        int iteration;
        int rank;
    } mine = {INT_MAX, ledger->rank}, first;
    if (ledger->failed_at != 0) {
        mine.iteration = (int)ledger->failed_at;
    }
    MPI_Allreduce(&mine, &first, 1, MPI_2INT, MPI_MINLOC, MPI_COMM_WORLD);
    if (first.iteration == INT_MAX) {
        return true;
    }
    char failure[sizeof(ledger->failure)];
    memcpy(failure, ledger->failure, sizeof(failure));
    MPI_Bcast(failure, (int)sizeof(failure), MPI_CHAR, first.rank,
              MPI_COMM_WORLD);
    if (ledger->rank == 0) {
        (void)fprintf(stderr,
                      "baton-skew: wrong result of %s, %zu elements, on rank "
                      "%d in iteration %d: %s\n",
                      skew_kind_name(lane->system.kind), ledger->count,
                      first.rank, first.iteration, failure);
    }
    return false;
}

/* ---- summary ---------------------------------------------------------- */

static void summarize_active(const run_t *run, const lane_t *lane,
                             const uint32_t *pending_from, skew_result_t *out)
{
    uint32_t first = (uint32_t)run->options->warmup + 1;
    double sum = 0;
    out->active_min = UINT32_MAX;
    for (uint32_t i = first; i <= lane->ledger.iterations; i++) {
        uint32_t active = skew_ledger_active(&lane->ledger, pending_from, i);
        sum += active;
        out->active_min = active < out->active_min ? active : out->active_min;
        out->active_max = active > out->active_max ? active : out->active_max;
    }
    out->active_mean = sum / (double)run->options->iterations;
}

/* `all`: [ranks][iterations]. */
static double robust_us(const double *all, size_t iterations, size_t ranks)
{
    double *means = harness_alloc(iterations, sizeof(double));
    for (size_t i = 0; i < iterations; i++) {
        for (size_t r = 0; r < ranks; r++) {
            means[i] += all[r * iterations + i] / (double)ranks;
        }
    }
    double median_us = stats_median(means, iterations);
    free(means);
    return median_us;
}

static void summarize_latency(const run_t *run, const lane_t *lane,
                              skew_result_t *out)
{
    size_t own = (size_t)run->options->iterations;
    size_t count = own * (size_t)run->harness->size;
    bool root = run->harness->rank == 0;
    double *all = root ? harness_alloc(count, sizeof(double)) : NULL;
    MPI_Gather(lane->latency_us, (int)own, MPI_DOUBLE, all, (int)own,
               MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (root) {
        out->robust_us = robust_us(all, own, (size_t)run->harness->size);
        stats_sort(all, count);
        out->mean_us = stats_mean(all, count);
        out->median_us = stats_percentile(all, count, 0.5);
        out->p99_us = stats_percentile(all, count, 0.99);
        free(all);
    }
}

static void summarize_processor(const run_t *run, const lane_t *lane,
                                skew_result_t *out)
{
    double mine[2] = {lane->processor_us, lane->barrier_us};
    double sums[2] = {0, 0};
    MPI_Reduce(mine, sums, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    double turns =
        (double)run->options->iterations * (double)run->harness->size;
    out->cpu_us_per_iteration = sums[0] / turns;
    out->barrier_us_per_iteration = sums[1] / turns;
}

/* Checks what one system did on all ranks, and sums it up. */
static bool finish_lane(const run_t *run, lane_t *lane, skew_result_t *out)
{
    *out = (skew_result_t){
        .kind = lane->system.kind,
        .ranks = run->harness->size,
        .bytes = run->bytes,
    };
    uint32_t *pending_from = gather_pending(&lane->ledger);
    skew_ledger_audit(&lane->ledger, pending_from);
    summarize_active(run, lane, pending_from, out);
    free(pending_from);
    summarize_latency(run, lane, out);
    summarize_processor(run, lane, out);
    return passed_everywhere(lane);
}

static void fill_ratios(skew_result_t *results, size_t count)
{
    double mpi_us = 0;
    for (size_t i = 0; i < count; i++) {
        if (results[i].kind == SKEW_MPI) {
            mpi_us = results[i].mean_us;
        }
    }
    for (size_t i = 0; i < count; i++) {
        results[i].ratio_to_mpi = mpi_us / results[i].mean_us;
    }
}

bool skew_run(const harness_t *harness, const skew_options_t *options,
              uint64_t bytes, progress_t *progress, skew_result_t *results)
{
    run_t run = {.harness = harness, .options = options, .bytes = bytes};
    run.source = harness_alloc((size_t)bytes, 1);
    for (size_t i = 0; i < options->system_count; i++) {
        open_lane(&run, options->systems[i], &run.lanes[i]);
    }
    steal_t before = steal_read();
    take_turns(&run, progress);
    double stolen = steal_share(before, steal_read());
    MPI_Allreduce(MPI_IN_PLACE, &stolen, 1, MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    bool passed = true;
    for (size_t i = 0; i < options->system_count; i++) {
        skew_result_t result;
        passed &= finish_lane(&run, &run.lanes[i], &result);
        result.steal_share = stolen;
        if (harness->rank == 0) {
            results[i] = result;
        }
    }
    /* No rank may destroy a partial while another still starts it. */
    harness_barrier(harness);
    for (size_t i = 0; i < options->system_count; i++) {
        close_lane(&run.lanes[i]);
    }
    free(run.source);
    if (harness->rank == 0) {
        fill_ratios(results, options->system_count);
    }
    return passed;
}
