/* How much memory this process holds, in bytes. */
#ifndef MICROBENCH_BENCH_MEMORY_H
#define MICROBENCH_BENCH_MEMORY_H

/* Handed out by malloc and not freed, of all threads. */
double memory_allocated(void);

/* Resident. */
double memory_resident(void);

#endif
