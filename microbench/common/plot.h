/* The one picture that all commands draw: values of several series over sizes,
   ranks and the like, on a logarithmic axis of microseconds. */
#ifndef MICROBENCH_PLOT_H
#define MICROBENCH_PLOT_H

#include "common/output.h"

enum { PLOT_TEXT_BYTES = 48 };

typedef struct plot {
    const char *title, *x_label;
    size_t series_count, x_count;
    const char (*series)[PLOT_TEXT_BYTES]; /* their names */
    const char (*ticks)[PLOT_TEXT_BYTES];  /* a label for each x */
    const double *x;      /* ascending or not; unused for bars */
    const double *values; /* [x_count][series_count], microseconds */
    int log_base;         /* of the x axis; 0: bars side by side at each x */
} plot_t;

/* Writes gnuplot's script. Does nothing if there is no plot. */
void plot_draw(const output_plot_t *out, const plot_t *plot);

#endif
