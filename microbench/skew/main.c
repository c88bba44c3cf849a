/* baton-skew: the latency of all-reduce when ranks arrive one after another.
   See `baton-skew --help`, run.c for how it measures, and account.h
   for how every result is checked. */
#include "skew/report.h"
#include <mpi.h>
#include <stdlib.h>

static bool measure(const harness_t *harness, const skew_options_t *options,
                    skew_report_t *report, skew_result_t *results)
{
    progress_t progress;
    progress_init(&progress, harness->rank == 0,
                  options->size_count *
                      (options->warmup + options->iterations));
    if (harness->rank == 0) {
        skew_report_heading(report);
    }
    for (size_t i = 0; i < options->size_count; i++) {
        skew_result_t *row = &results[i * options->system_count];
        bool passed =
            skew_run(harness, options, options->bytes[i], &progress, row);
        progress_clear(&progress);
        if (!passed) {
            return false;
        }
        if (harness->rank == 0) {
            skew_report_table(report, row);
        }
    }
    return true;
}

static bool measure_and_report(const skew_options_t *options, int rank,
                               int ranks)
{
    skew_report_t report;
    if (!harness_agree(rank != 0 ||
                       skew_report_open(options, ranks, &report))) {
        return false;
    }
    skew_result_t *results = harness_alloc(
        options->size_count * options->system_count, sizeof(*results));
    harness_t harness;
    harness_open(&harness, NULL);
    bool passed = measure(&harness, options, &report, results);
    harness_close(&harness);
    if (rank == 0 && passed) {
        passed = skew_report_close(&report, results);
    } else if (rank == 0) {
        skew_report_abandon(&report);
    }
    free(results);
    return harness_agree(passed);
}

int main(int argc, char **argv)
{
    int level = 0;
    int rank = 0;
    int ranks = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    skew_options_t options;
    cli_verdict_t verdict =
        skew_options_parse(argc, argv, ranks, rank == 0, &options);
    bool passed = verdict == CLI_DONE;
    if (verdict == CLI_RUN) {
        passed = measure_and_report(&options, rank, ranks);
    }
    MPI_Finalize();
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
