/* The memory of this process in bytes. */
#ifndef MICROBENCH_BENCH_MEMORY_H
#define MICROBENCH_BENCH_MEMORY_H

/* Allocated by malloc and not freed, in all threads. */
double memory_allocated(void);

/* Resident. */
double memory_resident(void);

#endif
