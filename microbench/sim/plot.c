#include "sim/plot.h"
#include <inttypes.h>
#include <math.h>

/* Colours that all kinds of colour vision can tell apart. */
static const char *color_of(size_t variant)
{
    static const char *const colors[] = {"#0072b2", "#e69f00", "#009e73",
                                         "#cc79a7", "#56b4e9", "#d55e00",
                                         "#000000", "#999999"};
    return colors[variant % (sizeof(colors) / sizeof(colors[0]))];
}

/* What all simulations of the plot have in common, besides the model. */
static void describe(const sim_options_t *options, char *text,
                     size_t text_bytes)
{
    char size[16];
    if (options->command == SIM_SPARSE) {
        char density[32] = "";
        char ranks[32] = "";
        if (options->axis != SIM_AXIS_DENSITY) {
            (void)snprintf(density, sizeof(density), ", density %g",
                           options->density);
        }
        if (options->axis != SIM_AXIS_RANKS) {
            (void)snprintf(ranks, sizeof(ranks), ", %" PRIu64 " ranks",
                           options->ranks);
        }
        (void)snprintf(text, text_bytes, ", %s elements%s%s",
                       cli_format_bytes(options->count, size, sizeof(size)),
                       density, ranks);
    } else if (!sim_options_has_bytes(options)) {
        text[0] = '\0';
    } else if (options->axis == SIM_AXIS_BYTES) {
        (void)snprintf(text, text_bytes, ", %" PRIu64 " ranks", options->ranks);
    } else {
        (void)snprintf(text, text_bytes, ", %s bytes",
                       cli_format_bytes(options->bytes, size, sizeof(size)));
    }
}

static void write_head(const output_plot_t *plot, const sim_command_t *command,
                       const sim_options_t *options)
{
    FILE *script = plot->script;
    char fixed[128];
    describe(options, fixed, sizeof(fixed));
    output_plot_size(plot, 900, 560);
    (void)fprintf(script, "set title 'Simulated %s%s, %g us, %g Gbit/s: %s'\n",
                  command->name, fixed, options->model.link.alpha_us,
                  options->gbit, command->plotted);
    (void)fprintf(script, "set ylabel 'microseconds'\nset logscale y\n"
                          "set grid lt 1 lc rgb '#d9d9d9'\nset border 3\n"
                          "set xtics nomirror\nset ytics nomirror\n");
}

/* The most values that get a label. */
enum { MAX_LABELS = 11 };

static void write_axis(FILE *script, const sim_options_t *options)
{
    double low = options->values[0];
    double high = low;
    for (size_t i = 1; i < options->value_count; i++) {
        low = options->values[i] < low ? options->values[i] : low;
        high = options->values[i] > high ? options->values[i] : high;
    }
    (void)fprintf(script,
                  "set xlabel '%s'\nset logscale x %d\n"
                  "set key left top noenhanced Left reverse samplen 2\n"
                  "set xrange [%g:%g]\n",
                  sim_axis_name(options->axis),
                  options->axis == SIM_AXIS_DENSITY ? 10 : 2, low / 1.1,
                  high * 1.1);
    size_t step = (options->value_count + MAX_LABELS - 1) / MAX_LABELS;
    (void)fputs("set xtics (", script);
    for (size_t i = 0; i < options->value_count; i += step) {
        char label[32];
        (void)fprintf(script, "%s'%s' %.15g", i > 0 ? ", " : "",
                      sim_axis_format(options->axis, options->values[i], label,
                                      sizeof(label)),
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
        if (us > 0 && options->values[i] > 0) {
            (void)fprintf(script, "%.15g %.9g\n", options->values[i], us);
        }
    }
    (void)fputs("end\n", script);
}

static void write_lines(FILE *script, const sim_command_t *command,
                        const sim_options_t *options,
                        const sim_result_t *results)
{
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

/* Without a sweep: variants side by side. */
static void write_bars(FILE *script, const sim_command_t *command,
                       const sim_options_t *options,
                       const sim_result_t *results)
{
    (void)fputs("set nokey\nset xtics noenhanced\n"
                "set style fill solid\nset boxwidth 0.6\n"
                "$variants << end\n",
                script);
    for (size_t i = 0; i < options->variant_count; i++) {
        (void)fprintf(script, "%zu %.9g %s\n", i,
                      command->plot_value(&results[i]),
                      options->variant_names[options->variants[i]]);
    }
    (void)fprintf(script,
                  "end\nset xrange [-0.7:%zu.7]\n"
                  "plot $variants using 1:2:xtic(3) with boxes lc rgb '%s'\n",
                  options->variant_count - 1, color_of(0));
}

void sim_plot_write(output_plot_t *plot, const sim_command_t *command,
                    const sim_options_t *options, const sim_result_t *results)
{
    if (plot->script == NULL) {
        return;
    }
    write_head(plot, command, options);
    if (options->axis == SIM_AXIS_NONE) {
        write_bars(plot->script, command, options, results);
    } else {
        write_lines(plot->script, command, options, results);
    }
}
