/* A command of baton-sim. */
#ifndef MICROBENCH_SIM_COMMAND_H
#define MICROBENCH_SIM_COMMAND_H

#include "sim/watch.h"

/* A set of columns (row.h). */
typedef uint64_t sim_columns_t;

typedef struct sim_command {
    unsigned command; /* SIM_ALLREDUCE, ... */
    const char *name;
    const char *summary;              /* for the list of commands */
    const char *doc;                  /* for its help */
    const char *compared;             /* "algorithm", "mode" */
    const char *const *variant_names; /* ended by NULL */
    /* Simulates a case; returns false after printing what failed. */
    bool (*run)(const sim_case_t *c, sim_watch_t *watch, sim_result_t *out);

    sim_columns_t shown, written; /* columns of the table, and of the files */
    const char *plotted;          /* what the plot shows */
    double (*plot_value)(const sim_result_t *result);
} sim_command_t;

#endif
