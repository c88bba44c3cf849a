/* A chart of the mean latencies, drawn by gnuplot: bars per size, log axis. */
#ifndef MICROBENCH_SKEW_PLOT_H
#define MICROBENCH_SKEW_PLOT_H

#include "skew_run.h"
#include <stdio.h>
#include <sys/types.h>

typedef struct skew_plot {
    const char *name; /* of the file */
    FILE *script;     /* gnuplot's standard input; NULL: no plot */
    pid_t gnuplot;
} skew_plot_t;

/* Creates the file and starts gnuplot, which then sleeps until it gets its
   script: so that what is missing is found before the measurement. `name` NULL:
   no plot. Says on standard error what failed. */
bool skew_plot_open(const char *name, skew_plot_t *out);

/* Writes the script, from [size_count][system_count] results. */
void skew_plot_write(skew_plot_t *plot, const skew_options_t *options,
                     int ranks, const skew_result_t *results);

/* Waits for gnuplot. Says on standard error what failed. */
bool skew_plot_close(skew_plot_t *plot);

/* Ends gnuplot without a plot. */
void skew_plot_abandon(skew_plot_t *plot);

#endif
