/* The subcommands of baton-bench. Each prints a table to standard output and,
   if `json` is not NULL, writes a JSON array to it. Returns 0 on success. */
#ifndef BATON_MICROBENCH_BENCH_H
#define BATON_MICROBENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Compares Baton's f32 sum with a plain loop that is compiled for this machine,
   and the selection from a sum with its two steps. Runs on one rank. */
int bench_kernels(FILE *json);

enum { BENCH_MAX_SIZES = 16 };

typedef struct bench_options {
    uint64_t repetitions; /* of each measurement, whose median is reported */
    uint64_t epochs;      /* during which memory must not grow */
    uint64_t bytes[BENCH_MAX_SIZES];
    size_t size_count;
} bench_options_t;

/* Measures the costs of an engine: nodes, starts, commits, idling and short
   all-reduces. Collective; rank 0 has the file and prints. */
int bench_engine(const bench_options_t *options, FILE *json);

/* Compares the ring all-reduce of long vectors with MPI. Collective. */
int bench_ring(const bench_options_t *options, FILE *json);

/* Measures the patterns of a training loop: epochs that run in the background,
   hundreds of schedules, long pipelines. Collective. */
int bench_loop(const bench_options_t *options, FILE *json);

/* Compares sparse with dense all-reduces. Collective. */
int bench_sparse(const bench_options_t *options, FILE *json);

#endif
