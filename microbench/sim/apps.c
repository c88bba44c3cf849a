#include "sim/apps.h"
#include "sim/collective.h"
#include <stdlib.h>

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

uint32_t sim_apps_mode_ranks(const sim_case_t *c)
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
        .mode_ranks = sim_apps_mode_ranks(c),
        .seed = opts->model.seed,
        .count = apps->data.count,
        .dtype = apps->data.dtype,
        .op = apps->data.op,
        .inner =
            opts->inner == SIM_NONE ? NULL : sim_allreduces[opts->inner].build,
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

bool sim_apps_open(const sim_case_t *c, sim_watch_t *watch, sim_apps_t *out)
{
    *out = (sim_apps_t){.of = c, .watch = watch};
    if (!sim_data_open(c, c->options->epochs, &out->data)) {
        return false;
    }
    if (!open_all(out)) {
        (void)sim_apps_close(out);
        return false;
    }
    return true;
}

bool sim_apps_close(sim_apps_t *apps)
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

bool sim_apps_epoch(sim_apps_t *apps)
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
