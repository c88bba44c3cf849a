/* What the user asked baton-skew for. */
#ifndef MICROBENCH_SKEW_OPTIONS_H
#define MICROBENCH_SKEW_OPTIONS_H

#include "common/cli.h"

/* The systems to compare: suffix of the enumerator, name on the command line,
   label. */
#define SKEW_KIND_LIST(X)                                                      \
    X(MPI, "mpi", "MPI_Allreduce")                                             \
    X(MPI_NB, "mpi-nb", "MPI_Iallreduce + MPI_Wait")                           \
    X(FULL, "full", "Baton full")                                              \
    X(SOLO, "solo", "Baton solo")                                              \
    X(MAJORITY, "majority", "Baton majority")

typedef enum skew_kind {
#define SKEW_KIND_ENUM(id, name, label) SKEW_##id,
    SKEW_KIND_LIST(SKEW_KIND_ENUM)
#undef SKEW_KIND_ENUM
        SKEW_KIND_COUNT
} skew_kind_t;

const char *skew_kind_name(skew_kind_t kind);
const char *skew_kind_label(skew_kind_t kind);

enum { SKEW_MAX_SIZES = 16 };

typedef struct skew_options {
    size_t systems[SKEW_KIND_COUNT]; /* skew_kind_t, each at most once */
    size_t system_count;
    uint64_t bytes[SKEW_MAX_SIZES]; /* multiples of 8 */
    size_t size_count;
    double skew_ms;
    uint64_t iterations;
    uint64_t warmup;
    uint64_t seed;
    const char *csv; /* file names, or NULL */
    const char *json;
    const char *plot; /* ends in .svg or .png */
} skew_options_t;

/* Parses the command line. `speak` is true on rank 0 only. */
cli_verdict_t skew_options_parse(int argc, char **argv, bool speak,
                                 skew_options_t *out);

#endif
