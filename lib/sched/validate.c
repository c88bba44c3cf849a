/* Checks of a graph at commit: views, needs, cycles. */
#include "base/alloc.h"
#include "base/error.h"
#include "sched/schedule.h"

#include <string.h>

void baton__order_free(baton__order_t *order)
{
    baton__free(order->order);
    baton__free(order->position);
    baton__free(order->first);
    baton__free(order->preds);
    baton__free(order->loans);
    *order = (baton__order_t){0};
}

/* Makes the lists of predecessors: sorts the edges by the node to which they
   lead. Drops repeated edges, so that a need of k counts predecessors, not
   edges. */
static void group_edges(const baton_schedule_t *schedule, baton__order_t *out,
                        uint32_t *last_from)
{
    uint32_t count = schedule->count;
    for (uint32_t i = 0; i < schedule->edge_count; i++) {
        out->first[schedule->edges[i].to + 1]++;
    }
    for (uint32_t i = 0; i < count; i++) {
        out->first[i + 1] += out->first[i];
        /* Until the edges are sorted, last_from[i] is the place in `preds` of
           the next edge to node i. */
        last_from[i] = out->first[i];
    }
    for (uint32_t i = 0; i < schedule->edge_count; i++) {
        out->preds[last_from[schedule->edges[i].to]++] =
            schedule->edges[i].from;
    }
    memset(last_from, 0xff, count * sizeof *last_from);
    uint32_t distinct = 0;
    for (uint32_t to = 0; to < count; to++) {
        uint32_t begin = out->first[to];
        out->first[to] = distinct;
        for (uint32_t i = begin; i < out->first[to + 1]; i++) {
            uint32_t from = out->preds[i];
            if (last_from[from] != to) {
                last_from[from] = to;
                out->preds[distinct++] = from;
            }
        }
    }
    out->first[count] = distinct;
}

static baton_status_t validate_check_node(const baton_schedule_t *schedule,
                                          uint32_t node, uint32_t edges)
{
    const baton__op_t *op = &schedule->ops[node];
    const baton__kind_info_t *kind = &baton__kinds[op->kind];
    const baton_transport_t *transport = schedule->group->transport;
    uint32_t need = schedule->needs[node];
    bool entry = op->kind == BATON__ON_START || op->kind == BATON__ARMED_RECV;
    if (need > edges) {
        return BATON__COMMIT_ERROR(
            BATON_ERR_UNREACHABLE, schedule,
            "%s can never fire: it needs %u of %u incoming edges",
            baton__node_name(schedule, node), need, edges);
    }
    if (op->kind == BATON__ARMED_RECV && schedule->depth > 1) {
        return BATON__COMMIT_ERROR(
            BATON_ERR_UNSUPPORTED, schedule,
            "%s lets peers begin epochs, and the depth is %u: it must be 1",
            baton__node_name(schedule, node), schedule->depth);
    }
    if (entry && edges > 0) {
        return BATON__COMMIT_ERROR(
            BATON_ERR_INVALID, schedule,
            "%s begins a branch, and must have no incoming edge; it has %u",
            baton__node_name(schedule, node), edges);
    }
    uint32_t target = op->buffer[BATON__TARGET];
    if (kind->writes != 0 && schedule->buffers[target].input) {
        return BATON__COMMIT_ERROR(BATON_ERR_INVALID, schedule,
                                   "%s writes buffer %u, which was bound as an "
                                   "input: bind it with baton_buffer_bind",
                                   baton__node_name(schedule, node), target);
    }
    if (kind->message && node >> BATON__TAG_BITS != 0) {
        return BATON__COMMIT_ERROR(
            BATON_ERR_LIMIT, schedule,
            "%s is a message, and must be among the first 2^%d nodes",
            baton__node_name(schedule, node), BATON__TAG_BITS);
    }
    if (kind->message && op->bytes > transport->max_bytes) {
        return BATON__COMMIT_ERROR(BATON_ERR_LIMIT, schedule,
                                   "%s has %zu bytes; the %s transport carries "
                                   "at most %zu a message: split it",
                                   baton__node_name(schedule, node), op->bytes,
                                   transport->name, transport->max_bytes);
    }
    return BATON_OK;
}

/* Returns a predecessor that has no place in the order yet: its position is
   BATON__NO_NODE. */
static uint32_t unordered_pred(const baton__order_t *order, uint32_t node)
{
    uint32_t i = order->first[node];
    while (order->position[order->preds[i]] != BATON__NO_NODE) {
        i++;
    }
    return order->preds[i];
}

/* Finds a cycle and reports it: follows unordered predecessors until it comes
   to a node for the second time. */
static baton_status_t report_cycle(const baton_schedule_t *schedule,
                                   const baton__order_t *order,
                                   uint32_t *visited)
{
    baton__text_t text = BATON__TEXT(BATON__SENTENCE_BYTES);
    uint32_t node = 0;
    while (order->position[node] != BATON__NO_NODE) {
        node++;
    }
    memset(visited, 0, schedule->count * sizeof *visited);
    while (visited[node] == 0) {
        visited[node] = 1;
        node = unordered_pred(order, node);
    }
    /* The walk goes round the cycle against the edges, so the names are
       collected from the end. `cycle` reuses the memory of `visited`, which is
       as long as the longest cycle. */
    uint32_t *cycle = visited;
    uint32_t length = 0;
    uint32_t at = node;
    do {
        cycle[length++] = at;
        at = unordered_pred(order, at);
    } while (at != node);
    baton__text_add(&text, "%s", baton__node_name(schedule, node));
    for (uint32_t i = length; i-- > 0;) {
        baton__text_add(&text, " -> %s", baton__node_name(schedule, cycle[i]));
    }
    return BATON__COMMIT_ERROR(BATON_ERR_CYCLE, schedule,
                               "dependency cycle\n    %s", text.data);
}

/* Sorts the nodes topologically by Kahn's algorithm. Makes its own lists of
   successors from the lists of predecessors, because the graph's edges may be
   repeated. */
static baton_status_t sort_nodes(const baton_schedule_t *schedule,
                                 baton__order_t *out, uint32_t *work)
{
    uint32_t count = schedule->count;
    uint32_t edges = out->first[count];
    uint32_t *missing = work;
    /* By node: the first edge of the node's list. By edge: the next edge in the
       list, and the node to which the edge leads. */
    uint32_t *head = work + count;
    uint32_t *next = work + 2 * count;
    uint32_t *target = next + edges;
    memset(head, 0xff, count * sizeof *head);
    uint32_t tail = 0;
    for (uint32_t to = count; to-- > 0;) {
        missing[to] = out->first[to + 1] - out->first[to];
        for (uint32_t i = out->first[to]; i < out->first[to + 1]; i++) {
            target[i] = to;
            next[i] = head[out->preds[i]];
            head[out->preds[i]] = i;
        }
    }
    for (uint32_t node = 0; node < count; node++) {
        out->position[node] = BATON__NO_NODE;
        if (missing[node] == 0) {
            out->order[tail++] = node;
        }
    }
    for (uint32_t at = 0; at < tail; at++) {
        uint32_t node = out->order[at];
        out->position[node] = at;
        for (uint32_t i = head[node]; i != BATON__NO_NODE; i = next[i]) {
            if (--missing[target[i]] == 0) {
                out->order[tail++] = target[i];
            }
        }
    }
    return tail == count ? BATON_OK : report_cycle(schedule, out, work);
}

baton_status_t baton__validate(const baton_schedule_t *schedule,
                               baton__order_t *out)
{
    uint32_t count = schedule->count;
    uint32_t edges = schedule->edge_count;
    if (schedule->sticky != BATON_OK) {
        return baton__error(schedule->sticky, "commit of \"%s\" failed: %s",
                            schedule->name, baton__schedule_sentence(schedule));
    }
    *out = (baton__order_t){
        .order = baton__alloc(count, sizeof(uint32_t)),
        .position = baton__alloc(count, sizeof(uint32_t)),
        .first = baton__alloc((size_t)count + 1, sizeof(uint32_t)),
        .preds = baton__alloc(edges, sizeof(uint32_t)),
    };
    uint32_t *work =
        baton__alloc(2 * ((size_t)count + edges), sizeof(uint32_t));
    baton_status_t status = BATON_OK;
    if (out->order == NULL || out->position == NULL || out->first == NULL ||
        out->preds == NULL || work == NULL) {
        status = BATON__COMMIT_ERROR(BATON_ERR_NO_MEMORY, schedule,
                                     "no memory to validate %u nodes", count);
        goto done;
    }
    group_edges(schedule, out, work);
    for (uint32_t node = 0; node < count && status == BATON_OK; node++) {
        status = validate_check_node(schedule, node,
                                     out->first[node + 1] - out->first[node]);
    }
    if (status == BATON_OK) {
        status = sort_nodes(schedule, out, work);
    }
done:
    baton__free(work);
    if (status != BATON_OK) {
        baton__order_free(out);
    }
    return status;
}
