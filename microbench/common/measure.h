/* Clocks, statistics that are robust to outliers, and CPU steal: the processor
   time that a hypervisor took from this virtual machine. */
#pragma once

#include <stddef.h>

/* ---- clocks ----------------------------------------------------------- */

/* Return the monotonic time, and the processor time (user and system) of all
   threads of this process, in microseconds. */
double clock_now_us(void);
double clock_processor_us(void);

/* Sleeps until clock_now_us() returns `deadline_us` or more. */
void clock_sleep_until(double deadline_us);

/* ---- statistics ------------------------------------------------------- */

/* The summary of repeated measurements: their mean and some percentiles, by
   nearest rank. */
typedef struct stats {
    double p10, median, p90, p99, mean;
} stats_t;

/* Sorts the values and summarizes them. Without values all fields are 0. */
stats_t stats_of(double *values, size_t count);

/* ---- stolen time ------------------------------------------------------ */

/* Times in ticks, of all processors together, since the machine was started. */
typedef struct steal {
    double stolen;
    double total;
} steal_t;

/* Reads the first line of /proc/stat. Returns zeros if the line cannot be
   read. */
steal_t steal_read(void);

/* Parses the first line of /proc/stat. */
steal_t steal_parse(const char *line);

/* Returns the stolen share of the time between two readings, from 0 to 1.
   Returns 0 if it is unknown. */
double steal_share(steal_t before, steal_t after);
