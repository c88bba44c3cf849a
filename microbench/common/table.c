#include "common/table.h"
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- files ------------------------------------------------------------ */

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

/* ---- the picture ------------------------------------------------------ */

/* CMakeLists.txt defines the script's path, as seen from the command's
   folder. */
#ifndef PLOT_SCRIPT
#define PLOT_SCRIPT "../share/baton/plot.gp"
#endif

/* Runs gnuplot. The array of arguments ends with NULL. */
static bool run_gnuplot(const char *picture, const char *const *arguments)
{
    pid_t process = 0;
    int status = 0;
    int error = posix_spawnp(&process, "gnuplot", NULL, NULL,
                             (char *const *)arguments, environ);
    if (error != 0) {
        return output_fail("--plot needs gnuplot (Debian: apt-get install "
                           "gnuplot-nox) for",
                           picture, error == ENOENT ? 0 : error);
    }
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    return status == 0 || output_fail("gnuplot failed to draw", picture, 0);
}

static bool table_plot(const table_t *table)
{
    char self[PATH_MAX] = "", script[PATH_MAX + 64], data[64];
    (void)!readlink("/proc/self/exe", self, sizeof self - 1);
    (void)snprintf(script, sizeof script, "%s/" PLOT_SCRIPT, dirname(self));
    (void)snprintf(data, sizeof data, "/proc/%ld/fd/%d", (long)getpid(),
                   fileno(table->csv));
    const char *const arguments[] = {
        "gnuplot",         "-c",          script,   data,
        table->files.plot, table->title,  table->x, table->y,
        table->series,     table->active, NULL};
    return fflush(table->csv) == 0 && run_gnuplot(table->files.plot, arguments);
}

bool table_open(table_t *table, const table_files_t *files)
{
    static const char *const nothing[] = {"gnuplot", "-e", "", NULL};
    FILE *picture = NULL;
    table->files = *files;
    if (files->plot != NULL && !(output_open(files->plot, &picture) &&
                                 output_close(picture, files->plot) &&
                                 run_gnuplot(files->plot, nothing))) {
        return false;
    }
    if (!output_open(files->csv, &table->csv) ||
        !output_open(files->json, &table->json)) {
        return false;
    }
    if (files->plot != NULL && files->csv == NULL) {
        table->csv = tmpfile();
        return table->csv != NULL ||
               output_fail("no temporary file for", files->plot, errno);
    }
    return true;
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

/* ---- rows ------------------------------------------------------------- */

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
    passed = passed && (table->files.plot == NULL || table->rows == 0 ||
                        table_plot(table));
    bool written = output_close(table->csv, table->files.csv);
    return output_close(table->json, table->files.json) && written && passed;
}
