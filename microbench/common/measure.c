#include "common/measure.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double read_clock(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

double clock_now_us(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double clock_processor_us(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void clock_sleep_until(double deadline_us)
{
    double seconds = floor(deadline_us / 1e6);
    struct timespec deadline = {
        .tv_sec = (time_t)seconds,
        .tv_nsec = (long)((deadline_us - seconds * 1e6) * 1e3),
    };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL) ==
           EINTR) {
    }
}

/* ---- statistics ------------------------------------------------------- */

static int measure_compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double percentile(const double *sorted, size_t count, double fraction)
{
    size_t rank = (size_t)ceil(fraction * (double)count);
    return sorted[rank > 0 ? rank - 1 : 0];
}

stats_t stats_of(double *values, size_t count)
{
    double sum = 0;
    if (count == 0) {
        return (stats_t){0};
    }
    qsort(values, count, sizeof(*values), measure_compare);
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    return (stats_t){.p10 = percentile(values, count, 0.1),
                     .median = percentile(values, count, 0.5),
                     .p90 = percentile(values, count, 0.9),
                     .p99 = percentile(values, count, 0.99),
                     .mean = sum / (double)count};
}

/* ---- stolen time ------------------------------------------------------ */

/* The fields of the first line of /proc/stat are user, nice, system, idle,
   iowait, irq, softirq and steal. Further fields have the time of guests, which
   is already in user and nice. */
steal_t steal_parse(const char *line)
{
    double f[8];
    if (strncmp(line, "cpu ", 4) != 0 ||
        sscanf(line + 4, "%lf%lf%lf%lf%lf%lf%lf%lf", &f[0], &f[1], &f[2], &f[3],
               &f[4], &f[5], &f[6], &f[7]) != 8) {
        return (steal_t){0, 0};
    }
    return (steal_t){.stolen = f[7],
                     .total =
                         f[0] + f[1] + f[2] + f[3] + f[4] + f[5] + f[6] + f[7]};
}

steal_t steal_read(void)
{
    char line[256] = "";
    FILE *file = fopen("/proc/stat", "r");
    if (file != NULL) {
        if (fgets(line, sizeof(line), file) == NULL) {
            line[0] = '\0';
        }
        (void)fclose(file);
    }
    return steal_parse(line);
}

double steal_share(steal_t before, steal_t after)
{
    double total = after.total - before.total;
    return total > 0 ? (after.stolen - before.stolen) / total : 0;
}
