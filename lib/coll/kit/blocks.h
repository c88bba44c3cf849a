/* A vector cut into blocks, one for each rank of a flow's team (flow.h).
   Scatter, gather and similar collectives move ranges of blocks, which may wrap
   around the vector's end. Blocks may be empty and of any sizes. This header
   also cuts vectors into the segments in which pipelines work. */
#pragma once

#include "coll/kit/flow.h"

/* The places of blocks in `memory`, which has the blocks from block `base` to
   the last one, and then blocks 0 to base - 1. In a user's vector `base` is 0.
   A rank's scratch may begin with the rank's own block, so that its ranges
   never wrap. `memory` may have only the first few of these blocks, if no node
   uses the others. */
typedef struct baton__blocks {
    baton_view_t memory;
    /* Block i is the bytes at[i] to at[i + 1] of the vector. */
    const size_t *at;
    int parts;
    int base;
    /* Block `original_block` may also be in `original`, a view of memory
       elsewhere, from which a node copies it to its place in `memory`. A
       message of this block alone is then sent from `original`. If `original`
       has no bytes, all messages are sent from the places in `memory`. */
    baton_view_t original;
    int original_block;
} baton__blocks_t;

/* Divides a vector of `bytes` bytes into `parts` blocks, whose lengths differ
   by at most one element of the flow. Returns parts + 1 offsets, in bytes:
   block i is the bytes offsets[i] to offsets[i + 1]. They are valid until the
   flow is closed. If there is no memory, sets the schedule's error and returns
   NULL. */
size_t *baton__cut_evenly(baton__flow_t *flow, size_t bytes, int parts);

/* Divides the vector `memory` into `parts` blocks, by baton__cut_evenly. If
   that fails, `at` of the returned struct is NULL. */
baton__blocks_t baton__blocks_cut(baton__flow_t *flow, baton_view_t memory,
                                  int parts);

/* Divides a vector into blocks of counts[i] elements, and returns the offsets
   as baton__cut_evenly does. If there is no memory, or if the blocks have more
   bytes than a size_t can count, sets the schedule's error and returns NULL.
   `builder` is the name of the builder, for the latter error. */
size_t *baton__cut_by_counts(baton__flow_t *flow, const char *builder,
                             const size_t *counts, int parts);

/* Divides a vector of `bytes` bytes into P blocks, and returns the offsets as
   baton__cut_evenly does. Block r has block_bytes[r] bytes; together they must
   have `bytes` bytes. If block_bytes is NULL, all blocks are equal, and `bytes`
   must be a multiple of P. After an error sets the schedule's error, in which
   `what` names the vector, and returns NULL. */
size_t *baton__cut_bytes(baton__flow_t *flow, const char *builder,
                         const char *what, size_t bytes,
                         const size_t *block_bytes);

/* Returns the bytes of blocks [first, first + count). The range may wrap around
   the vector's end. */
size_t baton__blocks_bytes(const baton__blocks_t *blocks, int first, int count);

/* Returns the place of a range of blocks, which must be contiguous in `memory`.
   A range of one block always is. */
baton_view_t baton__blocks_view(const baton__blocks_t *blocks, int first,
                                int count);

/* Returns the place from which a message of one block is sent. */
baton_view_t baton__blocks_outgoing(const baton__blocks_t *blocks, int block);

/* Sends a range of blocks as one message. If the range is not contiguous in
   `memory`, copies it to scratch first. */
void baton__blocks_send(baton__flow_t *flow, int peer,
                        const baton__blocks_t *blocks, int first, int count);

/* Receives a range of blocks as one message. If the range is not contiguous in
   `memory`, receives it into scratch, and copies it to its places. */
void baton__blocks_recv(baton__flow_t *flow, int peer,
                        const baton__blocks_t *blocks, int first, int count);

/* Copies a range of blocks from their places in `source` to those in
   `target`. */
void baton__blocks_copy(baton__flow_t *flow, const baton__blocks_t *target,
                        const baton__blocks_t *source, int first, int count);

/* Reduces a received range of blocks with the same blocks of `own`, and writes
   the result to these blocks of `target`. If received_left, target = received
   (op) own; else target = own (op) received. */
void baton__blocks_reduce(baton__flow_t *flow, const baton__blocks_t *target,
                          baton_view_t received, const baton__blocks_t *own,
                          int first, int count, bool received_left);

/* ---- segments ---------------------------------------------------------- */

/* Returns the number of segments into which a vector of `bytes` bytes is cut; 0
   for an empty vector. Each has whole elements of the flow. A segment has about
   chunk_bytes (default_bytes, if chunk_bytes is 0), and at most 1 GiB, which is
   below any transport's largest message. baton__segment_of(flow, vector,
   segments, i) is segment i. */
size_t baton__segment_count(const baton__flow_t *flow, size_t bytes,
                            size_t chunk_bytes, size_t default_bytes);
baton_view_t baton__segment_of(const baton__flow_t *flow, baton_view_t vector,
                               size_t segments, size_t index);

/* Returns the bytes of the largest block. */
size_t baton__blocks_most(const baton__blocks_t *blocks);

/* Returns the number of segments into which each block is cut. It is the same
   for all blocks, so that both ends of a message agree. */
size_t baton__blocks_segments(const baton__flow_t *flow,
                              const baton__blocks_t *blocks, size_t chunk_bytes,
                              size_t default_bytes);

/* The default segment of pipelines: short enough to be in a cache when it is
   reduced, and long enough that a message costs little in comparison with its
   bytes. */
#define BATON__SEGMENT_BYTES ((size_t)64 * 1024)

/* A buffer of `count` slots of scratch, which segments use in turn. Each slot
   begins on a cache line of its own. */
typedef struct baton__slots {
    baton_view_t memory;
    size_t stride;
    size_t count;
} baton__slots_t;
baton__slots_t baton__slots_open(baton_schedule_t *schedule, size_t count,
                                 size_t bytes);

/* Opens slots for an algorithm that receives a whole vector in each of `rounds`
   rounds. For short vectors there is a slot for each round, so that all
   receives are posted when the epoch begins. For long vectors there are
   `long_slots` slots, which the rounds use in turn. */
baton__slots_t baton__slots_for_rounds(baton_schedule_t *schedule, int rounds,
                                       size_t bytes, int long_slots);

/* Opens slots for the segments of a vector: one for each of its `segments`
   segments, and `most` at most. */
baton__slots_t baton__slots_for_segments(const baton__flow_t *flow,
                                         baton_view_t vector, size_t segments,
                                         size_t most);

baton_view_t baton__slot_of(const baton__slots_t *slots, size_t index,
                            size_t bytes);
