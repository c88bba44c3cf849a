/* A command of baton-sim runs a simulation for each value of its sweep and each
   of its variants, and makes a row of each. */
#ifndef MICROBENCH_SIM_SWEEP_H
#define MICROBENCH_SIM_SWEEP_H

#include "common/output.h"
#include "sim/watch.h"

typedef struct sim_command {
    unsigned command; /* SIM_ALLREDUCE, ... */
    const char *name;
    const char *doc;                  /* for its help */
    const char *compared;             /* "algorithm", "mode" */
    const char *const *variant_names; /* of these; NULL ends them */
    /* Simulates a case; false when it has said what failed. */
    bool (*run)(const sim_case_t *c, sim_watch_t *watch, sim_result_t *out);

    uint32_t shown, written; /* columns of the table, and of the files */
    const char *plotted;     /* what the plot shows */
    double (*plot_value)(const sim_result_t *result);
} sim_command_t;

/* Runs all that the command line asks for. Returns the exit status. */
int sim_sweep(const sim_command_t *command, int argc, char **argv);

#endif
