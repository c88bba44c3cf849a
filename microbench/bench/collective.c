/* baton-bench allreduce, bcast, ...: ways to a collective, over sizes. */
#include "bench/bench.h"
#include <math.h>
#include <stdlib.h>

/* A turn of the fastest system should take so long, within limits. */
#define TURN_US 50000.0

enum { MAX_CALLS = 100, TRUSTED_FOR = 4 };

/* The systems on one size. */
typedef struct contest {
    bench_run_t *run;
    bench_operation_t operation;
    bench_runner_t runners[BENCH_MAX_SYSTEMS];
    size_t count; /* of them */
    size_t calls; /* in a turn */
} contest_t;

/* ---- turns -------------------------------------------------------------- */

static void call(bench_runner_t *runner, int root)
{
    runner->operation->root = root;
    bench_runner_start(runner);
    bench_runner_wait(runner);
}

/* Warms up by one call, then times the mean of the turn's calls on this rank.
   The ranks take turns as root: a root that always is one would run ahead of
   its peers, and a call would seem to take no longer than a send. */
static void take(void *arg, size_t system, size_t turn, double *us_out)
{
    contest_t *contest = arg;
    bench_runner_t *runner = &contest->runners[system];
    bench_operation_t *operation = &contest->operation;
    operation->root = operation->roots - 1;
    (void)turn;
    bench_fill(operation);
    harness_barrier(&contest->run->harness);
    call(runner, operation->root);
    if (operation->in_place) {
        /* What is added up again and again must not overflow. */
        bench_check(runner);
        bench_clear(operation);
        harness_barrier(&contest->run->harness);
    }
    double begin_us = clock_now_us();
    for (size_t i = 0; i < contest->calls; i++) {
        call(runner, (int)(i % (size_t)operation->roots));
    }
    *us_out = (clock_now_us() - begin_us) / (double)contest->calls;
    if (!operation->in_place) {
        bench_check(runner);
    }
}

/* The time of a call of the fastest system, of one turn each. */
static double fastest_call_us(contest_t *contest)
{
    double fastest_us = INFINITY;
    for (size_t i = 0; i < contest->count; i++) {
        double us = 0;
        take(contest, i, 0, &us);
        fastest_us = fmin(fastest_us, us);
    }
    MPI_Bcast(&fastest_us, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return fmax(fastest_us, 1e-3);
}

static void set_calls(contest_t *contest, double calls)
{
    size_t roots = (size_t)contest->operation.roots;
    contest->calls = ((size_t)calls + roots - 1) / roots * roots;
}

/* Sets the number of calls that a turn has. The first calls take several times
   as long as later ones, so what a few say is trusted for a few more only. */
static void rehearse(contest_t *contest)
{
    for (double calls = 1;; calls *= TRUSTED_FOR) {
        set_calls(contest, calls);
        double wanted = fmin(TURN_US / fastest_call_us(contest), MAX_CALLS);
        if (wanted <= calls * TRUSTED_FOR) {
            set_calls(contest, fmax(wanted, 1));
            return;
        }
    }
}

/* Returns the bytes that were measured, rounded up to whole blocks. */
static uint64_t measure_size(bench_run_t *run, uint64_t bytes, stats_t *out)
{
    contest_t contest = {.run = run, .count = run->options.system_count};
    bench_operation_t *operation = &contest.operation;
    bench_operation_init(operation, run->options.collective, run->harness.rank,
                         run->harness.size, bytes);
    bench_memory_open(run, operation);
    for (size_t i = 0; i < contest.count; i++) {
        bench_runner_open(run, &run->options.systems[i], operation,
                          &contest.runners[i]);
    }
    rehearse(&contest);
    const bench_turns_t turns = {.systems = contest.count,
                                 .measures = 1,
                                 .turns = (size_t)run->options.repetitions,
                                 .take = take,
                                 .arg = &contest};
    bench_turns(run, &turns, out);
    for (size_t i = 0; i < contest.count; i++) {
        bench_runner_close(&contest.runners[i]);
    }
    bench_memory_close(run, operation);
    return operation->count * sizeof(float);
}

/* ---- report ------------------------------------------------------------- */

static void add_size(bench_run_t *run, double bytes, const stats_t *stats)
{
    const bench_options_t *options = &run->options;
    table_t *table = &run->table;
    double mpi_us = NAN; /* of the fastest of MPI's */
    for (size_t i = 0; i < options->system_count; i++) {
        if (options->systems[i].kind != BENCH_SYSTEM_BATON) {
            mpi_us = fmin(mpi_us, stats[i].median);
        }
    }
    for (size_t i = 0; i < options->system_count; i++) {
        table_text(table, "collective", NULL, 0,
                   bench_collective_name(options->collective));
        table_text(table, "system", "system", 24, options->systems[i].name);
        table_number(table, "ranks", NULL, 0, 0, run->harness.size);
        table_number(table, "bytes", "bytes", 9, 0, bytes);
        table_number(table, "median_us", "median us", 10, 2, stats[i].median);
        table_number(table, "ratio_to_best_mpi", "best MPI", 8, 2,
                     mpi_us / stats[i].median);
        table_number(table, "p10_us", "p10", 10, 2, stats[i].p10);
        table_number(table, "p90_us", "p90", 10, 2, stats[i].p90);
        table_row(table);
        plot_add(&table->plot, options->systems[i].name, bytes,
                 stats[i].median);
    }
}

static bool run_collective(bench_run_t *run)
{
    plot_t *plot = &run->table.plot;
    stats_t stats[BENCH_MAX_SYSTEMS];
    const bench_options_t *options = &run->options;
    if (bench_keep_able(run) == 0) {
        return true;
    }
    plot->x_label = "bytes";
    plot->log_base = 2;
    plot->x_bytes = true;
    (void)snprintf(plot->title, sizeof(plot->title), "%s of %d ranks",
                   bench_collective_name(options->collective),
                   run->harness.size);
    for (size_t size = 0; size < options->size_count; size++) {
        uint64_t bytes = measure_size(run, options->bytes[size], stats);
        if (run->speak) {
            add_size(run, (double)bytes, stats);
        }
    }
    return true;
}

const bench_t bench_collective = {
    BENCH_COLLECTIVE,
    "microseconds a call: medians over turns, each checked; best MPI: the "
    "fastest of MPI's systems' time over this one's",
    run_collective};
