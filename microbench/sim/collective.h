/* Simulations of one builder on all ranks. */
#ifndef MICROBENCH_SIM_COLLECTIVE_H
#define MICROBENCH_SIM_COLLECTIVE_H

#include "sim/formula.h"
#include "sim/watch.h"
#include <baton/coll.h>

typedef struct sim_allreduce {
    baton_allreduce_fn build;
    double (*formula_us)(const sim_formula_t *f);
} sim_allreduce_t;

/* In the order of sim_allreduce_names. */
extern const sim_allreduce_t sim_allreduces[];

/* Simulate the case; return false after printing what failed. */
bool sim_run_allreduce(const sim_case_t *c, sim_watch_t *watch,
                       sim_result_t *out);
bool sim_run_broadcast(const sim_case_t *c, sim_watch_t *watch,
                       sim_result_t *out);
bool sim_run_barrier(const sim_case_t *c, sim_watch_t *watch,
                     sim_result_t *out);

/* The costs of the model, as a case of the closed forms. */
sim_formula_t sim_formula_of(const sim_options_t *options, int ranks,
                             double bytes);

#endif
