/* Partial all-reduces. The contributions that an epoch must contain are known
   without the epoch's data: all contributions of a rank that no earlier epoch
   has taken, but the latest one only if the rank's result says `included`. So
   results can be checked, and active ranks counted, even if buffers have no
   memory. */
#include "common/measure.h"
#include "common/progress.h"
#include "sim/sim.h"
#include <baton/partial.h>
#include <baton/tuning.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* The application of one rank. All applications begin an epoch together, and
   each of them contributes and starts after its own delay. */
typedef struct app {
    struct run *run;
    baton_partial_t *partial;
    /* The virtual time at which the application has started the epoch. */
    double called_us;
    uint64_t taken; /* the last step whose contribution an epoch has taken */
    baton_partial_result_t result;
} app_t;

typedef struct run {
    const sim_case_t *of;
    sim_data_t data;
    /* The data that a rank contributes. Each rank fills it anew. A simulation
       of costs does not read it. */
    void *contribution;
    uint64_t epoch;
    bool failed;        /* a call has failed, and the error was printed */
    app_t *app;         /* an array of [ranks] */
    double *latency_us; /* an array of [epochs][ranks] */
    double active_sum, active_squares;
} run_t;

/* The delays of epoch e are samples of the random stream number STREAM_ARRIVALS
   + e. */
#define STREAM_ARRIVALS UINT64_C(0x100000000)

/* Returns the size of the quorum or the number of candidates. Returns 0 for
   other modes. */
static uint32_t mode_ranks(const sim_case_t *c)
{
    uint32_t half = ((uint32_t)c->ranks + 1) / 2;
    uint32_t asked = (uint32_t)c->options->mode_ranks;
    if (!mode_has_ranks(c->variant)) {
        return 0;
    }
    return asked != 0 ? asked : half;
}

/* ---- calls ------------------------------------------------------------ */

static void sim_partial_arrive(void *arg)
{
    app_t *app = arg;
    run_t *run = app->run;
    const sim_case_t *c = run->of;
    app->called_us = baton_sim_now_us(c->sim);
    run->failed =
        run->failed ||
        !(c->options->model.cost_only ||
          sim_data_fill(&run->data, (int)(app - run->app), run->epoch,
                        run->contribution)) ||
        !sim_ok(baton_partial_contribute(app->partial, run->contribution)) ||
        !sim_ok(baton_partial_start(app->partial));
}

/* ---- life ------------------------------------------------------------- */

static bool open_run(run_t *run)
{
    const sim_case_t *c = run->of;
    size_t contribution = c->options->model.cost_only ? 0 : (size_t)c->bytes;
    size_t calls = (size_t)c->ranks * (size_t)c->options->epochs;
    run->latency_us = sim_alloc(calls, sizeof(double));
    run->app = sim_alloc((size_t)c->ranks, sizeof(*run->app));
    run->contribution = sim_alloc(contribution, 1);
    bool passed = run->latency_us != NULL && run->app != NULL &&
                  run->contribution != NULL &&
                  sim_data_open(c, c->options->epochs, &run->data);
    const baton_partial_options_t options = {
        .size = sizeof(options),
        .name = c->name,
        .mode = (baton_partial_mode_t)c->variant,
        .mode_ranks = mode_ranks(c),
        /* The paper's algorithm returns the result of the latest epoch. */
        .keep = BATON_KEEP_LATEST,
        .seed = c->options->model.seed,
        .count = run->data.count,
        .dtype = run->data.dtype,
        .op = run->data.op,
    };
    for (int rank = 0; passed && rank < c->ranks; rank++) {
        run->app[rank].run = run;
        passed =
            sim_case_build() &&
            sim_ok(baton_partial_create(baton_sim_group(c->sim, rank), &options,
                                        &run->app[rank].partial));
    }
    return passed;
}

static void close_run(run_t *run)
{
    int ranks = run->app == NULL || progress_interrupted() ? 0 : run->of->ranks;
    for (int rank = 0; rank < ranks; rank++) {
        (void)!baton_partial_destroy(run->app[rank].partial);
    }
    sim_data_close(&run->data);
    free(run->app);
    free(run->contribution);
    free(run->latency_us);
}

/* ---- an epoch --------------------------------------------------------- */

/* Lets each rank's application start the epoch after its own delay. */
static bool sim_partial_begin(run_t *run)
{
    const sim_options_t *options = run->of->options;
    double now_us = baton_sim_now_us(run->of->sim);
    for (int rank = 0; rank < run->of->ranks; rank++) {
        double delay_us =
            options->spacing_ms > 0
                ? (rank + 1) * options->spacing_ms * 1e3
                : baton_distribution_sample(
                      &options->model.skew, options->model.seed,
                      STREAM_ARRIVALS + run->epoch, (uint64_t)rank);
        if (!sim_ok(baton_sim_at(run->of->sim, now_us + delay_us,
                                 sim_partial_arrive, &run->app[rank]))) {
            return false;
        }
    }
    return true;
}

/* Gets a rank's result. Adds the contributions that the epoch has taken from
   the rank to the expected sum. */
static bool read_result(run_t *run, app_t *app, int rank)
{
    if (!sim_ok(baton_partial_wait(app->partial, 0, &app->result))) {
        return false;
    }
    if (app->result.epoch != run->epoch) {
        return sim_fail("rank %d has epoch %" PRIu64 " after step %" PRIu64,
                        rank, app->result.epoch, run->epoch);
    }
    for (; app->taken + !app->result.included < run->epoch; app->taken++) {
        sim_data_expect(&run->data, rank, app->taken + 1);
    }
    return true;
}

/* Reads all results, and checks their data and that `active` is the number of
   ranks that have contributed. */
static bool read_results(run_t *run)
{
    double active = 0;
    uint32_t contributors = 0;
    sim_data_expect_none(&run->data);
    for (int rank = 0; rank < run->of->ranks; rank++) {
        app_t *app = &run->app[rank];
        uint64_t taken = app->taken;
        if (!read_result(run, app, rank)) {
            return false;
        }
        active += app->result.included;
        contributors += app->taken > taken;
    }
    run->active_sum += active;
    run->active_squares += active * active;
    for (int rank = 0; run->data.proof != NULL && rank < run->of->ranks;
         rank++) {
        const baton_partial_result_t *result = &run->app[rank].result;
        if (!sim_data_check(&run->data, rank, run->epoch, result->data)) {
            return false;
        }
        if (result->active != contributors) {
            return sim_fail("%" PRIu32 " active ranks on rank %d in epoch "
                            "%" PRIu64 ", expected %" PRIu32,
                            result->active, rank, run->epoch, contributors);
        }
    }
    return true;
}

static bool sim_partial_run_epoch(void *arg, uint64_t epoch, double *us_out)
{
    run_t *run = arg;
    run->epoch = epoch;
    if (!sim_partial_begin(run) || !sim_ok(baton_sim_run(run->of->sim, -1)) ||
        run->failed || !read_results(run)) {
        return false;
    }
    double *latencies =
        &run->latency_us[(run->epoch - 1) * (uint64_t)run->of->ranks];
    double begin_us = INFINITY, end_us = 0;
    for (int rank = 0; rank < run->of->ranks; rank++) {
        const app_t *app = &run->app[rank];
        double ended_us =
            baton_schedule_ended_us(baton_partial_schedule(app->partial));
        /* The latency is 0 if the epoch had ended before this rank called. */
        latencies[rank] = fmax(ended_us - app->called_us, 0);
        begin_us = fmin(begin_us, app->called_us);
        end_us = fmax(end_us, app->called_us + latencies[rank]);
    }
    *us_out = end_us - begin_us;
    return true;
}

/* ---- summary ---------------------------------------------------------- */

/* Returns the expected number of active ranks: an epoch that begins with the
   n-th arrival has n active ranks. Returns NAN if ranks do not arrive one after
   another, except for FULL. */
static double sim_partial_expected_active(const sim_case_t *c)
{
    baton_partial_mode_t mode = (baton_partial_mode_t)c->variant;
    return mode == BATON_FULL || c->options->spacing_ms > 0
               ? mode_arrival(mode, mode_ranks(c), c->ranks).mean
               : NAN;
}

/* Returns the closed form. A full partial all-reduce costs as much as its inner
   all-reduce with one more element, which counts the active ranks. */
static double formula_us(const run_t *run)
{
    const sim_options_t *options = run->of->options;
    double bytes = (double)run->of->bytes;
    if (run->of->variant != BATON_FULL || options->prove ||
        options->model.host_ranks > 1) {
        return NAN;
    }
    const char *inner =
        bytes <= (double)BATON_PARTIAL_TREE_BYTES ? "binomial" : "ring";
    const baton_algorithm_t algorithm =
        sim_algorithm(BATON_COLLECTIVE_ALLREDUCE, inner);
    return sim_formula_us(options, &algorithm, run->of->ranks, bytes + 8);
}

static void summarize(run_t *run, sim_result_t *out)
{
    double epochs = (double)run->of->options->epochs;
    size_t count = (size_t)run->of->ranks * (size_t)epochs;
    out->latency = stats_of(run->latency_us, count);
    out->active = run->active_sum / epochs;
    double variance =
        fmax(run->active_squares / epochs - out->active * out->active, 0);
    out->active_error = epochs > 1 ? sqrt(variance / (epochs - 1)) : NAN;
    out->active_expected = sim_partial_expected_active(run->of);
    out->formula_us = formula_us(run);
}

bool sim_run_partial(const sim_case_t *c, sim_result_t *out)
{
    run_t run = {.of = c};
    double began_us = clock_now_us();
    bool passed = open_run(&run);
    out->build_s = (clock_now_us() - began_us) / 1e6;
    passed = passed && sim_case_epochs(c, sim_partial_run_epoch, &run, out);
    if (passed) {
        summarize(&run, out);
    }
    close_run(&run);
    return passed;
}
