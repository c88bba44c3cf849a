/* baton-skew: the latency of all-reduce when ranks arrive one after another.
   See `baton-skew --help`, run.c for how it measures, and account.h
   for how every result is checked. */
#include "common/plot.h"
#include "common/table.h"
#include "skew/skew.h"
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <stdlib.h>

/* Rank 0's output. The files are opened before the measurement, so that a bad
   path fails at once and not after minutes. */
typedef struct report {
    const skew_options_t *options;
    int ranks;
    table_t table;
} report_t;

enum { MOST_STEAL_PERCENT = 2 };

enum {
    SYSTEM,
    LABEL,
    RANKS,
    BYTES,
    SKEW_MS,
    ITERATIONS,
    MEAN,
    ROBUST,
    LIMIT,
    OVER,
    MEDIAN,
    P99,
    RATIO,
    ACTIVE,
    RANGE,
    ACTIVE_MIN,
    ACTIVE_MAX,
    PROCESSOR,
    BARRIER,
    STEAL,
    COLUMN_COUNT
};

static const table_column_t columns[COLUMN_COUNT] = {
    [SYSTEM] = {"system", NULL, TABLE_TEXT, 0, 0},
    [LABEL] = {NULL, "system", TABLE_TEXT, 26, 0},
    [RANKS] = {"ranks", NULL, TABLE_FIXED, 0, 0},
    [BYTES] = {"bytes", NULL, TABLE_FIXED, 0, 0},
    [SKEW_MS] = {"skew_ms", NULL, TABLE_FIXED, 0, 0},
    [ITERATIONS] = {"iterations", NULL, TABLE_FIXED, 0, 0},
    [MEAN] = {"mean_us", "mean us", TABLE_FIXED, 10, 1},
    [ROBUST] = {"robust_us", "robust us", TABLE_FIXED, 10, 1},
    [LIMIT] = {"limit_us", "limit us", TABLE_FIXED, 9, 1},
    [OVER] = {"robust_over_limit", "/limit", TABLE_FIXED, 6, 2},
    [MEDIAN] = {"median_us", "median us", TABLE_FIXED, 10, 1},
    [P99] = {"p99_us", "p99 us", TABLE_FIXED, 10, 1},
    [RATIO] = {"ratio_to_mpi", "MPI/this", TABLE_FIXED, 8, 2},
    [ACTIVE] = {"active_mean", "active", TABLE_FIXED, 6, 2},
    [RANGE] = {NULL, "min-max", TABLE_FIXED, 8, 0},
    [ACTIVE_MIN] = {"active_min", NULL, TABLE_FIXED, 0, 0},
    [ACTIVE_MAX] = {"active_max", NULL, TABLE_FIXED, 0, 0},
    [PROCESSOR] = {"cpu_us_per_iteration", "cpu us", TABLE_FIXED, 8, 1},
    [BARRIER] = {"barrier_us_per_iteration", "barrier", TABLE_FIXED, 8, 1},
    [STEAL] = {"steal_share", NULL, TABLE_FIXED, 0, 0},
};

static bool open_report(const skew_options_t *options, int ranks, report_t *out)
{
    *out = (report_t){.options = options, .ranks = ranks};
    return plot_check(options->plot) &&
           table_open(&out->table, columns, COLUMN_COUNT, options->csv,
                      options->json);
}

static void print_heading(const report_t *report)
{
    const skew_options_t *options = report->options;
    (void)printf(
        "baton-skew: %d ranks, %g ms apart, %" PRIu64 " iterations after "
        "%" PRIu64 " to warm up, seed %" PRIu64 ", every result checked\n"
        "  MPI/this  mean latency of MPI_Allreduce over this one's\n"
        "  robust us median over iterations of the mean over ranks\n"
        "  limit us  mean of what ranks wait for those whose arrival begins an "
        "iteration\n"
        "  /limit    robust us over the limit, where no rank is elected\n"
        "  active    processes whose contribution of an iteration is in its "
        "result\n"
        "  cpu us    processor time (user + system) of a rank in an iteration\n"
        "  barrier   the same, in the barrier that then ends the iteration\n",
        report->ranks, options->skew_ms, options->iterations, options->warmup,
        options->seed);
    (void)fflush(stdout);
}

/* Of the modes that elect, the median and the mean over iterations differ. */
static double over_limit(const skew_result_t *result)
{
    skew_kind_t kind = result->choice.kind;
    bool elects = kind == SKEW_MAJORITY || kind == SKEW_ANY || kind == SKEW_ALL;
    return elects || result->limit_us <= 0
               ? NAN
               : result->robust_us / result->limit_us;
}

static void add_row(report_t *report, const skew_result_t *result)
{
    char range[32];
    (void)snprintf(range, sizeof(range), "%" PRIu32 "-%" PRIu32,
                   result->active_min, result->active_max);
    char name[SKEW_NAME_BYTES];
    char label[SKEW_NAME_BYTES];
    const table_cell_t cells[COLUMN_COUNT] = {
        [SYSTEM] = table_text(skew_name(result->choice, name)),
        [LABEL] = table_text(skew_label(result->choice, label)),
        [RANKS] = table_number(result->ranks),
        [BYTES] = table_number((double)result->bytes),
        [SKEW_MS] = table_number(report->options->skew_ms),
        [ITERATIONS] = table_number((double)report->options->iterations),
        [MEAN] = table_number(result->mean_us),
        [ROBUST] = table_number(result->robust_us),
        [LIMIT] = table_number(result->limit_us),
        [OVER] = table_number(over_limit(result)),
        [MEDIAN] = table_number(result->median_us),
        [P99] = table_number(result->p99_us),
        [RATIO] =
            table_number(result->ratio_to_mpi > 0 ? result->ratio_to_mpi : NAN),
        [ACTIVE] = table_number(result->active_mean),
        [RANGE] = table_text(range),
        [ACTIVE_MIN] = table_number(result->active_min),
        [ACTIVE_MAX] = table_number(result->active_max),
        [PROCESSOR] = table_number(result->cpu_us_per_iteration),
        [BARRIER] = table_number(result->barrier_us_per_iteration),
        [STEAL] = table_number(result->steal_share),
    };
    table_row(&report->table, cells);
}

/* Prints one size's results, [system_count], and writes them to the files. */
static void print_table(report_t *report, const skew_result_t *results)
{
    char size[16];
    (void)printf("\n%s bytes\n",
                 cli_format_bytes(results->bytes, size, sizeof(size)));
    table_heading(&report->table);
    for (size_t i = 0; i < report->options->system_count; i++) {
        add_row(report, &results[i]);
    }
    double percent = results->steal_share * 100;
    (void)printf("%.1f %% of the processors' time was taken by the machine's "
                 "host%s\n",
                 percent,
                 percent > MOST_STEAL_PERCENT
                     ? ": means under skew are made of such stalls, trust the "
                       "robust column, or measure again"
                     : "");
    if (percent > MOST_STEAL_PERCENT) {
        (void)fprintf(stderr,
                      "baton-skew: warning: the host took %.1f %% of the "
                      "processors' time, more than %d %%\n",
                      percent, (int)MOST_STEAL_PERCENT);
    }
}

/* A cluster of bars for each size. */
static bool draw(const report_t *report, const skew_result_t *results)
{
    const skew_options_t *options = report->options;
    static char series[SKEW_MAX_SYSTEMS][PLOT_TEXT_BYTES];
    static char ticks[SKEW_MAX_SIZES][PLOT_TEXT_BYTES];
    static double us[SKEW_MAX_SIZES * SKEW_MAX_SYSTEMS];
    char title[160];
    (void)snprintf(title, sizeof(title),
                   "All-reduce of %d ranks that arrive %g ms apart: mean "
                   "latency of %" PRIu64 " iterations",
                   report->ranks, options->skew_ms, options->iterations);
    for (size_t i = 0; i < options->system_count; i++) {
        (void)skew_label(options->choices[i], series[i]);
    }
    for (size_t i = 0; i < options->size_count; i++) {
        (void)cli_format_bytes(options->bytes[i], ticks[i], PLOT_TEXT_BYTES);
    }
    for (size_t i = 0; i < options->size_count * options->system_count; i++) {
        us[i] = results[i].mean_us;
    }
    const plot_t plot = {
        .title = title,
        .x_label = "bytes",
        .series_count = options->system_count,
        .x_count = options->size_count,
        .series = (const char(*)[PLOT_TEXT_BYTES])series,
        .ticks = (const char(*)[PLOT_TEXT_BYTES])ticks,
        .values = us,
    };
    return plot_draw(options->plot, &plot);
}

/* Draws the plot from all results, [size_count][system_count], unless a check
   has failed, and closes the files. */
static bool close_report(report_t *report, const skew_result_t *results,
                         bool passed)
{
    bool written = table_close(&report->table);
    return passed && draw(report, results) && written;
}

/* ---- the command ------------------------------------------------------- */

static bool measure(const harness_t *harness, const skew_options_t *options,
                    report_t *report, skew_result_t *results)
{
    progress_t progress;
    progress_init(&progress, harness->rank == 0,
                  options->size_count *
                      (options->warmup + options->iterations));
    if (harness->rank == 0) {
        print_heading(report);
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
            print_table(report, row);
        }
    }
    return true;
}

static bool measure_and_report(const skew_options_t *options, int rank,
                               int ranks)
{
    report_t report;
    if (!harness_agree(rank != 0 || open_report(options, ranks, &report))) {
        return false;
    }
    skew_result_t *results = harness_alloc(
        options->size_count * options->system_count, sizeof(*results));
    harness_t harness;
    harness_open(&harness, NULL);
    bool passed = measure(&harness, options, &report, results);
    harness_close(&harness);
    if (rank == 0) {
        passed = close_report(&report, results, passed);
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
