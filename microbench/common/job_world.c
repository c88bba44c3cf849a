#include "common/harness.h"
#include "common/job.h"
#include <baton/engine.h>
#include <baton/store.h>
#include <stdlib.h>

/* How long ranks wait for others to start. */
enum { PATIENCE_MS = 60000 };

/* Makes progress only in the calls below, so that it can't disturb what is
   measured. */
static baton_engine_t *engine;
static baton_group_t *group;

static const char *job_world_mpi_version(void)
{
    return "none";
}

static baton_status_t job_world_create_group(baton_engine_t *of,
                                             baton_group_t **out)
{
    return baton_group_create_world(of, PATIENCE_MS, out);
}

static void job_world_begin(int *rank_out, int *size_out)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = BATON_PROGRESS_MANUAL;
    must(baton_engine_open(&options, &engine));
    must(job_world_create_group(engine, &group));
    *rank_out = baton_group_rank(group);
    *size_out = baton_group_size(group);
}

static void job_world_end(void)
{
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
}

static void job_world_abort(void)
{
    _Exit(EXIT_FAILURE);
}

static void job_world_broadcast(void *data, size_t bytes)
{
    must(baton_broadcast_now(group, data, bytes, BATON_U8, 0));
}

static void job_world_gather(const void *mine, size_t bytes, void *all)
{
    must(baton_allgather_now(group, mine, all, bytes, BATON_U8));
}

const job_t job = {
    .mpi_version = job_world_mpi_version,
    .begin = job_world_begin,
    .end = job_world_end,
    .abort = job_world_abort,
    .create_group = job_world_create_group,
    .broadcast = job_world_broadcast,
    .gather = job_world_gather,
};
