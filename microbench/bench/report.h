/* The lines that baton-bench prints, and their JSON. Ranks other than 0 report
   nothing. */
#ifndef MICROBENCH_BENCH_REPORT_H
#define MICROBENCH_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct bench_report {
    bool speak;
    int ranks;
    FILE *json; /* NULL: none */
    size_t lines;
} bench_report_t;

/* One measured value: the median, and the range of its repetitions. */
typedef struct bench_value {
    double median;
    double low;
    double high;
} bench_value_t;

bench_report_t bench_report_begin(int rank, int ranks, FILE *json);

/* "  text   12.3 unit   (low to high)"; `name` is its key in the JSON. */
void bench_report_add(bench_report_t *report, const char *name,
                      const char *text, bench_value_t value, const char *unit);

/* A line without a value. */
void bench_report_note(const bench_report_t *report, const char *text);

void bench_report_end(bench_report_t *report);

/* Of `count` repetitions, which are sorted. */
bench_value_t bench_value(double *repetitions, size_t count);

/* Of something counted or measured once. */
bench_value_t bench_value_single(double value);

#endif
