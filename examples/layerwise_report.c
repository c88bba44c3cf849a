#include "layerwise_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const names[SYSTEMS] = {"blocking", "fork_join", "reduce_bcast",
                                    "overlapped"};

static const char *const descriptions[SYSTEMS] = {
    "MPI_Allreduce after the backward pass",
    "Baton, begun and awaited after the backward pass",
    "the same, but reduce, update on rank 0 and broadcast",
    "Baton, begun as soon as a bucket of layers is ready"};

void print_setting(const setting_t *setting)
{
    printf("%d ranks, %zu layers, %zu parameters in %zu buckets, batches of "
           "%zu images, %d epochs, device %.3g ms a step\n",
           setting->ranks, setting->layers, setting->parameters,
           setting->buckets, setting->batch, setting->epochs,
           setting->device_ms);
    printf("digits: %s\n", setting->source);
}

void print_outcomes(const setting_t *setting, const outcome_t *outcomes)
{
    int last = setting->epochs - 1;
    printf("%-12s %9s %9s %9s %9s %9s %10s %9s\n", "system", "loss", "accuracy",
           "step ms", "comm. ms", "hidden %", "speed-up", "diverged");
    for (int s = 0; s < SYSTEMS; s++) {
        const outcome_t *outcome = &outcomes[s];
        printf(
            "%-12s %9.4f %9.4f %9.3f %9.3f %9.1f %10.2f %9.2g\n", names[s],
            outcome->loss[last], outcome->accuracy[last], outcome->step_s * 1e3,
            outcome->communication_s * 1e3, outcome->hidden * 100,
            outcomes[BLOCKING].step_s / outcome->step_s, outcome->divergence);
    }
    for (int s = 0; s < SYSTEMS; s++) {
        printf("  %-12s %s\n", names[s], descriptions[s]);
    }
}

/* ---- files ------------------------------------------------------------ */

static bool finish(FILE *file, const char *name, int (*close)(FILE *))
{
    bool written = !ferror(file);
    written &= close(file) == 0;
    if (!written) {
        fprintf(stderr, "layerwise: %s could not be written\n", name);
    }
    return written;
}

bool write_csv(const char *name, const setting_t *setting,
               const outcome_t *outcomes)
{
    FILE *file = name != NULL ? fopen(name, "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror(name), false);
    }
    fprintf(file, "system,epoch,loss,accuracy\n");
    for (int s = 0; s < SYSTEMS; s++) {
        for (int e = 0; e < setting->epochs; e++) {
            fprintf(file, "%s,%d,%.9g,%.9g\n", names[s], e + 1,
                    outcomes[s].loss[e], outcomes[s].accuracy[e]);
        }
    }
    return finish(file, name, fclose);
}

static void write_numbers(FILE *file, const char *key, const double *numbers,
                          int count)
{
    fprintf(file, ", \"%s\": [", key);
    for (int i = 0; i < count; i++) {
        fprintf(file, "%s%.9g", i > 0 ? ", " : "", numbers[i]);
    }
    fprintf(file, "]");
}

static void write_outcome(FILE *file, const setting_t *setting,
                          const outcome_t *outcomes, int s)
{
    const outcome_t *outcome = &outcomes[s];
    fprintf(file,
            "%s\n{\"system\": \"%s\", \"step_ms\": %.9g, \"communication_ms\": "
            "%.9g, \"hidden\": %.9g, \"speed_up\": %.9g, \"divergence\": %.9g",
            s > 0 ? "," : "", names[s], outcome->step_s * 1e3,
            outcome->communication_s * 1e3, outcome->hidden,
            outcomes[BLOCKING].step_s / outcome->step_s, outcome->divergence);
    write_numbers(file, "loss", outcome->loss, setting->epochs);
    write_numbers(file, "accuracy", outcome->accuracy, setting->epochs);
    fprintf(file, "}");
}

bool write_json(const char *name, const setting_t *setting,
                const outcome_t *outcomes)
{
    FILE *file = name != NULL ? fopen(name, "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror(name), false);
    }
    fprintf(file,
            "{\"ranks\": %d, \"layers\": %zu, \"parameters\": %zu, "
            "\"buckets\": %zu, \"batch\": %zu, \"device_ms\": %.9g, "
            "\"digits_generated\": %s, \"systems\": [",
            setting->ranks, setting->layers, setting->parameters,
            setting->buckets, setting->batch, setting->device_ms,
            setting->generated ? "true" : "false");
    for (int s = 0; s < SYSTEMS; s++) {
        write_outcome(file, setting, outcomes, s);
    }
    fprintf(file, "]}\n");
    return finish(file, name, fclose);
}

/* ---- the timeline ----------------------------------------------------- */

enum { LANES = 4 };

/* Computation of a system is in row 2 (SYSTEMS - 1 - s) + 1, communication
   below it. */
static int row_of(int s, bool communication)
{
    return 2 * (SYSTEMS - 1 - s) + (communication ? 0 : 1);
}

static double longest_ms(const outcome_t *outcomes)
{
    double ms = 0;
    for (int s = 0; s < SYSTEMS; s++) {
        for (size_t i = 0; i < outcomes[s].span_count; i++) {
            ms = fmax(ms, outcomes[s].spans[i].to_s * 1e3);
        }
    }
    return ms;
}

/* Where a span is drawn. All-reduces in flight together are in lanes. */
typedef struct bar {
    double left, right, bottom, top;
} bar_t;

static bar_t bar_of(int s, const span_t *span)
{
    int row = row_of(s, span->communication);
    double height = span->communication ? 0.76 / LANES : 0.76;
    size_t lane = span->communication ? span->number % LANES : 0;
    double top = row + 0.38 - (double)lane * height;
    return (bar_t){span->from_s * 1e3, span->to_s * 1e3, top - height, top};
}

/* Lines of: the middle, left, right, bottom, top. */
static void write_bars(FILE *file, const outcome_t *outcomes,
                       bool communication)
{
    for (int s = 0; s < SYSTEMS; s++) {
        for (size_t i = 0; i < outcomes[s].span_count; i++) {
            const span_t *span = &outcomes[s].spans[i];
            bar_t bar = bar_of(s, span);
            if (span->communication == communication) {
                fprintf(file, "%.6f %.3f %.6f %.6f %.3f %.3f\n",
                        (bar.left + bar.right) / 2, (bar.bottom + bar.top) / 2,
                        bar.left, bar.right, bar.bottom, bar.top);
            }
        }
    }
    fprintf(file, "e\n");
}

/* F for the forward pass of a layer, B for the backward pass, the number of an
   all-reduce's bucket; where there is room. */
static void write_labels(FILE *file, const outcome_t *outcomes)
{
    double least_ms = longest_ms(outcomes) / 50;
    for (int s = 0; s < SYSTEMS; s++) {
        for (size_t i = 0; i < outcomes[s].span_count; i++) {
            const span_t *span = &outcomes[s].spans[i];
            bar_t bar = bar_of(s, span);
            if (bar.right - bar.left >= least_ms) {
                fprintf(file, "%.6f %.3f \"%s%zu\"\n",
                        (bar.left + bar.right) / 2, (bar.bottom + bar.top) / 2,
                        span->what, span->number);
            }
        }
    }
    fprintf(file, "e\n");
}

bool write_plot(const char *name, const setting_t *setting,
                const outcome_t *outcomes)
{
    FILE *file = name != NULL ? popen("gnuplot", "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror("gnuplot"), false);
    }
    const char *ending = strrchr(name, '.');
    bool png = ending != NULL && strcmp(ending, ".png") == 0;
    fprintf(file,
            "set terminal %s size 1100,560\nset output '%s'\n"
            "set title 'One step of rank 0, %d ranks, %zu layers in %zu "
            "buckets'\nset xlabel 'milliseconds'\nset yrange [-0.6:%g]\n"
            "set style fill solid 0.8 noborder\nset grid xtics\nset ytics (",
            png ? "pngcairo" : "svg background '#ffffff'", name, setting->ranks,
            setting->layers, setting->buckets, 2 * SYSTEMS - 0.4);
    for (int s = 0; s < SYSTEMS; s++) {
        fprintf(file, "%s'%s: computes' %d, 'communicates' %d",
                s > 0 ? ", " : "", names[s], row_of(s, false), row_of(s, true));
    }
    fprintf(file,
            ") noenhanced\nset key outside top center horizontal\n"
            "plot '-' with boxxyerror lc rgb '#0072b2' title 'computation', "
            "'-' with boxxyerror lc rgb '#e69f00' title 'all-reduce', "
            "'-' with labels font ',8' notitle\n");
    write_bars(file, outcomes, false);
    write_bars(file, outcomes, true);
    write_labels(file, outcomes);
    return finish(file, name, pclose);
}
