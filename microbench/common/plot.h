/* The picture of a table: microseconds against sizes, ranks or the like.
   gnuplot draws it from the table's CSV, by the script microbench/plot.gp,
   which is installed with the commands. */
#ifndef MICROBENCH_PLOT_H
#define MICROBENCH_PLOT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct plot {
    /* The file's name, which ends in .svg or .png; NULL: no plot is drawn. */
    const char *name;
    char title[256];
    const char *x, *y;  /* names of columns of the CSV */
    const char *series; /* the columns whose values distinguish the series */
    const char *active; /* a column whose mean is shown in the key, or NULL */
} plot_t;

/* Creates the file, and starts gnuplot. So a missing gnuplot or folder is
   reported before anything is measured. */
bool plot_check(const char *name);

/* Draws the plot of a CSV file. plot_check and plot_draw print why they
   failed. */
bool plot_draw(const plot_t *plot, FILE *csv);

#endif
