/* Results as they come: a row goes to the screen, to a CSV file and to a JSON
   file, where there are such. */
#ifndef MICROBENCH_TABLE_H
#define MICROBENCH_TABLE_H

#include "common/output.h"

/* How a column's cells look on the screen. Files get all digits. */
typedef enum table_style {
    TABLE_TEXT,  /* to the left */
    TABLE_FIXED, /* with `decimals` */
    TABLE_TINY   /* 1.2e-16 */
} table_style_t;

typedef struct table_column {
    const char *key;     /* in the files; NULL: not there */
    const char *heading; /* on the screen; NULL: not there */
    table_style_t style;
    int width;
    int decimals;
} table_column_t;

/* `text` where it is not NULL, else the number; NAN: there is none. A text of
   the files is a word: nothing in it needs a quotation mark. */
typedef struct table_cell {
    const char *text;
    double number;
} table_cell_t;

typedef struct table {
    const table_column_t *columns;
    size_t column_count;
    size_t rows;
    const char *csv_name, *json_name;
    FILE *csv, *json;
} table_t;

/* Opens the files, of which the names may be NULL. */
bool table_open(table_t *table, const table_column_t *columns,
                size_t column_count, const char *csv, const char *json);

/* Prints the headings on the screen. */
void table_heading(const table_t *table);

/* Prints and writes a row of `column_count` cells. */
void table_row(table_t *table, const table_cell_t *cells);

/* Closes the files. */
bool table_close(table_t *table);

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
