/* Builds a schedule on every rank, and runs its epochs. */
#include "sim/sim.h"

#include "base/alloc.h"
#include "base/error.h"
#include "sim/model.h"

#include <math.h>

/* ---- a builder on every rank ------------------------------------------ */

void baton__sim_destroy_built(baton_sim_t *sim)
{
    for (int rank = 0; sim->built != NULL && rank < sim->options.ranks;
         rank++) {
        (void)!baton_schedule_destroy(sim->built[rank]);
    }
    baton__free(sim->built);
    sim->built = NULL;
}

baton_schedule_t *baton_sim_schedule(baton_sim_t *sim, int rank)
{
    bool exists = sim != NULL && sim->built != NULL && rank >= 0 &&
                  rank < sim->options.ranks;
    return exists ? sim->built[rank] : NULL;
}

/* Builds one rank's schedule. Each group counts the schedules that were created
   by each name, even if the creation fails later (attempts). If the rank's
   group has counted this attempt, adds 1 to *counted. */
static baton_status_t build_rank(baton_sim_t *sim, size_t rank,
                                 const char *name, baton_sim_build_fn build,
                                 void *arg, size_t *counted)
{
    baton_group_t *group = &sim->ranks[rank].member.group;
    const uint32_t *count = baton__group_counter(group, name, 0);
    if (count == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for \"%s\"", name);
    }
    uint32_t attempts = *count;
    baton_status_t status =
        baton_schedule_create(group, name, &sim->built[rank]);
    *counted += *count - attempts;
    if (status == BATON_OK) {
        build(arg, sim->built[rank]);
        status = baton_schedule_commit(sim->built[rank]);
    }
    return status;
}

/* Undoes a build that failed. Sends no messages, since no rank was told of the
   schedules. The first `counted` ranks have counted an attempt to create a
   schedule of this name; takes these counts back. */
static void undo_build(baton_sim_t *sim, const char *name, size_t counted)
{
    sim->ending = true;
    baton__sim_destroy_built(sim);
    sim->ending = false;
    for (size_t rank = 0; rank < counted; rank++) {
        --*baton__group_counter(&sim->ranks[rank].member.group, name, 0);
    }
}

baton_status_t baton_sim_build(baton_sim_t *sim, const char *name,
                               baton_sim_build_fn build, void *arg)
{
    if (name == NULL || build == NULL) {
        return baton__error(BATON_ERR_INVALID, "sim: build: %s is NULL",
                            name == NULL ? "name" : "build");
    }
    if (sim->built != NULL) {
        return baton__error(BATON_ERR_STATE,
                            "sim: build of \"%s\": this simulator has built "
                            "\"%s\" already: create another",
                            name, sim->built[0]->name);
    }
    size_t ranks = (size_t)sim->options.ranks;
    sim->built = baton__alloc(ranks, sizeof(baton_schedule_t *));
    if (sim->built == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for \"%s\"", name);
    }
    baton_status_t status = BATON_OK;
    size_t counted = 0;
    for (size_t rank = 0; rank < ranks && status == BATON_OK; rank++) {
        status = build_rank(sim, rank, name, build, arg, &counted);
    }
    if (status == BATON_OK) {
        status = baton__sim_match(sim);
    }
    if (status != BATON_OK) {
        undo_build(sim, name, counted);
    }
    return status;
}

/* ---- epochs ----------------------------------------------------------- */

static void build_start(void *arg)
{
    baton_schedule_t *schedule = arg;
    baton_sim_t *sim = baton__sim_of(schedule->group->engine);
    baton_status_t status = baton_schedule_start(schedule);
    if (status != BATON_OK && sim->start_status == BATON_OK) {
        sim->start_status = status;
    }
}

/* Starts the schedule on each rank that is alive, delayed by the rank's skew.
   Stores the time of the earliest start in *first_us. */
static baton_status_t build_start_all(baton_sim_t *sim, double *first_us)
{
    const baton_sim_options_t *options = &sim->options;
    bool together = baton__distribution_is_zero(&options->skew);
    baton_status_t status = BATON_OK;
    double now_us = sim->net.now_us;
    double least_us = INFINITY;
    for (int rank = 0; rank < options->ranks && status == BATON_OK; rank++) {
        baton_schedule_t *schedule = sim->built[rank];
        if (baton__sim_port(sim, rank)->dead) {
            continue;
        }
        if (together) {
            least_us = now_us;
            status = baton_schedule_start(schedule);
            continue;
        }
        uint64_t stream = BATON__STREAM_SKEW + baton_schedule_epoch(schedule);
        double at_us =
            now_us + baton_distribution_sample(&options->skew, options->seed,
                                               stream, (uint64_t)rank);
        least_us = at_us < least_us ? at_us : least_us;
        status = baton_sim_at(sim, at_us, build_start, schedule);
    }
    *first_us = least_us < INFINITY ? least_us : now_us;
    return status;
}

baton_status_t baton_sim_epoch(baton_sim_t *sim, double *us_out)
{
    baton_status_t status = baton__sim_check_outside(sim, "epoch");
    if (status != BATON_OK || sim->built == NULL) {
        return status != BATON_OK
                   ? status
                   : baton__error(BATON_ERR_STATE, "sim: nothing was built");
    }
    double began_us;
    sim->start_status = BATON_OK;
    status = build_start_all(sim, &began_us);
    if (status == BATON_OK) {
        status = baton_sim_run(sim, -1.0);
    }
    if (status == BATON_OK) {
        status = sim->start_status;
    }
    double ended_us = began_us;
    for (int rank = 0; rank < sim->options.ranks && status == BATON_OK;
         rank++) {
        bool done;
        status = baton_schedule_test(sim->built[rank], &done);
        double end_us = baton__sim_task_of(sim->built[rank])->ended_us;
        ended_us = end_us > ended_us ? end_us : ended_us;
    }
    if (status == BATON_OK && us_out != NULL) {
        *us_out = ended_us - began_us;
    }
    return status;
}
