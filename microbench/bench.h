/* The subcommands of baton-bench. Each prints a table to standard output and,
   when `json` is not NULL, writes a JSON array to it; 0 when it succeeded. */
#ifndef BATON_MICROBENCH_BENCH_H
#define BATON_MICROBENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* f32 sum, Baton's kernel against the plain loop that the compiler makes for
   this very machine. On one rank. */
int bench_kernels(FILE *json);

enum { BENCH_MAX_SIZES = 16 };

typedef struct bench_options {
    uint64_t repetitions; /* of each measurement; the median counts */
    uint64_t epochs;      /* over which memory must not grow */
    uint64_t bytes[BENCH_MAX_SIZES];
    size_t size_count;
} bench_options_t;

/* What an engine costs: nodes, starts, commits, idling, short all-reduces.
   Collective: all ranks call it, rank 0 prints and has the file. */
int bench_engine(const bench_options_t *options, FILE *json);

/* All-reduce of long vectors by ring, against MPI. Collective likewise. */
int bench_ring(const bench_options_t *options, FILE *json);

/* What a training loop sees: epochs that nobody waits for, hundreds of
   schedules, long pipelines. Collective likewise. */
int bench_loop(const bench_options_t *options, FILE *json);

/* Sparse all-reduces beside dense ones. Collective likewise. */
int bench_sparse(const bench_options_t *options, FILE *json);

#endif
