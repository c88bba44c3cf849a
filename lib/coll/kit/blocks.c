#include "coll/kit/blocks.h"

#include "coll/kit/check.h"

#define MOST_SEGMENT_BYTES ((size_t)1 << 30)
#define SHORT_BYTES        ((size_t)64 * 1024)
#define CACHE_LINE         ((size_t)64)

/* ---- cuts -------------------------------------------------------------- */

size_t *baton__cut_evenly(baton__flow_t *flow, size_t bytes, int parts)
{
    size_t count = bytes / flow->element;
    size_t *at = baton__flow_alloc(flow, (size_t)parts + 1);
    for (int i = 0; at != NULL && i < parts; i++) {
        baton__block_t block = baton__block_of(count, (size_t)parts, (size_t)i);
        at[i + 1] = (block.first + block.count) * flow->element;
    }
    return at;
}

baton__blocks_t baton__blocks_cut(baton__flow_t *flow, baton_view_t memory,
                                  int parts)
{
    return (baton__blocks_t){.memory = memory,
                             .at = baton__cut_evenly(flow, memory.bytes, parts),
                             .parts = parts};
}

size_t *baton__cut_by_counts(baton__flow_t *flow, const char *builder,
                             const size_t *counts, int parts)
{
    size_t element = flow->element;
    size_t *at = baton__flow_alloc(flow, (size_t)parts + 1);
    for (int i = 0; at != NULL && i < parts; i++) {
        if (counts[i] > (SIZE_MAX - at[i]) / element) {
            baton_schedule_fail(flow->schedule, BATON_ERR_INVALID,
                                "%s: rank %d has %zu elements of %zu bytes: "
                                "the blocks up to this rank's exceed %zu bytes",
                                builder, i, counts[i], element, SIZE_MAX);
            return NULL;
        }
        at[i + 1] = at[i] + counts[i] * element;
    }
    return at;
}

/* ---- ranges ------------------------------------------------------------ */

/* Returns how many of the `count` blocks from `first` on are contiguous in
   memory. */
static int run_of(const baton__blocks_t *blocks, int first, int count)
{
    int distance = baton__rank_shift(first, -blocks->base, blocks->parts);
    int until_end = blocks->parts - distance;
    return count < until_end ? count : until_end;
}

size_t *baton__cut_bytes(baton__flow_t *flow, const char *builder,
                         const char *what, size_t bytes,
                         const size_t *block_bytes)
{
    int size = flow->size;
    if (block_bytes == NULL) {
        return baton__check_multiple(flow->schedule, builder, what, bytes,
                                     (size_t)size)
                   ? baton__cut_evenly(flow, bytes, size)
                   : NULL;
    }
    size_t *at = baton__cut_by_counts(flow, builder, block_bytes, size);
    return at != NULL && baton__check_bytes(flow->schedule, builder, what,
                                            bytes, at[size])
               ? at
               : NULL;
}

size_t baton__blocks_bytes(const baton__blocks_t *blocks, int first, int count)
{
    const size_t *at = blocks->at;
    int parts = blocks->parts;
    first = baton__rank_shift(first, 0, parts);
    if (count <= parts - first) {
        return at[first + count] - at[first];
    }
    return at[parts] - at[first] + at[first + count - parts];
}

baton_view_t baton__blocks_view(const baton__blocks_t *blocks, int first,
                                int count)
{
    int distance = baton__rank_shift(first, -blocks->base, blocks->parts);
    return baton_view(blocks->memory.buffer,
                      blocks->memory.offset +
                          baton__blocks_bytes(blocks, blocks->base, distance),
                      baton__blocks_bytes(blocks, first, count));
}

baton_view_t baton__blocks_outgoing(const baton__blocks_t *blocks, int block)
{
    return blocks->original.bytes > 0 &&
                   baton__rank_shift(block, 0, blocks->parts) ==
                       blocks->original_block
               ? blocks->original
               : baton__blocks_view(blocks, block, 1);
}

/* Shortens a view by `bytes` bytes at the front, and returns a view of these
   bytes. */
static baton_view_t blocks_take(baton_view_t *view, size_t bytes)
{
    baton_view_t front = baton_view(view->buffer, view->offset, bytes);
    view->offset += bytes;
    view->bytes -= bytes;
    return front;
}

/* Copies a range of blocks to `packed`, one after another. If `unpack`, copies
   them from `packed` to their places instead. */
static void copy_pieces(baton__flow_t *flow, const baton__blocks_t *blocks,
                        int first, int count, baton_view_t packed, bool unpack)
{
    for (int done = 0; done < count;) {
        int run = run_of(blocks, first + done, count - done);
        baton_view_t piece = baton__blocks_view(blocks, first + done, run);
        baton_view_t part = blocks_take(&packed, piece.bytes);
        baton__flow_copy(flow, unpack ? piece : part, unpack ? part : piece);
        done += run;
    }
}

void baton__blocks_send(baton__flow_t *flow, int peer,
                        const baton__blocks_t *blocks, int first, int count)
{
    if (run_of(blocks, first, count) == count) {
        baton__flow_send(flow, peer,
                         count == 1 ? baton__blocks_outgoing(blocks, first)
                                    : baton__blocks_view(blocks, first, count));
        return;
    }
    baton_view_t packed =
        baton__flow_scratch(flow, baton__blocks_bytes(blocks, first, count));
    copy_pieces(flow, blocks, first, count, packed, false);
    baton__flow_send(flow, peer, packed);
}

void baton__blocks_recv(baton__flow_t *flow, int peer,
                        const baton__blocks_t *blocks, int first, int count)
{
    if (run_of(blocks, first, count) == count) {
        baton__flow_recv(flow, peer, baton__blocks_view(blocks, first, count));
        return;
    }
    baton_view_t packed =
        baton__flow_scratch(flow, baton__blocks_bytes(blocks, first, count));
    baton__flow_recv(flow, peer, packed);
    copy_pieces(flow, blocks, first, count, packed, true);
}

/* Returns how many of the `count` blocks from `first` on are contiguous in
   memory both in `a` and in `b`. */
static int common_run(const baton__blocks_t *a, const baton__blocks_t *b,
                      int first, int count)
{
    return run_of(b, first, run_of(a, first, count));
}

void baton__blocks_copy(baton__flow_t *flow, const baton__blocks_t *target,
                        const baton__blocks_t *source, int first, int count)
{
    for (int done = 0; done < count;) {
        int run = common_run(target, source, first + done, count - done);
        baton__flow_copy(flow, baton__blocks_view(target, first + done, run),
                         baton__blocks_view(source, first + done, run));
        done += run;
    }
}

void baton__blocks_reduce(baton__flow_t *flow, const baton__blocks_t *target,
                          baton_view_t received, const baton__blocks_t *own,
                          int first, int count, bool received_left)
{
    for (int done = 0; done < count;) {
        int run = common_run(target, own, first + done, count - done);
        baton_view_t mine = baton__blocks_view(own, first + done, run);
        baton_view_t theirs = blocks_take(&received, mine.bytes);
        baton__flow_reduce(flow, baton__blocks_view(target, first + done, run),
                           received_left ? theirs : mine,
                           received_left ? mine : theirs);
        done += run;
    }
}

/* ---- segments ---------------------------------------------------------- */

size_t baton__segment_count(const baton__flow_t *flow, size_t bytes,
                            size_t chunk_bytes, size_t default_bytes)
{
    size_t count = bytes / flow->element;
    if (count == 0) {
        return 0;
    }
    size_t most = chunk_bytes == 0 ? default_bytes : chunk_bytes;
    if (most > MOST_SEGMENT_BYTES) {
        most = MOST_SEGMENT_BYTES;
    }
    size_t segment = most < flow->element ? 1 : most / flow->element;
    return (count - 1) / segment + 1;
}

size_t baton__blocks_most(const baton__blocks_t *blocks)
{
    size_t most = 0;
    for (int i = 0; i < blocks->parts; i++) {
        size_t bytes = baton__blocks_bytes(blocks, i, 1);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t baton__blocks_segments(const baton__flow_t *flow,
                              const baton__blocks_t *blocks, size_t chunk_bytes,
                              size_t default_bytes)
{
    return baton__segment_count(flow, baton__blocks_most(blocks), chunk_bytes,
                                default_bytes);
}

baton_view_t baton__segment_of(const baton__flow_t *flow, baton_view_t vector,
                               size_t segments, size_t index)
{
    size_t element = flow->element;
    baton__block_t block =
        baton__block_of(vector.bytes / element, segments, index);
    return baton_view(vector.buffer, vector.offset + block.first * element,
                      block.count * element);
}

baton__slots_t baton__slots_open(baton_schedule_t *schedule, size_t count,
                                 size_t bytes)
{
    baton__slots_t slots = {
        .stride = (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE,
        .count = count,
    };
    bytes = count * slots.stride;
    slots.memory = baton_view(baton_buffer_scratch(schedule, bytes), 0, bytes);
    return slots;
}

baton__slots_t baton__slots_for_rounds(baton_schedule_t *schedule, int rounds,
                                       size_t bytes, int long_slots)
{
    bool is_short = bytes <= SHORT_BYTES || rounds < long_slots;
    int count = is_short ? rounds : long_slots;
    if (count == 0) {
        return (baton__slots_t){.count = 1};
    }
    return baton__slots_open(schedule, (size_t)count, bytes);
}

baton__slots_t baton__slots_for_segments(const baton__flow_t *flow,
                                         baton_view_t vector, size_t segments,
                                         size_t most)
{
    return baton__slots_open(
        flow->schedule, segments < most ? segments : most,
        baton__segment_of(flow, vector, segments, 0).bytes);
}

baton_view_t baton__slot_of(const baton__slots_t *slots, size_t index,
                            size_t bytes)
{
    return baton_view(
        slots->memory.buffer,
        slots->memory.offset + index % slots->count * slots->stride, bytes);
}
