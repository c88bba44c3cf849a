#include "common/table.h"
#include <math.h>

bool table_open(table_t *table, const table_column_t *columns,
                size_t column_count, const char *csv, const char *json)
{
    *table = (table_t){
        .columns = columns,
        .column_count = column_count,
        .csv_name = csv,
        .json_name = json,
    };
    if (!output_open(csv, &table->csv)) {
        return false;
    }
    if (!output_open(json, &table->json)) {
        (void)output_close(table->csv, csv);
        return false;
    }
    return true;
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
        print_text(column, cell.text);
    } else if (isnan(cell.number)) {
        print_text(column, "-");
    } else if (column->style == TABLE_TINY) {
        (void)printf("  %*.1e", column->width, cell.number);
    } else {
        (void)printf("  %*.*f", column->width, column->decimals, cell.number);
    }
}

static bool has_headings(const table_t *table)
{
    for (size_t i = 0; i < table->column_count; i++) {
        if (table->columns[i].heading != NULL) {
            return true;
        }
    }
    return false;
}

static void print_row(const table_t *table, const table_cell_t *cells)
{
    if (!has_headings(table)) {
        return; /* for the files alone */
    }
    for (size_t i = 0; i < table->column_count; i++) {
        if (table->columns[i].heading != NULL) {
            print_cell(&table->columns[i], cells[i]);
        }
    }
    (void)putchar('\n');
    (void)fflush(stdout);
}

/* ---- files ------------------------------------------------------------ */

static void write_csv_heading(const table_t *table)
{
    const char *separator = "";
    for (size_t i = 0; i < table->column_count; i++) {
        if (table->columns[i].key != NULL) {
            (void)fprintf(table->csv, "%s%s", separator, table->columns[i].key);
            separator = ",";
        }
    }
    (void)fputc('\n', table->csv);
}

static void write_csv(const table_t *table, const table_cell_t *cells)
{
    const char *separator = "";
    for (size_t i = 0; i < table->column_count; i++) {
        if (table->columns[i].key == NULL) {
            continue;
        }
        (void)fputs(separator, table->csv);
        separator = ",";
        if (cells[i].text != NULL) {
            (void)fputs(cells[i].text, table->csv);
        } else if (!isnan(cells[i].number)) {
            (void)fprintf(table->csv, "%.15g", cells[i].number);
        }
    }
    (void)fputc('\n', table->csv);
}

static void write_json(const table_t *table, const table_cell_t *cells)
{
    const char *separator = "";
    (void)fputs(table->rows == 0 ? "[\n  {" : ",\n  {", table->json);
    for (size_t i = 0; i < table->column_count; i++) {
        if (table->columns[i].key == NULL) {
            continue;
        }
        (void)fprintf(table->json, "%s\"%s\": ", separator,
                      table->columns[i].key);
        separator = ", ";
        if (cells[i].text != NULL) {
            (void)fprintf(table->json, "\"%s\"", cells[i].text);
        } else if (isnan(cells[i].number)) {
            (void)fputs("null", table->json);
        } else {
            (void)fprintf(table->json, "%.15g", cells[i].number);
        }
    }
    (void)fputc('}', table->json);
}

void table_row(table_t *table, const table_cell_t *cells)
{
    print_row(table, cells);
    if (table->csv != NULL) {
        if (table->rows == 0) {
            write_csv_heading(table);
        }
        write_csv(table, cells);
    }
    if (table->json != NULL) {
        write_json(table, cells);
    }
    table->rows++;
}

bool table_close(table_t *table)
{
    if (table->json != NULL) {
        (void)fputs(table->rows == 0 ? "[]\n" : "\n]\n", table->json);
    }
    bool written = output_close(table->csv, table->csv_name);
    written &= output_close(table->json, table->json_name);
    return written;
}
