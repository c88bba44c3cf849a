#include "common/plot.h"
#include "common/cli.h"
#include "common/table.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>

/* At most so many values along the x axis get a label. */
enum { MAX_LABELS = 24 };

/* The shell's exit status for a command that was not found. */
enum { NOT_FOUND = 127 };

/* Returns a colour; readers with any kind of colour vision can tell the colours
   apart. */
static const char *color_of(size_t series)
{
    static const char *const colors[] = {"#4d4d4d", "#a6a6a6", "#0072b2",
                                         "#e69f00", "#009e73", "#cc79a7",
                                         "#56b4e9", "#d55e00", "#f0e442"};
    return colors[series % (sizeof(colors) / sizeof(colors[0]))];
}

static void write_data(FILE *script, const plot_t *plot, size_t series)
{
    (void)fprintf(script, "$series%zu << end\n", series);
    for (size_t i = 0; i < plot->x_count; i++) {
        (void)fprintf(script, "%.15g %.9g\n", plot->x[i],
                      plot->values[i][series]);
    }
    (void)fputs("end\n", script);
}

static void write_x(FILE *script, const plot_t *plot)
{
    size_t step = (plot->x_count + MAX_LABELS - 1) / MAX_LABELS;
    double low = plot->x[0], high = low;
    for (size_t i = 1; i < plot->x_count; i++) {
        low = fmin(low, plot->x[i]);
        high = fmax(high, plot->x[i]);
    }
    (void)fprintf(script, "set logscale x %d\nset xrange [%g:%g]\n",
                  plot->log_base, low / 1.1, high * 1.1);
    (void)fprintf(script, "set xlabel '%s'\nset xtics (", plot->x_label);
    for (size_t i = 0; i < plot->x_count; i += step) {
        char tick[PLOT_TEXT_BYTES];
        (void)snprintf(tick, sizeof(tick), "%.15g", plot->x[i]);
        if (plot->x_bytes) {
            (void)cli_format_bytes((uint64_t)plot->x[i], tick, sizeof(tick));
        }
        (void)fprintf(script, "%s'%s' %.15g", i > 0 ? ", " : "", tick,
                      plot->x[i]);
    }
    (void)fputs(")\n", script);
}

/* Inside single quotes, gnuplot reads two quotes as one. */
static void write_output(FILE *script, const char *name)
{
    (void)fputs("set output '", script);
    for (; *name != '\0'; name++) {
        (void)fprintf(script, *name == '\'' ? "''" : "%c", *name);
    }
    (void)fputs("'\n", script);
}

static void write_script(FILE *script, const plot_t *plot)
{
    bool png = strcmp(strrchr(plot->name, '.'), ".png") == 0;
    (void)fprintf(script, "set terminal %s size 900,560 font 'sans,13'%s\n",
                  png ? "pngcairo" : "svg", png ? "" : " background '#ffffff'");
    write_output(script, plot->name);
    (void)fprintf(script,
                  "set title '%s' noenhanced\nset ylabel 'microseconds'\n"
                  "set logscale y\nset grid lt 1 lc rgb '#d9d9d9'\n"
                  "set border 3\nset xtics nomirror\nset ytics nomirror\n"
                  "set key outside top center horizontal noenhanced Left "
                  "reverse samplen 1.5\n",
                  plot->title);
    write_x(script, plot);
    for (size_t i = 0; i < plot->series_count; i++) {
        write_data(script, plot, i);
    }
    for (size_t i = 0; i < plot->series_count; i++) {
        (void)fprintf(script,
                      "%s$series%zu using 1:2 with linespoints lw 2 pt 7 ps "
                      "0.6 lc rgb '%s' title '%s'",
                      i > 0 ? ", " : "plot ", i, color_of(i), plot->series[i]);
    }
    (void)fputc('\n', script);
}

/* ---- gnuplot's process ------------------------------------------------ */

/* Runs gnuplot on the plot's script. With `plot` NULL, only checks that gnuplot
   can be run. */
static bool run_gnuplot(const char *name, const plot_t *plot)
{
    FILE *script = popen("exec gnuplot", "we");
    if (script == NULL) {
        return output_fail("can't plot to", name, errno);
    }
    if (plot != NULL) {
        write_script(script, plot);
    }
    int status = pclose(script);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND) {
        return output_fail("--plot needs gnuplot (Debian: apt-get install "
                           "gnuplot-nox) for",
                           name, 0);
    }
    return status == 0 || output_fail("gnuplot failed to draw", name, 0);
}

bool plot_check(const char *name)
{
    FILE *file = NULL;
    return name == NULL ||
           (output_open(name, &file) && output_close(file, name) &&
            run_gnuplot(name, NULL));
}

void plot_add(plot_t *plot, const char *series, double x, double us)
{
    size_t row = 0, column = 0;
    while (row < plot->x_count && (plot->x[row] < x || plot->x[row] > x)) {
        row++;
    }
    while (column < plot->series_count &&
           strcmp(plot->series[column], series) != 0) {
        column++;
    }
    if (row < PLOT_MAX_X && column < PLOT_MAX_SERIES) {
        plot->x[row] = x;
        (void)snprintf(plot->series[column], PLOT_TEXT_BYTES, "%s", series);
        plot->values[row][column] = us;
        plot->x_count += row == plot->x_count;
        plot->series_count += column == plot->series_count;
    }
}

bool plot_draw(const plot_t *plot)
{
    return plot->name == NULL || run_gnuplot(plot->name, plot);
}
