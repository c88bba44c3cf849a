/* Files of results, which are opened before anything is measured, so that a bad
   path is reported at once and not after minutes; and a table of results, each
   row of which is printed, and written to a CSV and a JSON file if they are
   open, with the plot of it. Failures are printed on standard error. */
#ifndef MICROBENCH_TABLE_H
#define MICROBENCH_TABLE_H

#include "common/plot.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* If `name` is NULL, *out is NULL. */
bool output_open(const char *name, FILE **out);

/* Does nothing if `file` is NULL. */
bool output_close(FILE *file, const char *name);

/* Prints what failed, and why if `error` is not 0. Returns false. */
bool output_fail(const char *doing, const char *name, int error);

/* A cell of the row that is being made, and its column. */
typedef struct table_cell {
    const char *key;     /* in the files; NULL to omit it there */
    const char *heading; /* on the screen; NULL to omit it there */
    int width;           /* on the screen; below 0: left-aligned */
    int decimals;
    const char *text; /* NULL for a number */
    double number;
} table_cell_t;

enum { TABLE_COLUMNS = 40 };

/* Decimals of numbers that are printed as 1.2e-16. */
enum { TABLE_TINY = -1 };

/* Columns of a terminal: those that COLUMNS says, else its own, else 80. 0
   where the descriptor is none. */
int terminal_columns(int descriptor);

/* The names of its files, each of which may be NULL. */
typedef struct table_files {
    const char *csv, *json, *plot;
} table_files_t;

typedef struct table {
    table_cell_t cells[TABLE_COLUMNS];
    size_t cell_count;
    size_t rows;
    bool headed; /* false: the next row has headings above it */
    int columns; /* on the screen: cells beyond are left out; 0: none is */
    size_t left_out;
    table_files_t files;
    FILE *csv, *json;
    plot_t plot; /* the caller sets what is above its line, and adds points */
} table_t;

/* Opens the files. */
bool table_open(table_t *table, const table_files_t *files);

/* Add a cell to the row, all rows the same ones: a text, which stays valid
   until table_row and must not need quoting in CSV; or a number, which is NAN
   if there is none. Files get all of its digits. */
void table_text(table_t *table, const char *key, const char *heading, int width,
                const char *text);
void table_number(table_t *table, const char *key, const char *heading,
                  int width, int decimals, double number);

/* Prints the row, and writes it. */
void table_row(table_t *table);

/* Says how many cells of a row were left out, closes the files, and draws the
   plot if `passed`. Returns false if any of it did not succeed. */
bool table_close(table_t *table, bool passed);

#endif
