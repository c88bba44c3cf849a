/* The declarations that the commands of baton-sim share. main.c has the table
   of commands, options.c the table of options, sweep.c the table of results;
   collective.c, partial.c and sparse.c simulate. */
#pragma once

#include "common/cli.h"
#include "common/measure.h"
#include "common/modes.h"
#include "common/table.h"
#include <baton/proof.h>
#include <baton/sim.h>
#include <baton/sparse.h>
#include <baton/tuning.h>

/* ---- options (options.c) ------------------------------------------------ */

/* Sets of commands, one bit for each command. */
enum {
    SIM_ALLREDUCE = 1,
    SIM_BROADCAST = 2,
    SIM_BARRIER = 4,
    SIM_PARTIAL = 8,
    SIM_SPARSE = 16
};

/* The names of the variants that a command compares, and NULL at the end: the
   library's all-reduces, the modes of a partial all-reduce, or sparse
   all-reduces. The index of a mode is its baton_partial_mode_t, and that of a
   sparse all-reduce its baton_sparse_algorithm_t. */
extern const char *sim_allreduce_names[CLI_MOST_ITEMS + 1];
extern const char *const sim_broadcast_names[], *const sim_barrier_names[];
extern const char *const sim_sparse_names[];

typedef struct sim_command sim_command_t;

typedef struct sim_options {
    const sim_command_t *command; /* the command that is run */
    baton_sim_options_t model;    /* the model; its field `ranks` is not set */
    double gbit, host_gbit;
    /* The texts of the options --speed, --lag and --skew, or NULL. */
    const char *speed, *lag, *skew;
    uint64_t host_ranks, sync_bytes;
    bool payload; /* sparse all-reduces have real gradients */
    /* The collectives that are not sparse are checked by sets of contributors
       (baton/proof.h). */
    bool prove;
    uint64_t ranks;
    uint64_t bytes;
    uint64_t epochs;
    uint64_t chunk_bytes;
    uint64_t root;
    /* The size of the quorum or the number of candidates; 0: half of the
       ranks. */
    uint64_t mode_ranks;
    /* The time between the arrivals of two neighbours; 0: they arrive at
       once. */
    double spacing_ms;
    /* Options of sparse all-reduces. */
    uint64_t count; /* number of elements, of f32 */
    double density;
    uint64_t teams;  /* the number of teams; 0: the library chooses */
    size_t exchange; /* the exchange, as baton_exchange_t */

    cli_list_t variants; /* variants.words: indices of the variants' names */
    const char *sweep;   /* the text of the option --sweep, or NULL */
    const cli_option_t *axis; /* the option that --sweep varies, or NULL */
    /* The values of that option; without --sweep only its count is set. */
    cli_list_t values;

    table_files_t files;
    const char *trace; /* name of the trace's file, or NULL */
} sim_options_t;

/* Fills in the library's names. Must be called first. */
void sim_options_init(void);

/* Parses the command line of a command. */
void sim_options_parse(const sim_command_t *command, int argc, char **argv,
                       sim_options_t *out);

/* Sets the option that --sweep varies to the value with this index. */
void sim_options_set(sim_options_t *options, size_t value);

/* Prints the title, which is the command line, and the model's default values.
 */
void sim_options_print(const sim_options_t *options, const char *title);

/* ---- one simulation (case.c) -------------------------------------------- */

typedef struct sim_case {
    const sim_options_t *options;
    size_t variant;   /* the index of the variant's name */
    const char *name; /* the variant's name */
    int ranks;
    uint64_t bytes;
    baton_sim_t *sim;
    FILE *trace; /* the file of the trace, or NULL */
} sim_case_t;

typedef struct sim_result {
    /* Virtual time of an epoch on all ranks: the mean, the least and the
       most. */
    double mean_us, low_us, high_us;
    /* The time of an epoch by the closed form; NAN: there is none. */
    double formula_us;
    uint64_t messages; /* number of messages of all epochs */
    double build_s;    /* real time that building took, in seconds */
    double run_s;

    /* The time of a partial all-reduce from a rank's call to its completion. */
    stats_t latency; /* in microseconds */
    /* The number of ranks whose contribution to an epoch is in that epoch's
       result: the mean over the epochs, its standard error, and the expected
       number, which is NAN if it is unknown. */
    double active, active_error, active_expected;
    /* Results of sparse all-reduces. cost: the costs by the formula, for this k
       and this number of rounds. sent, sent_bytes: the most messages and bytes
       that a rank has sent in a step; NAN if they are not counted. nnz: the
       number of entries of the result; NAN if only costs are simulated. */
    baton_sparse_cost_t cost;
    double k, rounds, sent, sent_bytes, nnz;
} sim_result_t;

/* Prints "baton-sim: NAME, N ranks, B bytes: MESSAGE" for the running case on
   standard error. Returns false. */
bool sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns true for BATON_OK. Otherwise prints the library's message, except for
   BATON_ERR_CANCELLED, and returns false. */
bool sim_ok(baton_status_t status);

/* Allocates memory of zeros for `count` elements. If there is not enough
   memory, prints an error and returns NULL. Does not even try if the whole
   machine has less memory. */
void *sim_alloc(size_t count, size_t size);

/* ---- data of simulated ranks (case.c) ------------------------------------ */

/* The contributions and the expected results of simulated ranks, as sets of
   contributors (baton/proof.h). */
typedef struct sim_data {
    const sim_case_t *of;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t count; /* number of elements of a contribution */
    /* The number of consecutive iterations that one sum may contain. */
    uint32_t iterations;
    baton_proof_t *proof; /* NULL: only costs are simulated */
    /* An array of [ranks * iterations]: the contributors to the expected
       sum. */
    bool *contributors;
} sim_data_t;

/* Opens the data. If only costs are simulated, sets only the type, the
   reduction and the counts. This function and those below return false after
   printing the reason of a failure. Data must be closed even if this failed. */
bool sim_data_open(const sim_case_t *c, uint64_t iterations, sim_data_t *out);
void sim_data_close(sim_data_t *data);

/* Stores the `count` elements that a rank contributes in an iteration.
   Iterations are numbered from 1. */
bool sim_data_fill(const sim_data_t *data, int rank, uint64_t iteration,
                   void *elements);

/* sim_data_expect_none removes all contributions from the expected sum, and
   sim_data_expect adds one. */
void sim_data_expect_none(sim_data_t *data);
void sim_data_expect(sim_data_t *data, int rank, uint64_t iteration);

/* Returns whether the elements are the expected sum. */
bool sim_data_check(const sim_data_t *data, int rank, uint64_t epoch,
                    const void *elements);

/* ---- the trace (trace.c) ------------------------------------------------- */

/* Record the epochs between the two calls, and write them in Chrome's trace
   format: a process for each rank, with rows for the rank's epochs, two ports
   and processor. Both calls do nothing if the case has no trace file. */
void sim_trace_begin(const sim_case_t *c);
void sim_trace_end(const sim_case_t *c);

/* ---- the run of a case (case.c) ------------------------------------------ */

/* sim_case_begin begins a case, and sim_case_end ends it. After Ctrl-C
   sim_case_end prints how far the case has come. */
void sim_case_begin(const sim_case_t *c);
void sim_case_end(bool passed);

/* Both update the progress line, and return false after Ctrl-C.
   sim_case_progress is the on_progress of baton_sim_options_t. sim_case_build
   is called before each schedule is built. */
bool sim_case_progress(void *arg);
bool sim_case_build(void);

/* Runs the case's epochs and summarizes their times. `run` runs one epoch and
   stores its virtual time. If it returns false, after printing an error,
   sim_case_epochs returns false, too. */
typedef bool (*sim_epoch_fn)(void *arg, uint64_t epoch, double *us_out);
bool sim_case_epochs(const sim_case_t *c, sim_epoch_fn run, void *arg,
                     sim_result_t *out);

/* ---- the commands: simulate the case; false after printing what failed --- */

bool sim_run_collective(const sim_case_t *c, sim_result_t *out);
bool sim_run_partial(const sim_case_t *c, sim_result_t *out);
bool sim_run_sparse(const sim_case_t *c, sim_result_t *out);

/* Returns the library's algorithm of this name. */
baton_algorithm_t sim_algorithm(baton_collective_t collective,
                                const char *name);

/* Returns the time by the algorithm's closed form. Returns NAN if the
   simulator's time may differ from it: the closed form holds for single ports,
   without overhead, skew or lag, and for equal blocks. */
double sim_formula_us(const sim_options_t *options,
                      const baton_algorithm_t *algorithm, int ranks,
                      double bytes);

/* ---- the table (sweep.c) ------------------------------------------------- */

struct sim_command {
    /* a bit of the enumeration above, such as SIM_ALLREDUCE */
    unsigned bit;
    baton_collective_t collective; /* the collective of sim_run_collective */
    const char *name;
    const char *doc; /* the help, in argp's format */
    /* The names of the variants (algorithms or modes) that the command
       compares, and NULL at the end. */
    const char *const *variant_names;
    /* Simulates a case. Returns false after printing the reason of a
       failure. */
    bool (*run)(const sim_case_t *c, sim_result_t *out);
};

/* Runs one simulation for each value of the sweep and each variant, and adds a
   row of the table for each. Returns the exit status. */
int sim_sweep(const sim_command_t *command, int argc, char **argv);
