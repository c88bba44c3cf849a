/* The one picture that all commands draw: values of several series over sizes,
   ranks and the like, on a logarithmic axis of microseconds. */
#ifndef MICROBENCH_PLOT_H
#define MICROBENCH_PLOT_H

#include <stdbool.h>
#include <stddef.h>

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

/* Creates the file, which ends in .svg or .png, and starts gnuplot, so that
   what is missing is told before anything is measured. */
bool plot_check(const char *name);

/* Draws. Both print why they failed, and do nothing if `name` is NULL. */
bool plot_draw(const char *name, const plot_t *plot);

#endif
