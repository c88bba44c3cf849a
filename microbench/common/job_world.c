#include "common/job.h"
#include <baton/store.h>
#include <stdlib.h>

/* How long ranks wait for others to start. */
enum { PATIENCE_MS = 60000 };

const char *job_mpi_version(void)
{
    return "none";
}

void job_begin(void)
{
}

void job_end(void)
{
}

void job_abort(void)
{
    _Exit(EXIT_FAILURE);
}

baton_status_t job_create_group(baton_engine_t *engine, baton_group_t **out)
{
    return baton_group_create_world(engine, PATIENCE_MS, out);
}

void (*const job_sum_by_mpi)(const uint64_t *source, uint64_t *target,
                             size_t count) = NULL;
