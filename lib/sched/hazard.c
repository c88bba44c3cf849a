/* Hazards: two nodes that touch the same bytes, one of them writing, neither
   happens before the other; and nodes that use a length that a receive
   sets, without happening after it.

   Walking the nodes in a topological order, each segment of memory
   (accesses.h) knows its last writer and who has read it since; a node that
   writes must happen after all of these, one that reads after the writer. By
   transitivity older accesses need no look. */
#include "base/alloc.h"
#include "base/error.h"
#include "sched/accesses.h"
#include "sched/happens_before.h"

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
    baton__accesses_t accesses;
    segment_t *segments;
    reader_t *pool;
    uint32_t pool_used, pool_size;
    uint32_t *receives; /* by length: the one that sets it */
} checker_t;

static baton_status_t hazard(const checker_t *c, uint32_t u, uint32_t v,
                             const baton__access_t *access, const size_t *cut,
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

static baton_status_t visit(checker_t *c, const baton__access_t *access,
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

/* Visits all accesses of a space, from `first` up to `end`. */
static baton_status_t check_space(checker_t *c, size_t first, size_t end)
{
    const baton__accesses_t *accesses = &c->accesses;
    for (size_t i = 0; i < accesses->cut_count; i++) {
        c->segments[i] = (segment_t){BATON__NO_NODE, BATON__NO_NODE};
    }
    c->pool_used = 0;
    for (size_t i = first; i < end; i++) {
        const baton__access_t *access = &accesses->all[i];
        size_t last = baton__accesses_find(accesses, access->end);
        for (size_t s = baton__accesses_find(accesses, access->begin); s < last;
             s++) {
            baton_status_t status =
                visit(c, access, &c->segments[s], &accesses->cuts[s]);
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
    for (size_t i = 0; i < c->accesses.count && status == BATON_OK; i = end) {
        end = baton__accesses_cut(&c->accesses, i);
        status = check_space(c, i, end);
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
    checker_t c = {
        .schedule = schedule,
        .order = order,
        .receives = baton__alloc(schedule->length_count, sizeof(uint32_t)),
    };
    baton_status_t status =
        baton__happens_before_init(&c.before, schedule, order);
    bool listed = baton__accesses_init(&c.accesses, schedule, order);
    c.segments = baton__alloc(2 * c.accesses.count, sizeof *c.segments);
    if (!listed || c.segments == NULL || c.receives == NULL) {
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
    baton__accesses_fini(&c.accesses);
    baton__happens_before_fini(&c.before);
    return status;
}
