#include "common/table.h"
#include "common/output.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

bool table_open(table_t *table, const table_files_t *files)
{
    table->files = *files;
    table->plot.name = files->plot;
    table->plotted = files->plot != NULL ? tmpfile() : NULL;
    if (files->plot != NULL && table->plotted == NULL) {
        return output_fail("no temporary file for", files->plot, errno);
    }
    return plot_check(files->plot) && output_open(files->csv, &table->csv) &&
           output_open(files->json, &table->json);
}

/* ---- the screen ------------------------------------------------------- */

static void print_cell(const table_cell_t *cell)
{
    if (cell->text != NULL || isnan(cell->number)) {
        bool none = cell->text == NULL || cell->text[0] == '\0';
        (void)printf("  %*s", cell->width, none ? "-" : cell->text);
    } else if (cell->decimals == TABLE_TINY) {
        (void)printf("  %*.1e", cell->width, cell->number);
    } else {
        (void)printf("  %*.*f", cell->width, cell->decimals, cell->number);
    }
}

/* Prints a row. If `heading`, prints the headings of its columns instead. */
static void print_row(table_t *table, const table_cell_t *cells, size_t count,
                      bool heading)
{
    int used = 0;
    table->left_out = 0;
    for (const table_cell_t *cell = cells; cell < cells + count; cell++) {
        used += cell->heading != NULL ? 2 + abs(cell->width) : 0;
        if (table->columns > 0 && used > table->columns) {
            table->left_out += cell->heading != NULL;
        } else if (cell->heading != NULL && heading) {
            (void)printf("  %*s", cell->width, cell->heading);
        } else if (cell->heading != NULL) {
            print_cell(cell);
        }
    }
    (void)putchar('\n');
}

/* ---- files ------------------------------------------------------------ */

/* Writes a row of CSV or JSON. If `keys`, writes the first line of a CSV file
   instead, which names the columns. Does nothing if the file is NULL. */
static void write_row(FILE *file, const table_cell_t *cells, size_t count,
                      bool json, bool keys)
{
    const char *separator = "";
    for (size_t i = 0; file != NULL && i < count; i++) {
        const table_cell_t *cell = &cells[i];
        if (cell->key == NULL) {
            continue;
        }
        (void)fputs(separator, file);
        separator = json ? ", " : ",";
        if (json || keys) {
            (void)fprintf(file, json ? "\"%s\": " : "%s", cell->key);
        }
        if (cell->text != NULL && !keys) {
            (void)fprintf(file, json ? "\"%s\"" : "%s", cell->text);
        } else if (!keys && !isnan(cell->number)) {
            (void)fprintf(file, "%.15g", cell->number);
        } else if (!keys) {
            (void)fputs(json ? "null" : "", file);
        }
    }
    (void)(file != NULL && fputs(json ? "}" : "\n", file));
}

void table_row(table_t *table, const table_cell_t *cells, size_t count)
{
    if (!table->headed) {
        print_row(table, cells, count, true);
    }
    print_row(table, cells, count, false);
    (void)fflush(stdout);
    for (int keys = table->rows == 0; keys >= 0; keys--) {
        write_row(table->csv, cells, count, false, keys == 1);
        write_row(table->plotted, cells, count, false, keys == 1);
    }
    if (table->json != NULL) {
        (void)fputs(table->rows == 0 ? "[\n  {" : ",\n  {", table->json);
        write_row(table->json, cells, count, true, false);
    }
    table->headed = true;
    table->rows++;
}

bool table_close(table_t *table, bool passed)
{
    if (table->left_out > 0) {
        (void)printf("%zu more columns: on a wider terminal, in a pipe, or by "
                     "--csv FILE\n",
                     table->left_out);
    }
    if (table->json != NULL) {
        (void)fputs(table->rows == 0 ? "[]\n" : "\n]\n", table->json);
    }
    bool written = output_close(table->csv, table->files.csv);
    written &= output_close(table->json, table->files.json);
    passed = passed && (table->plotted == NULL || table->rows == 0 ||
                        plot_draw(&table->plot, table->plotted));
    return output_close(table->plotted, table->files.plot) && passed && written;
}
