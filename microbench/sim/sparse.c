/* Sparse all-reduces. A step begins on all ranks at once. The first step is not
   counted: Ok-Topk moves its regions in this step and in every 64th step after
   it.

   If the simulation has a payload, each rank has its own gradient, and each
   step is checked: all ranks have the same result, bit by bit, and results plus
   residuals are the sum of all gradients so far. */
#include "common/measure.h"
#include "common/progress.h"
#include "common/sparse_check.h"
#include "sim/sim.h"
#include <baton/sparse.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* The number of steps between two moves of Ok-Topk's regions. */
enum { REGIONS_PERIOD = 64 };

typedef struct run {
    const sim_case_t *of;
    baton_sparse_options_t options;
    baton_sparse_t **ranks;
    size_t count;
    sim_result_t *out; /* the results so far, which the run fills in */
    /* The next fields are NULL if only costs are simulated. `gradients` is an
       array of [ranks][count]. */
    float *gradients; /* an array of [ranks][count] */
    float *residual;  /* an array of [count] */
    /* An array of [count]: sums of all results so far. The memory of the slice
       follows it. */
    double *sums;
    sparse_slice_t slice; /* a slice that covers all elements */
} run_t;

/* ---- data ------------------------------------------------------------- */

static bool sim_sparse_open_data(run_t *run)
{
    const sim_case_t *c = run->of;
    if (c->options->model.cost_only) {
        return true;
    }
    run->gradients = sim_alloc((size_t)c->ranks, run->count * sizeof(float));
    run->residual = sim_alloc(run->count, sizeof(float));
    run->sums = sim_alloc(run->count, 3 * sizeof(double));
    if (run->gradients == NULL || run->residual == NULL || run->sums == NULL) {
        return false;
    }
    run->slice = sparse_slice_of(run->count, 1, 0);
    run->slice.gradients = run->sums + run->count;
    run->slice.magnitudes = run->slice.gradients + run->count;
    return true;
}

/* Adds all ranks' residuals to `sums`. If `sign` is -1, subtracts them
   again. */
static bool add_residuals(run_t *run, double sign)
{
    for (int rank = 0; rank < run->of->ranks; rank++) {
        if (!sim_ok(baton_sparse_residual(run->ranks[rank], run->residual))) {
            return false;
        }
        for (size_t i = 0; i < run->count; i++) {
            run->sums[i] += sign * (double)run->residual[i];
        }
    }
    return true;
}

static bool sim_sparse_check_sums(run_t *run, uint64_t step,
                                  const baton_sparse_result_t *result)
{
    size_t i = 0;
    const char *wrong = sparse_check(result, run->count, &i);
    if (wrong != NULL) {
        return sim_fail("step %" PRIu64 ": entry %zu of %zu: %s", step, i,
                        result->count, wrong);
    }
    sparse_slice_add_result(&run->slice, result, run->sums);
    if (!add_residuals(run, 1)) {
        return false;
    }
    i = sparse_slice_find_loss(&run->slice, run->sums);
    return i == run->count
               ? add_residuals(run, -1)
               : sim_fail("step %" PRIu64 ": results and residuals of "
                          "element %zu add up to %.9g, not to its "
                          "gradients, %.9g",
                          step, i, run->sums[i], run->slice.gradients[i]);
}

/* ---- steps ------------------------------------------------------------ */

/* Starts the step on all ranks, each with its own gradient if the simulation
   has a payload. */
static bool sim_sparse_start_all(run_t *run, uint64_t step)
{
    uint64_t seed = run->of->options->model.seed;
    float *gradient = run->gradients;
    if (gradient != NULL) {
        sparse_slice_add_gradients(&run->slice, seed, step, run->of->ranks);
    }
    for (int rank = 0; rank < run->of->ranks; rank++) {
        if (gradient != NULL) {
            gradient = run->gradients + (size_t)rank * run->count;
            gradient_fill(gradient_key(seed, step, rank), gradient, run->count);
        }
        if (!sim_ok(baton_sparse_start(run->ranks[rank], gradient))) {
            return false;
        }
    }
    return true;
}

static bool take_stats(run_t *run, int rank)
{
    sim_result_t *out = run->out;
    baton_sparse_stats_t stats;
    if (!sim_ok(baton_sparse_stats(run->ranks[rank], &stats))) {
        return false;
    }
    out->rounds = out->nnz = NAN;
    if (stats.algorithm == BATON_SPARSE_DENSE) {
        out->sent = out->sent_bytes = NAN;
    } else {
        out->rounds = stats.rounds;
        out->sent = fmax(out->sent, (double)stats.messages_sent);
        out->sent_bytes = fmax(out->sent_bytes, (double)stats.bytes_sent);
    }
    if (run->gradients != NULL) {
        out->nnz = (double)stats.nnz;
    }
    out->k = (double)stats.k;
    return true;
}

static bool wait_all(run_t *run, uint64_t step)
{
    baton_sparse_result_t first = {0}, result;
    for (int rank = 0; rank < run->of->ranks; rank++) {
        if (!sim_ok(baton_sparse_wait(run->ranks[rank], -1, &result)) ||
            !take_stats(run, rank)) {
            return false;
        }
        first = rank == 0 ? result : first;
        if (run->gradients != NULL &&
            sparse_hash(&first) != sparse_hash(&result)) {
            return sim_fail("step %" PRIu64 ": rank %d has another result "
                            "than rank 0",
                            step, rank);
        }
    }
    return run->gradients == NULL || sim_sparse_check_sums(run, step, &first);
}

static bool sim_sparse_run_step(void *arg, uint64_t step, double *us_out)
{
    run_t *run = arg;
    double begin_us = baton_sim_now_us(run->of->sim);
    if (!sim_sparse_start_all(run, step) ||
        !sim_ok(baton_sim_run(run->of->sim, -1))) {
        return false;
    }
    *us_out = baton_sim_now_us(run->of->sim) - begin_us;
    return wait_all(run, step);
}

/* ---- the run ---------------------------------------------------------- */

static baton_sparse_options_t sim_sparse_options_of(const sim_case_t *c)
{
    const sim_options_t *options = c->options;
    const baton_sim_link_t *link = &options->model.link;
    baton_sparse_options_t out = BATON_SPARSE_OPTIONS;
    out.name = c->name;
    out.algorithm = (baton_sparse_algorithm_t)c->variant;
    out.count = (size_t)options->count;
    out.density = options->density;
    bool has_teams = out.algorithm == BATON_SPARSE_AUTO ||
                     out.algorithm == BATON_SPARSE_SPARDL;
    out.teams = has_teams ? (int)options->teams : 1;
    if (options->teams == 0) {
        out.teams = BATON_SPARSE_TEAMS_AUTO;
    }
    if (has_teams) {
        out.exchange = (baton_exchange_t)options->exchange;
    }
    out.link = (baton_link_cost_t){link->alpha_us, link->beta_ns};
    return out;
}

/* Stores the mean over the steps of the formula's costs. In a step in which
   Ok-Topk moves its regions, each rank also receives P - 1 proposals of P - 1
   bounds. */
static void set_formula(const run_t *run)
{
    sim_result_t *out = run->out;
    const baton_sim_options_t *model = &run->of->options->model;
    if (model->host_ranks > 1) {
        return;
    }
    double steps = (double)run->of->options->epochs;
    double moves = floor(steps / REGIONS_PERIOD) / steps;
    double others = run->of->ranks - 1;
    out->formula_us = out->cost.us;
    if (out->cost.algorithm == BATON_SPARSE_OKTOPK) {
        out->formula_us += moves * others * others * sizeof(uint64_t) *
                           model->link.beta_ns / 1e3;
    }
}

static bool sim_sparse_create_all(run_t *run)
{
    const sim_case_t *c = run->of;
    double began_us = clock_now_us();
    bool passed = true;
    for (int rank = 0; rank < c->ranks && passed; rank++) {
        passed =
            sim_case_build() &&
            sim_ok(baton_sparse_prepare(baton_sim_group(run->of->sim, rank),
                                        &run->options, &run->ranks[rank]));
    }
    for (int rank = 0; rank < c->ranks && passed; rank++) {
        passed = sim_ok(baton_sparse_connect(run->ranks[rank], -1));
    }
    run->out->build_s = (clock_now_us() - began_us) / 1e6;
    return passed && sim_ok(baton_sim_run(run->of->sim, -1));
}

/* Runs the first step, which is not counted, and then the others. */
static bool run_all(run_t *run)
{
    double us = 0;
    bool passed =
        sim_sparse_create_all(run) && sim_sparse_run_step(run, 0, &us);
    run->out->sent = run->out->sent_bytes = 0;
    passed =
        passed && sim_case_epochs(run->of, sim_sparse_run_step, run, run->out);
    int ranks = progress_interrupted() ? 0 : run->of->ranks;
    for (int rank = 0; rank < ranks; rank++) {
        passed &= sim_ok(baton_sparse_destroy(run->ranks[rank]));
    }
    return passed;
}

bool sim_run_sparse(const sim_case_t *c, sim_result_t *out)
{
    run_t run = {.of = c,
                 .options = sim_sparse_options_of(c),
                 .count = (size_t)c->options->count,
                 .out = out};
    if (!sim_ok(baton_sparse_cost(&run.options, c->ranks, &out->cost))) {
        return false;
    }
    set_formula(&run);
    run.ranks = sim_alloc((size_t)c->ranks, sizeof(baton_sparse_t *));
    bool passed =
        run.ranks != NULL && sim_sparse_open_data(&run) && run_all(&run);
    free(run.gradients);
    free(run.residual);
    free(run.sums);
    free(run.ranks);
    return passed;
}
