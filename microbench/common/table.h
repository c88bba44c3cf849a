/* A table of results. Each row is printed and written to the CSV and JSON files
   that are open; the table may have a plot. Failures are printed on standard
   error. */
#ifndef MICROBENCH_TABLE_H
#define MICROBENCH_TABLE_H

#include "common/plot.h"
#include <stddef.h>

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

/* The names of a table's files, each of which may be NULL. */
typedef struct table_files {
    const char *csv, *json, *plot;
} table_files_t;

typedef struct table {
    size_t rows;
    bool headed; /* the headings were already printed */
    /* The screen's width. Cells that do not fit are left out. 0: no limit. */
    int columns;
    size_t left_out;
    table_files_t files;
    FILE *csv, *json, *plotted; /* `plotted` is the CSV file of the plot */
    plot_t plot;                /* the caller sets all fields but the name */
} table_t;

bool table_open(table_t *table, const table_files_t *files);

/* Prints a row, and writes it to the files. */
void table_row(table_t *table, const table_cell_t *cells, size_t count);

/* Prints how many cells of a row were left out, closes the files, and draws the
   plot if `passed`. Returns false if any of this failed. */
bool table_close(table_t *table, bool passed);

#endif
