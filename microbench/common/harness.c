#include "common/harness.h"
#include "common/job.h"
#include <baton/coll.h>
#include <baton/engine.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the job ------------------------------------------------------------ */

/* While rank 0 reads the command line, the others wait for it. */
static enum { READING, RUNNING, FAILED } stage;

static int own_rank, job_size;

/* The engine makes progress only in the functions below. So it can't disturb
   the measured engine. */
static baton_engine_t *own_engine;
static baton_group_t *own_group;

static baton_group_t *open_group(baton_progress_t progress,
                                 harness_attach_fn attach,
                                 baton_engine_t **engine_out)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    baton_group_t *group = NULL;
    options.progress = progress;
    must(baton_engine_open(&options, engine_out));
    if (attach != NULL) {
        must(attach(*engine_out));
    }
    must(job_create_group(*engine_out, &group));
    return group;
}

static void harness_end(void)
{
    if (stage == READING) {
        (void)harness_agree(false);
    }
    if (stage != FAILED) {
        must(baton_group_destroy(own_group));
        must(baton_engine_close(own_engine));
        job_end();
    }
}

int harness_begin(void)
{
    job_begin();
    own_group = open_group(BATON_PROGRESS_MANUAL, NULL, &own_engine);
    own_rank = baton_group_rank(own_group);
    job_size = baton_group_size(own_group);
    (void)atexit(harness_end);
    if (own_rank > 0) {
        stage = RUNNING;
        if (!harness_agree(false)) {
            exit(EXIT_SUCCESS);
        }
    }
    return job_size;
}

bool harness_go_on(void)
{
    bool root = stage == READING;
    stage = RUNNING;
    return root && harness_agree(true);
}

void harness_fail(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* Writes the message in one call, because other ranks may print at the same
       time. */
    (void)fprintf(stderr, "rank %d: %s\n", own_rank, text);
    stage = FAILED;
    job_abort();
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

void harness_open(harness_t *out, harness_attach_fn attach)
{
    out->rank = own_rank;
    out->size = job_size;
    out->group = open_group(BATON_PROGRESS_DEFAULT, attach, &out->engine);
    out->barrier = harness_schedule(own_group, "harness/barrier");
    baton_add_barrier(out->barrier);
    must(baton_schedule_commit(out->barrier));
}

void harness_close(harness_t *harness)
{
    (void)!baton_schedule_destroy(harness->barrier);
    must(baton_group_destroy(harness->group));
    must(baton_engine_close(harness->engine));
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

void *harness_gather(const void *mine, size_t bytes)
{
    void *all = harness_alloc((size_t)job_size, bytes);
    must(baton_allgather_now(own_group, mine, all, bytes, BATON_U8));
    return all;
}

bool harness_agree(bool answer)
{
    must(baton_broadcast_now(own_group, &answer, sizeof answer, BATON_U8, 0));
    return answer;
}
