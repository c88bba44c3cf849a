/* Bars are drawn as boxes at computed positions, not as gnuplot's clustered
   histogram, so that the values can be written above them. Size i is at x = i,
   and its n bars share the width CLUSTER around it. */
#include "skew/plot.h"
#include <inttypes.h>
#include <math.h>

#define CLUSTER 0.86

static const char *color_of(skew_kind_t kind)
{
    /* Colours that all kinds of colour vision can tell apart, also in grey. */
    static const char *const colors[] = {
        [SKEW_MPI] = "#4d4d4d",      [SKEW_MPI_NB] = "#a6a6a6",
        [SKEW_FULL] = "#0072b2",     [SKEW_SOLO] = "#e69f00",
        [SKEW_MAJORITY] = "#009e73", [SKEW_QUORUM] = "#56b4e9",
        [SKEW_ANY] = "#f0e442",      [SKEW_ALL] = "#d55e00",
    };
    return colors[kind];
}

static const char *format_latency(double us, char *text, size_t text_bytes)
{
    double value = us >= 1000 ? us / 1000 : us;
    const char *unit = us >= 1000 ? "ms" : "µs";
    int decimals = value < 10 ? 1 : 0;
    (void)snprintf(text, text_bytes, "%.*f %s", decimals, value, unit);
    return text;
}

static double bar_position(const skew_options_t *options, size_t size,
                           size_t system)
{
    double step = CLUSTER / (double)options->system_count;
    double middle = ((double)options->system_count - 1) / 2;
    return (double)size + ((double)system - middle) * step;
}

/* Whole decades around all values, with room for the numbers above the bars. */
static void write_axis(FILE *script, const skew_result_t *results, size_t count)
{
    double low = INFINITY;
    double high = 0;
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, results[i].mean_us);
        high = fmax(high, results[i].mean_us);
    }
    (void)fprintf(script,
                  "set logscale y\nset yrange [%g:%g]\n"
                  "set format y '10^{%%T}'\n",
                  pow(10, floor(log10(low / 2))),
                  pow(10, ceil(log10(high * 2))));
}

static void write_head(const output_plot_t *plot, const skew_options_t *options,
                       int ranks)
{
    size_t bars = options->size_count * options->system_count;
    size_t width = bars > 12 ? 300 + bars * 48 : 900;
    output_plot_size(plot, width, 560);
    (void)fprintf(
        plot->script,
        "set title 'All-reduce of %d ranks that arrive %g ms apart: "
        "mean latency of %" PRIu64 " iterations'\n"
        "set ylabel 'microseconds'\nset xlabel 'bytes'\n"
        "set key outside top center horizontal noenhanced Left reverse "
        "samplen 1.5 maxrows 1\n"
        "set grid ytics lt 1 lc rgb '#d9d9d9'\nset border 3\n"
        "set xtics nomirror scale 0\nset ytics nomirror\n"
        "set style fill solid 1.0 noborder\nset boxwidth %g\n",
        ranks, options->skew_ms, options->iterations,
        CLUSTER / (double)options->system_count * 0.9);
}

static void write_sizes(FILE *script, const skew_options_t *options)
{
    (void)fprintf(script, "set xrange [-0.55:%g]\nset xtics (",
                  (double)options->size_count - 0.45);
    for (size_t i = 0; i < options->size_count; i++) {
        char size[16];
        (void)fprintf(script, "%s'%s' %zu", i > 0 ? ", " : "",
                      cli_format_bytes(options->bytes[i], size, sizeof(size)),
                      i);
    }
    (void)fputs(")\n", script);
}

static void write_data(FILE *script, const skew_options_t *options,
                       size_t system, const skew_result_t *results)
{
    (void)fprintf(script, "$system%zu << end\n", system);
    for (size_t i = 0; i < options->size_count; i++) {
        const skew_result_t *result =
            &results[i * options->system_count + system];
        char label[32];
        (void)fprintf(script, "%g %g \"%s\"\n",
                      bar_position(options, i, system), result->mean_us,
                      format_latency(result->mean_us, label, sizeof(label)));
    }
    (void)fputs("end\n", script);
}

static void write_plot(FILE *script, const skew_options_t *options)
{
    const char *separator = "plot ";
    for (size_t i = 0; i < options->system_count; i++) {
        char label[SKEW_NAME_BYTES];
        (void)fprintf(script,
                      "%s$system%zu using 1:2 with boxes lc rgb '%s' "
                      "title '%s', $system%zu using 1:2:3 with labels "
                      "offset 0,0.6 font ',10' notitle",
                      separator, i, color_of(options->choices[i].kind),
                      skew_label(options->choices[i], label), i);
        separator = ", ";
    }
    (void)fputs("\n", script);
}

void skew_plot_write(output_plot_t *plot, const skew_options_t *options,
                     int ranks, const skew_result_t *results)
{
    if (plot->script == NULL) {
        return;
    }
    write_head(plot, options, ranks);
    write_axis(plot->script, results,
               options->size_count * options->system_count);
    write_sizes(plot->script, options);
    for (size_t i = 0; i < options->system_count; i++) {
        write_data(plot->script, options, i, results);
    }
    write_plot(plot->script, options);
}
