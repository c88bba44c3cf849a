/* The files that a program writes, and gnuplot. They are opened before anything
   is measured, so that a bad path or a missing gnuplot is reported at once and
   not after minutes. Failures are printed on standard error. */
#ifndef MICROBENCH_OUTPUT_H
#define MICROBENCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* If `name` is NULL, *out is NULL. */
bool output_open(const char *name, FILE **out);

/* Does nothing if `file` is NULL. */
bool output_close(FILE *file, const char *name);

/* A plot that gnuplot draws from a script. */
typedef struct output_plot {
    const char *name; /* of the file, which ends in .svg or .png */
    FILE *script;     /* gnuplot's standard input; NULL for no plot */
    pid_t gnuplot;
} output_plot_t;

/* Creates the file and starts gnuplot, which sleeps until it reads its script.
   If `name` is NULL there is no plot. */
bool output_plot_open(const char *name, output_plot_t *out);

/* Writes the script's first line, which sets gnuplot's terminal from the file's
   name, with the size in pixels. */
void output_plot_size(const output_plot_t *plot, size_t width, size_t height);

/* Waits for gnuplot. */
bool output_plot_close(output_plot_t *plot);

/* Ends gnuplot without drawing a plot. */
void output_plot_abandon(output_plot_t *plot);

#endif
