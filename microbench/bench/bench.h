/* baton-bench: what its benchmarks share. main.c has the table of benchmarks,
   options.c the one table of options; a benchmark describes its systems, and
   turns.c has them take turns and prints and writes the rows. */
#ifndef MICROBENCH_BENCH_BENCH_H
#define MICROBENCH_BENCH_BENCH_H

#include "common/cli.h"
#include "common/harness.h"
#include "common/progress.h"
#include "common/table.h"
#include <baton/sparse.h>
#include <baton/tuning.h>
#include <mpi.h>
#include <semaphore.h>

/* ---- the command line (options.c) --------------------------------------- */

enum {
    BENCH_MAX_SIZES = 32,
    BENCH_MAX_SYSTEMS = 16,
    BENCH_MAX_LAYERS = 4,
    BENCH_MAX_DENSITIES = 16,
    BENCH_MAX_TEAMS = 16
};

/* Sets of commands, for the table of options. The dense collectives are one. */
typedef enum bench_command {
    BENCH_NO_COMMAND = 0,
    BENCH_COLLECTIVE = 1 << 0,
    BENCH_SPARSE = 1 << 1,
    BENCH_ENGINE = 1 << 2,
    BENCH_KERNELS = 1 << 3
} bench_command_t;

/* The ways to a collective. */
typedef enum bench_system_kind {
    BENCH_SYSTEM_MPI,        /* the blocking call */
    BENCH_SYSTEM_IMPI,       /* the nonblocking call and MPI_Wait */
    BENCH_SYSTEM_PERSISTENT, /* MPI_Start and MPI_Wait */
    BENCH_SYSTEM_RING,       /* the same, by the ring of Open MPI's libnbc */
    BENCH_SYSTEM_BATON
} bench_system_kind_t;

typedef struct bench_system {
    bench_system_kind_t kind;
    const char *algorithm; /* Baton's; NULL: its choice */
    char name[48];         /* as it was given: "baton:ring" */
} bench_system_t;

/* What an application does from start on. */
typedef enum bench_way {
    BENCH_WAY_WAIT,      /* waits at once; always measured */
    BENCH_WAY_UNWAITED,  /* nothing: nobody calls the library until the end */
    BENCH_WAY_TOGETHER,  /* starts all layers, and then waits for all */
    BENCH_WAY_SLEEP,     /* the same; sleeps after each start */
    BENCH_WAY_PROCESSOR, /* the same; works after each start */
    BENCH_WAYS
} bench_way_t;

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

/* Where vectors are. */
typedef enum bench_memory {
    BENCH_MEMORY_MALLOC,
    BENCH_MEMORY_SHARED, /* of baton_memory_alloc */
    BENCH_MEMORY_DEVICE,
    BENCH_MEMORIES
} bench_memory_t;

extern const char *const bench_way_names[]; /* ended by NULL, as the next */
extern const char *const bench_memory_names[];
extern const char *const bench_place_names[];

/* What the user asked for; each command uses some of it. */
typedef struct bench_options {
    uint64_t repetitions; /* of each measurement */
    uint64_t bytes[BENCH_MAX_SIZES];
    size_t size_count;
    baton_collective_t collective;
    bench_system_t systems[BENCH_MAX_SYSTEMS];
    size_t system_count;
    size_t ways[BENCH_WAYS]; /* bench_way_t, in its order */
    size_t way_count;
    uint64_t layers[BENCH_MAX_LAYERS];
    size_t layer_count;
    size_t sparse_systems[BENCH_SPARSE_SYSTEMS]; /* bench_sparse_system_t */
    size_t sparse_system_count;
    double densities[BENCH_MAX_DENSITIES];
    size_t density_count;
    uint64_t teams[BENCH_MAX_TEAMS]; /* 0: as many as cost least */
    size_t team_count;
    double momentum, clip; /* of sparse steps, as in their options */
    bool short_velocity;
    uint64_t warm_up;
    bool accumulated; /* gradients are, in the residual, before the step */
    uint64_t turn_ms; /* of a system, in one way */
    size_t memories[BENCH_MEMORIES]; /* bench_memory_t */
    size_t memory_count;
    size_t places[2]; /* 1: in place */
    size_t place_count;
    size_t memory; /* these two are of the point that is measured */
    bool in_place;
    table_files_t files;
} bench_options_t;

/* "allreduce", "bcast", ...: as the command, and in files. */
const char *bench_collective_name(baton_collective_t collective);

/* Parses the command line, in which the first word becomes "baton-bench
   COMMAND". `speak` is true on rank 0 only. */
cli_verdict_t bench_options_parse(int argc, char **argv, bool speak,
                                  bench_command_t *command_out,
                                  bench_options_t *out);

/* ---- a run, and turns (turns.c) ----------------------------------------- */

/* A command that runs. Only rank 0 has a table and speaks. */
typedef struct bench_run {
    harness_t harness;
    bench_options_t options;
    bool speak;
    table_t table;
    size_t points, done; /* what is measured by turns: all, and before */
} bench_run_t;

/* Systems that take turns, so that all see the same states of the machine. */
typedef struct bench_turns {
    size_t systems, measures; /* how many values a turn of a system gives */
    size_t warm_up, turns;    /* turns that are not counted, and that are */
    /* Before the systems' turns; may be NULL. */
    void (*begin)(void *arg, size_t turn);
    /* Collective. A turn of one system, which stores this rank's values. */
    void (*take)(void *arg, size_t system, size_t turn, double *values);
    void *arg;
} bench_turns_t;

/* Runs all turns, in an order that rotates. `out`: [systems][measures], on rank
   0: over the turns, of the largest value of all ranks. Collective. */
void bench_turns(bench_run_t *run, const bench_turns_t *turns, stats_t *out);

/* The statistics of the slowest rank's values, on rank 0. Collective. */
stats_t bench_slowest(double *mine, size_t count);

/* A row of a benchmark whose rows are single values: `name` in files, `text` on
   the screen. */
void bench_report(bench_run_t *run, const char *name, const char *text,
                  stats_t value, const char *unit);

/* A heading among such rows, or why something is left out. */
void bench_note(const bench_run_t *run, const char *text);

/* ---- an operation (operation.c) ----------------------------------------- */

enum { BENCH_PERIOD = 251 };

/* One rank's part of a dense collective on known data. The whole vector has
   `count` f32 elements, a whole number of blocks where ranks have blocks:
   broadcast, reduce and all-reduce move all of it, reduce-scatter leaves a
   block on each rank, all-gather and gather join the ranks' blocks, scatter and
   all-to-all split a vector into blocks. A broadcast has a target alone. Any
   rank may be the root, so every rank has the memory that a root needs. */
typedef struct bench_operation {
    baton_collective_t collective;
    int rank, ranks;
    int root, roots; /* of the next call; how many take turns: 1 or `ranks` */
    float sums[BENCH_PERIOD]; /* of all ranks' elements; they repeat */
    size_t count, block;
    size_t source_count, target_count;
    float *source, *target; /* the same memory if in place */
    void *on_device[2];     /* of source and target, or NULL */
    bool in_place;
} bench_operation_t;

/* Describes a vector of `bytes`, rounded up to whole blocks. Sets everything
   but the memory: source_count and target_count elements. */
void bench_operation_init(bench_operation_t *operation,
                          baton_collective_t collective, int rank, int ranks,
                          uint64_t bytes);

/* Fills the source, and the target with what no result can be. What a
   broadcast sends is in the target of the root, which must be set; it stays
   the same whoever sends it on. */
void bench_operation_fill(bench_operation_t *operation);

/* Returns the first wrong element of what the last call, of this root, gave to
   this rank, or target_count. */
size_t bench_operation_check(const bench_operation_t *operation);

/* The element that the target must have. */
float bench_operation_expected(const bench_operation_t *operation, size_t i);

/* ---- systems (system.c) ------------------------------------------------- */

/* The end of an epoch, which the last node of a schedule tells. */
typedef struct bench_end {
    sem_t told;
    double us; /* clock_now_us */
    uint64_t epochs;
} bench_end_t;

/* A system that is ready to run one operation. */
typedef struct bench_runner {
    bench_system_t system;
    bench_operation_t *operation;
    MPI_Request *requests; /* of each root; persistent: until it is closed */
    int *counts;           /* MPI's, of a reduce-scatter */
    baton_schedule_t **schedules; /* Baton's, of each root */
    bench_end_t *end;             /* NULL: its calls are waited for */
} bench_runner_t;

/* Drops systems that can't run the collective here, and says why. Returns how
   many are left. Collective. */
size_t bench_keep_able(bench_run_t *run);

/* An operation's memory, of the kind that was asked for. */
void bench_memory_open(const bench_run_t *run, bench_operation_t *operation);
void bench_memory_close(const bench_run_t *run, bench_operation_t *operation);

/* Fills the operation's vectors; checks the result, and ends the job where it
   is wrong. Both copy what is on a device. */
void bench_fill(bench_operation_t *operation);
void bench_check(const bench_runner_t *runner);

/* Sets the target to zero. */
void bench_clear(bench_operation_t *operation);

/* Collective, in the same order on all ranks. `operation` has its memory.
   `unwaited` is for bench_runner_watch. */
void bench_runner_open(const bench_run_t *run, const bench_system_t *system,
                       bench_operation_t *operation, bool unwaited,
                       bench_runner_t *out);
void bench_runner_close(bench_runner_t *runner);

/* Starts the collective, of the operation's root, and returns, unless the
   system only has a call that blocks; waits for it. */
void bench_runner_start(bench_runner_t *runner);
void bench_runner_wait(bench_runner_t *runner);

/* Sleeps, without a call that drives Baton, until the collective has ended.
   Returns when that was. Of Baton's systems only. */
double bench_runner_watch(bench_runner_t *runner);

/* ---- the GPU (device.c) ------------------------------------------------- */

/* What needs CUDA: all but `lacks` is NULL if Baton was built without it. */
typedef struct bench_device {
    /* Why there is no GPU, or NULL. */
    const char *(*lacks)(void);
    /* Attaches a GPU of this machine to an engine. */
    harness_attach_fn attach;
    /* On the GPU that was attached last. A failure ends the job. */
    void *(*alloc)(size_t bytes);
    void (*free)(void *memory);
    void (*copy)(void *target, const void *source, size_t bytes);
    /* Sums and copies in the GPU's memory, beside cudaMemcpyAsync. */
    bool (*run_kernels)(bench_run_t *run);
} bench_device_t;

extern const bench_device_t bench_device;

/* A row of `kernels`: operation, type, form and kernels; bytes of a vector; the
   selected entries or 0; what it is compared with. */
void bench_kernel_row(bench_run_t *run, const char *const words[4],
                      size_t bytes, size_t k, stats_t us, double against_us,
                      double ratio);

/* ---- plain loops, compiled for this machine (kernels_native.c) ----------- */

void bench_native_sum(float *restrict target, const float *left,
                      const float *right, size_t count);
void bench_native_add(float *restrict target, const float *right, size_t count);

/* ---- the commands -------------------------------------------------------- */

typedef struct bench {
    bench_command_t command;
    const char *what;              /* for the head */
    bool (*run)(bench_run_t *run); /* collective; false after a message */
} bench_t;

extern const bench_t bench_collective, bench_sparse, bench_engine,
    bench_kernels;

#endif
