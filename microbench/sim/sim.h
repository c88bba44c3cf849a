/* baton-sim: what its commands share. main.c has the table of commands,
   options.c that of options, sweep.c the rows; collective.c, partial.c and
   sparse.c simulate. */
#ifndef MICROBENCH_SIM_SIM_H
#define MICROBENCH_SIM_SIM_H

#include "common/cli.h"
#include "common/table.h"
#include <baton/proof.h>
#include <baton/sim.h>
#include <baton/sparse.h>
#include <baton/tuning.h>

/* ---- options (options.c) ------------------------------------------------ */

enum { SIM_MAX_VALUES = 64, SIM_MAX_VARIANTS = 24 };

/* Commands, as a set. */
enum {
    SIM_ALLREDUCE = 1,
    SIM_BROADCAST = 2,
    SIM_BARRIER = 4,
    SIM_PARTIAL = 8,
    SIM_SPARSE = 16
};

/* The names of what commands compare, which NULL ends: the library's
   all-reduces, modes of a partial one, and sparse ones, whose numbers are
   baton_sparse_algorithm_t. */
extern const char *sim_allreduce_names[SIM_MAX_VARIANTS + 1];
extern const char *const sim_broadcast_names[], *const sim_barrier_names[];
extern const char *const sim_partial_names[], *const sim_sparse_names[];

/* The modes, in the order of their names. The first one is full, since the
   others are compared with it. */
enum {
    SIM_FULL,
    SIM_SOLO,
    SIM_MAJORITY,
    SIM_QUORUM,
    SIM_CANDIDATES_ANY,
    SIM_CANDIDATES_ALL
};

typedef enum sim_axis {
    SIM_AXIS_NONE,
    SIM_AXIS_RANKS,
    SIM_AXIS_BYTES,
    SIM_AXIS_DENSITY,
    SIM_AXIS_TEAMS
} sim_axis_t;

typedef struct sim_options {
    /* The command, and the variants that it compares: algorithms or modes.
       NULL ends their names. */
    unsigned command;
    const char *const *variant_names;

    baton_sim_options_t model; /* its ranks are not set */
    double gbit, host_gbit;
    const char *speed, *lag, *skew; /* as given, or NULL */
    uint64_t host_ranks, eager_bytes, sync_bytes;
    bool payload; /* real gradients, of sparse all-reduces */
    bool prove;   /* by contributor sets, of the others */
    uint64_t ranks;
    uint64_t bytes;
    uint64_t epochs;
    uint64_t chunk_bytes;
    uint64_t root;
    uint64_t mode_ranks; /* of a quorum or of candidates; 0 means half of the
                            ranks */
    double spacing_ms;   /* between the arrivals of neighbours, or 0 */
    /* Of sparse all-reduces. */
    uint64_t count; /* elements, of f32 */
    double density;
    uint64_t teams;  /* 0 means that the library chooses */
    size_t exchange; /* baton_exchange_t */

    size_t variants[SIM_MAX_VARIANTS]; /* indices of names */
    size_t variant_count;
    const char *sweep; /* as given, or NULL */
    sim_axis_t axis;
    double values[SIM_MAX_VALUES]; /* along the axis */
    size_t value_count;

    table_files_t files;
    const char *trace; /* file name, or NULL */
} sim_options_t;

/* Fills in the library's names. To be called first. */
void sim_options_init(void);

/* Parses the command line. `doc` is as argp has it. */
cli_verdict_t sim_options_parse(unsigned command,
                                const char *const *variant_names,
                                const char *doc, int argc, char **argv,
                                sim_options_t *out);

/* True for commands that move vectors of so many bytes. */
static inline bool sim_options_has_bytes(const sim_options_t *options)
{
    return options->command != SIM_BARRIER && options->command != SIM_SPARSE;
}

/* The axis as --sweep names it; "" for none. */
const char *sim_axis_name(sim_axis_t axis);

/* Prints the command line, and what the model is by default. */
void sim_options_print(const sim_options_t *options, int argc, char **argv);

/* ---- one simulation (case.c) -------------------------------------------- */

typedef struct sim_case {
    const sim_options_t *options;
    size_t variant;   /* index of its name */
    const char *name; /* of the variant */
    int ranks;
    uint64_t bytes;
    double density; /* of sparse all-reduces */
    uint64_t teams; /* of sparse all-reduces; 0: the library chooses */
    baton_sim_t *sim;
    FILE *trace; /* or NULL */
} sim_case_t;

typedef struct sim_result {
    /* Virtual time of an epoch on all ranks: mean, least and most. */
    double mean_us, low_us, high_us;
    double formula_us; /* of its closed form; NAN if there is none */
    uint64_t messages; /* of all epochs */
    double build_s;    /* real time */
    double run_s;

    /* For partial all-reduces: from a rank's call to its completion. */
    double latency_us, latency_median_us, latency_p99_us;
    /* Ranks whose contribution to an epoch is in its result: the mean over
       epochs, its standard error, and the expectation, which may be NAN. */
    double active, active_error, active_expected;
    /* For sparse all-reduces: what was in force; of a step, what the rank sent
       that sent most (NAN where nobody counts), and the entries of the result
       (NAN without payload). */
    baton_sparse_cost_t cost; /* the formula's */
    double k, rounds, sent, sent_bytes, nnz;
} sim_result_t;

/* Prints "baton-sim: NAME, N ranks, B bytes: MESSAGE" on standard error and
   returns false. */
bool sim_case_fail(const sim_case_t *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* True for BATON_OK. Otherwise prints the library's message. */
bool sim_case_ok(const sim_case_t *c, baton_status_t status);

/* Allocates zeroed memory for `count` elements. Returns NULL after printing
   that there is not enough: without touching any if the machine has less. */
void *sim_case_alloc(const sim_case_t *c, size_t count, size_t size);

/* ---- data of simulated ranks (case.c) ------------------------------------ */

/* The contributions, and the expected results: sets of contributors
   (baton/proof.h). */
typedef struct sim_data {
    const sim_case_t *of;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t count;         /* elements */
    uint32_t iterations;  /* consecutive ones that one sum may contain */
    baton_proof_t *proof; /* NULL if cost only */
    bool *contributors;   /* [ranks * iterations], in the expected sum */
} sim_data_t;

/* Like the functions below, prints what failed. A cost-only simulation gets
   only the type and the reduction. */
bool sim_data_open(const sim_case_t *c, uint64_t iterations, sim_data_t *out);
void sim_data_close(sim_data_t *data);

/* Stores the `count` elements that the rank contributes in this iteration,
   which counts from 1. */
bool sim_data_fill(const sim_data_t *data, int rank, uint64_t iteration,
                   void *elements);

/* Set the expected sum to no contribution, and add one. */
void sim_data_expect_none(sim_data_t *data);
void sim_data_expect(sim_data_t *data, int rank, uint64_t iteration);

/* True when the elements are the expected sum. */
bool sim_data_check(const sim_data_t *data, int rank, uint64_t epoch,
                    const void *elements);

/* ---- the trace (trace.c) ------------------------------------------------- */

/* Writes a trace of the epochs between these, in Chrome's format: a process for
   each rank, with rows for its epochs, its two ports and its processor. Both do
   nothing if the case has no file. */
void sim_trace_begin(const sim_case_t *c);
void sim_trace_end(const sim_case_t *c);

/* ---- running it ---------------------------------------------------------- */

/* Begin and end a case. After Ctrl-C, end says how far it came. */
void sim_case_begin(const sim_case_t *c);
void sim_case_end(bool passed);

/* Show how far it is; false after Ctrl-C. progress: baton_sim_options_t's
   on_progress. build: each time before a schedule is built. */
bool sim_case_progress(void *arg);
bool sim_case_build(void);

/* Runs the case's epochs and takes their times, of which `run` gives the
   virtual one. False where `run` is, after it has printed what failed. */
typedef bool (*sim_epoch_fn)(void *arg, uint64_t epoch, double *us_out);
bool sim_case_epochs(const sim_case_t *c, sim_epoch_fn run, void *arg,
                     sim_result_t *out);

/* ---- the commands: simulate the case; false after printing what failed --- */

bool sim_run_collective(const sim_case_t *c, sim_result_t *out);
bool sim_run_partial(const sim_case_t *c, sim_result_t *out);
bool sim_run_sparse(const sim_case_t *c, sim_result_t *out);

/* The library's algorithm of that name. */
baton_algorithm_t sim_algorithm(baton_collective_t collective,
                                const char *name);

/* Its closed form, NAN where the simulator does not take just that long: single
   ports, no overhead, skew or lag, equal blocks. */
double sim_formula_us(const sim_options_t *options,
                      const baton_algorithm_t *algorithm, int ranks,
                      double bytes);

/* ---- the table (sweep.c) ------------------------------------------------- */

typedef struct sim_command {
    unsigned command; /* SIM_ALLREDUCE, ... */
    const char *name;
    const char *doc;                  /* for its help */
    const char *const *variant_names; /* ended by NULL */
    /* Simulates a case; returns false after printing what failed. */
    bool (*run)(const sim_case_t *c, sim_result_t *out);
} sim_command_t;

/* Runs a simulation for each value of the sweep and for each variant, with a
   row of the table for each. Returns the exit status. */
int sim_sweep(const sim_command_t *command, int argc, char **argv);

#endif
