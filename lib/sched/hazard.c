/* Hazards: two nodes that touch the same bytes, one of them writing, neither
   happens before the other; and nodes that use a length that a receive
   sets, without happening after it.

   Each space, memory that buffers share (alias.c), is cut into segments at the
   ends of its views. Walking the nodes
   in a topological order, a segment knows its last writer and who has read it
   since; a node that writes must happen after all of these, one that reads
   after the writer. By transitivity older accesses need no look. */
#include "base/alloc.h"
#include "base/error.h"
#include "sched/happens_before.h"

#include <stdlib.h>

typedef struct access {
    uint32_t space; /* of its buffer; offsets are within it */
    uint32_t buffer;
    uint32_t position; /* of its node in the order */
    size_t begin, end;
    bool write;
} access_t;

typedef struct reader {
    uint32_t node;
    uint32_t next;
} reader_t;

typedef struct segment {
    uint32_t writer;
    uint32_t readers; /* a list in the pool */
} segment_t;

typedef struct checker {
    const baton_schedule_t *schedule;
    const baton__order_t *order;
    baton__happens_before_t before;
    access_t *accesses;
    size_t access_count;
    size_t *cuts;
    segment_t *segments;
    reader_t *pool;
    uint32_t pool_used, pool_size;
    uint32_t *receives; /* by length: the one that sets it */
} checker_t;

static baton_status_t hazard(const checker_t *c, uint32_t u, uint32_t v,
                             const access_t *access, const size_t *cut,
                             const char *first_verb)
{
    const char *name = c->schedule->name;
    const baton__buffer_t *buffer = &c->schedule->buffers[access->buffer];
    bool shared = false;
    for (uint32_t i = 0; i < c->schedule->buffer_count && !shared; i++) {
        shared = i != access->buffer &&
                 c->schedule->buffers[i].space == buffer->space;
    }
    return baton__error(
        BATON_ERR_HAZARD,
        "commit of \"%s\" failed: %s and %s are in no order, but the first %s "
        "and the second %s bytes %zu to %zu of buffer %u%s: put one before the "
        "other",
        name, baton__node_name(c->schedule, u),
        baton__node_name(c->schedule, v), first_verb,
        access->write ? "writes" : "reads", cut[0] - buffer->base,
        cut[1] - buffer->base, access->buffer,
        shared ? " (bound to memory of another buffer, too)" : "");
}

static bool add_reader(checker_t *c, segment_t *segment, uint32_t node)
{
    if (segment->readers != BATON__NO_NODE &&
        c->pool[segment->readers].node == node) {
        return true;
    }
    if (c->pool_used == c->pool_size) {
        uint32_t size = c->pool_size * 2 + 64;
        reader_t *pool = baton__grow(c->pool, c->pool_used, size, sizeof *pool);
        if (pool == NULL) {
            return false;
        }
        c->pool = pool;
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

static int compare_sizes(const void *a, const void *b)
{
    size_t left = *(const size_t *)a;
    size_t right = *(const size_t *)b;
    return (left > right) - (left < right);
}

/* By space, then in the order of the nodes; a node's reads before its write,
   so that it may write what it reads. */
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

static size_t find_cut(const size_t *cuts, size_t count, size_t value)
{
    const size_t *at =
        bsearch(&value, cuts, count, sizeof *cuts, compare_sizes);
    return (size_t)(at - cuts);
}

/* All accesses of one space, in order. */
static baton_status_t check_space(checker_t *c, const access_t *accesses,
                                  size_t count)
{
    size_t cuts = 0;
    for (size_t i = 0; i < count; i++) {
        c->cuts[cuts++] = accesses[i].begin;
        c->cuts[cuts++] = accesses[i].end;
    }
    qsort(c->cuts, cuts, sizeof *c->cuts, compare_sizes);
    size_t kept = 0;
    for (size_t i = 0; i < cuts; i++) {
        if (kept == 0 || c->cuts[i] != c->cuts[kept - 1]) {
            c->cuts[kept++] = c->cuts[i];
        }
    }
    for (size_t i = 0; i < kept; i++) {
        c->segments[i] = (segment_t){BATON__NO_NODE, BATON__NO_NODE};
    }
    c->pool_used = 0;
    for (size_t i = 0; i < count; i++) {
        size_t end = find_cut(c->cuts, kept, accesses[i].end);
        for (size_t s = find_cut(c->cuts, kept, accesses[i].begin); s < end;
             s++) {
            baton_status_t status =
                visit(c, &accesses[i], &c->segments[s], &c->cuts[s]);
            if (status != BATON_OK) {
                return status;
            }
        }
    }
    return BATON_OK;
}

/* Lists what the nodes touch: returns how many accesses; empty views touch
   nothing. With accesses == NULL it only counts. */
static size_t list_accesses(const baton_schedule_t *schedule,
                            const baton__order_t *order, access_t *accesses)
{
    size_t count = 0;
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        const baton__kind_info_t *kind = &baton__kinds[op->kind];
        for (int i = 0; i < BATON__OPERANDS && op->bytes > 0; i++) {
            if (((kind->reads | kind->writes) >> i & 1) == 0) {
                continue;
            }
            if (accesses != NULL) {
                const baton__buffer_t *buffer =
                    &schedule->buffers[op->buffer[i]];
                size_t begin = buffer->base + op->offset[i];
                accesses[count] = (access_t){
                    .space = buffer->space,
                    .buffer = op->buffer[i],
                    .position = order->position[node],
                    .begin = begin,
                    .end = begin + op->bytes,
                    .write = (kind->writes >> i & 1) != 0,
                };
            }
            count++;
        }
    }
    return count;
}

static baton_status_t check_all(checker_t *c)
{
    (void)list_accesses(c->schedule, c->order, c->accesses);
    qsort(c->accesses, c->access_count, sizeof *c->accesses, compare_accesses);
    baton_status_t status = BATON_OK;
    size_t end = 0;
    for (size_t i = 0; i < c->access_count && status == BATON_OK; i = end) {
        while (end < c->access_count &&
               c->accesses[end].space == c->accesses[i].space) {
            end++;
        }
        status = check_space(c, c->accesses + i, end - i);
    }
    return status;
}

/* The receive that sets each length, or BATON__NO_NODE. */
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
            return baton__error(
                BATON_ERR_INVALID,
                "commit of \"%s\" failed: %s and %s both set length %u: give "
                "each its own",
                schedule->name, baton__node_name(schedule, *receive),
                baton__node_name(schedule, node), op->length);
        }
        *receive = node;
    }
    return BATON_OK;
}

/* A length has at most one receive, which happens before the nodes that use it.
 */
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
            status = baton__error(
                BATON_ERR_HAZARD,
                "commit of \"%s\" failed: %s works on length %u, which %s "
                "sets, but need not come after it",
                schedule->name, baton__node_name(schedule, node), length,
                baton__node_name(schedule, receive));
        }
    }
    return status;
}

baton_status_t baton__check_hazards(const baton_schedule_t *schedule,
                                    const baton__order_t *order)
{
    size_t accesses = list_accesses(schedule, order, NULL);
    checker_t c = {
        .schedule = schedule,
        .order = order,
        .access_count = accesses,
        .accesses = baton__alloc(accesses, sizeof(access_t)),
        .cuts = baton__alloc(2 * accesses, sizeof(size_t)),
        .segments = baton__alloc(2 * accesses, sizeof(segment_t)),
        .receives = baton__alloc(schedule->length_count, sizeof(uint32_t)),
    };
    baton_status_t status =
        baton__happens_before_init(&c.before, schedule, order);
    if (c.accesses == NULL || c.cuts == NULL || c.segments == NULL ||
        c.receives == NULL) {
        status = BATON_ERR_NO_MEMORY;
    }
    if (status == BATON_OK) {
        status = check_all(&c);
    }
    if (status == BATON_OK) {
        status = check_lengths(&c);
    }
    if (status == BATON_ERR_NO_MEMORY) {
        status = baton__error(status,
                              "commit of \"%s\" failed: no memory to check %u "
                              "nodes for hazards",
                              schedule->name, schedule->count);
    }
    baton__free(c.pool);
    baton__free(c.receives);
    baton__free(c.segments);
    baton__free(c.cuts);
    baton__free(c.accesses);
    baton__happens_before_fini(&c.before);
    return status;
}
