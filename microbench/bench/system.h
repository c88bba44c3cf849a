/* The systems that baton-bench compares: Open MPI's ways to a collective, and
   Baton's. */
#ifndef MICROBENCH_BENCH_SYSTEM_H
#define MICROBENCH_BENCH_SYSTEM_H

#include "bench/bench.h"
#include "bench/operation.h"
#include "common/harness.h"
#include <mpi.h>

/* A system that is ready to run one operation. */
typedef struct bench_runner {
    bench_system_t system;
    bench_operation_t *operation;
    MPI_Request *requests; /* of each root; persistent: until it is closed */
    int *counts;           /* MPI's, of a reduce-scatter */
    baton_schedule_t **schedules; /* Baton's, of each root */
} bench_runner_t;

/* An operation's memory, of this kind. */
void bench_memory_alloc(const harness_t *harness, bench_memory_t memory,
                        bench_operation_t *operation);
void bench_memory_free(const harness_t *harness, bench_memory_t memory,
                       const bench_operation_t *operation);

/* Returns why this system can't run the collective here, or NULL if it can. The
   same on all ranks. */
const char *bench_system_lacks(const bench_system_t *system,
                               baton_collective_t collective);

/* Collective, in the same order on all ranks. `operation` has its memory. */
void bench_runner_open(const harness_t *harness, const bench_system_t *system,
                       bench_operation_t *operation, bench_runner_t *out);

/* Collective. */
void bench_runner_close(bench_runner_t *runner);

/* Begins a turn of this system, before anything is measured, and ends it. */
void bench_runner_begin_turn(const bench_runner_t *runner);
void bench_runner_end_turn(const bench_runner_t *runner);

/* Starts the collective, of the operation's root, and returns, unless the
   system only has a call that blocks; waits for it. */
void bench_runner_start(bench_runner_t *runner);
void bench_runner_wait(bench_runner_t *runner);

#endif
