/* Clocks, statistics that outliers don't move, and processor time that the host
   of a virtual machine took from it. */
#ifndef MICROBENCH_MEASURE_H
#define MICROBENCH_MEASURE_H

#include <stddef.h>

/* ---- clocks ----------------------------------------------------------- */

/* Monotonic time, and the processor time (user and system) of all threads of
   this process, in microseconds. */
double clock_now_us(void);
double clock_processor_us(void);

/* Sleeps until clock_now_us() is `deadline_us` or later. */
void clock_sleep_until(double deadline_us);

/* ---- statistics ------------------------------------------------------- */

/* Sorts `values` in place. */
void stats_sort(double *values, size_t count);

/* The value at `fraction` of the way through sorted values, by nearest rank:
   0.5 the median, 0.99 the 99th percentile. 0 for no values. */
double stats_percentile(const double *sorted, size_t count, double fraction);

/* Sorts, and returns the median. */
double stats_median(double *values, size_t count);

/* What is said of repeated measurements. */
typedef struct stats {
    double p10, median, p90;
} stats_t;

/* Sorts. */
stats_t stats_of(double *values, size_t count);

/* Of a value that was counted, or measured once. */
static inline stats_t stats_single(double value)
{
    stats_t stats = {value, value, value};
    return stats;
}

double stats_mean(const double *values, size_t count);

/* ---- stolen time ------------------------------------------------------ */

/* Of all processors since the boot, in the kernel's ticks. */
typedef struct steal {
    double stolen;
    double total;
} steal_t;

/* From the first line of /proc/stat. Both are zero where it can't be read. */
steal_t steal_read(void);

/* From the line itself. */
steal_t steal_parse(const char *line);

/* The share that was stolen between two readings, 0 to 1; 0 where nothing is
   known. */
double steal_share(steal_t before, steal_t after);

#endif
