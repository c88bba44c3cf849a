/* The subcommands of baton-bench. Each prints a table to standard output and,
   if `json` is not NULL, writes a JSON array to it. Returns 0 on success. */
#ifndef BATON_MICROBENCH_BENCH_H
#define BATON_MICROBENCH_BENCH_H

#include <baton/sparse.h>
#include <baton/tuning.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Compares Baton's f32 sum with a plain loop that is compiled for this machine,
   and the selection from a sum with its two steps. Runs on one rank. */
int bench_kernels(FILE *json);

enum {
    BENCH_MAX_SIZES = 32,
    BENCH_MAX_SYSTEMS = 16,
    BENCH_MAX_LAYERS = 4,
    BENCH_MAX_DENSITIES = 16,
    BENCH_MAX_TEAMS = 16
};

/* A way to a collective: the name on the command line, label. */
#define BENCH_SYSTEM_LIST(X)                                                   \
    X(MPI, "mpi", "the blocking call")                                         \
    X(IMPI, "impi", "the nonblocking call and MPI_Wait")                       \
    X(IMPI_RING, "impi-ring", "impi by libnbc's ring")                         \
    X(PERSISTENT, "persistent", "MPI_Start and MPI_Wait")                      \
    X(BATON, "baton", "Baton")

typedef enum bench_system_kind {
#define BENCH_SYSTEM_ENUM(id, name, label) BENCH_SYSTEM_##id,
    BENCH_SYSTEM_LIST(BENCH_SYSTEM_ENUM)
#undef BENCH_SYSTEM_ENUM
        BENCH_SYSTEM_KINDS
} bench_system_kind_t;

typedef struct bench_system {
    bench_system_kind_t kind;
    const char *algorithm; /* Baton's; NULL: its choice */
    char name[48];         /* as it was given: "baton:ring" */
} bench_system_t;

/* What passes the time while a collective is in flight. */
typedef enum bench_compute {
    BENCH_COMPUTE_PROCESSOR, /* a fixed amount of work */
    BENCH_COMPUTE_SLEEP,     /* as when a device computes */
    BENCH_COMPUTES
} bench_compute_t;

/* Systems of `baton-bench sparse`: name, word. Baton's are in the order of
   baton_sparse_algorithm_t, from SPARDL on. MPI is MPI_Allreduce; MPI_RESIDUAL
   also adds the gradient to a residual before that, as a sparse step does. */
#define BENCH_SPARSE_LIST(X)                                                   \
    BATON_SPARSE_ALGORITHM_LIST(X)                                             \
    X(MPI, "mpi")                                                              \
    X(MPI_RESIDUAL, "mpi_residual")

typedef enum bench_sparse_system {
#define BENCH_SPARSE_ENUM(NAME, name) BENCH_SPARSE_##NAME,
    BENCH_SPARSE_LIST(BENCH_SPARSE_ENUM)
#undef BENCH_SPARSE_ENUM
        BENCH_SPARSE_SYSTEMS
} bench_sparse_system_t;

extern const char *const bench_sparse_names[]; /* ended by NULL */

/* Where vectors lie. */
typedef enum bench_memory {
    BENCH_MEMORY_MALLOC,
    BENCH_MEMORY_SHARED /* of baton_memory_alloc */
} bench_memory_t;

/* What the user asked for; each command uses some of it. */
typedef struct bench_options {
    uint64_t repetitions; /* of each measurement, whose median is reported */
    uint64_t epochs;      /* during which memory must not grow */
    uint64_t bytes[BENCH_MAX_SIZES];
    size_t size_count;
    baton_collective_t collective;
    const char *system_list; /* as it was given, or NULL */
    bench_system_t systems[BENCH_MAX_SYSTEMS];
    size_t system_count;
    size_t computes[BENCH_COMPUTES]; /* bench_compute_t */
    size_t compute_count;
    uint64_t layers[BENCH_MAX_LAYERS];
    size_t layer_count;
    size_t sparse_systems[BENCH_SPARSE_SYSTEMS]; /* bench_sparse_system_t */
    size_t sparse_system_count;
    double densities[BENCH_MAX_DENSITIES];
    size_t density_count;
    uint64_t teams[BENCH_MAX_TEAMS]; /* 0: as many as cost least */
    size_t team_count;
    size_t memory;   /* bench_memory_t */
    const char *csv; /* file names, or NULL */
    const char *json;
    const char *plot; /* ends in .svg or .png */
} bench_options_t;

/* Measures the costs of an engine: nodes, starts, commits, idling and short
   all-reduces. Collective; rank 0 has the file and prints. */
int bench_engine(const bench_options_t *options, FILE *json);

/* Compares the ring all-reduce of long vectors with MPI. Collective. */
int bench_ring(const bench_options_t *options, FILE *json);

/* Measures the patterns of a training loop: epochs that run in the background,
   hundreds of schedules, long pipelines. Collective. */
int bench_loop(const bench_options_t *options, FILE *json);

/* Compares sparse with dense all-reduces. Opens its files itself. Collective.
 */
int bench_sparse(const bench_options_t *options);

/* Compares ways to one dense collective, options->collective. Opens its files
   itself. Collective. */
int bench_collective(const bench_options_t *options);

/* Measures how much of an all-reduce passes while the application computes, or
   sleeps. Opens its files itself. Collective. */
int bench_overlap(const bench_options_t *options);

#endif
