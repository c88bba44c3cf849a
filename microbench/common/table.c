#include "common/table.h"
#include <errno.h>
#include <math.h>
#include <string.h>

bool output_fail(const char *doing, const char *name, int error)
{
    (void)fprintf(stderr, "%s: %s %s%s%s\n", program_invocation_short_name,
                  doing, name, error != 0 ? ": " : "",
                  error != 0 ? strerror(error) : "");
    return false;
}

bool output_open(const char *name, FILE **out)
{
    *out = name == NULL ? NULL : fopen(name, "we");
    return name == NULL || *out != NULL ||
           output_fail("can't write", name, errno);
}

bool output_close(FILE *file, const char *name)
{
    if (file == NULL) {
        return true;
    }
    bool failed = ferror(file) != 0;
    failed |= (file == stdout ? fflush(file) : fclose(file)) != 0;
    return !failed || output_fail("can't write all of", name, errno);
}

void output_string(FILE *file, const char *text)
{
    (void)fputc('"', file);
    for (; *text != '\0'; text++) {
        bool quoted = *text == '"' || *text == '\\';
        bool plain = (unsigned char)*text >= 0x20;
        (void)fprintf(file, quoted ? "\\%c" : plain ? "%c" : "\\u%04x", *text);
    }
    (void)fputc('"', file);
}

bool table_open(table_t *table, const table_column_t *columns,
                size_t column_count, const table_files_t *files)
{
    table->columns = columns;
    table->column_count = column_count;
    table->files = *files;
    table->plot.name = files->plot;
    return plot_check(files->plot) && output_open(files->csv, &table->csv) &&
           output_open(files->json, &table->json);
}

/* ---- the screen ------------------------------------------------------- */

static void print_text(const table_column_t *column, const char *text)
{
    int width = column->style == TABLE_TEXT ? -column->width : column->width;
    (void)printf("  %*s", width, text);
}

void table_heading(const table_t *table)
{
    for (size_t i = 0; i < table->column_count; i++) {
        if (table->columns[i].heading != NULL) {
            print_text(&table->columns[i], table->columns[i].heading);
        }
    }
    (void)putchar('\n');
    (void)fflush(stdout);
}

static void print_cell(const table_column_t *column, table_cell_t cell)
{
    if (cell.text != NULL) {
        print_text(column, cell.text[0] != '\0' ? cell.text : "-");
    } else if (isnan(cell.number)) {
        print_text(column, "-");
    } else if (column->style == TABLE_TINY) {
        (void)printf("  %*.1e", column->width, cell.number);
    } else {
        (void)printf("  %*.*f", column->width, column->decimals, cell.number);
    }
}

static void print_row(const table_t *table, const table_cell_t *cells)
{
    for (size_t i = 0; i < table->column_count; i++) {
        if (table->columns[i].heading != NULL) {
            print_cell(&table->columns[i], cells[i]);
        }
    }
    (void)putchar('\n');
    (void)fflush(stdout);
}

/* ---- files ------------------------------------------------------------ */

static void write_cell(FILE *file, table_cell_t cell, bool json)
{
    if (cell.text != NULL && json) {
        output_string(file, cell.text);
    } else if (cell.text != NULL) {
        (void)fputs(cell.text, file);
    } else if (isnan(cell.number)) {
        (void)fputs(json ? "null" : "", file);
    } else {
        (void)fprintf(file, "%.15g", cell.number);
    }
}

/* Rows of CSV, of which the first one has the keys. */
static void write_csv(const table_t *table, const table_cell_t *cells)
{
    for (size_t row = table->rows == 0 ? 0 : 1; row < 2; row++) {
        const char *separator = "";
        for (size_t i = 0; i < table->column_count; i++) {
            const char *key = table->columns[i].key;
            if (key != NULL) {
                (void)fputs(separator, table->csv);
                write_cell(table->csv, row == 0 ? table_text(key) : cells[i],
                           false);
                separator = ",";
            }
        }
        (void)fputc('\n', table->csv);
    }
}

static void write_json(const table_t *table, const table_cell_t *cells)
{
    const char *separator = "";
    (void)fputs(table->rows == 0 ? "[\n  {" : ",\n  {", table->json);
    for (size_t i = 0; i < table->column_count; i++) {
        const char *key = table->columns[i].key;
        if (key != NULL) {
            (void)fprintf(table->json, "%s\"%s\": ", separator, key);
            write_cell(table->json, cells[i], true);
            separator = ", ";
        }
    }
    (void)fputc('}', table->json);
}

void table_row(table_t *table, const table_cell_t *cells)
{
    if (table->json != stdout) {
        print_row(table, cells);
    }
    if (table->csv != NULL) {
        write_csv(table, cells);
    }
    if (table->json != NULL) {
        write_json(table, cells);
    }
    table->rows++;
}

bool table_close(table_t *table, bool passed)
{
    if (table->json != NULL) {
        (void)fputs(table->rows == 0 ? "[]\n" : "\n]\n", table->json);
    }
    bool written = output_close(table->csv, table->files.csv);
    written &= output_close(table->json, table->files.json);
    return passed && plot_draw(&table->plot) && written;
}
