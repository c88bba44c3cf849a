/* Hazards: two nodes that touch the same bytes, one of them writing, neither
   surely ordered before the other.

   Each buffer is cut into segments at the ends of its views. Walking the nodes
   in a topological order, a segment knows its last writer and who has read it
   since; a node that writes must come surely after all of these, one that reads
   after the writer. By transitivity older accesses need no look.

   "Surely": with need k of n edges a node waits for some k of its predecessors,
   whichever come first. Node u is surely before v when u = a predecessor or
   surely before it, for at least n - k + 1 of v's predecessors: then any k of
   them have one behind u. */
#include "base/alloc.h"
#include "base/error.h"
#include "sched/schedule.h"

#include <stdlib.h>
#include <string.h>

typedef struct access {
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
    uint32_t *chain; /* of each node: a path that it lies on */
    uint32_t *tail;  /* of each chain */
    uint32_t
        *pred_stamp; /* of each node: whose predecessor it was found to be */
    uint32_t *reach; /* of each node: the search that reached it */
    uint32_t search;
    uint32_t asked_u, asked_v; /* the last question with the answer yes */
    access_t *accesses;
    size_t access_count;
    size_t *cuts;
    segment_t *segments;
    reader_t *pool;
    uint32_t pool_used, pool_size;
} checker_t;

static uint32_t in_edges(const checker_t *c, uint32_t node)
{
    return c->order->first[node + 1] - c->order->first[node];
}

/* How many predecessors must be behind u so that the node surely is. */
static uint32_t threshold(const checker_t *c, uint32_t node)
{
    uint32_t need = c->schedule->needs[node];
    return need == BATON_NEED_ALL ? 1 : in_edges(c, node) - need + 1;
}

/* Cuts the nodes into paths of sure edges: most questions are about two nodes
   of one path. */
static void make_chains(checker_t *c)
{
    uint32_t chains = 0;
    for (uint32_t i = 0; i < c->schedule->count; i++) {
        uint32_t node = c->order->order[i];
        c->chain[node] = BATON__NO_NODE;
        if (in_edges(c, node) > 0 && threshold(c, node) == 1) {
            for (uint32_t e = c->order->first[node];
                 e < c->order->first[node + 1]; e++) {
                uint32_t chain = c->chain[c->order->preds[e]];
                if (c->tail[chain] == c->order->preds[e]) {
                    c->chain[node] = chain;
                    break;
                }
            }
        }
        if (c->chain[node] == BATON__NO_NODE) {
            c->chain[node] = chains++;
        }
        c->tail[c->chain[node]] = node;
    }
}

/* The general answer: goes from u forward in the order, marking what is surely
   behind it, up to v. */
static bool search(checker_t *c, uint32_t u, uint32_t v)
{
    const baton__order_t *order = c->order;
    uint32_t stamp = ++c->search;
    c->reach[u] = stamp;
    for (uint32_t i = order->position[u] + 1; i <= order->position[v]; i++) {
        uint32_t node = order->order[i];
        uint32_t wanted = threshold(c, node);
        uint32_t end = order->first[node + 1];
        for (uint32_t e = order->first[node]; e < end; e++) {
            if (c->reach[order->preds[e]] == stamp && --wanted == 0) {
                c->reach[node] = stamp;
                break;
            }
        }
    }
    return c->reach[v] == stamp;
}

static void stamp_preds(checker_t *c, uint32_t v)
{
    for (uint32_t e = c->order->first[v]; e < c->order->first[v + 1]; e++) {
        c->pred_stamp[c->order->preds[e]] = v;
    }
}

/* u comes before v in the order. */
static bool surely_before(checker_t *c, uint32_t u, uint32_t v)
{
    if (u == v || (c->asked_u == u && c->asked_v == v)) {
        return true;
    }
    bool yes = c->chain[u] == c->chain[v] ||
               (c->pred_stamp[u] == v && threshold(c, v) == 1) ||
               search(c, u, v);
    if (yes) {
        c->asked_u = u;
        c->asked_v = v;
    }
    return yes;
}

static baton_status_t hazard(const checker_t *c, uint32_t u, uint32_t v,
                             const access_t *access, const size_t *cut,
                             const char *first_verb)
{
    const char *name = c->schedule->name;
    return baton__error(
        BATON_ERR_HAZARD,
        "commit of \"%s\" failed: %s and %s are in no order, but the first %s "
        "and the second %s bytes %zu to %zu of buffer %u: put one before the "
        "other",
        name, baton__node_name(c->schedule, u),
        baton__node_name(c->schedule, v), first_verb,
        access->write ? "writes" : "reads", cut[0], cut[1], access->buffer);
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
        !surely_before(c, segment->writer, v)) {
        return hazard(c, segment->writer, v, access, cut, "writes");
    }
    if (!access->write) {
        return add_reader(c, segment, v) ? BATON_OK : BATON_ERR_NO_MEMORY;
    }
    for (uint32_t i = segment->readers; i != BATON__NO_NODE;
         i = c->pool[i].next) {
        if (!surely_before(c, c->pool[i].node, v)) {
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

/* By buffer, then in the order of the nodes; a node's reads before its write,
   so that it may write what it reads. */
static int compare_accesses(const void *a, const void *b)
{
    const access_t *left = a;
    const access_t *right = b;
    if (left->buffer != right->buffer) {
        return left->buffer < right->buffer ? -1 : 1;
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

/* All accesses of one buffer, in order. */
static baton_status_t check_buffer(checker_t *c, const access_t *accesses,
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
        stamp_preds(c, c->order->order[accesses[i].position]);
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
                accesses[count] = (access_t){
                    .buffer = op->buffer[i],
                    .position = order->position[node],
                    .begin = op->offset[i],
                    .end = op->offset[i] + op->bytes,
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
    make_chains(c);
    (void)list_accesses(c->schedule, c->order, c->accesses);
    qsort(c->accesses, c->access_count, sizeof *c->accesses, compare_accesses);
    baton_status_t status = BATON_OK;
    size_t end = 0;
    for (size_t i = 0; i < c->access_count && status == BATON_OK; i = end) {
        while (end < c->access_count &&
               c->accesses[end].buffer == c->accesses[i].buffer) {
            end++;
        }
        status = check_buffer(c, c->accesses + i, end - i);
    }
    return status;
}

baton_status_t baton__check_hazards(const baton_schedule_t *schedule,
                                    const baton__order_t *order)
{
    size_t count = schedule->count;
    size_t accesses = list_accesses(schedule, order, NULL);
    uint32_t *work = baton__alloc(4 * count, sizeof *work);
    checker_t c = {
        .schedule = schedule,
        .order = order,
        .asked_u = BATON__NO_NODE,
        .asked_v = BATON__NO_NODE,
        .access_count = accesses,
        .accesses = baton__alloc(accesses, sizeof(access_t)),
        .cuts = baton__alloc(2 * accesses, sizeof(size_t)),
        .segments = baton__alloc(2 * accesses, sizeof(segment_t)),
    };
    baton_status_t status = BATON_ERR_NO_MEMORY;
    if (work != NULL && c.accesses != NULL && c.cuts != NULL &&
        c.segments != NULL) {
        c.chain = work;
        c.tail = work + count;
        c.pred_stamp = work + 2 * count;
        c.reach = work + 3 * count;
        memset(c.pred_stamp, 0xff, count * sizeof *c.pred_stamp);
        status = check_all(&c);
    }
    if (status == BATON_ERR_NO_MEMORY) {
        status = baton__error(status,
                              "commit of \"%s\" failed: no memory to check %u "
                              "nodes for hazards",
                              schedule->name, schedule->count);
    }
    baton__free(c.pool);
    baton__free(c.segments);
    baton__free(c.cuts);
    baton__free(c.accesses);
    baton__free(work);
    return status;
}
