/* What the measuring programs share: clocks, robust statistics, and a process
   that is one rank of a Baton group over MPI_COMM_WORLD. */
#ifndef MICROBENCH_HARNESS_H
#define MICROBENCH_HARNESS_H

#include <baton/coll.h>
#include <baton/engine.h>
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

/* ---- clocks ----------------------------------------------------------- */

/* Monotonic time, and the processor time (user and system) of all threads of
   this process, and of this thread, in microseconds. */
double clock_now_us(void);
double clock_processor_us(void);
double clock_thread_us(void);

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

double stats_mean(const double *values, size_t count);

#endif
