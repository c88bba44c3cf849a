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

const char *job_mpi_version(void)
{
    return "none";
}

baton_status_t job_create_group(baton_engine_t *of, baton_group_t **out)
{
    return baton_group_create_world(of, PATIENCE_MS, out);
}

void job_begin(int *rank_out, int *size_out)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = BATON_PROGRESS_MANUAL;
    must(baton_engine_open(&options, &engine));
    must(job_create_group(engine, &group));
    *rank_out = baton_group_rank(group);
    *size_out = baton_group_size(group);
}

void job_end(void)
{
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
}

void job_abort(void)
{
    _Exit(EXIT_FAILURE);
}

void job_broadcast(void *data, size_t bytes)
{
    must(baton_broadcast_now(group, data, bytes, BATON_U8, 0));
}

void job_gather(const void *mine, size_t bytes, void *all)
{
    must(baton_allgather_now(group, mine, all, bytes, BATON_U8));
}

void (*const job_sum_by_mpi)(const uint64_t *source, uint64_t *target,
                             size_t count) = NULL;
