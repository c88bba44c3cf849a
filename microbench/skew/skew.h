/* baton-skew: what its parts share. options.c has the command line, run.c
   measures, account.c checks every result, main.c prints. */
#ifndef MICROBENCH_SKEW_SKEW_H
#define MICROBENCH_SKEW_SKEW_H

#include "common/cli.h"
#include "common/harness.h"
#include "common/table.h"

/* The systems to compare: suffix of the enumerator, name on the command line,
   mode if it is Baton's. The last three take a number of ranks, as in
   "quorum:16". */
#define SKEW_KIND_LIST(X)                                                      \
    X(MPI, "mpi", FULL)                                                        \
    X(FULL, "full", FULL)                                                      \
    X(SOLO, "solo", SOLO)                                                      \
    X(MAJORITY, "majority", MAJORITY)                                          \
    X(QUORUM, "quorum", QUORUM)                                                \
    X(ANY, "any", CANDIDATES_ANY)                                              \
    X(ALL, "all", CANDIDATES_ALL)

typedef enum skew_kind {
#define SKEW_KIND_ENUM(id, name, mode) SKEW_##id,
    SKEW_KIND_LIST(SKEW_KIND_ENUM)
#undef SKEW_KIND_ENUM
        SKEW_KIND_COUNT
} skew_kind_t;

typedef struct skew_choice {
    skew_kind_t kind;
    uint32_t ranks; /* q of a quorum, m of candidates: 1 to P; else 0 */
} skew_choice_t;

enum { SKEW_MAX_SIZES = 16, SKEW_MAX_SYSTEMS = 16, SKEW_NAME_BYTES = 48 };

/* Writes the name, as "quorum:16". Returns `text`. */
const char *skew_name(skew_choice_t choice, char text[SKEW_NAME_BYTES]);

/* The mean latency of a system that takes no time itself: what ranks wait for
   those whose arrival begins an epoch. Of `ranks` ranks that arrive skew_us
   apart, (k - 1) k / 2P * skew_us where the k-th arrival begins it. MAJORITY
   and candidates: the mean over all elections. */
double skew_limit_us(skew_choice_t choice, int ranks, double skew_us);

typedef struct skew_options {
    int ranks;                               /* that are measured, P */
    skew_choice_t choices[SKEW_MAX_SYSTEMS]; /* each at most once */
    size_t system_count;
    uint64_t bytes[SKEW_MAX_SIZES]; /* multiples of 8 */
    size_t size_count;
    double skew_ms;
    uint64_t iterations;
    uint64_t warmup;
    uint64_t seed;
    table_files_t files;
} skew_options_t;

/* Parses the command line for a job of so many ranks. `speak` is true on rank 0
   only. */
cli_verdict_t skew_options_parse(int argc, char **argv, int ranks, bool speak,
                                 skew_options_t *out);

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
    double limit_us;    /* skew_limit_us */
    double active_mean; /* active ranks, over counted iterations */
    uint32_t active_min;
    uint32_t active_max;
    double steal_share; /* of the processors' time, taken by the machine's host
                           while this size was measured: the largest of any
                           rank */
} skew_result_t;

/* Measures and checks; a wrong result ends the job. Collective. `results`,
   [system_count], are written on rank 0 only. */
void skew_run(const harness_t *harness, const skew_options_t *options,
              uint64_t bytes, skew_result_t *results);

#endif
