/* Measures all systems at one message size. */
#ifndef MICROBENCH_SKEW_RUN_H
#define MICROBENCH_SKEW_RUN_H

#include "common/harness.h"
#include "common/progress.h"
#include "skew/options.h"

/* The result of one system at one size. */
typedef struct skew_result {
    skew_choice_t choice;
    int ranks;
    uint64_t bytes;
    double mean_us;   /* latency, over all ranks and counted iterations */
    double robust_us; /* median over iterations of the mean over ranks, which a
                         stall of the machine hardly moves */
    double median_us;
    double p99_us;
    double limit_us;     /* skew_limit_us */
    double ratio_to_mpi; /* MPI_Allreduce's mean over this mean, or 0 if
                            MPI_Allreduce was not measured */
    double active_mean;  /* skew_account_active, over counted iterations */
    uint32_t active_min;
    uint32_t active_max;
    /* Processor time (user and system) of a rank, averaged over ranks: from the
       barrier before the call until all ranks have arrived, and in the barrier
       after it, which belongs to the measurement. */
    double cpu_us_per_iteration;
    double barrier_us_per_iteration;
    double steal_share; /* of the processors' time, taken by the machine's host
                           while this size was measured: the largest of any
                           rank */
} skew_result_t;

/* Measures and checks. Collective. `results`, [system_count], are written on
   rank 0 only. Returns false on every rank when a check has failed on any of
   them, after rank 0 has printed which. */
bool skew_run(const harness_t *harness, const skew_options_t *options,
              uint64_t bytes, progress_t *progress, skew_result_t *results);

#endif
