#include "common/harness.h"
#include <baton/coll.h>
#include <baton/engine.h>
#include <baton/mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void harness_fail(const char *format, ...)
{
    char text[1024];
    int rank = -1;
    va_list args;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* Writes the message in one call, because other ranks may print at the same
       time. */
    (void)fprintf(stderr, "rank %d: %s\n", rank, text);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    abort(); /* MPI_Abort is not declared noreturn */
}

void must(baton_status_t status)
{
    if (status != BATON_OK) {
        harness_fail("%s", baton_error_message());
    }
}

void *harness_alloc(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        harness_fail("allocate: out of memory");
    }
    return memory;
}

baton_schedule_t *harness_schedule(baton_group_t *group, const char *name)
{
    baton_schedule_t *schedule = NULL;
    must(baton_schedule_create(group, name, &schedule));
    return schedule;
}

static void open_side(baton_progress_t progress, harness_attach_fn attach,
                      harness_side_t *out)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = progress;
    must(baton_engine_open(&options, &out->engine));
    if (attach != NULL) {
        must(attach(out->engine));
    }
    must(baton_group_create_mpi(out->engine, MPI_COMM_WORLD, &out->group));
}

static void close_side(harness_side_t *side)
{
    must(baton_group_destroy(side->group));
    must(baton_engine_close(side->engine));
}

void harness_open(harness_t *out, harness_attach_fn attach)
{
    *out = (harness_t){0};
    MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &out->size);
    open_side(BATON_PROGRESS_DEFAULT, attach, &out->measured);
    open_side(BATON_PROGRESS_MANUAL, NULL, &out->own);
    out->group = out->measured.group;
    out->barrier = harness_schedule(out->own.group, "harness/barrier");
    baton_add_barrier(out->barrier);
    must(baton_schedule_commit(out->barrier));
}

void harness_close(harness_t *harness)
{
    (void)!baton_schedule_destroy(harness->barrier);
    close_side(&harness->own);
    close_side(&harness->measured);
}

void harness_barrier(const harness_t *harness)
{
    harness_run_epochs(harness->barrier, 1);
}

void harness_run_epochs(baton_schedule_t *schedule, uint64_t epochs)
{
    for (uint64_t i = 0; i < epochs; i++) {
        must(baton_schedule_start(schedule));
        must(baton_schedule_wait(schedule, -1));
    }
}

bool harness_agree(bool answer)
{
    int value = answer;
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return value != 0;
}
