/* Processor time that the host of a virtual machine took from it. */
#ifndef MICROBENCH_STEAL_H
#define MICROBENCH_STEAL_H

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
