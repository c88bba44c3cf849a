/* A chart of the mean latencies: a cluster of bars for each size, on a
   logarithmic axis. */
#ifndef MICROBENCH_SKEW_PLOT_H
#define MICROBENCH_SKEW_PLOT_H

#include "common/output.h"
#include "skew/run.h"

/* Writes the script from [size_count][system_count] results. Does nothing if
   there is no plot. */
void skew_plot_write(output_plot_t *plot, const skew_options_t *options,
                     int ranks, const skew_result_t *results);

#endif
