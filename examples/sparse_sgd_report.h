/* What sparse_sgd prints and writes. */
#ifndef EXAMPLES_SPARSE_SGD_REPORT_H
#define EXAMPLES_SPARSE_SGD_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_RUNS = 32, MOST_POINTS = 64 };

/* The state of a run after some steps. */
typedef struct point {
    uint64_t step;
    double loss, accuracy; /* of the images that are not trained with */
    double bytes;          /* sent so far by the rank that sends most */
    double network_s;      /* simulated, of all exchanges so far */
    double real_s;         /* of everything, on this machine */
    double residual;       /* norm of the ranks' residuals together */
} point_t;

typedef struct run {
    const char *algorithm;
    double density;  /* 1: dense */
    uint64_t digest; /* of the weights' bits at the end */
    point_t points[MOST_POINTS];
    size_t point_count;
} run_t;

void print_heading(void);
void print_run(const run_t *run);

/* Names may be NULL. False when a file could not be written, which is said. The
   plot is of the accuracy against steps, bytes and simulated time; its name
   ends in .svg or .png, and gnuplot draws it. */
bool write_csv(const char *name, const run_t *runs, size_t count);
bool write_json(const char *name, const run_t *runs, size_t count);
bool write_plot(const char *name, const run_t *runs, size_t count);

#endif
