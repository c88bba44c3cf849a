/* A process that is one rank of a Baton group over MPI_COMM_WORLD, as all
   programs that measure are. */
#ifndef MICROBENCH_HARNESS_H
#define MICROBENCH_HARNESS_H

#include "common/measure.h"
#include <baton/baton.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An engine with a group of all ranks. */
typedef struct harness_side {
    baton_engine_t *engine;
    baton_group_t *group;
} harness_side_t;

typedef struct harness {
    int rank;
    int size;
    baton_group_t *group;    /* what is measured runs here */
    harness_side_t measured; /* default progress */
    harness_side_t own;      /* manual: for the barrier */
    baton_schedule_t *barrier;
} harness_t;

/* Opens all of it; MPI is initialised. Collective. A failure ends the job. */
void harness_open(harness_t *out);

/* Collective. */
void harness_close(harness_t *harness);

/* Baton's dissemination barrier. Used instead of MPI_Barrier everywhere between
   measurements, because a rank that waits in it sleeps: where ranks share
   processors, one that spins in MPI_Barrier would take the time of those still
   measured, and would be charged for it. It has an engine of its own, without a
   thread: so its messages never wake the engine that is measured. */
void harness_barrier(const harness_t *harness);

/* Rank 0's answer, on every rank. Collective. */
bool harness_agree(bool answer);

/* Ends the whole job with a message when status is not BATON_OK: a rank that
   failed inside a collective can't tell the others in another way. */
void harness_require(baton_status_t status, const char *doing);

/* calloc that ends the job when there is no memory. */
void *harness_alloc(size_t count, size_t size);

#endif
