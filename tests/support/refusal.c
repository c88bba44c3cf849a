#include "support/refusal.h"

enum { RANKS = 3 };

static support_cluster_t *ranks;
float refusal_memory[REFUSAL_BYTES / sizeof(float)];
const baton_node_t refusal_foreign = {9};

int refusal_open(void **state)
{
    ranks = support_cluster_manual(RANKS);
    return 0;
}

int refusal_close(void **state)
{
    support_cluster_close(ranks);
    return 0;
}

support_cluster_t *refusal_ranks(void)
{
    return ranks;
}

baton_schedule_t *refusal_begin_named(const char *name)
{
    baton_schedule_t *schedule = support_schedule(ranks->groups[0], name);
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

void refuses(baton_schedule_t *schedule, baton_status_t status,
             const char *text)
{
    support_fails(baton_schedule_commit(schedule), status,
                  "commit of \"wrong\" failed: ");
    support_says(text);
}

void refused(baton_schedule_t *schedule, baton_status_t status,
             const char *text)
{
    refuses(schedule, status, text);
    support_ok(baton_schedule_destroy(schedule));
}
