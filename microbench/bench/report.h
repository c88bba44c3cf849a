/* The results of baton-bench, as lines of text and as JSON. Only rank 0 reports
   them. */
#ifndef MICROBENCH_BENCH_REPORT_H
#define MICROBENCH_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct bench_report {
    bool speak;
    int ranks;
    FILE *json; /* or NULL */
    size_t lines;
} bench_report_t;

/* A measured value: the median and the range of its repetitions. */
typedef struct bench_value {
    double median;
    double low;
    double high;
} bench_value_t;

bench_report_t bench_report_begin(int rank, int ranks, FILE *json);

/* Prints "  text   12.3 unit   (low to high)". `name` is its key in JSON. */
void bench_report_add(bench_report_t *report, const char *name,
                      const char *text, bench_value_t value, const char *unit);

/* Prints a line without a value. */
void bench_report_note(const bench_report_t *report, const char *text);

void bench_report_end(bench_report_t *report);

/* The value of `count` repetitions, which get sorted. */
bench_value_t bench_value(double *repetitions, size_t count);

/* A value that was counted or measured once. */
bench_value_t bench_value_single(double value);

#endif
