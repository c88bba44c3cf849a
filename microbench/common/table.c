#include "common/table.h"
#include "common/cli.h"
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int terminal_columns(int descriptor)
{
    const char *text = getenv("COLUMNS");
    struct winsize size = {0};
    uint64_t given = 0;
    if (isatty(descriptor) == 0) {
        return 0;
    }
    if (text != NULL && cli_read_count(text, &given) && given > 0) {
        return given < INT16_MAX ? (int)given : INT16_MAX;
    }
    (void)ioctl(descriptor, TIOCGWINSZ, &size);
    return size.ws_col > 0 ? size.ws_col : 80;
}

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
    failed |= fclose(file) != 0;
    return !failed || output_fail("can't write all of", name, errno);
}

static void write_string(FILE *file, const char *text)
{
    (void)fputc('"', file);
    for (; *text != '\0'; text++) {
        bool quoted = *text == '"' || *text == '\\';
        bool plain = (unsigned char)*text >= 0x20;
        (void)fprintf(file, quoted ? "\\%c" : plain ? "%c" : "\\u%04x", *text);
    }
    (void)fputc('"', file);
}

bool table_open(table_t *table, const table_files_t *files)
{
    table->files = *files;
    table->plot.name = files->plot;
    return plot_check(files->plot) && output_open(files->csv, &table->csv) &&
           output_open(files->json, &table->json);
}

/* ---- a row ------------------------------------------------------------ */

static void add_cell(table_t *table, const table_cell_t *cell)
{
    assert(table->cell_count < TABLE_COLUMNS);
    table->cells[table->cell_count++] = *cell;
}

void table_text(table_t *table, const char *key, const char *heading, int width,
                const char *text)
{
    add_cell(table, &(table_cell_t){key, heading, -width, 0, text, 0});
}

void table_number(table_t *table, const char *key, const char *heading,
                  int width, int decimals, double number)
{
    add_cell(table,
             &(table_cell_t){key, heading, width, decimals, NULL, number});
}

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

static void print_row(table_t *table)
{
    for (int line = table->headed ? 1 : 0; line < 2; line++) {
        int used = 0;
        table->left_out = 0;
        for (size_t i = 0; i < table->cell_count; i++) {
            const table_cell_t *cell = &table->cells[i];
            used += cell->heading != NULL ? 2 + abs(cell->width) : 0;
            if (table->columns > 0 && used > table->columns) {
                table->left_out += cell->heading != NULL;
            } else if (cell->heading != NULL && line == 0) {
                (void)printf("  %*s", cell->width, cell->heading);
            } else if (cell->heading != NULL) {
                print_cell(cell);
            }
        }
        (void)putchar('\n');
    }
    table->headed = true;
    (void)fflush(stdout);
}

static void write_value(FILE *file, const table_cell_t *cell, bool json)
{
    if (cell->text != NULL && json) {
        write_string(file, cell->text);
    } else if (cell->text != NULL) {
        (void)fputs(cell->text, file);
    } else if (isnan(cell->number)) {
        (void)fputs(json ? "null" : "", file);
    } else {
        (void)fprintf(file, "%.15g", cell->number);
    }
}

/* Writes a row of CSV or JSON, or with `keys` the header line of CSV. */
static void write_row(const table_t *table, FILE *file, bool json, bool keys)
{
    const char *separator = !json ? "" : table->rows == 0 ? "[\n  {" : ",\n  {";
    for (size_t i = 0; i < table->cell_count; i++) {
        const table_cell_t *cell = &table->cells[i];
        if (cell->key == NULL) {
            continue;
        }
        (void)fputs(separator, file);
        separator = json ? ", " : ",";
        if (json || keys) {
            (void)fprintf(file, json ? "\"%s\": " : "%s", cell->key);
        }
        if (!keys) {
            write_value(file, cell, json);
        }
    }
    (void)fputs(json ? "}" : "\n", file);
}

void table_row(table_t *table)
{
    print_row(table);
    for (int keys = table->rows == 0; table->csv != NULL && keys >= 0; keys--) {
        write_row(table, table->csv, false, keys == 1);
    }
    if (table->json != NULL) {
        write_row(table, table->json, true, false);
    }
    table->rows++;
    table->cell_count = 0;
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
    return passed && plot_draw(&table->plot) && written;
}
