/* All-reduces of f32 vectors by three systems that take turns, so that all see
   the same states of the machine. */
#ifndef MICROBENCH_BENCH_TURNS_H
#define MICROBENCH_BENCH_TURNS_H

#include "bench/report.h"
#include "common/harness.h"

typedef enum bench_kind {
    BENCH_BATON,
    BENCH_MPI,    /* MPI_Allreduce */
    BENCH_MPI_NB, /* MPI_Iallreduce + MPI_Wait */
    BENCH_KINDS
} bench_kind_t;

typedef struct bench_turns {
    size_t count;            /* elements */
    baton_allreduce_fn algo; /* of Baton */
    size_t turns;
    size_t calls;  /* measured in each system's turn */
    size_t warmup; /* calls before those */
} bench_turns_t;

typedef struct bench_outcome {
    bench_value_t call_us[BENCH_KINDS]; /* the slowest rank's, in each turn */
    size_t probes;                      /* of the machine's state */
    size_t near;                        /* those that found the near state */
} bench_outcome_t;

/* Collective. Only rank 0 gets the outcome. A wrong sum ends the job. */
void bench_turns(const harness_t *harness, const bench_turns_t *plan,
                 bench_outcome_t *out);

/* Reports times and ratios of medians as NAME_baton, NAME_mpi, NAME_mpi_nb,
   NAME_over_mpi, NAME_over_mpi_nb, NAME_near. */
void bench_turns_report(bench_report_t *report, const char *name,
                        const char *text, const bench_outcome_t *outcome);

#endif
