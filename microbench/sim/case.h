/* One simulation: what is run, and what came of it. */
#ifndef MICROBENCH_SIM_CASE_H
#define MICROBENCH_SIM_CASE_H

#include "sim/options.h"

typedef struct sim_case {
    const sim_options_t *options;
    size_t variant;   /* of the command */
    const char *name; /* the variant's */
    int ranks;
    uint64_t bytes;
} sim_case_t;

typedef struct sim_result {
    /* Of an epoch on all ranks, in virtual time: mean, least, most. */
    double mean_us, low_us, high_us;
    double formula_us; /* its closed form; NAN: there is none */
    uint64_t messages; /* of all epochs */
    double build_s;    /* of the clock on the wall */
    double run_s;

    /* Of partial all-reduces: from a rank's call to its completion. */
    double latency_us, latency_median_us, latency_p99_us;
    /* Ranks of which the epoch has what they contributed for it: the mean over
       epochs, its standard error, and what theory expects (NAN: nothing). */
    double active, active_error, active_expected;
} sim_result_t;

/* The model's options for this case. */
static inline baton_sim_options_t sim_case_model(const sim_case_t *c)
{
    baton_sim_options_t model = c->options->model;
    model.ranks = c->ranks;
    return model;
}

/* Says "baton-sim: NAME, N ranks, B bytes: what" on standard error; false. */
bool sim_case_fail(const sim_case_t *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* True for BATON_OK; else says the library's sentence, and false. */
bool sim_case_ok(const sim_case_t *c, baton_status_t status);

/* Memory for `count` things, zeroed, or NULL after saying so: where it is more
   than the machine has, before any of it is touched. */
void *sim_case_alloc(const sim_case_t *c, size_t count, size_t size);

#endif
