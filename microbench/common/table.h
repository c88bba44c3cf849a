/* Files of results, and a table of results. Files are opened before anything is
   measured, so that a bad path is reported at once and not after minutes. Each
   row of a table is printed and written to the CSV and JSON files that are
   open; the table may have a plot. Failures are printed on standard error. */
#ifndef MICROBENCH_TABLE_H
#define MICROBENCH_TABLE_H

#include "common/plot.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Opens a file for writing. Sets *out to NULL if `name` is NULL. */
bool output_open(const char *name, FILE **out);

/* Closes a file. Does nothing if `file` is NULL. */
bool output_close(FILE *file, const char *name);

/* Prints that `doing` failed for the file, with the error's text if `error` is
   not 0. Returns false. */
bool output_fail(const char *doing, const char *name, int error);

/* A cell of the row under construction, with its column. */
typedef struct table_cell {
    const char *key;     /* in the files; NULL: not in the files */
    const char *heading; /* on the screen; NULL: not on the screen */
    int width;           /* on the screen; negative: left-aligned */
    int decimals;
    const char *text; /* NULL for a number */
    double number;
} table_cell_t;

enum { TABLE_COLUMNS = 40 };

/* Given as `decimals`: the number is printed as 1.2e-16. */
enum { TABLE_TINY = -1 };

/* Returns the width of a terminal: COLUMNS if set, else the terminal's own
   width, else 80. Returns 0 if the descriptor is no terminal. */
int terminal_columns(int descriptor);

/* The names of a table's files, each of which may be NULL. */
typedef struct table_files {
    const char *csv, *json, *plot;
} table_files_t;

typedef struct table {
    table_cell_t cells[TABLE_COLUMNS];
    size_t cell_count;
    size_t rows;
    bool headed; /* the headings were printed, above the first row */
    int columns; /* of the screen: cells that do not fit are left out; 0: no
                    limit */
    size_t left_out;
    table_files_t files;
    FILE *csv, *json;
    plot_t plot; /* the caller sets the fields above plot_t's line and adds
                    points */
} table_t;

bool table_open(table_t *table, const table_files_t *files);

/* Add a cell to the row. All rows must have the same columns. A text must stay
   valid until table_row and must not need quoting in CSV. A number is NAN if
   there is none; files get all its digits. */
void table_text(table_t *table, const char *key, const char *heading, int width,
                const char *text);
void table_number(table_t *table, const char *key, const char *heading,
                  int width, int decimals, double number);

/* Prints the row, and writes it to the files. */
void table_row(table_t *table);

/* Prints how many cells of a row were left out, closes the files, and draws the
   plot if `passed`. Returns false if any of this failed. */
bool table_close(table_t *table, bool passed);

#endif
