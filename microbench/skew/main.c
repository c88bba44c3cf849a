/* baton-skew: measures the latency of all-reduce when ranks arrive one after
   another. See `baton-skew --help`; run.c says how it measures, account.h how
   every result is checked. */
#include "skew/skew.h"
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEAL_PERCENT = 2 };

static void print_heading(const skew_options_t *options)
{
    (void)printf(
        "baton-skew: %d ranks, %g ms apart, %" PRIu64 " iterations after "
        "%" PRIu64 " to warm up, seed %" PRIu64 ", every result checked\n"
        "  MPI/this  mean latency of MPI_Allreduce over this system's\n"
        "  robust us median over iterations of the mean over ranks\n"
        "  limit us  mean time that ranks wait for the arrival that begins an "
        "iteration\n"
        "  /limit    robust us over the limit, where no rank is elected\n"
        "  active    ranks whose contribution to an iteration is in its "
        "result\n",
        options->ranks, options->skew_ms, options->iterations, options->warmup,
        options->seed);
    (void)fflush(stdout);
}

/* Returns the time relative to skew_limit_us, or NAN for modes that elect
   ranks: their limit is a mean over elections, the time a median over
   iterations. */
static double over_limit(const skew_result_t *result)
{
    skew_kind_t kind = result->choice.kind;
    bool elects = kind == SKEW_MAJORITY || kind == SKEW_ANY || kind == SKEW_ALL;
    return elects || result->limit_us <= 0
               ? NAN
               : result->robust_us / result->limit_us;
}

/* Adds a system's row. `mpi_us` is the mean latency of MPI_Allreduce, or NAN if
   it was not measured. */
static void skew_add_row(const skew_options_t *options, table_t *table,
                         const skew_result_t *result, double mpi_us)
{
    char range[32];
    (void)snprintf(range, sizeof(range), "%" PRIu32 "-%" PRIu32,
                   result->active_min, result->active_max);
    char name[SKEW_NAME_BYTES];
    table_text(table, "system", "system", 12, skew_name(result->choice, name));
    table_number(table, "ranks", NULL, 0, 0, result->ranks);
    table_number(table, "bytes", NULL, 0, 0, (double)result->bytes);
    table_number(table, "skew_ms", NULL, 0, 0, options->skew_ms);
    table_number(table, "iterations", NULL, 0, 0, (double)options->iterations);
    table_number(table, "mean_us", "mean us", 10, 1, result->mean_us);
    table_number(table, "robust_us", "robust us", 10, 1, result->robust_us);
    table_number(table, "limit_us", "limit us", 9, 1, result->limit_us);
    table_number(table, "robust_over_limit", "/limit", 6, 2,
                 over_limit(result));
    table_number(table, "median_us", "median us", 10, 1, result->median_us);
    table_number(table, "p99_us", "p99 us", 10, 1, result->p99_us);
    table_number(table, "ratio_to_mpi", "MPI/this", 8, 2,
                 mpi_us / result->mean_us);
    table_number(table, "active_mean", "active", 6, 2, result->active_mean);
    table_text(table, NULL, "min-max", 8, range);
    table_number(table, "active_min", NULL, 0, 0, result->active_min);
    table_number(table, "active_max", NULL, 0, 0, result->active_max);
    table_number(table, "steal_share", NULL, 0, 0, result->steal_share);
    table_row(table);
    plot_add(&table->plot, name, (double)result->bytes, result->mean_us);
}

/* Prints the results of one size, [system_count], and writes them to the
   files. */
static void print_table(const skew_options_t *options, table_t *table,
                        const skew_result_t *results)
{
    char size[16];
    (void)printf("\n%s bytes\n",
                 cli_format_bytes(results->bytes, size, sizeof(size)));
    table->headed = false;
    double mpi_us = NAN;
    for (size_t i = 0; i < options->system_count; i++) {
        mpi_us =
            results[i].choice.kind == SKEW_MPI ? results[i].mean_us : mpi_us;
    }
    for (size_t i = 0; i < options->system_count; i++) {
        skew_add_row(options, table, &results[i], mpi_us);
    }
    double percent = results->steal_share * 100;
    (void)printf("CPU steal: %.1f %%%s\n", percent,
                 percent > MOST_STEAL_PERCENT
                     ? ": warning: such stalls dominate means under skew; "
                       "trust the robust column, or measure again"
                     : "");
}

/* Adds to each name in the plot's key how many ranks the results contain.
   `active`, [system_count], has sums over the sizes. */
static void name_active(const skew_options_t *options, table_t *table,
                        const double *active)
{
    for (size_t i = 0; i < table->plot.series_count; i++) {
        char *name = table->plot.series[i];
        size_t length = strlen(name);
        (void)snprintf(name + length, PLOT_TEXT_BYTES - length,
                       ": %.1f of %d ranks",
                       active[i] / (double)options->size_count, options->ranks);
    }
}

/* ---- the command ------------------------------------------------------- */

static bool measure_and_report(const skew_options_t *options, bool speak)
{
    static table_t table = {
        .plot = {.x_label = "bytes", .log_base = 2, .x_bytes = true}};
    (void)snprintf(table.plot.title, sizeof(table.plot.title),
                   "All-reduce of %d ranks that arrive %g ms apart: mean "
                   "latency of %" PRIu64 " iterations",
                   options->ranks, options->skew_ms, options->iterations);
    if (!harness_agree(!speak || table_open(&table, &options->files))) {
        return false;
    }
    harness_t harness;
    harness_open(&harness, NULL);
    if (speak) {
        print_heading(options);
    }
    double active[SKEW_MAX_SYSTEMS] = {0};
    for (size_t i = 0; i < options->size_count; i++) {
        skew_result_t results[SKEW_MAX_SYSTEMS];
        skew_run(&harness, options, options->bytes[i], results);
        for (size_t k = 0; k < options->system_count; k++) {
            active[k] += results[k].active_mean;
        }
        if (speak) {
            print_table(options, &table, results);
        }
    }
    harness_close(&harness);
    name_active(options, &table, active);
    return harness_agree(!speak || table_close(&table, true));
}

int main(int argc, char **argv)
{
    int level = 0, rank = 0, ranks = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    skew_options_t options;
    cli_verdict_t verdict =
        skew_options_parse(argc, argv, ranks, rank == 0, &options);
    bool passed = verdict == CLI_DONE;
    if (verdict == CLI_RUN) {
        passed = measure_and_report(&options, rank == 0);
    }
    MPI_Finalize();
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
