/* The edges of a sequential task flow. Spans are a sorted array without gaps
   inside accessed memory. An access splits the spans at its ends; a write
   unites the spans that it covers. A builder accesses the same blocks over and
   over, so after the first round an access is a binary search. */
#include "coll/kit/flow.h"

#include "base/alloc.h"

#include <string.h>

#define FIRST_CAPACITY 64

/* The fewest bytes for which copies into scratch are worth while. Transports
   copy shorter messages through shared memory, so the operating system need not
   copy those. */
#define STAGED_BYTES ((size_t)16 * 1024)

typedef struct baton__flow_memory {
    struct baton__flow_memory *next;
    size_t words[];
} memory_t;

baton__flow_t baton__flow_open(baton_schedule_t *schedule, baton_dtype_t dtype,
                               const baton_op_t *op)
{
    baton__flow_t flow = {.schedule = schedule,
                          .rank = baton_schedule_rank(schedule),
                          .size = baton_schedule_size(schedule),
                          .dtype = dtype,
                          .op = op,
                          .element = baton_op_element_bytes(op, dtype)};
    return flow;
}

void baton__flow_close(baton__flow_t *flow)
{
    baton__free(flow->spans);
    baton__free(flow->readers);
    flow->spans = NULL;
    flow->readers = NULL;
    while (flow->memory != NULL) {
        memory_t *memory = flow->memory;
        flow->memory = memory->next;
        baton__free(memory);
    }
}

size_t *baton__flow_alloc(baton__flow_t *flow, size_t count)
{
    memory_t *memory = baton__alloc(count + 1, sizeof(size_t));
    if (memory == NULL) {
        baton_schedule_fail(flow->schedule, BATON_ERR_NO_MEMORY,
                            "schedule \"%s\": no memory for the offsets of %zu "
                            "blocks",
                            baton_schedule_name(flow->schedule), count);
        return NULL;
    }
    memory->next = flow->memory;
    flow->memory = memory;
    return memory->words;
}

void baton__flow_team(baton__flow_t *flow, const int *ranks, int rank, int size)
{
    flow->ranks = ranks;
    flow->rank = rank;
    flow->size = size;
}

/* ---- the spans --------------------------------------------------------- */

/* Reserves memory for one more element of *array, which has `count` elements of
   `size` bytes. Returns false if there is no memory. */
static bool flow_reserve(baton__flow_t *flow, void *array, size_t count,
                         size_t *capacity, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    size_t wanted = *capacity == 0 ? FIRST_CAPACITY : 2 * *capacity;
    if (!baton__extend(array, count, wanted, size)) {
        flow->failed = true;
        baton_schedule_fail(
            flow->schedule, BATON_ERR_NO_MEMORY,
            "schedule \"%s\": no memory to build it of %zu blocks",
            baton_schedule_name(flow->schedule), wanted);
        return false;
    }
    *capacity = wanted;
    return true;
}

static void flow_insert(baton__flow_t *flow, size_t at, baton__span_t span)
{
    if (flow_reserve(flow, &flow->spans, flow->span_count, &flow->span_capacity,
                     sizeof(baton__span_t))) {
        memmove(&flow->spans[at + 1], &flow->spans[at],
                (flow->span_count - at) * sizeof(baton__span_t));
        flow->spans[at] = span;
        flow->span_count++;
    }
}

/* Returns the index of the first span that ends after `place` of the buffer. */
static size_t flow_find(const baton__flow_t *flow, uint32_t buffer,
                        size_t place)
{
    size_t low = 0;
    size_t high = flow->span_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const baton__span_t *span = &flow->spans[middle];
        if (span->buffer < buffer ||
            (span->buffer == buffer && span->end <= place)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void flow_split(baton__flow_t *flow, size_t at, size_t place)
{
    baton__span_t rest = flow->spans[at];
    rest.begin = place;
    flow_insert(flow, at + 1, rest);
    if (!flow->failed) {
        flow->spans[at].end = place;
    }
}

/* Splits spans, and adds spans for gaps, so that spans cover the view exactly.
   Returns the index of the first of these spans. Their number is 0 if nothing
   has to be recorded: if the view runs past the end of its buffer or of the
   address space, the function that added the node has already set the
   schedule's error. */
static size_t cover(baton__flow_t *flow, baton_view_t view, size_t *count_out)
{
    uint32_t buffer = view.buffer.index;
    size_t end = view.offset + view.bytes;
    if (flow->failed || end <= view.offset) {
        return *count_out = 0;
    }
    size_t first = flow_find(flow, buffer, view.offset);
    if (first < flow->span_count && flow->spans[first].buffer == buffer &&
        flow->spans[first].begin < view.offset) {
        flow_split(flow, first++, view.offset);
    }
    size_t next = first;
    for (size_t at = view.offset; at < end && !flow->failed; next++) {
        const baton__span_t *span = &flow->spans[next];
        bool near = next < flow->span_count && span->buffer == buffer &&
                    span->begin < end;
        if (!near || span->begin > at) {
            baton__span_t gap = {
                .begin = at, .end = near ? span->begin : end, .buffer = buffer};
            flow_insert(flow, next, gap);
        } else if (span->end > end) {
            flow_split(flow, next, end);
        }
        at = flow->failed ? end : flow->spans[next].end;
    }
    *count_out = flow->failed ? 0 : next - first;
    return first;
}

/* ---- edges ------------------------------------------------------------- */

static void before(baton__flow_t *flow, uint32_t earlier, baton_node_t node)
{
    if (earlier != node.index) {
        baton_node_t first = {earlier};
        baton_before(flow->schedule, first, node);
    }
}

static void flow_note_read(baton__flow_t *flow, baton_node_t node,
                           baton_view_t view)
{
    size_t count, first = cover(flow, view, &count);
    for (size_t i = first; i < first + count; i++) {
        baton__span_t *span = &flow->spans[i];
        if (span->writer > 0) {
            before(flow, span->writer - 1, node);
        }
        if (!flow_reserve(flow, &flow->readers, flow->reader_count,
                          &flow->reader_capacity, sizeof(baton__reader_t))) {
            return;
        }
        flow->readers[flow->reader_count++] =
            (baton__reader_t){node.index, span->readers};
        span->readers = (uint32_t)flow->reader_count;
    }
}

static void note_write(baton__flow_t *flow, baton_node_t node,
                       baton_view_t view)
{
    size_t count, first = cover(flow, view, &count);
    if (count == 0) {
        return;
    }
    for (size_t i = first; i < first + count; i++) {
        const baton__span_t *span = &flow->spans[i];
        if (span->writer > 0 && span->readers == 0) {
            before(flow, span->writer - 1, node);
        }
        for (uint32_t at = span->readers; at > 0;
             at = flow->readers[at - 1].next) {
            before(flow, flow->readers[at - 1].node, node);
        }
    }
    flow->spans[first] = (baton__span_t){.begin = view.offset,
                                         .end = view.offset + view.bytes,
                                         .buffer = view.buffer.index,
                                         .writer = node.index + 1};
    memmove(&flow->spans[first + 1], &flow->spans[first + count],
            (flow->span_count - first - count) * sizeof(baton__span_t));
    flow->span_count -= count - 1;
}

/* ---- nodes ------------------------------------------------------------- */

static int rank_of(const baton__flow_t *flow, int peer)
{
    return flow->ranks == NULL ? peer : flow->ranks[peer];
}

void baton__flow_next_round(baton__flow_t *flow)
{
    flow->round = flow->last_recv;
}

void baton__flow_send(baton__flow_t *flow, int peer, baton_view_t source)
{
    if (source.bytes > 0 && !flow->failed) {
        baton_node_t node =
            baton_add_send(flow->schedule, rank_of(flow, peer), source);
        if (flow->round > 0) {
            before(flow, flow->round - 1, node);
        }
        flow_note_read(flow, node, source);
    }
}

void baton__flow_recv(baton__flow_t *flow, int peer, baton_view_t target)
{
    if (target.bytes > 0 && !flow->failed) {
        baton_node_t node =
            baton_add_recv(flow->schedule, rank_of(flow, peer), target);
        flow->last_recv = node.index + 1;
        note_write(flow, node, target);
    }
}

void baton__flow_copy(baton__flow_t *flow, baton_view_t target,
                      baton_view_t source)
{
    if (target.bytes > 0 && !flow->failed) {
        baton_node_t node = baton_add_copy(flow->schedule, target, source);
        flow_note_read(flow, node, source);
        note_write(flow, node, target);
    }
}

void baton__flow_reduce(baton__flow_t *flow, baton_view_t target,
                        baton_view_t left, baton_view_t right)
{
    const baton_op_t *op = flow->op;
    if (op == BATON_AVG) {
        op = flow->is_total && !flow->is_inner
                 ? baton_schedule_average(flow->schedule)
                 : BATON_SUM;
    }
    if (target.bytes > 0 && !flow->failed) {
        baton_node_t node = baton_add_reduce_local(flow->schedule, flow->dtype,
                                                   op, target, left, right);
        /* The order of the two reads depends on the buffers, and not on which
           operand is the left one. So ranks whose operands are exchanged get
           the same edges in the same order. */
        bool turned = right.buffer.index != left.buffer.index
                          ? right.buffer.index < left.buffer.index
                          : right.offset < left.offset;
        flow_note_read(flow, node, turned ? right : left);
        flow_note_read(flow, node, turned ? left : right);
        note_write(flow, node, target);
    }
}

bool baton__flow_stages(const baton__flow_t *flow, baton_view_t view)
{
    return view.bytes >= STAGED_BYTES &&
           baton_schedule_hosts(flow->schedule) <= 1 &&
           baton_view_is_private(flow->schedule, view);
}

baton_view_t baton__flow_scratch(baton__flow_t *flow, size_t bytes)
{
    return baton_view(baton_buffer_scratch(flow->schedule, bytes), 0, bytes);
}
