#include "sched/share.h"

#include "base/alloc.h"

#include <string.h>

static bool are_equal(const void *a, const void *b, size_t bytes)
{
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

/* Compares the records of the nodes. The last field of a record is compared
   separately: in the record of a message it is the peer, which differs between
   the ranks (share.h). */
static bool ops_fit(const baton__model_t *model,
                    const baton_schedule_t *schedule)
{
    int64_t flip = model->plan.rank ^ schedule->group->rank;
    bool fit = true;
    for (uint32_t i = 0; i < schedule->count && fit; i++) {
        const baton__op_t *a = &model->ops[i], *b = &schedule->ops[i];
        int64_t peer = a->peer ^ (baton__kinds[a->kind].message ? flip : 0);
        fit = memcmp(a, b, offsetof(baton__op_t, peer)) == 0 && peer == b->peer;
    }
    return fit;
}

/* True if commit can find nothing wrong with the buffers: they have no memory,
   nodes may write them, and they are in main memory. */
static bool has_plain_buffers(const baton_schedule_t *schedule)
{
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        const baton__buffer_t *b = &schedule->buffers[i];
        if (b->memory != NULL || b->input || b->kind != BATON_MEMORY_HOST) {
            return false;
        }
    }
    return true;
}

const baton__plan_t *baton__sharing_find(const baton_schedule_t *schedule)
{
    const baton__sharing_t *sharing = schedule->group->sharing;
    bool open = sharing != NULL && schedule->sticky == BATON_OK &&
                has_plain_buffers(schedule);
    for (uint32_t i = 0; open && i < sharing->count; i++) {
        const baton__model_t *model = &sharing->models[i];
        const baton__plan_t *plan = &model->plan;
        if (plan->count == schedule->count &&
            model->edge_count == schedule->edge_count &&
            model->depth == schedule->depth &&
            plan->length_count == schedule->length_count &&
            ops_fit(model, schedule) &&
            are_equal(model->needs, schedule->needs,
                      plan->count * sizeof *model->needs) &&
            are_equal(model->edges, schedule->edges,
                      model->edge_count * sizeof *model->edges)) {
            return plan;
        }
    }
    return NULL;
}

bool baton__sharing_keep(baton_schedule_t *schedule)
{
    baton__sharing_t *sharing = schedule->group->sharing;
    baton__plan_t *plan = &schedule->plan;
    if (sharing == NULL || sharing->count == BATON__MODELS || plan->shared ||
        plan->async_count > 0 || !has_plain_buffers(schedule)) {
        return false;
    }
    plan->is_model = true;
    sharing->models[sharing->count++] = (baton__model_t){
        .plan = *plan,
        .ops = schedule->built_ops,
        .needs = schedule->built_needs,
        .edges = schedule->edges,
        .edge_count = schedule->edge_count,
        .depth = schedule->depth,
    };
    return true;
}

void baton__sharing_fini(baton__sharing_t *sharing)
{
    for (uint32_t i = 0; i < sharing->count; i++) {
        const baton__model_t *model = &sharing->models[i];
        baton__free(model->plan.memory);
        baton__free(model->ops);
        baton__free(model->needs);
        baton__free(model->edges);
    }
}
