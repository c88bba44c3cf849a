/* What the user asked a command of baton-sim for. */
#ifndef MICROBENCH_SIM_OPTIONS_H
#define MICROBENCH_SIM_OPTIONS_H

#include "common/cli.h"
#include <baton/sim.h>
#include <baton/sparse.h>

enum { SIM_MAX_VALUES = 64, SIM_MAX_VARIANTS = 9 };

/* Of `inner`: the library chooses. */
#define SIM_NONE SIZE_MAX

/* Commands, as a set. */
enum {
    SIM_ALLREDUCE = 1,
    SIM_BROADCAST = 2,
    SIM_BARRIER = 4,
    SIM_PARTIAL = 8,
    SIM_SKEW = 16,
    SIM_SPARSE = 32
};

/* The all-reduces, and their names, which NULL ends. */
enum {
    SIM_RECURSIVE_DOUBLING,
    SIM_BINOMIAL,
    SIM_RING,
    SIM_RABENSEIFNER,
    SIM_CIRCULANT,
    SIM_PAIRWISE,
    SIM_LINEAR_PIPELINE,
    SIM_DOUBLE_TREE,
    SIM_HIERARCHICAL
};
extern const char *const sim_allreduce_names[];

/* The modes of a partial all-reduce, and their names. The first one is full,
   since the others are compared with it. */
enum {
    SIM_FULL,
    SIM_SOLO,
    SIM_MAJORITY,
    SIM_QUORUM,
    SIM_CANDIDATES_ANY,
    SIM_CANDIDATES_ALL
};
extern const char *const sim_partial_names[];

/* The sparse all-reduces, and their names: numbers are
   baton_sparse_algorithm_t, so the first one is the automatic choice. */
extern const char *const sim_sparse_names[];

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
    bool payload;
    bool prove; /* by contributor sets */
    uint64_t ranks;
    uint64_t bytes;
    uint64_t epochs;
    uint64_t chunk_bytes;
    uint64_t root;
    size_t inner; /* the inner all-reduce of a partial one, or SIM_NONE */
    uint64_t mode_ranks; /* of a quorum or of candidates; 0 means half of the
                            ranks */
    double spacing_ms;   /* between the arrivals of neighbours, or 0 */
    /* Of sparse all-reduces. */
    uint64_t count; /* elements, of f32 */
    double density;
    uint64_t teams;  /* 0 means that the library chooses */
    size_t exchange; /* baton_teams_t */

    size_t variants[SIM_MAX_VARIANTS]; /* indices of names */
    size_t variant_count;
    const char *sweep; /* as given, or NULL */
    sim_axis_t axis;
    double values[SIM_MAX_VALUES]; /* along the axis */
    size_t value_count;

    const char *csv, *json, *plot; /* file names, or NULL */
    const char *trace, *dot, *goal;
    uint64_t dot_rank;
} sim_options_t;

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

/* A value of the axis, as it may be given. Returns `text`. */
const char *sim_axis_format(sim_axis_t axis, double value, char *text,
                            size_t text_bytes);

/* Prints the model and the run in one line, after the command's name. */
void sim_options_print(const sim_options_t *options, const char *command);

#endif
