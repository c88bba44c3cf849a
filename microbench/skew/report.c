#include "skew/report.h"
#include <inttypes.h>
#include <math.h>

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

bool skew_report_open(const skew_options_t *options, int ranks,
                      skew_report_t *out)
{
    *out = (skew_report_t){.options = options, .ranks = ranks};
    if (!table_open(&out->table, columns, COLUMN_COUNT, options->csv,
                    options->json)) {
        return false;
    }
    if (!output_plot_open(options->plot, &out->plot)) {
        (void)table_close(&out->table);
        return false;
    }
    return true;
}

void skew_report_heading(const skew_report_t *report)
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

static void add_row(skew_report_t *report, const skew_result_t *result)
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

void skew_report_table(skew_report_t *report, const skew_result_t *results)
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

bool skew_report_close(skew_report_t *report, const skew_result_t *results)
{
    bool written = table_close(&report->table);
    skew_plot_write(&report->plot, report->options, report->ranks, results);
    written &= output_plot_close(&report->plot);
    return written;
}

void skew_report_abandon(skew_report_t *report)
{
    (void)table_close(&report->table);
    output_plot_abandon(&report->plot);
}
