/* Hazards, which commit reports as errors. Two nodes make a hazard if they
   access the same bytes, at least one of them writes these, and neither node
   happens before the other. A node that uses a length (baton_length_t) is a
   hazard, too, if it does not happen after the receive that sets the length.

   Each space, the memory of overlapping buffers (alias.c), is divided into
   segments at the first and last bytes of its views; an access covers whole
   segments.

     view of recv#0     |---------------|
     view of reduce#1           |---------------|
     segments           |   0   |   1   |   2   |

   The check visits the nodes in a topological order, and stores for each
   segment the node that wrote it last (its writer) and the nodes that have read
   it since. A node that writes must happen after all of these; a node that
   reads must happen after the writer. By transitivity older accesses need no
   check. The same walk finds the nodes that read the data of a receive
   (loans.h). */
#include "base/alloc.h"
#include "base/error.h"
#include "sched/happens_before.h"
#include "sched/loans.h"

#include <stdlib.h>

/* A node's access to a view. */
typedef struct access {
    uint32_t space; /* the space of the view's buffer */
    uint32_t buffer;
    uint32_t position; /* the node's place in the topological order */
    uint8_t operand;   /* the view's index among the node's operands */
    bool write;
    size_t begin, end; /* the view's range of bytes in the space */
} access_t;

typedef struct reader {
    uint32_t node;
    uint32_t next;
} reader_t;

typedef struct segment {
    uint32_t writer;
    /* index in `pool` of a list: the nodes that have read the segment since the
       writer wrote it */
    uint32_t readers;
} segment_t;

typedef struct checker {
    const baton_schedule_t *schedule;
    baton__order_t *order;
    baton__happens_before_t before;
    /* Sorted by space, then in the order of the nodes; a node's reads come
       before its write. */
    access_t *accesses;
    size_t count;
    size_t *cuts; /* where segments of the current space begin or end, sorted */
    size_t cut_count;
    segment_t *segments; /* the segments between the cuts */
    reader_t *pool;
    uint32_t pool_used, pool_size;
    uint32_t *receives; /* by length: the receive that sets the length */
} checker_t;

/* ---- accesses --------------------------------------------------------- */

/* Lists the accesses of all nodes, and returns their number. Leaves out empty
   views. If out is NULL, only counts. */
static size_t hazard_list(const baton_schedule_t *schedule,
                          const baton__order_t *order, access_t *out)
{
    size_t count = 0;
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        const baton__kind_info_t *kind = &baton__kinds[op->kind];
        for (int i = 0; i < BATON__OPERANDS && op->bytes > 0; i++) {
            if (!baton__op_uses(op, i)) {
                continue;
            }
            if (out != NULL) {
                const baton__buffer_t *buffer =
                    &schedule->buffers[op->buffer[i]];
                size_t begin = buffer->base + op->offset[i];
                out[count] = (access_t){.space = buffer->space,
                                        .buffer = op->buffer[i],
                                        .position = order->position[node],
                                        .operand = (uint8_t)i,
                                        .write = (kind->writes >> i & 1) != 0,
                                        .begin = begin,
                                        .end = begin + op->bytes};
            }
            count++;
        }
    }
    return count;
}

static int compare_accesses(const void *a, const void *b)
{
    const access_t *left = a;
    const access_t *right = b;
    if (left->space != right->space) {
        return left->space < right->space ? -1 : 1;
    }
    if (left->position != right->position) {
        return left->position < right->position ? -1 : 1;
    }
    return (int)left->write - (int)right->write;
}

static int compare_sizes(const void *a, const void *b)
{
    size_t left = *(const size_t *)a;
    size_t right = *(const size_t *)b;
    return (left > right) - (left < right);
}

/* Finds the cuts of the space of the access at `first`; returns the index of
   the next space's first access. */
static size_t cut_space(checker_t *c, size_t first)
{
    size_t *cuts = c->cuts;
    size_t count = 0;
    size_t end = first;
    while (end < c->count &&
           c->accesses[end].space == c->accesses[first].space) {
        cuts[count++] = c->accesses[end].begin;
        cuts[count++] = c->accesses[end].end;
        end++;
    }
    qsort(cuts, count, sizeof *cuts, compare_sizes);
    c->cut_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || cuts[i] != cuts[c->cut_count - 1]) {
            cuts[c->cut_count++] = cuts[i];
        }
    }
    return end;
}

/* Returns the index, among the cuts, of the byte at which a view begins or
   ends. */
static size_t find_cut(const checker_t *c, size_t byte)
{
    const size_t *at =
        bsearch(&byte, c->cuts, c->cut_count, sizeof *c->cuts, compare_sizes);
    return (size_t)(at - c->cuts);
}

/* ---- hazards ---------------------------------------------------------- */

static baton_status_t hazard(const checker_t *c, uint32_t u, uint32_t v,
                             const access_t *access, const size_t *cut,
                             const char *first_verb)
{
    const baton__buffer_t *buffer = &c->schedule->buffers[access->buffer];
    bool shared = false;
    for (uint32_t i = 0; i < c->schedule->buffer_count && !shared; i++) {
        shared = i != access->buffer &&
                 c->schedule->buffers[i].space == buffer->space;
    }
    return BATON__COMMIT_ERROR(
        BATON_ERR_HAZARD, c->schedule,
        "%s and %s are unordered, and the first %s and the second %s bytes %zu "
        "to %zu of buffer %u%s: put one before the other by baton_before (that "
        "buffer is %s)",
        baton__node_name(c->schedule, u), baton__node_name(c->schedule, v),
        first_verb, access->write ? "writes" : "reads", cut[0] - buffer->base,
        cut[1] - buffer->base, access->buffer,
        shared ? " (bound to memory of another buffer, too)" : "",
        baton__buffer_place(c->schedule, access->buffer));
}

static bool add_reader(checker_t *c, segment_t *segment, uint32_t node)
{
    if (segment->readers != BATON__NO_NODE &&
        c->pool[segment->readers].node == node) {
        return true;
    }
    if (c->pool_used == c->pool_size) {
        uint32_t size = c->pool_size * 2 + 64;
        if (!baton__extend(&c->pool, c->pool_used, size, sizeof *c->pool)) {
            return false;
        }
        c->pool_size = size;
    }
    c->pool[c->pool_used] = (reader_t){node, segment->readers};
    segment->readers = c->pool_used++;
    return true;
}

static baton_status_t visit(checker_t *c, const access_t *access,
                            segment_t *segment, const size_t *cut)
{
    uint32_t v = c->order->order[access->position];
    if (segment->writer != BATON__NO_NODE &&
        !baton__happens_before(&c->before, segment->writer, v)) {
        return hazard(c, segment->writer, v, access, cut, "writes");
    }
    if (!access->write) {
        if (c->order->loans != NULL && segment->writer != BATON__NO_NODE &&
            c->schedule->ops[segment->writer].kind == BATON__REDUCE) {
            c->order->loans[v].made = c->schedule->ops[v].kind == BATON__SEND;
        }
        return add_reader(c, segment, v) ? BATON_OK : BATON_ERR_NO_MEMORY;
    }
    for (uint32_t i = segment->readers; i != BATON__NO_NODE;
         i = c->pool[i].next) {
        if (!baton__happens_before(&c->before, c->pool[i].node, v)) {
            return hazard(c, c->pool[i].node, v, access, cut, "reads");
        }
    }
    segment->writer = v;
    segment->readers = BATON__NO_NODE;
    return BATON_OK;
}

/* Called when a node reads scratch. If the node is a reduce that can read the
   message of the bytes' last writer in place, notes this loan. Otherwise notes
   that the messages of the nodes that wrote these bytes can't be lent. */
static void hazard_note_read(const checker_t *c, const access_t *access,
                             size_t first, size_t last)
{
    uint32_t node = c->order->order[access->position];
    uint32_t writer = c->segments[first].writer;
    for (size_t s = first + 1; s < last; s++) {
        if (c->segments[s].writer != writer) {
            writer = BATON__NO_NODE;
        }
    }
    if (writer != BATON__NO_NODE &&
        baton__loans_note(c->schedule, c->order, writer, node,
                          access->operand)) {
        return;
    }
    for (size_t s = first; s < last; s++) {
        if (c->segments[s].writer != BATON__NO_NODE) {
            c->order->loans[c->segments[s].writer].spoiled = true;
        }
    }
}

/* Visits all accesses of a space, from `first` up to `end`. */
static baton_status_t check_space(checker_t *c, size_t first, size_t end)
{
    /* A scratch buffer is alone in its space. */
    bool lends = c->order->loans != NULL &&
                 c->schedule->buffers[c->accesses[first].buffer].scratch;
    for (size_t i = 0; i < c->cut_count; i++) {
        c->segments[i] = (segment_t){BATON__NO_NODE, BATON__NO_NODE};
    }
    c->pool_used = 0;
    for (size_t i = first; i < end; i++) {
        const access_t *access = &c->accesses[i];
        size_t begin = find_cut(c, access->begin);
        size_t last = find_cut(c, access->end);
        if (lends && !access->write) {
            hazard_note_read(c, access, begin, last);
        }
        for (size_t s = begin; s < last; s++) {
            baton_status_t status =
                visit(c, access, &c->segments[s], &c->cuts[s]);
            if (status != BATON_OK) {
                return status;
            }
        }
    }
    return BATON_OK;
}

static baton_status_t check_all(checker_t *c)
{
    baton_status_t status = BATON_OK;
    size_t end = 0;
    for (size_t i = 0; i < c->count && status == BATON_OK; i = end) {
        end = cut_space(c, i);
        status = check_space(c, i, end);
    }
    return status;
}

/* ---- lengths ---------------------------------------------------------- */

/* Stores, for each length, the receive that sets the length, or BATON__NO_NODE
   if there is none. */
static baton_status_t find_receives(checker_t *c)
{
    const baton_schedule_t *schedule = c->schedule;
    for (uint32_t i = 0; i < schedule->length_count; i++) {
        c->receives[i] = BATON__NO_NODE;
    }
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        if (op->length == BATON__NO_LENGTH || op->kind != BATON__RECV) {
            continue;
        }
        uint32_t *receive = &c->receives[op->length];
        if (*receive != BATON__NO_NODE) {
            return BATON__COMMIT_ERROR(
                BATON_ERR_INVALID, schedule,
                "%s and %s both set length %u: give each its own",
                baton__node_name(schedule, *receive),
                baton__node_name(schedule, node), op->length);
        }
        *receive = node;
    }
    return BATON_OK;
}

/* Checks that a length has at most one receive, which happens before the nodes
   that use the length. */
static baton_status_t check_lengths(checker_t *c)
{
    const baton_schedule_t *schedule = c->schedule;
    baton_status_t status = find_receives(c);
    for (uint32_t node = 0; node < schedule->count && status == BATON_OK;
         node++) {
        uint32_t length = schedule->ops[node].length;
        uint32_t receive =
            length == BATON__NO_LENGTH ? BATON__NO_NODE : c->receives[length];
        if (receive == BATON__NO_NODE || receive == node) {
            continue;
        }
        if (c->order->position[node] < c->order->position[receive] ||
            !baton__happens_before(&c->before, receive, node)) {
            status =
                BATON__COMMIT_ERROR(BATON_ERR_HAZARD, schedule,
                                    "%s works on length %u, which %s sets, but "
                                    "is not ordered after it",
                                    baton__node_name(schedule, node), length,
                                    baton__node_name(schedule, receive));
        }
    }
    return status;
}

/* Allocates the checker's arrays. Returns false if there is no memory. */
static bool hazard_prepare(checker_t *c)
{
    c->count = hazard_list(c->schedule, c->order, NULL);
    c->accesses = baton__alloc(c->count, sizeof *c->accesses);
    c->cuts = baton__alloc(2 * c->count, sizeof *c->cuts);
    c->segments = baton__alloc(2 * c->count, sizeof *c->segments);
    c->receives = baton__alloc(c->schedule->length_count, sizeof(uint32_t));
    if (c->accesses == NULL || c->cuts == NULL || c->segments == NULL ||
        c->receives == NULL || !baton__loans_begin(c->schedule, c->order)) {
        return false;
    }
    (void)hazard_list(c->schedule, c->order, c->accesses);
    qsort(c->accesses, c->count, sizeof *c->accesses, compare_accesses);
    return baton__happens_before_init(&c->before, c->schedule, c->order) ==
           BATON_OK;
}

baton_status_t baton__check_hazards(const baton_schedule_t *schedule,
                                    baton__order_t *order)
{
    checker_t c = {.schedule = schedule, .order = order};
    baton_status_t status = hazard_prepare(&c) ? BATON_OK : BATON_ERR_NO_MEMORY;
    if (status == BATON_OK) {
        status = check_all(&c);
    }
    if (status == BATON_OK) {
        status = check_lengths(&c);
    }
    if (status == BATON_ERR_NO_MEMORY) {
        status = BATON__COMMIT_ERROR(status, schedule,
                                     "no memory to check %u nodes for hazards",
                                     schedule->count);
    }
    baton__free(c.pool);
    baton__free(c.receives);
    baton__free(c.segments);
    baton__free(c.cuts);
    baton__free(c.accesses);
    baton__happens_before_fini(&c.before);
    return status;
}
