#include "support/refusal.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, PATIENCE_MS = 10000 };

static support_ranks_t *ranks;
float refusal_memory[REFUSAL_BYTES / sizeof(float)];
const baton_node_t refusal_stranger = {9};

int refusal_open(void **state)
{
    (void)state;
    ranks = support_ranks_open(RANKS);
    return 0;
}

int refusal_close(void **state)
{
    (void)state;
    support_ranks_close(ranks);
    return 0;
}

support_ranks_t *refusal_ranks(void)
{
    return ranks;
}

baton_schedule_t *refusal_begin_named(const char *name)
{
    baton_schedule_t *schedule;
    support_ok(baton_schedule_create(ranks->groups[0], name, &schedule));
    (void)baton_buffer_bind(schedule, refusal_memory, REFUSAL_BYTES);
    return schedule;
}

baton_schedule_t *refusal_begin(void)
{
    return refusal_begin_named("wrong");
}

baton_view_t refusal_part(size_t offset, size_t bytes)
{
    return baton_view((baton_buffer_t){0}, offset, bytes);
}

void refusal_says(const char *text)
{
    if (strstr(baton_error_message(), text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", baton_error_message(), text);
    }
}

void refuses(baton_schedule_t *schedule, baton_status_t status,
             const char *text)
{
    support_expect(baton_schedule_commit(schedule), status);
    refusal_says("commit of \"wrong\" failed: ");
    refusal_says(text);
}

void refused(baton_schedule_t *schedule, baton_status_t status,
             const char *text)
{
    refuses(schedule, status, text);
    support_ok(baton_schedule_destroy(schedule));
}

void refusal_run(baton_schedule_t *schedule)
{
    support_ok(baton_schedule_start(schedule));
    support_ok(baton_schedule_wait(schedule, PATIENCE_MS));
}

baton_status_t refusal_count(void *arg, baton_call_t *call)
{
    (void)call;
    ++*(int *)arg;
    return BATON_OK;
}
