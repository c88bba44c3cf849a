#include "sim/plot.h"
#include <inttypes.h>
#include <math.h>

/* Colours that all kinds of colour vision can tell apart. */
static const char *color_of(size_t variant)
{
    static const char *const colors[] = {"#0072b2", "#e69f00", "#009e73",
                                         "#cc79a7"};
    return colors[variant % (sizeof(colors) / sizeof(colors[0]))];
}

static void write_head(const output_plot_t *plot, const sim_command_t *command,
                       const sim_options_t *options)
{
    FILE *script = plot->script;
    char fixed[32];
    char size[16];
    if (options->axis == SIM_AXIS_BYTES) {
        (void)snprintf(fixed, sizeof(fixed), "%" PRIu64 " ranks",
                       options->ranks);
    } else {
        (void)snprintf(fixed, sizeof(fixed), "%s bytes",
                       cli_format_bytes(options->bytes, size, sizeof(size)));
    }
    output_plot_size(plot, 900, 560);
    (void)fprintf(
        script, "set title 'Simulated %s%s%s, %g us, %g Gbit/s: %s'\n",
        command->name, sim_options_has_bytes(options) ? ", " : "",
        sim_options_has_bytes(options) ? fixed : "",
        options->model.link.alpha_us, options->gbit, command->plotted);
    (void)fprintf(script,
                  "set xlabel '%s'\nset ylabel 'microseconds'\n"
                  "set logscale x 2\nset logscale y\n"
                  "set key left top noenhanced Left reverse samplen 2\n"
                  "set grid lt 1 lc rgb '#d9d9d9'\nset border 3\n"
                  "set xtics nomirror\nset ytics nomirror\n",
                  options->axis == SIM_AXIS_BYTES ? "bytes" : "ranks");
}

/* The most values that get a label. */
enum { MAX_LABELS = 11 };

static void write_axis(FILE *script, const sim_options_t *options)
{
    uint64_t low = options->values[0];
    uint64_t high = low;
    for (size_t i = 1; i < options->value_count; i++) {
        low = options->values[i] < low ? options->values[i] : low;
        high = options->values[i] > high ? options->values[i] : high;
    }
    (void)fprintf(script, "set xrange [%g:%g]\n", (double)low / 1.1,
                  (double)high * 1.1);
    size_t step = (options->value_count + MAX_LABELS - 1) / MAX_LABELS;
    (void)fputs("set xtics (", script);
    for (size_t i = 0; i < options->value_count; i += step) {
        char label[32];
        if (options->axis == SIM_AXIS_BYTES) {
            (void)cli_format_bytes(options->values[i], label, sizeof(label));
        } else {
            (void)snprintf(label, sizeof(label), "%" PRIu64,
                           options->values[i]);
        }
        (void)fprintf(script, "%s'%s' %" PRIu64, i > 0 ? ", " : "", label,
                      options->values[i]);
    }
    (void)fputs(")\n", script);
}

static void write_data(FILE *script, const sim_command_t *command,
                       const sim_options_t *options,
                       const sim_result_t *results, size_t place)
{
    (void)fprintf(script, "$variant%zu << end\n", place);
    for (size_t i = 0; i < options->value_count; i++) {
        const sim_result_t *result =
            &results[i * options->variant_count + place];
        double us = command->plot_value(result);
        /* A logarithmic axis can't show 0. */
        if (us > 0) {
            (void)fprintf(script, "%" PRIu64 " %.9g\n", options->values[i], us);
        }
    }
    (void)fputs("end\n", script);
}

void sim_plot_write(output_plot_t *plot, const sim_command_t *command,
                    const sim_options_t *options, const sim_result_t *results)
{
    FILE *script = plot->script;
    if (script == NULL) {
        return;
    }
    write_head(plot, command, options);
    write_axis(script, options);
    for (size_t i = 0; i < options->variant_count; i++) {
        write_data(script, command, options, results, i);
    }
    for (size_t i = 0; i < options->variant_count; i++) {
        (void)fprintf(script,
                      "%s$variant%zu using 1:2 with linespoints lw 2 pt 7 "
                      "ps 0.6 lc rgb '%s' title '%s'",
                      i > 0 ? ", " : "plot ", i, color_of(i),
                      options->variant_names[options->variants[i]]);
    }
    (void)fputc('\n', script);
}
