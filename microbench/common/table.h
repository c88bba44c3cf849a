/* A table of results. Each row is printed and written to the CSV and JSON files
   that are open. The table may have a picture: microseconds against sizes,
   ranks or the like. gnuplot draws it from the table's CSV, by the script
   microbench/plot.gp, which is installed with the commands.

   Files are opened before anything is measured, so that a bad path or a missing
   gnuplot is reported at once and not after minutes. Failures are printed on
   standard error. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A cell of a row, with its column. All rows must have the same columns. A text
   must not need quoting in CSV or JSON. A number that is unknown is NAN. Files
   get all digits of a number. */
typedef struct table_cell {
    /* The column's name in files; NULL: files leave it out. */
    const char *key;
    /* The column's heading on the screen; NULL: the screen leaves it out. */
    const char *heading;
    int width; /* the width on the screen; negative: left-aligned */
    int decimals;
    const char *text; /* NULL: the cell is a number */
    double number;
} table_cell_t;

/* A value of `decimals`, with which a number is printed as 1.2e-16. */
enum { TABLE_TINY = -1 };

/* clang-format off */
#define TEXT(key_, heading_, width_, text_)                              \
    {.key = (key_), .heading = (heading_), .width = -(width_), .text = (text_)}
#define NUMBER(key_, heading_, width_, decimals_, number_)               \
    {.key = (key_), .heading = (heading_), .width = (width_),                  \
     .decimals = (decimals_), .number = (double)(number_)}
/* clang-format on */

/* The names of a table's files, each of which may be NULL. `plot` ends in .svg
   or .png. */
typedef struct table_files {
    const char *csv, *json, *plot;
} table_files_t;

typedef struct table {
    /* The picture, which the caller describes. */
    char title[1024];
    const char *x, *y;  /* names of columns */
    const char *series; /* the columns whose values distinguish the series */
    const char *active; /* a column whose mean is shown in the key, or NULL */
    /* The screen's width. Cells that do not fit are left out. 0: no limit. */
    int columns;
    bool headed; /* the headings were already printed */
    size_t rows, left_out;
    table_files_t files;
    FILE *csv, *json;
} table_t;

bool table_open(table_t *table, const table_files_t *files);

/* Prints a row, and writes it to the files. */
void table_row(table_t *table, const table_cell_t *cells, size_t count);

/* Prints how many cells were left out because the screen is too narrow, closes
   the files, and draws the picture if `passed`. Returns false if any of this
   failed. */
bool table_close(table_t *table, bool passed);

/* ---- other files of results --------------------------------------------- */

/* Opens a file for writing. Sets *out to NULL if `name` is NULL. */
bool output_open(const char *name, FILE **out);

/* Closes a file. Does nothing if `file` is NULL. */
bool output_close(FILE *file, const char *name);

/* Prints that an action, which `doing` names, failed for the file; also prints
   the error's text if `error` is not 0. Returns false. */
bool output_fail(const char *doing, const char *name, int error);
