/* baton-skew: measures the latency of all-reduce when ranks arrive one after
   another. See `baton-skew --help`; run.c says how it measures, account.h how
   every result is checked. */
#include "common/job.h"
#include "skew/skew.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEAL_PERCENT = 2 };

static void print_heading(const skew_options_t *options)
{
    (void)printf(
        "baton-skew: %d ranks, %g ms apart, %" PRIu64 " iterations after "
        "%d to warm up, seed %" PRIu64 ", every result checked\n"
        "  %-9s mean latency of %s over this system's\n"
        "  robust us median over iterations of the mean over ranks\n"
        "  limit us  mean time that ranks wait for the arrival that begins an "
        "iteration\n"
        "  /limit    robust us over the limit, where no rank is elected\n"
        "  active    ranks whose contribution to an iteration is in its "
        "result\n",
        options->ranks, options->skew_ms, options->iterations, SKEW_WARM_UP,
        options->seed, options->has_mpi ? "MPI/this" : "full/this",
        options->has_mpi ? "MPI_Allreduce" : "\"full\"");
    (void)fflush(stdout);
}

/* Prints the results of one size, an array of [systems], and writes them to the
   files. */
static void print_table(const skew_options_t *options, uint64_t bytes,
                        table_t *table, const skew_result_t *results)
{
    /* The time of the system that the others are compared with. */
    double common_us = NAN, percent = results->steal_share * 100;
    (void)printf("\n%s bytes\n", cli_format_bytes(bytes));
    table->headed = false;
    for (size_t i = 0; i < options->systems.count; i++) {
        if (options->choices[i].mode == BATON_FULL &&
            options->choices[i].is_mpi == options->has_mpi) {
            common_us = results[i].latency.mean;
        }
    }
    for (size_t i = 0; i < options->systems.count; i++) {
        const skew_result_t *r = &results[i];
        baton_partial_mode_t mode = options->choices[i].mode;
        char range[32];
        (void)snprintf(range, sizeof(range), "%" PRIu32 "-%" PRIu32,
                       r->active_min, r->active_max);
        /* In modes that elect ranks the limit is a mean over all elections, and
           the time is a median over iterations. Their ratio would mean
           nothing. */
        bool elects = mode == BATON_MAJORITY || mode == BATON_CANDIDATES_ANY ||
                      mode == BATON_CANDIDATES_ALL;
        const table_cell_t cells[] = {
            TEXT("system", "system", 12, options->choices[i].name),
            NUMBER("ranks", NULL, 0, 0, options->ranks),
            NUMBER("bytes", NULL, 0, 0, bytes),
            NUMBER("skew_ms", NULL, 0, 0, options->skew_ms),
            NUMBER("iterations", NULL, 0, 0, options->iterations),
            NUMBER("mean_us", "mean us", 10, 1, r->latency.mean),
            NUMBER("robust_us", "robust us", 10, 1, r->robust_us),
            NUMBER("limit_us", "limit us", 9, 1, r->limit_us),
            NUMBER("robust_over_limit", "/limit", 6, 2,
                   elects || r->limit_us <= 0 ? NAN
                                              : r->robust_us / r->limit_us),
            NUMBER("median_us", "median us", 10, 1, r->latency.median),
            NUMBER("p99_us", "p99 us", 10, 1, r->latency.p99),
            NUMBER(options->has_mpi ? "ratio_to_mpi" : "ratio_to_full",
                   options->has_mpi ? "MPI/this" : "full/this", 9, 2,
                   common_us / r->latency.mean),
            NUMBER("active_mean", "active", 6, 2, r->active_mean),
            TEXT(NULL, "min-max", 8, range),
            NUMBER("active_min", NULL, 0, 0, r->active_min),
            NUMBER("active_max", NULL, 0, 0, r->active_max),
            NUMBER("steal_share", NULL, 0, 0, r->steal_share),
        };
        table_row(table, cells, sizeof cells / sizeof *cells);
    }
    (void)printf("CPU steal: %.1f %%%s\n", percent,
                 percent > MOST_STEAL_PERCENT
                     ? ": warning: such stalls dominate means under skew; "
                       "trust the robust column, or measure again"
                     : "");
}

/* ---- the command ------------------------------------------------------- */

int main(int argc, char **argv)
{
    static table_t table = {.x = "bytes",
                            .y = "mean_us",
                            .series = "system",
                            .active = "active_mean"};
    static skew_options_t options;
    harness_t harness;
    options.ranks = harness_begin();
    options.has_mpi = job_has_mpi;
    skew_options_parse(argc, argv, &options);
    bool prints = harness_go_on();
    (void)snprintf(table.title, sizeof(table.title),
                   "All-reduce of %d ranks that arrive %g ms apart: mean "
                   "latency of %" PRIu64 " iterations",
                   options.ranks, options.skew_ms, options.iterations);
    if (!harness_agree(!prints || table_open(&table, &options.files))) {
        return EXIT_FAILURE;
    }
    harness_open(&harness, NULL);
    if (prints) {
        print_heading(&options);
    }
    for (size_t i = 0; i < options.bytes.count; i++) {
        skew_result_t results[CLI_MOST_ITEMS];
        skew_run(&harness, &options, options.bytes.numbers[i], results);
        if (prints) {
            print_table(&options, options.bytes.numbers[i], &table, results);
        }
    }
    harness_close(&harness);
    return harness_agree(!prints || table_close(&table, true)) ? EXIT_SUCCESS
                                                               : EXIT_FAILURE;
}
