/* The one picture that all commands draw: values of several series over sizes,
   ranks and the like, on a logarithmic axis of microseconds. */
#ifndef MICROBENCH_PLOT_H
#define MICROBENCH_PLOT_H

#include <stdbool.h>
#include <stddef.h>

enum { PLOT_MAX_X = 64, PLOT_MAX_SERIES = 24, PLOT_TEXT_BYTES = 48 };

/* The caller sets what is above the line, and adds points. */
typedef struct plot {
    const char *name; /* of the file, or NULL: nothing is drawn */
    char title[256];
    const char *x_label;
    int log_base; /* of the x axis */
    bool x_bytes; /* x are written as 4K, 1M */
    /* ---- */
    size_t series_count, x_count;
    char series[PLOT_MAX_SERIES][PLOT_TEXT_BYTES]; /* their names */
    double x[PLOT_MAX_X];
    double values[PLOT_MAX_X][PLOT_MAX_SERIES]; /* microseconds */
} plot_t;

/* Creates the file, which ends in .svg or .png, and starts gnuplot, so that
   what is missing is told before anything is measured. */
bool plot_check(const char *name);

/* Adds a value of a series, which need not be new, to those at x. */
void plot_add(plot_t *plot, const char *series, double x, double us);

/* Draws, once each series has a value at each x. Both print why they failed. */
bool plot_draw(const plot_t *plot);

#endif
