/* The files that a program writes, and gnuplot. All are opened before anything
   is measured: a bad path, or a missing gnuplot, is told at once and not after
   minutes. What failed is said on standard error. */
#ifndef MICROBENCH_OUTPUT_H
#define MICROBENCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* `name` NULL: no file, and *out is NULL. */
bool output_open(const char *name, FILE **out);

/* `file` NULL: there is nothing to do. */
bool output_close(FILE *file, const char *name);

/* A plot that gnuplot draws from a script. */
typedef struct output_plot {
    const char *name; /* of the file: it ends in .svg or .png */
    FILE *script;     /* gnuplot's standard input; NULL: no plot */
    pid_t gnuplot;
} output_plot_t;

/* Creates the file and starts gnuplot, which then sleeps until it gets its
   script. `name` NULL: no plot. */
bool output_plot_open(const char *name, output_plot_t *out);

/* The script's first line: gnuplot's terminal, from the file's name, with the
   size in pixels. */
void output_plot_size(const output_plot_t *plot, size_t width, size_t height);

/* Waits for gnuplot. */
bool output_plot_close(output_plot_t *plot);

/* Ends gnuplot without a plot. */
void output_plot_abandon(output_plot_t *plot);

#endif
