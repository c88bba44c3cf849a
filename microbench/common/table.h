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

/* Does nothing if `file` is NULL. stdout stays open. */
bool output_close(FILE *file, const char *name);

/* Prints what failed, and why if `error` is not 0. Returns false. */
bool output_fail(const char *doing, const char *name, int error);

/* Writes a string of JSON. */
void output_string(FILE *file, const char *text);

/* How the cells of a column are printed. Files get all digits. */
typedef enum table_style {
    TABLE_TEXT,  /* left-aligned */
    TABLE_FIXED, /* with a fixed number of decimals */
    TABLE_TINY   /* as 1.2e-16 */
} table_style_t;

typedef struct table_column {
    const char *key;     /* in the files; NULL to omit it there */
    const char *heading; /* on the screen; NULL to omit it there */
    table_style_t style;
    int width;
    int decimals;
} table_column_t;

/* A text if it is not NULL, otherwise a number, which is NAN if there is none.
   A text that is written as CSV must not need quoting. */
typedef struct table_cell {
    const char *text;
    double number;
} table_cell_t;

/* The names of its files, each of which may be NULL. */
typedef struct table_files {
    const char *csv, *json, *plot;
} table_files_t;

typedef struct table {
    const table_column_t *columns;
    size_t column_count;
    size_t rows;
    table_files_t files;
    FILE *csv, *json;
    plot_t plot; /* the caller sets what is above its line, and adds points */
} table_t;

/* Opens the files. */
bool table_open(table_t *table, const table_column_t *columns,
                size_t column_count, const table_files_t *files);

/* Prints the headings. */
void table_heading(const table_t *table);

/* Prints and writes a row of `column_count` cells. Does not print if the JSON
   goes to stdout. */
void table_row(table_t *table, const table_cell_t *cells);

/* Closes the files, and draws the plot if `passed`. Returns false if any of
   it did not. */
bool table_close(table_t *table, bool passed);

static inline table_cell_t table_text(const char *text)
{
    table_cell_t cell = {text, 0};
    return cell;
}

static inline table_cell_t table_number(double number)
{
    table_cell_t cell = {NULL, number};
    return cell;
}

#endif
