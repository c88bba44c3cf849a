/* Which stream of a capture each node is recorded in: list scheduling. Nodes
   are taken in the order of the longest way from them to the end of the epoch,
   and each goes where it can begin first. Another stream is taken only for a
   node that would begin later in all the others. */
#include "base/alloc.h"
#include "sched/capture.h"

#include <stdlib.h>
#include <string.h>

/* What a node takes, in bytes that the device reads or writes meanwhile. Only
   ratios matter, and these are those of today's GPUs: in the time of a launch
   a megabyte goes through the memory, and a copy from or to the host is slower
   than one on the device by as much. */
#define LAUNCH_COST ((double)(1 << 20))
#define LINK_COST   32.0

enum { STREAMS = BATON_DEVICE_GRAPH_STREAMS };
#define NO_STEP UINT32_MAX

typedef struct item {
    double level; /* what the longest way from here to the end takes */
    uint32_t position;
    uint32_t node;
} item_t;

typedef struct stream {
    double free;   /* when all that is in it has been done */
    uint32_t last; /* node; or BATON__NO_NODE */
    /* By stream: the last step there that has happened before. */
    uint32_t seen[STREAMS];
} stream_t;

typedef struct assignment {
    const baton__order_t *order;
    item_t *items;     /* by priority */
    double *cost;      /* by node */
    double *end;       /* by node; until it is placed, its level */
    uint32_t *step_of; /* by node */
    stream_t streams[STREAMS];
} assignment_t;

static double cost_of(const baton_schedule_t *schedule, const baton__op_t *op)
{
    const baton__buffer_t *buffers = schedule->buffers;
    double bytes = (double)op->bytes;
    switch ((baton__kind_t)op->kind) {
    case BATON__REDUCE:
        return op->bytes > 0 ? LAUNCH_COST + 3 * bytes : 0;
    case BATON__COPY: {
        bool host =
            buffers[op->buffer[BATON__LEFT]].kind == BATON_MEMORY_HOST ||
            buffers[op->buffer[BATON__TARGET]].kind == BATON_MEMORY_HOST;
        return op->bytes > 0
                   ? LAUNCH_COST + (host ? LINK_COST * bytes : 2 * bytes)
                   : 0;
    }
    case BATON__DEVICE_CALL:
        return LAUNCH_COST;
    case BATON__SEND:
    case BATON__RECV:
    case BATON__CALL:
    case BATON__ASYNC:
    case BATON__NOP:
    case BATON__ON_START:
    case BATON__ARMED_RECV:
    case BATON__ACTIVATE:
    case BATON__KIND_COUNT:
        break;
    }
    return 0;
}

/* ---- the order ----------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    const item_t *a = left, *b = right;
    if (a->level != b->level) {
        return a->level > b->level ? -1 : 1;
    }
    return a->position < b->position ? -1 : a->position > b->position;
}

/* A node's level is at least that of its successors, and of equal ones the
   order of nodes decides: so predecessors come first. */
static void sort(const baton_schedule_t *schedule, assignment_t *to)
{
    const baton__order_t *order = to->order;
    for (uint32_t i = schedule->count; i-- > 0;) {
        uint32_t node = order->order[i];
        to->cost[node] = cost_of(schedule, &schedule->ops[node]);
        to->end[node] += to->cost[node];
        to->items[i] = (item_t){to->end[node], i, node};
        for (uint32_t e = order->first[node]; e < order->first[node + 1]; e++) {
            double *level = &to->end[order->preds[e]];
            *level = to->end[node] > *level ? to->end[node] : *level;
        }
    }
    qsort(to->items, schedule->count, sizeof *to->items, compare);
}

/* ---- streams ------------------------------------------------------------- */

static bool is_pred(const baton__order_t *order, uint32_t node, uint32_t pred)
{
    for (uint32_t e = order->first[node]; e < order->first[node + 1]; e++) {
        if (order->preds[e] == pred) {
            return true;
        }
    }
    return false;
}

/* The stream where the node begins first; of several the one whose last node it
   comes after. */
static int choose(const assignment_t *from, int count, uint32_t node,
                  double ready)
{
    int chosen = 0;
    double least = -1;
    for (int k = 0; k < count; k++) {
        const stream_t *stream = &from->streams[k];
        double begin = stream->free > ready ? stream->free : ready;
        if (least < 0 || begin < least ||
            (begin <= least && is_pred(from->order, node, stream->last) &&
             !is_pred(from->order, node, from->streams[chosen].last))) {
            chosen = k;
            least = begin;
        }
    }
    bool late = count == 0 || least > ready;
    return late && count < STREAMS ? count : chosen;
}

static void place(assignment_t *to, baton__capture_t *capture, uint32_t node)
{
    const baton__order_t *order = to->order;
    double ready = 0;
    for (uint32_t e = order->first[node]; e < order->first[node + 1]; e++) {
        double end = to->end[order->preds[e]];
        ready = end > ready ? end : ready;
    }
    int chosen = choose(to, capture->streams, node, ready);
    stream_t *stream = &to->streams[chosen];
    capture->streams += chosen == capture->streams;
    stream->free =
        (stream->free > ready ? stream->free : ready) + to->cost[node];
    stream->last = node;
    to->end[node] = stream->free;
    to->step_of[node] = capture->count;
    capture->steps[capture->count++] =
        (baton__capture_step_t){.node = node, .stream = (uint8_t)chosen};
}

/* ---- events -------------------------------------------------------------- */

/* The last step of each other stream that the node comes after, unless its own
   stream has followed a later one there. Returns how many follows there are. */
static uint32_t follow(assignment_t *to, baton__capture_t *capture,
                       uint32_t step, uint32_t count)
{
    const baton__order_t *order = to->order;
    uint32_t node = capture->steps[step].node;
    uint8_t own = capture->steps[step].stream;
    uint32_t *seen = to->streams[own].seen;
    uint32_t latest[STREAMS];
    memset(latest, 0xff, sizeof latest);
    for (uint32_t e = order->first[node]; e < order->first[node + 1]; e++) {
        uint32_t pred = to->step_of[order->preds[e]];
        uint8_t stream = capture->steps[pred].stream;
        if (latest[stream] == NO_STEP || latest[stream] < pred) {
            latest[stream] = pred;
        }
    }
    for (int k = 0; k < capture->streams; k++) {
        bool known = seen[k] != NO_STEP && seen[k] >= latest[k];
        if (k != own && latest[k] != NO_STEP && !known) {
            seen[k] = latest[k];
            capture->steps[latest[k]].followed = true;
            capture->follows[count++] = latest[k];
        }
    }
    return count;
}

static void link_steps(assignment_t *to, baton__capture_t *capture)
{
    uint32_t count = 0;
    for (uint32_t step = 0; step < capture->count; step++) {
        capture->steps[step].first_follow = count;
        count = follow(to, capture, step, count);
    }
    capture->steps[capture->count].first_follow = count;
}

/* ---- all of it ----------------------------------------------------------- */

static bool allocate(uint32_t count, uint32_t edges, assignment_t *to,
                     baton__capture_t *capture)
{
    capture->steps = baton__alloc((size_t)count + 1, sizeof *capture->steps);
    capture->follows = baton__alloc(edges, sizeof *capture->follows);
    to->items = baton__alloc(count, sizeof *to->items);
    to->cost = baton__alloc(count, sizeof *to->cost);
    to->end = baton__alloc(count, sizeof *to->end);
    to->step_of = baton__alloc(count, sizeof *to->step_of);
    return capture->steps != NULL && capture->follows != NULL &&
           to->items != NULL && to->cost != NULL && to->end != NULL &&
           to->step_of != NULL;
}

bool baton__capture_assign(const baton_schedule_t *schedule,
                           const baton__order_t *order,
                           baton__capture_t *capture)
{
    assignment_t to = {.order = order};
    uint32_t count = schedule->count;
    bool enough = allocate(count, order->first[count], &to, capture);
    if (enough) {
        memset(to.streams, 0, sizeof to.streams);
        for (int k = 0; k < STREAMS; k++) {
            to.streams[k].last = BATON__NO_NODE;
            memset(to.streams[k].seen, 0xff, sizeof to.streams[k].seen);
        }
        sort(schedule, &to);
        for (uint32_t i = 0; i < count; i++) {
            place(&to, capture, to.items[i].node);
        }
        link_steps(&to, capture);
    }
    baton__free(to.items);
    baton__free(to.cost);
    baton__free(to.end);
    baton__free(to.step_of);
    return enough;
}
