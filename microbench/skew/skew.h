/* Declarations that the parts of baton-skew share. options.c has the command
   line, run.c measures, account.c checks every result, and main.c prints. */
#pragma once

#include "common/cli.h"
#include "common/harness.h"
#include "common/table.h"

/* A system to compare: a mode of a partial all-reduce, or MPI, whose `mode` is
   FULL. */
typedef struct skew_choice {
    bool is_mpi;
    baton_partial_mode_t mode;
    /* The size of the quorum or the number of candidates, 1 to P; 0 for other
       systems. */
    uint32_t ranks;
    const char *name; /* as the user has given it, such as "quorum:16" */
} skew_choice_t;

/* Number of iterations that run before those that are measured. */
enum { SKEW_WARM_UP = 8 };

/* Returns the mean latency of a system that takes no time itself: it is the
   mean time for which ranks wait until the epoch begins. If P ranks arrive
   skew_us apart, and the k-th arrival begins the epoch, this latency is skew_us
   times (k - 1) k / 2P. For MAJORITY and candidates, returns the mean over all
   elections. */
double skew_limit_us(skew_choice_t choice, int ranks, double skew_us);

typedef struct skew_options {
    /* P, the number of ranks of the job. */
    int ranks;
    /* Whether the program can call MPI; if not, MPI is no system. */
    bool has_mpi;
    cli_list_t systems;
    /* The systems that `systems` names. */
    skew_choice_t choices[CLI_MOST_ITEMS];
    cli_list_t bytes; /* the sizes, multiples of 8 */
    double skew_ms;
    uint64_t iterations;
    uint64_t seed;
    table_files_t files;
} skew_options_t;

/* Parses the command line. The caller has set `ranks` and `has_mpi`. */
void skew_options_parse(int argc, char **argv, skew_options_t *out);

/* The result of one system at one size. */
typedef struct skew_result {
    stats_t latency; /* of all ranks and counted iterations, in us */
    /* The median over the iterations of the mean over the ranks. A single stall
       of the machine hardly changes it. */
    double robust_us;
    double limit_us; /* the value of skew_limit_us */
    /* The mean over counted iterations of the number of active ranks. */
    double active_mean;
    uint32_t active_min;
    uint32_t active_max;
    /* CPU steal while this size was measured. It is the largest share of any
       rank. */
    double steal_share;
} skew_result_t;

/* Measures and checks all systems at one size. A wrong result ends the job.
   Collective. `results` is an array of [systems]. */
void skew_run(const harness_t *harness, const skew_options_t *options,
              uint64_t bytes, skew_result_t *results);
