/* The declarations that the benchmarks of baton-bench share. main.c has the
   table of benchmarks, options.c the table of options. A benchmark describes
   the systems that it compares. compare.c runs them in alternation, and
   prints and writes the rows. */
#pragma once

#include "common/cli.h"
#include "common/harness.h"
#include "common/progress.h"
#include "common/table.h"
#include <baton/sparse.h>
#include <baton/tuning.h>
#include <mpi.h>
#include <semaphore.h>

/* ---- the command line (options.c) --------------------------------------- */

enum { BENCH_MAX_REPETITIONS = 1000 };

/* Sets of commands, one bit for each command; the table of options says which
   commands take an option. All dense collectives are one command here. */
typedef enum bench_command {
    BENCH_COLLECTIVE = 1 << 0,
    BENCH_SPARSE = 1 << 1,
    BENCH_ENGINE = 1 << 2,
    BENCH_KERNELS = 1 << 3
} bench_command_t;

/* The implementations of a collective that are compared. */
typedef enum bench_system_kind {
    BENCH_SYSTEM_MPI,  /* MPI's blocking call */
    BENCH_SYSTEM_IMPI, /* MPI's nonblocking call, and MPI_Wait */
    /* MPI's persistent call, with MPI_Start and MPI_Wait. */
    BENCH_SYSTEM_PERSISTENT,
    /* Like PERSISTENT, with the ring algorithm of libnbc. */
    BENCH_SYSTEM_RING,
    BENCH_SYSTEM_BATON
} bench_system_kind_t;

typedef struct bench_system {
    bench_system_kind_t kind;
    /* The name of one of Baton's algorithms; NULL: Baton chooses. */
    const char *algorithm;
    /* The name that the user has given, such as "baton:ring". */
    const char *name;
} bench_system_t;

/* The modes of waiting: the application's behaviour between the start of a
   collective and the wait for it. */
typedef enum bench_wait {
    /* Waits at once. This mode is always measured. */
    BENCH_WAIT_AT_ONCE,
    /* Calls no function of the library until the operation has ended. */
    BENCH_WAIT_NEVER,
    /* Starts the operations of all layers, then waits for all. */
    BENCH_WAIT_TOGETHER,
    /* Sleeps after starting each layer's operation, then waits for all. */
    BENCH_WAIT_SLEEP,
    /* Computes after starting each layer's operation, then waits for all. */
    BENCH_WAIT_PROCESSOR,
    BENCH_WAIT_MODES
} bench_wait_t;

/* Systems of `baton-bench sparse`, each with its word on the command line.
   Baton's come first, in the order of baton_sparse_algorithm_t from SPARDL on.
   MPI is MPI_Allreduce; MPI_RESIDUAL first adds the gradient to a residual, as
   a sparse step does. */
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

/* The systems' words, and NULL at the end. */
extern const char *const bench_sparse_names[];

/* The memory that vectors are in. */
typedef enum bench_memory {
    BENCH_MEMORY_MALLOC,
    BENCH_MEMORY_SHARED, /* from baton_memory_alloc */
    BENCH_MEMORY_DEVICE,
    BENCH_MEMORIES
} bench_memory_t;

/* Each of these three arrays has NULL at the end. */
extern const char *const bench_wait_names[];
extern const char *const bench_memory_names[];
extern const char *const bench_place_names[];

/* The user's options. Each command uses some of them. */
typedef struct bench_options {
    const char *name; /* the command's name */
    bench_command_t command;
    baton_collective_t collective;
    /* Number of times that each measurement is repeated. */
    uint64_t repetitions;
    cli_list_t bytes;
    cli_list_t system_names;
    bench_system_t systems[CLI_MOST_ITEMS];
    size_t system_count;
    cli_list_t
        modes; /* modes.words: values of bench_wait_t, in ascending order */
    cli_list_t layers;
    /* algorithms.words: values of bench_sparse_system_t */
    cli_list_t algorithms;
    cli_list_t densities;
    cli_list_t teams; /* numbers of teams; 0: Baton takes the cheapest number */
    double momentum, clip; /* options of Baton's sparse steps */
    bool short_velocity;
    uint64_t warm_up;
    bool accumulated; /* gradients are added to the residual before the step */
    /* How long a system runs in one repetition, in one mode of waiting. */
    uint64_t repetition_ms;
    cli_list_t memories; /* memories.words: values of bench_memory_t */
    /* places.words: 0: with a separate target; 1: in place */
    cli_list_t places;
    /* The kind of memory (a value of bench_memory_t) and the place that are
       measured now. bench_collective_run sets both. */
    size_t memory;
    bool in_place;
    table_files_t files;
} bench_options_t;

/* Parses the command line. Replaces its first argument, the command's name, by
   "baton-bench COMMAND", under which help and errors name the program. */
void bench_options_parse(int argc, char **argv, bench_options_t *out);

/* ---- a run, and comparisons (compare.c) --------------------------------- */

/* A running command. Only rank 0 has a table and prints. */
typedef struct bench_run {
    harness_t harness;
    bench_options_t options;
    bool prints;
    table_t table;
    size_t points; /* the number of comparisons, for the progress line */
    size_t done;   /* the number of these comparisons that have ended */
} bench_run_t;

/* Systems that run in alternation, so that all of them see the same changes of
   the machine's state. */
typedef struct bench_comparison {
    size_t systems;
    size_t measures; /* number of values that a system stores each time */
    /* Number of repetitions that are not counted. They come before those that
       the option --repetitions asks for. */
    size_t warm_up;
    /* Called at the beginning of each repetition, before any system runs; may
       be NULL. */
    void (*begin)(void *arg, size_t repetition);
    /* Runs one system once, and stores this rank's values. Collective. */
    void (*measure)(void *arg, size_t system, double *values);
    void *arg;
} bench_comparison_t;

/* Runs all repetitions. In each of them every system runs once, and the order
   of the systems rotates. The value of a system in a repetition is the largest
   value of any rank. On rank 0 `out`, an array of [systems][measures], gets the
   statistics of these values over the repetitions. Collective. */
void bench_compare(bench_run_t *run, const bench_comparison_t *comparison,
                   stats_t *out);

/* For each of `count` measurements, takes the largest value of any rank.
   Returns the statistics of these values on rank 0. Collective. */
stats_t bench_slowest(double *mine, size_t count);

/* Adds a row with a single value. */
void bench_report(bench_run_t *run, const char *name, stats_t value,
                  const char *unit);

/* Adds a row of the command `kernels`. `bytes` is the size of a vector. k is
   the number of selected entries, or 0. against_us is the time with which the
   time `us` is compared. */
void bench_kernel_row(bench_run_t *run, const char *op, const char *dtype,
                      const char *form, size_t bytes, size_t k, stats_t us,
                      double against_us, double ratio);

/* ---- an operation (operation.c) ----------------------------------------- */

enum { BENCH_PERIOD = 251 };

/* One rank's part of a dense collective, with data that any rank can compute.
   The whole vector has `count` f32 elements. Broadcast, reduce and all-reduce
   move all of it. The other collectives divide it into one block for each rank:
   reduce-scatter leaves a block on each rank, all-gather and gather join the
   ranks' blocks, scatter and all-to-all send the blocks to the ranks. A
   broadcast has only a target. Every rank has the memory that a root needs,
   since the root changes. */
typedef struct bench_operation {
    baton_collective_t collective;
    int rank, ranks;
    int root;  /* the root of the next call */
    int roots; /* number of ranks that are the root in rotation: 1 or `ranks` */
    /* The sums of all ranks' elements. They repeat after BENCH_PERIOD
       elements. */
    float sums[BENCH_PERIOD];
    size_t count, block;
    size_t source_count, target_count;
    float *source, *target; /* in place, both are the same memory */
    /* The vectors in the device's memory: [0] the target, [1] the source.
       `target` and `source` are then copies in main memory. NULL: the vectors
       are in main memory only. */
    void *on_device[2];
    bool in_place;
} bench_operation_t;

/* Describes a vector of `bytes`, rounded up to whole blocks. Sets all fields
   except the memory, which must have source_count and target_count elements. */
void bench_operation_init(bench_operation_t *operation,
                          baton_collective_t collective, int rank, int ranks,
                          uint64_t bytes);

/* Fills the source, and fills the target with a value that no result has. In a
   broadcast the root's target gets the data to send, so operation->root must be
   set. Calls with other roots may follow without filling the vectors again. */
void bench_operation_fill(bench_operation_t *operation);

/* Checks the result of the last call, whose root was operation->root. Returns
   the index of the first wrong element of the target. Returns target_count if
   all elements are right. */
size_t bench_operation_check(const bench_operation_t *operation);

/* Returns the value that element i of the target must have. */
float bench_operation_expected(const bench_operation_t *operation, size_t i);

/* ---- systems (system.c) ------------------------------------------------- */

/* The end of an epoch, which baton_schedule_on_end reports. */
typedef struct bench_end {
    sem_t signalled;
    double us; /* the time of the end, as by clock_now_us */
} bench_end_t;

/* A system that is prepared to run one operation. */
typedef struct bench_runner {
    bench_system_t system;
    bench_operation_t *operation;
    /* An array with a request for each root. Persistent requests live until
       bench_runner_close. */
    MPI_Request *requests;
    int *counts;                  /* the counts for MPI_Reduce_scatter */
    baton_schedule_t **schedules; /* Baton's schedules, one for each root */
    bool watched; /* bench_runner_watch will be called for this system */
    bench_end_t end;
} bench_runner_t;

/* Removes from run's systems those that cannot run the collective here, and
   prints the reasons. Returns the number of systems that remain. Collective. */
size_t bench_remove_unable(bench_run_t *run);

/* Allocate and free an operation's vectors, in the kind of memory that the
   options name. */
void bench_memory_open(const bench_run_t *run, bench_operation_t *operation);
void bench_memory_close(const bench_run_t *run, bench_operation_t *operation);

/* bench_fill writes this rank's input into the operation's vectors. bench_check
   compares the result with the expected one, and ends the job if they differ.
   If the vectors are on the GPU, both functions copy them between the GPU and
   main memory. */
void bench_fill(bench_operation_t *operation);
void bench_check(const bench_runner_t *runner);

/* Sets the target to zero. */
void bench_clear(bench_operation_t *operation);

/* Prepares the calls by which a system runs an operation; the operation's
   memory must be allocated. Collective: all ranks open the same runners, in the
   same order. `unwaited` must be true if bench_runner_watch will be called. */
void bench_runner_open(const bench_run_t *run, const bench_system_t *system,
                       bench_operation_t *operation, bool unwaited,
                       bench_runner_t *out);
void bench_runner_close(bench_runner_t *runner);

/* bench_runner_start starts the collective with the operation's root, and
   bench_runner_wait waits for it. If the system has only a blocking call,
   bench_runner_start makes that call. */
void bench_runner_start(bench_runner_t *runner);
void bench_runner_wait(bench_runner_t *runner);

/* Sleeps until the collective has ended, without a call that drives Baton.
   Returns the time of the end, as by clock_now_us. The system must be one of
   Baton's, and bench_runner_open must have been called with `unwaited`. */
double bench_runner_watch(bench_runner_t *runner);

/* ---- the GPU (device.c) ------------------------------------------------- */

/* Functions that need CUDA. If Baton was built without CUDA, all of them except
   `lacks` are NULL. */
typedef struct bench_device {
    /* Returns the reason why there is no GPU, or NULL if there is one. */
    const char *(*lacks)(void);
    /* Attaches a GPU of this machine to an engine. */
    harness_attach_fn attach;
    /* Allocates memory of the GPU that was attached last. A failure ends the
       job. */
    void *(*alloc)(size_t bytes);
    void (*free)(void *memory);
    void (*copy)(void *target, const void *source, size_t bytes);
    /* Measures sums and copies in the GPU's memory, and cudaMemcpyAsync for
       comparison. */
    bool (*run_kernels)(bench_run_t *run);
} bench_device_t;

extern const bench_device_t bench_device;

/* ---- plain loops, compiled for this machine (kernels_native.c) ----------- */

void bench_native_sum(float *restrict target, const float *left,
                      const float *right, size_t count);
void bench_native_add(float *restrict target, const float *right, size_t count);

/* ---- the commands -------------------------------------------------------- */

/* Run a command. They return false after printing an error. Collective. */
bool bench_collective_run(bench_run_t *run);
bool bench_sparse_run(bench_run_t *run);
bool bench_engine_run(bench_run_t *run);
bool bench_kernels_run(bench_run_t *run);
