#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* How much worse than the first system's a score may be and still count as
   equal, as a mean of recent epochs: points of accuracy, a share of the loss.
 */
#define POINT  1.0
#define LOSS_5 1.05
#define RECENT 4

static const struct {
    const char *heading, *format;
} columns[FIGURES] = {
    [SECONDS] = {"seconds", "%.2f"},
    [SPEED_UP] = {"speed-up", "%.2f"},
    [LOSS] = {"loss", "%.5f"},
    [ACCURACY] = {"accuracy", "%.2f"},
    [TARGET_S] = {"target s", "%.2f"},
    [COMMUNICATION_MS] = {"comm. ms", "%.3f"},
    [HIDDEN] = {"hidden %", "%.1f"},
    [MB_SENT] = {"MB sent", "%.3f"},
    [NETWORK_S] = {"network s", "%.4f"},
};

/* ---- comparisons ------------------------------------------------------ */

static point_t recent(const run_t *run, size_t last)
{
    point_t mean = {0};
    for (size_t e = last + 1 - RECENT; e <= last; e++) {
        mean.loss += run->points[e].loss / RECENT;
        mean.accuracy += run->points[e].accuracy / RECENT;
    }
    return mean;
}

static double time_to_target(const run_t *run, const run_t *first)
{
    if (first->point_count < RECENT) {
        return NAN;
    }
    const point_t target = recent(first, first->point_count - 1);
    for (size_t e = RECENT - 1; e < run->point_count; e++) {
        const point_t reached = recent(run, e);
        if (isnan(target.accuracy)
                ? reached.loss <= target.loss * LOSS_5
                : reached.accuracy >= target.accuracy - POINT) {
            return run->points[e].seconds;
        }
    }
    return NAN;
}

static void compare(run_t *runs, size_t count)
{
    double exposed_ms = NAN;
    for (size_t i = 0; i < count; i++) {
        double *figures = runs[i].figures;
        figures[SPEED_UP] = runs[0].figures[SECONDS] / figures[SECONDS];
        figures[TARGET_S] = time_to_target(&runs[i], &runs[0]);
        if (runs[i].system.kind == FORK_JOIN) {
            exposed_ms = figures[COMMUNICATION_MS];
        } else if (runs[i].system.kind == OVERLAP) {
            figures[HIDDEN] =
                100 * (1 - figures[COMMUNICATION_MS] / exposed_ms);
        }
    }
}

/* A column without a figure is left out. */
static void print_table(const run_t *runs, size_t count)
{
    bool shown[FIGURES] = {false};
    printf("%-14s", "system");
    for (int c = 0; c < FIGURES; c++) {
        for (size_t i = 0; i < count; i++) {
            shown[c] |= !isnan(runs[i].figures[c]);
        }
        if (shown[c]) {
            printf(" %10s", columns[c].heading);
        }
    }
    printf("  digest of the weights\n");
    for (size_t i = 0; i < count; i++) {
        printf("%-14s", runs[i].system.name);
        for (int c = 0; c < FIGURES; c++) {
            char text[32] = "-";
            if (!isnan(runs[i].figures[c])) {
                snprintf(text, sizeof text, columns[c].format,
                         runs[i].figures[c]);
            }
            if (shown[c]) {
                printf(" %10s", text);
            }
        }
        printf("  %016" PRIx64 "\n", runs[i].digest);
    }
}

/* ---- files ------------------------------------------------------------ */

static bool write_csv(const run_t *runs, size_t count)
{
    FILE *file = fopen(settings.csv, "w");
    if (file == NULL) {
        perror(settings.csv);
        return false;
    }
    fprintf(file, "system,epoch,seconds,loss,accuracy,mb_sent,network_s\n");
    for (size_t i = 0; i < count; i++) {
        for (size_t e = 0; e < runs[i].point_count; e++) {
            const point_t *p = &runs[i].points[e];
            fprintf(file, "%s,%zu,%.6f,%.9g,%.9g,%.9g,%.9g\n",
                    runs[i].system.name, e + 1, p->seconds, p->loss,
                    p->accuracy, p->mb_sent, p->network_s);
        }
    }
    bool written = !ferror(file);
    return fclose(file) == 0 && written;
}

bool report(run_t *runs, size_t count)
{
    compare(runs, count);
    print_table(runs, count);
    return settings.csv == NULL || write_csv(runs, count);
}
