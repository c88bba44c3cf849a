/* What the user asked a command of baton-sim for. */
#ifndef MICROBENCH_SIM_OPTIONS_H
#define MICROBENCH_SIM_OPTIONS_H

#include "cli.h"
#include <baton/sim.h>

enum { SIM_MAX_VALUES = 64, SIM_MAX_VARIANTS = 8 };
#define SIM_MAX_RANKS  (UINT64_C(1) << 24)
#define SIM_MAX_BYTES  (UINT64_C(1) << 40)
#define SIM_MAX_EPOCHS UINT64_C(1000000)

/* Not given. */
#define SIM_NONE UINT64_MAX

/* Commands, as a set: who takes an option. */
enum {
    SIM_ALLREDUCE = 1,
    SIM_BROADCAST = 2,
    SIM_BARRIER = 4,
    SIM_PARTIAL = 8,
    SIM_SKEW = 16
};

typedef enum sim_axis {
    SIM_AXIS_NONE,
    SIM_AXIS_RANKS,
    SIM_AXIS_BYTES
} sim_axis_t;

typedef struct sim_options {
    /* The command's: which one; what it compares, algorithms or modes, of which
       NULL is the last. */
    unsigned command;
    const char *const *variant_names;

    baton_sim_options_t model; /* without its ranks */
    double gbit, host_gbit;
    const char *speed, *lag, *skew; /* as given, to be printed; NULL: not */
    bool prove;                     /* by contributor sets */
    uint64_t ranks;
    uint64_t bytes;
    uint64_t epochs;
    uint64_t chunk_bytes;
    uint64_t root;
    size_t inner; /* all-reduce of a partial one; SIM_NONE: its default */
    uint64_t mode_ranks; /* of a quorum, of candidates; 0: half of the ranks */
    double
        spacing_ms; /* between the arrivals of neighbours; 0: there is none */

    size_t variants[SIM_MAX_VARIANTS]; /* indices of names */
    size_t variant_count;
    sim_axis_t axis;
    uint64_t values[SIM_MAX_VALUES]; /* along the axis */
    size_t value_count;

    const char *csv, *json, *plot; /* file names, NULL: none */
    const char *trace, *dot, *goal;
    uint64_t dot_rank;
} sim_options_t;

/* Parses the command line. `doc` as argp has it. */
cli_verdict_t sim_options_parse(unsigned command,
                                const char *const *variant_names,
                                const char *doc, int argc, char **argv,
                                sim_options_t *out);

/* For --sweep: the axis and its values. */
error_t sim_options_sweep(struct argp_state *state, const char *text);

/* At the end of the line: what must fit together does, and what was not given
   has its default. */
error_t sim_options_settle(struct argp_state *state);

/* Whether there are bytes to be moved. */
static inline bool sim_options_has_bytes(const sim_options_t *options)
{
    return options->command != SIM_BARRIER;
}

/* Prints the model and the run, in a line behind the command's name. */
void sim_options_print(const sim_options_t *options, const char *command);

#endif
