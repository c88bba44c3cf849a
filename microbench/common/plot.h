/* The one kind of plot that all commands draw: several series over sizes, ranks
   or the like, with a logarithmic axis of microseconds. */
#ifndef MICROBENCH_PLOT_H
#define MICROBENCH_PLOT_H

#include <stdbool.h>
#include <stddef.h>

enum { PLOT_MAX_X = 64, PLOT_MAX_SERIES = 24, PLOT_TEXT_BYTES = 48 };

/* The caller sets the fields above the line and adds points. */
typedef struct plot {
    const char *name; /* of the file; NULL: no plot is drawn */
    char title[256];
    const char *x_label;
    int log_base; /* base of the x axis's logarithm */
    bool x_bytes; /* x values are written as 4K, 1M */
    /* ---- */
    size_t series_count, x_count;
    char series[PLOT_MAX_SERIES][PLOT_TEXT_BYTES]; /* names of the series */
    double x[PLOT_MAX_X];
    double values[PLOT_MAX_X][PLOT_MAX_SERIES]; /* in microseconds */
} plot_t;

/* Creates the file, whose name ends in .svg or .png, and starts gnuplot. So a
   missing gnuplot or folder is reported before anything is measured. */
bool plot_check(const char *name);

/* Adds one value of a series at x. The series is created if it is new. */
void plot_add(plot_t *plot, const char *series, double x, double us);

/* Draws the plot. Every series must have a value at every x. plot_check and
   plot_draw print why they failed. */
bool plot_draw(const plot_t *plot);

#endif
