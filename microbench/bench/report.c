#include "bench/report.h"
#include "common/harness.h"

bench_report_t bench_report_begin(int rank, int ranks, FILE *json)
{
    if (json != NULL) {
        (void)fputs("[", json);
    }
    return (bench_report_t){
        .speak = rank == 0,
        .ranks = ranks,
        .json = json,
    };
}

static void add_json(const bench_report_t *report, const char *name,
                     bench_value_t value, const char *unit)
{
    (void)fprintf(report->json,
                  "%s\n  {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", "
                  "\"low\": %.6g, \"high\": %.6g, \"ranks\": %d}",
                  report->lines > 0 ? "," : "", name, value.median, unit,
                  value.low, value.high, report->ranks);
}

void bench_report_add(bench_report_t *report, const char *name,
                      const char *text, bench_value_t value, const char *unit)
{
    if (!report->speak) {
        return;
    }
    (void)printf("  %-52s %10.3f %-9s", text, value.median, unit);
    if (value.low < value.high) {
        (void)printf(" (%.3f to %.3f)", value.low, value.high);
    }
    (void)printf("\n");
    (void)fflush(stdout);
    if (report->json != NULL) {
        add_json(report, name, value, unit);
    }
    report->lines++;
}

void bench_report_note(const bench_report_t *report, const char *text)
{
    if (report->speak) {
        (void)printf("%s\n", text);
        (void)fflush(stdout);
    }
}

void bench_report_end(bench_report_t *report)
{
    if (report->json != NULL) {
        (void)fputs("\n]\n", report->json);
    }
}

bench_value_t bench_value(double *repetitions, size_t count)
{
    double median = stats_median(repetitions, count);
    return (bench_value_t){
        .median = median,
        .low = repetitions[0],
        .high = repetitions[count - 1],
    };
}

bench_value_t bench_value_single(double value)
{
    return (bench_value_t){value, value, value};
}
