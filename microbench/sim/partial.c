/* The contributions that an epoch must contain are known without its data: all
   those of a rank that no earlier epoch has taken, with its last one if that
   was `included`. So results can be checked, and active ranks can be counted
   even when buffers have no memory. */
#include "sim/partial.h"
#include "common/measure.h"
#include "sim/apps.h"
#include "sim/collective.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct run {
    const sim_case_t *of;
    sim_apps_t apps;
    double *latency_us; /* [epochs][ranks] */
    double active_sum, active_squares;
} run_t;

/* ---- results ---------------------------------------------------------- */

/* Accounts for the contributions that the epoch has taken from a rank. */
static bool read_result(run_t *run, int rank, baton_partial_result_t *result)
{
    sim_app_t *app = &run->apps.app[rank];
    if (!sim_case_ok(run->of, baton_partial_wait(app->partial, 0, result))) {
        return false;
    }
    if (result->epoch != run->apps.epoch) {
        return sim_case_fail(
            run->of, "rank %d has epoch %" PRIu64 " after step %" PRIu64, rank,
            result->epoch, run->apps.epoch);
    }
    uint64_t last = result->included ? run->apps.epoch : run->apps.epoch - 1;
    for (uint64_t step = app->taken + 1; step <= last; step++) {
        sim_data_expect(&run->apps.data, rank, step);
    }
    app->taken = last;
    return true;
}

/* Checks the data, and `active`: how many ranks have contributed to it. */
static bool check_results(run_t *run, uint32_t contributors)
{
    for (int rank = 0; rank < run->of->ranks; rank++) {
        baton_partial_result_t result;
        if (!sim_case_ok(
                run->of,
                baton_partial_wait(run->apps.app[rank].partial, 0, &result)) ||
            !sim_data_check(&run->apps.data, rank, run->apps.epoch,
                            result.data)) {
            return false;
        }
        if (result.active != contributors) {
            return sim_case_fail(run->of,
                                 "%" PRIu32 " active ranks on rank %d in epoch "
                                 "%" PRIu64 ", expected %" PRIu32,
                                 result.active, rank, run->apps.epoch,
                                 contributors);
        }
    }
    return true;
}

static bool read_results(run_t *run)
{
    double active = 0;
    uint32_t contributors = 0;
    sim_data_expect_none(&run->apps.data);
    for (int rank = 0; rank < run->of->ranks; rank++) {
        baton_partial_result_t result;
        uint64_t taken = run->apps.app[rank].taken;
        if (!read_result(run, rank, &result)) {
            return false;
        }
        active += result.included;
        contributors += run->apps.app[rank].taken > taken;
    }
    run->active_sum += active;
    run->active_squares += active * active;
    return run->of->options->model.cost_only ||
           check_results(run, contributors);
}

static bool run_epoch(run_t *run, sim_result_t *out)
{
    if (!sim_apps_epoch(&run->apps) || !read_results(run)) {
        return false;
    }
    double *latencies =
        &run->latency_us[(run->apps.epoch - 1) * (uint64_t)run->of->ranks];
    double begin_us = INFINITY;
    double end_us = 0;
    for (int rank = 0; rank < run->of->ranks; rank++) {
        const sim_app_t *app = &run->apps.app[rank];
        /* 0 if the epoch had ended before this rank called. */
        latencies[rank] = fmax(app->ended_us - app->called_us, 0);
        begin_us = fmin(begin_us, app->called_us);
        end_us = fmax(end_us, app->called_us + latencies[rank]);
    }
    double us = end_us - begin_us;
    out->mean_us += us / (double)run->of->options->epochs;
    out->low_us = fmin(out->low_us, us);
    out->high_us = fmax(out->high_us, us);
    return true;
}

static bool run_epochs(run_t *run, sim_result_t *out)
{
    double began_us = clock_now_us();
    out->low_us = INFINITY;
    for (uint64_t i = 0; i < run->of->options->epochs; i++) {
        if (!run_epoch(run, out)) {
            return false;
        }
        sim_watch_epoch(run->apps.watch);
    }
    out->messages = baton_sim_totals(run->apps.sim).messages;
    out->run_s = (clock_now_us() - began_us) / 1e6;
    return true;
}

/* ---- summary ---------------------------------------------------------- */

/* Where ranks arrive one after another. */
static double expected_active(const sim_case_t *c)
{
    double p = c->ranks;
    double m = sim_apps_mode_ranks(c);
    if (c->variant != SIM_FULL && c->options->spacing_ms == 0) {
        return NAN;
    }
    switch (c->variant) {
    case SIM_FULL:
        return p;
    case SIM_SOLO:
        return 1;
    case SIM_MAJORITY:
        return (p + 1) / 2;
    case SIM_QUORUM:
        return m;
    case SIM_CANDIDATES_ANY:
        return (p + 1) / (m + 1);
    case SIM_CANDIDATES_ALL:
        return m * (p + 1) / (m + 1);
    default:
        return NAN;
    }
}

/* A full one is its inner all-reduce with one more element, which counts the
   active ranks. */
static double formula_us(const run_t *run)
{
    const sim_options_t *options = run->of->options;
    double bytes = (double)run->of->bytes;
    const sim_formula_t formula =
        sim_formula_of(options, run->of->ranks, bytes + 8);
    if (run->of->variant != SIM_FULL || options->prove ||
        formula.host_ranks > 1) {
        return NAN;
    }
    size_t inner = options->inner;
    if (inner == SIM_NONE) {
        inner =
            bytes <= (double)BATON_PARTIAL_TREE_BYTES ? SIM_BINOMIAL : SIM_RING;
    }
    return sim_allreduces[inner].formula_us(&formula);
}

static void summarize(run_t *run, sim_result_t *out)
{
    double epochs = (double)run->of->options->epochs;
    size_t count = (size_t)run->of->ranks * (size_t)epochs;
    stats_sort(run->latency_us, count);
    out->latency_us = stats_mean(run->latency_us, count);
    out->latency_median_us = stats_percentile(run->latency_us, count, 0.5);
    out->latency_p99_us = stats_percentile(run->latency_us, count, 0.99);
    out->active = run->active_sum / epochs;
    double variance =
        fmax(run->active_squares / epochs - out->active * out->active, 0);
    out->active_error = epochs > 1 ? sqrt(variance / (epochs - 1)) : NAN;
    out->active_expected = expected_active(run->of);
    out->formula_us = formula_us(run);
}

/* ---- the run ---------------------------------------------------------- */

static bool run_apps(run_t *run, sim_watch_t *watch, sim_result_t *out)
{
    double began_us = clock_now_us();
    if (!sim_apps_open(run->of, watch, &run->apps)) {
        return false;
    }
    out->build_s = (clock_now_us() - began_us) / 1e6;
    bool passed = run_epochs(run, out);
    if (passed) {
        summarize(run, out);
    }
    return sim_apps_close(&run->apps) && passed;
}

bool sim_run_partial(const sim_case_t *c, sim_watch_t *watch, sim_result_t *out)
{
    size_t calls = (size_t)c->ranks * (size_t)c->options->epochs;
    run_t run = {.of = c};
    run.latency_us = sim_case_alloc(c, calls, sizeof(double));
    bool passed = run.latency_us != NULL && run_apps(&run, watch, out);
    free(run.latency_us);
    return passed;
}
