/* Simulations of one builder on all ranks, and the all-reduces by name. */
#ifndef MICROBENCH_SIM_COLLECTIVE_H
#define MICROBENCH_SIM_COLLECTIVE_H

#include "sim_formula.h"
#include "sim_watch.h"
#include <baton/coll.h>

typedef struct sim_allreduce {
    baton_allreduce_fn build;
    double (*formula_us)(const sim_formula_t *f);
} sim_allreduce_t;

/* Indices of both are the same; NULL ends the names. */
extern const char *const sim_allreduce_names[];
extern const sim_allreduce_t sim_allreduces[];

/* In the order of both arrays. */
enum {
    SIM_RECURSIVE_DOUBLING,
    SIM_BINOMIAL,
    SIM_RING,
    SIM_RABENSEIFNER,
    SIM_CIRCULANT,
    SIM_LINEAR_PIPELINE,
    SIM_DOUBLE_TREE
};

/* Simulate the case; false after saying what failed. */
bool sim_run_allreduce(const sim_case_t *c, sim_watch_t *watch,
                       sim_result_t *out);
bool sim_run_broadcast(const sim_case_t *c, sim_watch_t *watch,
                       sim_result_t *out);
bool sim_run_barrier(const sim_case_t *c, sim_watch_t *watch,
                     sim_result_t *out);

/* The costs of the model, or false where no closed form is for it: hosts. */
bool sim_formula_of(const sim_options_t *options, int ranks, double bytes,
                    sim_formula_t *out);

#endif
