/* The measurement: all systems at one message size. */
#ifndef MICROBENCH_SKEW_RUN_H
#define MICROBENCH_SKEW_RUN_H

#include "harness.h"
#include "progress.h"
#include "skew_options.h"

/* What one system did at one size. */
typedef struct skew_result {
    skew_kind_t kind;
    int ranks;
    uint64_t bytes;
    double mean_us;   /* latency, over all ranks and counted iterations */
    double robust_us; /* median over iterations of the mean over ranks: a
                         stall of the machine moves it little */
    double median_us;
    double p99_us;
    double ratio_to_mpi; /* MPI_Allreduce's mean over this mean; 0 when
                            MPI_Allreduce was not measured */
    double active_mean;  /* skew_ledger_active, over counted iterations */
    uint32_t active_min;
    uint32_t active_max;
    /* Processor time, user and system, of a rank: mean over ranks. From the
       barrier before the call until all have arrived, and in the barrier
       behind it, which is the measurement's own. */
    double cpu_us_per_iteration;
    double barrier_us_per_iteration;
    double steal_share; /* of the processors' time, taken by the host while this
                           size was measured; the largest of any rank */
} skew_result_t;

/* Measures and checks. Collective; `results` [system_count] is written on rank
   0 alone. False on every rank when a check failed on any; rank 0 has said
   which then. */
bool skew_run(const harness_t *harness, const skew_options_t *options,
              uint64_t bytes, progress_t *progress, skew_result_t *results);

#endif
