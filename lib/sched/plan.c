/* From graph to plan: successors in one array, lists of entry nodes, needs as
   counts, scratch memory, tags. */
#include "base/alloc.h"
#include "base/error.h"
#include "sched/schedule.h"

#include <string.h>

/* Turns the predecessors round; writes the records' first successors. */
static void link_successors(baton_schedule_t *schedule,
                            const baton__order_t *order)
{
    baton__op_t *ops = schedule->ops;
    uint32_t count = schedule->count;
    uint32_t edges = order->first[count];
    ops[count] = (baton__op_t){.first_successor = edges};
    for (uint32_t i = 0; i < count; i++) {
        ops[i].first_successor = 0;
    }
    for (uint32_t e = 0; e < edges; e++) {
        ops[order->preds[e]].first_successor++;
    }
    uint32_t end = 0;
    for (uint32_t i = 0; i < count; i++) {
        end += ops[i].first_successor;
        ops[i].first_successor = end;
    }
    /* Filling from the back leaves each record at its first successor. */
    for (uint32_t to = count; to-- > 0;) {
        for (uint32_t e = order->first[to]; e < order->first[to + 1]; e++) {
            uint32_t from = order->preds[e];
            schedule->plan.successors[--ops[from].first_successor] = to;
        }
    }
}

/* Which of the plan's lists a node belongs to: the list's length, or NULL. */
static uint32_t *list_of(baton__plan_t *plan, const baton__op_t *op,
                         uint32_t edges)
{
    if (op->kind == BATON__ON_START) {
        return &plan->on_start_count;
    }
    if (op->kind == BATON__ARMED_RECV) {
        return &plan->armed_count;
    }
    return edges == 0 ? &plan->root_count : NULL;
}

static bool straggles(const baton__op_t *op)
{
    return op->kind == BATON__RECV && (op->flags & BATON__OPTIONAL) != 0;
}

static void count_nodes(const baton_schedule_t *schedule,
                        const baton__order_t *order, baton__plan_t *plan)
{
    for (uint32_t i = 0; i < schedule->count; i++) {
        const baton__op_t *op = &schedule->ops[i];
        uint32_t *list =
            list_of(plan, op, order->first[i + 1] - order->first[i]);
        if (list != NULL) {
            (*list)++;
        }
        plan->activate_count += op->kind == BATON__ACTIVATE;
        plan->straggler_count += straggles(op);
        plan->required += (op->flags & BATON__OPTIONAL) == 0;
        plan->messages += baton__kinds[op->kind].message;
    }
}

static void fill_lists(const baton_schedule_t *schedule,
                       const baton__order_t *order, baton__plan_t *plan)
{
    plan->roots = plan->lists;
    plan->on_starts = plan->roots + plan->root_count;
    plan->armed = plan->on_starts + plan->on_start_count;
    plan->activates = plan->armed + plan->armed_count;
    plan->stragglers = plan->activates + plan->activate_count;
    baton__plan_t at = {0};
    for (uint32_t i = 0; i < schedule->count; i++) {
        const baton__op_t *op = &schedule->ops[i];
        uint32_t *list =
            list_of(&at, op, order->first[i + 1] - order->first[i]);
        if (list == &at.on_start_count) {
            plan->on_starts[at.on_start_count++] = i;
        } else if (list == &at.armed_count) {
            plan->armed[at.armed_count++] = i;
        } else if (list == &at.root_count) {
            plan->roots[at.root_count++] = i;
        }
        if (op->kind == BATON__ACTIVATE) {
            plan->activates[at.activate_count++] = i;
        }
        if (straggles(op)) {
            plan->stragglers[at.straggler_count++] = i;
        }
    }
}

/* All that epochs need, in one piece: for them it is the memory that counts,
   and of many schedules each lies by itself. The largest elements come first,
   so each array is aligned. */
static bool allocate_plan(baton_schedule_t *schedule, size_t listed,
                          size_t edges)
{
    baton__plan_t *plan = &schedule->plan;
    baton__run_t *run = &schedule->run;
    size_t count = schedule->count;
    size_t owing = plan->straggler_count > 0 ? count : 0;
    size_t words = 3 * count + owing + listed + edges;
    size_t records = (count + 1) * sizeof *schedule->ops;
    size_t headers = schedule->header_count * sizeof *run->headers;
    char *memory =
        baton__alloc(records + headers + words * sizeof(uint32_t) + count, 1);
    if (memory == NULL) {
        return false;
    }
    baton__op_t *ops = (baton__op_t *)(void *)memory;
    uint32_t *word = (uint32_t *)(void *)(memory + records + headers);
    uint32_t *needs = word;
    if (count > 0) {
        memcpy(ops, schedule->ops, count * sizeof *ops);
        memcpy(needs, schedule->needs, count * sizeof *needs);
    }
    schedule->drawn_ops = schedule->ops;
    schedule->drawn_needs = schedule->needs;
    schedule->ops = ops;
    schedule->needs = needs;
    plan->memory = memory;
    plan->ops = ops;
    plan->needs = needs;
    plan->successors = needs + count;
    plan->lists = plan->successors + edges;
    *run = (baton__run_t){
        .plan = plan,
        .left = plan->lists + listed,
        .ready = plan->lists + listed + count,
        .owed = plan->lists + listed + 2 * count,
        .headers = (baton__header_t *)(void *)(memory + records),
        .flight = (uint8_t *)(word + words),
    };
    return true;
}

static bool allocate_scratch(baton_schedule_t *schedule)
{
    if (schedule->group->cost_only) {
        return true;
    }
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        if (schedule->buffers[i].scratch) {
            schedule->addresses[i] =
                baton__alloc(schedule->buffers[i].bytes, 1);
            if (schedule->addresses[i] == NULL) {
                return false;
            }
        }
    }
    return true;
}

void baton__keep_plan(baton_schedule_t *schedule)
{
    schedule->ops = schedule->drawn_ops;
    schedule->needs = schedule->drawn_needs;
    schedule->drawn_ops = NULL;
    schedule->drawn_needs = NULL;
    schedule->plan.memory = NULL;
}

void baton__thaw(baton_schedule_t *schedule)
{
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        if (schedule->buffers[i].scratch) {
            baton__free(schedule->addresses[i]);
            schedule->addresses[i] = NULL;
        }
    }
    if (schedule->plan.memory != NULL) {
        baton__free(schedule->plan.memory);
        baton__keep_plan(schedule);
    }
    schedule->run = (baton__run_t){0};
    schedule->plan = (baton__plan_t){0};
}

baton_status_t baton__freeze(baton_schedule_t *schedule,
                             const baton__order_t *order)
{
    baton__plan_t *plan = &schedule->plan;
    *plan = (baton__plan_t){
        .count = schedule->count,
        .rank = schedule->group->rank,
        .size = schedule->group->size,
    };
    count_nodes(schedule, order, plan);
    size_t listed = (size_t)plan->root_count + plan->on_start_count +
                    plan->armed_count + plan->activate_count +
                    plan->straggler_count;
    if (!allocate_plan(schedule, listed, order->first[schedule->count]) ||
        !allocate_scratch(schedule)) {
        baton__thaw(schedule);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "commit of \"%s\" failed: no memory for its plan "
                            "of %u nodes and its scratch buffers",
                            schedule->name, schedule->count);
    }
    fill_lists(schedule, order, plan);
    link_successors(schedule, order);
    return BATON_OK;
}

/* ---- tags ------------------------------------------------------------- */

static baton_status_t tags_exhausted(const baton_schedule_t *schedule,
                                     uint32_t node)
{
    return baton__error(BATON_ERR_LIMIT,
                        "commit of \"%s\" failed: %s would need tag %u between "
                        "ranks %d and %d, the largest of the %s transport is "
                        "%u: use a new group",
                        schedule->name, baton__node_name(schedule, node),
                        schedule->group->transport->max_tag + 1,
                        schedule->group->rank, (int)schedule->ops[node].peer,
                        schedule->group->transport->name,
                        schedule->group->transport->max_tag);
}

/* Activations come behind a pair's plain messages, so that each kind counts for
   itself. The group's counters move only when every node has got its tag: a
   commit that fails takes nothing. */
baton_status_t baton__assign_tags(baton_schedule_t *schedule)
{
    baton_group_t *group = schedule->group;
    for (uint32_t i = 0; i < schedule->count; i++) {
        if (baton__kinds[schedule->ops[i].kind].message &&
            baton__group_pair(group, (int)schedule->ops[i].peer) == NULL) {
            return baton__error(BATON_ERR_NO_MEMORY,
                                "commit of \"%s\" failed: no memory for tags",
                                schedule->name);
        }
    }
    baton__pair_t *before =
        baton__alloc(group->pair_count, sizeof *group->pairs);
    if (before == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "commit of \"%s\" failed: no memory for tags",
                            schedule->name);
    }
    for (size_t i = 0; i < group->pair_count; i++) {
        before[i] = group->pairs[i];
    }
    baton_status_t status = BATON_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < schedule->count && status == BATON_OK; i++) {
            baton__op_t *op = &schedule->ops[i];
            if (!baton__kinds[op->kind].message ||
                baton__op_activates(op) != (pass == 1)) {
                continue;
            }
            baton__pair_t *pair = baton__group_pair(group, (int)op->peer);
            uint32_t *next =
                baton__op_sends(op) ? &pair->next_send : &pair->next_recv;
            if (*next > group->transport->max_tag) {
                status = tags_exhausted(schedule, i);
            } else {
                op->tag = (*next)++;
            }
        }
    }
    for (size_t i = 0; i < group->pair_count && status != BATON_OK; i++) {
        group->pairs[i] = before[i];
    }
    baton__free(before);
    return status;
}

void baton__return_tags(baton_schedule_t *schedule)
{
    for (uint32_t i = 0; i < schedule->count; i++) {
        const baton__op_t *op = &schedule->ops[i];
        if (baton__kinds[op->kind].message) {
            baton__pair_t *pair =
                baton__group_pair(schedule->group, (int)op->peer);
            *(baton__op_sends(op) ? &pair->next_send : &pair->next_recv) -= 1;
        }
    }
}
