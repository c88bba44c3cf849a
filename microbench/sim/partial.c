/* The contributions that an epoch must contain are known without its data: all
   those of a rank that no earlier epoch has taken, with its last one if that
   was `included`. So results can be checked, and active ranks can be counted
   even when buffers have no memory. */
#include "common/measure.h"
#include "sim/sim.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* The applications, one on each rank. In each epoch they begin together, and
   each contributes and starts after its delay. */
typedef struct sim_app {
    struct sim_apps *all;
    baton_partial_t *partial;
    double called_us; /* in the running epoch */
    double ended_us;
    uint64_t taken; /* the last step whose contribution an epoch has taken */
} sim_app_t;

typedef struct sim_apps {
    const sim_case_t *of;
    sim_watch_t *watch;
    baton_sim_t *sim;
    sim_data_t data;
    void *contribution; /* of the rank that contributes; it is not read without
                           payload */
    uint64_t epoch;
    bool failed;    /* a call failed, and that was printed */
    sim_app_t *app; /* [ranks] */
} sim_apps_t;

/* Streams of random numbers: one for each epoch from here on. */
#define STREAM_ARRIVALS UINT64_C(0x100000000)

static const baton_partial_mode_t modes[] = {
    [SIM_FULL] = BATON_FULL,
    [SIM_SOLO] = BATON_SOLO,
    [SIM_MAJORITY] = BATON_MAJORITY,
    [SIM_QUORUM] = BATON_QUORUM,
    [SIM_CANDIDATES_ANY] = BATON_CANDIDATES_ANY,
    [SIM_CANDIDATES_ALL] = BATON_CANDIDATES_ALL,
};

/* The ranks of the quorum, or the candidates; 0 for other modes. */
static uint32_t mode_ranks(const sim_case_t *c)
{
    uint32_t half = ((uint32_t)c->ranks + 1) / 2;
    uint32_t asked = (uint32_t)c->options->mode_ranks;
    return c->variant < SIM_QUORUM ? 0 : asked != 0 ? asked : half;
}

/* ---- calls ------------------------------------------------------------ */

static bool call(sim_app_t *app)
{
    const sim_apps_t *apps = app->all;
    const sim_case_t *c = apps->of;
    app->called_us = baton_sim_now_us(apps->sim);
    return (c->options->model.cost_only ||
            sim_data_fill(&apps->data, (int)(app - apps->app), apps->epoch,
                          apps->contribution)) &&
           sim_case_ok(
               c, baton_partial_contribute(app->partial, apps->contribution)) &&
           sim_case_ok(c, baton_partial_start(app->partial));
}

static void arrive(void *arg)
{
    sim_app_t *app = arg;
    if (!app->all->failed && !call(app)) {
        app->all->failed = true;
    }
}

/* ---- life ------------------------------------------------------------- */

static bool create_all(sim_apps_t *apps)
{
    const sim_case_t *c = apps->of;
    const sim_options_t *opts = c->options;
    baton_partial_options_t options = {
        .size = sizeof(options),
        .name = c->name,
        .mode = modes[c->variant],
        .mode_ranks = mode_ranks(c),
        .seed = opts->model.seed,
        .count = apps->data.count,
        .dtype = apps->data.dtype,
        .op = apps->data.op,
        .inner = opts->inner == SIM_NONE
                     ? NULL
                     : sim_algorithm(BATON_COLLECTIVE_ALLREDUCE,
                                     sim_allreduce_names[opts->inner])
                           .build.allreduce,
    };
    for (int rank = 0; rank < c->ranks; rank++) {
        sim_app_t *app = &apps->app[rank];
        app->all = apps;
        sim_watch_build(apps->watch, rank);
        if (!sim_case_ok(c,
                         baton_partial_create(baton_sim_group(apps->sim, rank),
                                              &options, &app->partial))) {
            return false;
        }
    }
    return true;
}

static bool open_all(sim_apps_t *apps)
{
    const sim_case_t *c = apps->of;
    size_t contribution = c->options->model.cost_only ? 0 : (size_t)c->bytes;
    baton_sim_options_t model = sim_case_model(c);
    apps->app = sim_case_alloc(c, (size_t)c->ranks, sizeof(*apps->app));
    apps->contribution = sim_case_alloc(c, contribution, 1);
    if (apps->app == NULL || apps->contribution == NULL ||
        !sim_case_ok(c, baton_sim_create(&model, &apps->sim)) ||
        !create_all(apps)) {
        return false;
    }
    sim_watch_attach(apps->watch, apps->sim);
    return true;
}

static bool close_apps(sim_apps_t *apps)
{
    if (apps->sim != NULL) {
        sim_watch_detach(apps->sim);
    }
    for (int rank = 0; apps->app != NULL && rank < apps->of->ranks; rank++) {
        (void)!baton_partial_destroy(apps->app[rank].partial);
    }
    bool closed = sim_case_ok(apps->of, baton_sim_destroy(apps->sim));
    sim_data_close(&apps->data);
    free(apps->app);
    free(apps->contribution);
    return closed;
}

static bool open_apps(const sim_case_t *c, sim_watch_t *watch, sim_apps_t *out)
{
    *out = (sim_apps_t){.of = c, .watch = watch};
    if (!sim_data_open(c, c->options->epochs, &out->data)) {
        return false;
    }
    if (!open_all(out)) {
        (void)close_apps(out);
        return false;
    }
    return true;
}

/* ---- an epoch --------------------------------------------------------- */

/* How late a rank starts the epoch. */
static double delay_us(const sim_apps_t *apps, int rank)
{
    const sim_options_t *options = apps->of->options;
    if (options->skew == NULL) {
        return (rank + 1) * options->spacing_ms * 1e3;
    }
    return baton_distribution_sample(&options->model.skew, options->model.seed,
                                     STREAM_ARRIVALS + apps->epoch,
                                     (uint64_t)rank);
}

static bool begin(sim_apps_t *apps)
{
    double now_us = baton_sim_now_us(apps->sim);
    for (int rank = 0; rank < apps->of->ranks; rank++) {
        double at_us = now_us + delay_us(apps, rank);
        if (!sim_case_ok(apps->of, baton_sim_at(apps->sim, at_us, arrive,
                                                &apps->app[rank]))) {
            return false;
        }
    }
    return true;
}

/* Runs the next epoch to its end on all ranks. */
static bool run_apps_epoch(sim_apps_t *apps)
{
    apps->epoch++;
    if (!begin(apps) || !sim_case_ok(apps->of, baton_sim_run(apps->sim, -1)) ||
        apps->failed) {
        return false;
    }
    for (int rank = 0; rank < apps->of->ranks; rank++) {
        sim_app_t *app = &apps->app[rank];
        app->ended_us =
            baton_schedule_ended_us(baton_partial_schedule(app->partial));
    }
    return true;
}

/* ---- the run ---------------------------------------------------------- */

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

static bool run_epoch(void *arg, uint64_t epoch, double *us_out)
{
    run_t *run = arg;
    (void)epoch;
    if (!run_apps_epoch(&run->apps) || !read_results(run)) {
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
    *us_out = end_us - begin_us;
    return true;
}

/* ---- summary ---------------------------------------------------------- */

/* Where ranks arrive one after another. */
static double expected_active(const sim_case_t *c)
{
    double p = c->ranks;
    double m = mode_ranks(c);
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
    if (run->of->variant != SIM_FULL || options->prove ||
        options->model.host_ranks > 1) {
        return NAN;
    }
    const char *inner = options->inner != SIM_NONE
                            ? sim_allreduce_names[options->inner]
                        : bytes <= (double)BATON_PARTIAL_TREE_BYTES ? "binomial"
                                                                    : "ring";
    const baton_algorithm_t algorithm =
        sim_algorithm(BATON_COLLECTIVE_ALLREDUCE, inner);
    return sim_formula_us(options, &algorithm, run->of->ranks, bytes + 8);
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
    if (!open_apps(run->of, watch, &run->apps)) {
        return false;
    }
    out->build_s = (clock_now_us() - began_us) / 1e6;
    bool passed =
        sim_case_epochs(run->of, watch, run->apps.sim, run_epoch, run, out);
    if (passed) {
        summarize(run, out);
    }
    return close_apps(&run->apps) && passed;
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
