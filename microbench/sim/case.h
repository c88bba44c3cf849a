/* One simulation and its result. */
#ifndef MICROBENCH_SIM_CASE_H
#define MICROBENCH_SIM_CASE_H

#include "sim/options.h"

typedef struct sim_case {
    const sim_options_t *options;
    size_t variant;   /* index of its name */
    const char *name; /* of the variant */
    int ranks;
    uint64_t bytes;
    double density; /* of sparse all-reduces */
    uint64_t teams; /* of sparse all-reduces; 0: the library chooses */
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

/* The model's options for this case. */
static inline baton_sim_options_t sim_case_model(const sim_case_t *c)
{
    baton_sim_options_t model = c->options->model;
    model.ranks = c->ranks;
    return model;
}

/* Prints "baton-sim: NAME, N ranks, B bytes: MESSAGE" on standard error and
   returns false. */
bool sim_case_fail(const sim_case_t *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* True for BATON_OK. Otherwise prints the library's message. */
bool sim_case_ok(const sim_case_t *c, baton_status_t status);

/* Allocates zeroed memory for `count` elements. Returns NULL after printing
   that there is not enough: without touching any if the machine has less. */
void *sim_case_alloc(const sim_case_t *c, size_t count, size_t size);

#endif
