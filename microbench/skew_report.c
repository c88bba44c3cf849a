#include "skew_report.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

static bool open_file(const char *name, FILE **out)
{
    *out = NULL;
    if (name == NULL) {
        return true;
    }
    *out = fopen(name, "we");
    if (*out == NULL) {
        (void)fprintf(stderr, "baton-skew: can't write %s: %s\n", name,
                      strerror(errno));
    }
    return *out != NULL;
}

bool skew_report_open(const skew_options_t *options, int ranks,
                      skew_report_t *out)
{
    *out = (skew_report_t){.options = options, .ranks = ranks};
    bool opened = open_file(options->csv, &out->csv) &&
                  open_file(options->json, &out->json) &&
                  skew_plot_open(options->plot, &out->plot);
    if (!opened) {
        skew_report_abandon(out);
    }
    return opened;
}

/* ---- table ------------------------------------------------------------ */

void skew_report_heading(const skew_report_t *report)
{
    const skew_options_t *options = report->options;
    (void)printf(
        "baton-skew: %d ranks, %g ms apart, %" PRIu64 " iterations after "
        "%" PRIu64 " to warm up, seed %" PRIu64 ", every result checked\n"
        "  MPI/this  mean latency of MPI_Allreduce over this one's\n"
        "  active    processes whose contribution of an iteration is in its "
        "result\n"
        "  cpu us    processor time (user + system) of a rank in an iteration\n"
        "  barrier   the same, in the barrier that then ends the iteration\n",
        report->ranks, options->skew_ms, options->iterations, options->warmup,
        options->seed);
    (void)fflush(stdout);
}

static void format_ratio(double ratio, char *text, size_t text_bytes)
{
    if (ratio > 0) {
        (void)snprintf(text, text_bytes, "%.2f", ratio);
    } else {
        (void)snprintf(text, text_bytes, "-");
    }
}

void skew_report_table(const skew_report_t *report,
                       const skew_result_t *results)
{
    char size[16];
    (void)printf("\n%s bytes\n  %-26s %11s %11s %11s %9s %7s %9s %9s %9s\n",
                 cli_format_bytes(results->bytes, size, sizeof(size)), "system",
                 "mean us", "median us", "p99 us", "MPI/this", "active",
                 "min-max", "cpu us", "barrier");
    for (size_t i = 0; i < report->options->system_count; i++) {
        const skew_result_t *result = &results[i];
        char ratio[32];
        char range[32];
        format_ratio(result->ratio_to_mpi, ratio, sizeof(ratio));
        (void)snprintf(range, sizeof(range), "%" PRIu32 "-%" PRIu32,
                       result->active_min, result->active_max);
        (void)printf("  %-26s %11.1f %11.1f %11.1f %9s %7.2f %9s %9.1f %9.1f\n",
                     skew_kind_label(result->kind), result->mean_us,
                     result->median_us, result->p99_us, ratio,
                     result->active_mean, range, result->cpu_us_per_iteration,
                     result->barrier_us_per_iteration);
    }
    (void)fflush(stdout);
}

/* ---- files ------------------------------------------------------------ */

static void write_csv(FILE *file, const skew_options_t *options,
                      const skew_result_t *result)
{
    (void)fprintf(file, "%s,%d,%" PRIu64 ",%g,%" PRIu64 ",%.3f,%.3f,%.3f,",
                  skew_kind_name(result->kind), result->ranks, result->bytes,
                  options->skew_ms, options->iterations, result->mean_us,
                  result->median_us, result->p99_us);
    if (result->ratio_to_mpi > 0) {
        (void)fprintf(file, "%.4f", result->ratio_to_mpi);
    }
    (void)fprintf(file, ",%.4f,%" PRIu32 ",%" PRIu32 ",%.3f,%.3f\n",
                  result->active_mean, result->active_min, result->active_max,
                  result->cpu_us_per_iteration,
                  result->barrier_us_per_iteration);
}

static void write_json(FILE *file, const skew_options_t *options,
                       const skew_result_t *result)
{
    (void)fprintf(file,
                  "  {\"system\": \"%s\", \"ranks\": %d, \"bytes\": %" PRIu64
                  ", \"skew_ms\": %g, \"iterations\": %" PRIu64
                  ", \"mean_us\": %.3f, \"median_us\": %.3f, \"p99_us\": %.3f"
                  ", \"ratio_to_mpi\": ",
                  skew_kind_name(result->kind), result->ranks, result->bytes,
                  options->skew_ms, options->iterations, result->mean_us,
                  result->median_us, result->p99_us);
    if (result->ratio_to_mpi > 0) {
        (void)fprintf(file, "%.4f", result->ratio_to_mpi);
    } else {
        (void)fputs("null", file);
    }
    (void)fprintf(file,
                  ", \"active_mean\": %.4f, \"cpu_us_per_iteration\": %.3f}",
                  result->active_mean, result->cpu_us_per_iteration);
}

static void write_files(skew_report_t *report, const skew_result_t *results)
{
    const skew_options_t *options = report->options;
    size_t count = options->size_count * options->system_count;
    if (report->csv != NULL) {
        (void)fputs("system,ranks,bytes,skew_ms,iterations,mean_us,median_us,"
                    "p99_us,ratio_to_mpi,active_mean,active_min,active_max,"
                    "cpu_us_per_iteration,barrier_us_per_iteration\n",
                    report->csv);
        for (size_t i = 0; i < count; i++) {
            write_csv(report->csv, options, &results[i]);
        }
    }
    if (report->json != NULL) {
        (void)fputs("[\n", report->json);
        for (size_t i = 0; i < count; i++) {
            write_json(report->json, options, &results[i]);
            (void)fputs(i + 1 < count ? ",\n" : "\n", report->json);
        }
        (void)fputs("]\n", report->json);
    }
}

static bool close_file(FILE *file, const char *name)
{
    if (file == NULL) {
        return true;
    }
    bool failed = ferror(file) != 0;
    failed |= fclose(file) != 0;
    if (failed) {
        (void)fprintf(stderr, "baton-skew: writing %s failed: %s\n", name,
                      strerror(errno));
    }
    return !failed;
}

bool skew_report_close(skew_report_t *report, const skew_result_t *results)
{
    const skew_options_t *options = report->options;
    write_files(report, results);
    bool written = close_file(report->csv, options->csv);
    written &= close_file(report->json, options->json);
    skew_plot_write(&report->plot, options, report->ranks, results);
    written &= skew_plot_close(&report->plot);
    return written;
}

void skew_report_abandon(skew_report_t *report)
{
    if (report->csv != NULL) {
        (void)fclose(report->csv);
    }
    if (report->json != NULL) {
        (void)fclose(report->json);
    }
    skew_plot_abandon(&report->plot);
}
