/* Dependencies between the nodes of a graph. */
#include "base/alloc.h"
#include "sched/schedule.h"

/* Checks a node's id. If the id is from another schedule, this is noticed only
   if the id is out of range here. */
static bool valid_node(baton_schedule_t *schedule, baton_node_t node,
                       const char *adder)
{
    if (!baton__graph_open(schedule, adder)) {
        return false;
    }
    if (node.index >= schedule->count) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s names node %u, and \"%s\" has %u so far: an id "
                            "belongs to the schedule that returned it",
                            adder, node.index, schedule->name, schedule->count);
        return false;
    }
    return true;
}

void baton_before(baton_schedule_t *schedule, baton_node_t a, baton_node_t b)
{
    if (!valid_node(schedule, a, __func__) ||
        !valid_node(schedule, b, __func__)) {
        return;
    }
    if (schedule->edge_count == schedule->edge_capacity) {
        uint32_t capacity = schedule->edge_capacity * 2 + 64;
        if (!baton__graph_grow(schedule, &schedule->edges, schedule->edge_count,
                               capacity, sizeof *schedule->edges)) {
            return;
        }
        schedule->edge_capacity = capacity;
    }
    schedule->edges[schedule->edge_count++] = (baton__edge_t){a.index, b.index};
}

void baton_set_need(baton_schedule_t *schedule, baton_node_t node,
                    uint32_t need)
{
    if (valid_node(schedule, node, __func__)) {
        schedule->needs[node.index] = need;
    }
}

void baton_set_optional(baton_schedule_t *schedule, baton_node_t node)
{
    if (valid_node(schedule, node, __func__)) {
        schedule->ops[node.index].flags |= BATON__OPTIONAL;
    }
}

void baton_set_no_scratch(baton_schedule_t *schedule, baton_node_t node)
{
    if (!valid_node(schedule, node, __func__)) {
        return;
    }
    baton__op_t *op = &schedule->ops[node.index];
    if (op->kind != BATON__CALL && op->kind != BATON__ASYNC &&
        op->kind != BATON__DEVICE_CALL) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s must be a call or async node: Baton knows what "
                            "the other kinds of nodes read",
                            baton__node_name(schedule, node.index));
        return;
    }
    op->flags |= BATON__NO_SCRATCH;
}

baton_enclosure_t baton_enclose_begin(const baton_schedule_t *schedule)
{
    if (!baton__is_schedule(schedule, __func__)) {
        return (baton_enclosure_t){0, 0};
    }
    return (baton_enclosure_t){schedule->count, schedule->edge_count};
}

static bool is_optional(const baton_schedule_t *schedule, uint32_t node)
{
    return (schedule->ops[node].flags & BATON__OPTIONAL) != 0;
}

void baton_enclose_end(baton_schedule_t *schedule, baton_enclosure_t since,
                       baton_node_t entry, baton_node_t exit)
{
    if (!valid_node(schedule, entry, __func__) ||
        !valid_node(schedule, exit, __func__)) {
        return;
    }
    uint32_t count = schedule->count;
    if (since.node > count || since.edge > schedule->edge_count) {
        baton_schedule_fail(
            schedule, BATON_ERR_INVALID,
            "enclose_end: the enclosure begins at node %u of %u and edge %u of "
            "%u, so it belongs to another schedule",
            since.node, count, since.edge, schedule->edge_count);
        return;
    }
    if (since.node == count) {
        baton_before(schedule, entry, exit);
        return;
    }
    /* One byte for each node that was added after enclose_begin. Bit 0: the
       node has a predecessor. Bit 1: the node has a successor that the epoch
       waits for. */
    uint8_t *ends = baton__alloc(count - since.node, 1);
    if (ends == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_NO_MEMORY,
                            "no memory to enclose %u nodes",
                            count - since.node);
        return;
    }
    for (uint32_t i = since.edge; i < schedule->edge_count; i++) {
        baton__edge_t edge = schedule->edges[i];
        if (edge.to >= since.node) {
            ends[edge.to - since.node] |= 1;
        }
        if (edge.from >= since.node && !is_optional(schedule, edge.to)) {
            ends[edge.from - since.node] |= 2;
        }
    }
    bool closed = false;
    for (uint32_t node = since.node; node < count; node++) {
        uint8_t kind = schedule->ops[node].kind;
        if ((ends[node - since.node] & 1) == 0 && kind != BATON__ON_START &&
            kind != BATON__ARMED_RECV) {
            baton_before(schedule, entry, (baton_node_t){node});
        }
        if ((ends[node - since.node] & 2) == 0 &&
            !is_optional(schedule, node)) {
            baton_before(schedule, (baton_node_t){node}, exit);
            closed = true;
        }
    }
    if (!closed) {
        baton_before(schedule, entry, exit);
    }
    baton__free(ends);
}
