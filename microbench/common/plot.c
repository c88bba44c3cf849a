/* Bars are drawn as boxes at computed positions, not as gnuplot's clustered
   histogram, so that the values can be written above them. The n bars at x = i
   share the width CLUSTER around it. */
#include "common/plot.h"
#include "common/cli.h"
#include "common/table.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define CLUSTER 0.86

/* The most values along the axis that get a label. */
enum { MAX_LABELS = 24 };

/* Colours that all kinds of colour vision can tell apart. */
static const char *color_of(size_t series)
{
    static const char *const colors[] = {"#4d4d4d", "#a6a6a6", "#0072b2",
                                         "#e69f00", "#009e73", "#cc79a7",
                                         "#56b4e9", "#d55e00", "#f0e442"};
    return colors[series % (sizeof(colors) / sizeof(colors[0]))];
}

static double position(const plot_t *plot, size_t i, size_t series)
{
    double step = CLUSTER / (double)plot->series_count;
    double middle = ((double)plot->series_count - 1) / 2;
    return plot->log_base > 0 ? plot->x[i]
                              : (double)i + ((double)series - middle) * step;
}

static void write_label(FILE *script, double us)
{
    double value = us >= 1000 ? us / 1000 : us;
    (void)fprintf(script, "\"%.*f %s\"", value < 10 ? 1 : 0, value,
                  us >= 1000 ? "ms" : "µs");
}

static void write_data(FILE *script, const plot_t *plot, size_t series)
{
    (void)fprintf(script, "$series%zu << end\n", series);
    for (size_t i = 0; i < plot->x_count; i++) {
        double us = plot->values[i][series];
        (void)fprintf(script, "%.15g %.9g ", position(plot, i, series), us);
        write_label(script, us);
        (void)fputc('\n', script);
    }
    (void)fputs("end\n", script);
}

/* Whole decades around all values, with room for the numbers above bars. */
static void write_decades(FILE *script, const plot_t *plot)
{
    double low = INFINITY;
    double high = 0;
    for (size_t i = 0; i < plot->x_count * plot->series_count; i++) {
        double us =
            plot->values[i / plot->series_count][i % plot->series_count];
        low = fmin(low, us);
        high = fmax(high, us);
    }
    (void)fprintf(script, "set yrange [%g:%g]\nset format y '10^{%%T}'\n",
                  pow(10, floor(log10(low / 2))),
                  pow(10, ceil(log10(high * 2))));
}

static void write_x(FILE *script, const plot_t *plot)
{
    size_t labels = plot->log_base > 0 ? MAX_LABELS : plot->x_count;
    size_t step = (plot->x_count + labels - 1) / labels;
    if (plot->log_base > 0) {
        double low = plot->x[0];
        double high = low;
        for (size_t i = 1; i < plot->x_count; i++) {
            low = fmin(low, plot->x[i]);
            high = fmax(high, plot->x[i]);
        }
        (void)fprintf(script, "set logscale x %d\nset xrange [%g:%g]\n",
                      plot->log_base, low / 1.1, high * 1.1);
    } else {
        (void)fprintf(script,
                      "set xrange [-0.55:%g]\nset xtics scale 0\n"
                      "set style fill solid 1.0 noborder\nset boxwidth %g\n",
                      (double)plot->x_count - 0.45,
                      CLUSTER / (double)plot->series_count * 0.9);
        write_decades(script, plot);
    }
    (void)fprintf(script, "set xlabel '%s'\nset xtics (", plot->x_label);
    for (size_t i = 0; i < plot->x_count; i += step) {
        char tick[PLOT_TEXT_BYTES];
        (void)snprintf(tick, sizeof(tick), "%.15g", plot->x[i]);
        if (plot->x_bytes) {
            (void)cli_format_bytes((uint64_t)plot->x[i], tick, sizeof(tick));
        }
        (void)fprintf(script, "%s'%s' %.15g", i > 0 ? ", " : "", tick,
                      plot->log_base > 0 ? plot->x[i] : (double)i);
    }
    (void)fputs(")\n", script);
}

static void write_script(FILE *script, const plot_t *plot, const char *title)
{
    size_t bars = plot->log_base > 0 ? 0 : plot->x_count * plot->series_count;
    bool png = strcmp(strrchr(plot->name, '.'), ".png") == 0;
    (void)fprintf(script, "set terminal %s size %zu,560 font 'sans,13'%s\n",
                  png ? "pngcairo" : "svg", bars > 12 ? 300 + bars * 48 : 900,
                  png ? "" : " background '#ffffff'");
    (void)fprintf(script,
                  "set title '%s' noenhanced\nset ylabel 'microseconds'\n"
                  "set logscale y\nset grid lt 1 lc rgb '#d9d9d9'\n"
                  "set border 3\nset xtics nomirror\nset ytics nomirror\n"
                  "set key outside top center horizontal noenhanced Left "
                  "reverse samplen 1.5\n",
                  title);
    write_x(script, plot);
    for (size_t i = 0; i < plot->series_count; i++) {
        write_data(script, plot, i);
    }
    for (size_t i = 0; i < plot->series_count; i++) {
        (void)fprintf(script,
                      "%s$series%zu using 1:2 with %s lc rgb '%s' "
                      "title '%s'",
                      i > 0 ? ", " : "plot ", i,
                      plot->log_base > 0 ? "linespoints lw 2 pt 7 ps 0.6"
                                         : "boxes",
                      color_of(i), plot->series[i]);
        if (plot->log_base == 0) {
            (void)fprintf(script,
                          ", $series%zu using 1:2:3 with labels offset "
                          "0,0.6 font ',10' notitle",
                          i);
        }
    }
    (void)fputc('\n', script);
}

/* ---- gnuplot's process ------------------------------------------------ */

/* Starts gnuplot with these as its standard streams. */
static int spawn_gnuplot(int script, int output, pid_t *pid_out)
{
    posix_spawn_file_actions_t actions;
    char *argv[] = {"gnuplot", NULL};
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0) {
        return error;
    }
    error = posix_spawn_file_actions_adddup2(&actions, script, STDIN_FILENO);
    if (error == 0) {
        error =
            posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    }
    if (error == 0) {
        error = posix_spawnp(pid_out, "gnuplot", &actions, NULL, argv, environ);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Runs a script to its end; an empty one finds out whether that can be done. */
static bool run_gnuplot(const char *name, int script)
{
    int output = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (output < 0) {
        return output_fail("can't write", name, errno);
    }
    pid_t pid = 0;
    int status = 0;
    int error = spawn_gnuplot(script, output, &pid);
    (void)close(output);
    if (error != 0) {
        return output_fail(error != ENOENT
                               ? "can't plot to"
                               : "--plot needs gnuplot (Debian: apt-get "
                                 "install gnuplot-nox) for",
                           name, error);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
           output_fail("gnuplot failed to draw", name, 0);
}

bool plot_check(const char *name)
{
    int script = name == NULL ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    bool passed = name == NULL || run_gnuplot(name, script);
    if (script >= 0) {
        (void)close(script);
    }
    return passed;
}

void plot_add(plot_t *plot, const char *series, double x, double us)
{
    size_t row = 0;
    size_t column = 0;
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

bool plot_draw(const plot_t *plot, const char *title)
{
    if (plot->name == NULL) {
        return true;
    }
    FILE *script = tmpfile();
    if (script == NULL) {
        return output_fail("can't write a script for", plot->name, errno);
    }
    write_script(script, plot, title);
    rewind(script);
    bool drawn = run_gnuplot(plot->name, fileno(script));
    (void)fclose(script);
    return drawn;
}
