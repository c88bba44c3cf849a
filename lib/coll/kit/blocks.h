/* A vector cut into blocks, one for each rank of a team. Scatter, gather and
   similar collectives move ranges of blocks, which may wrap around the vector's
   end. Blocks may be empty and of any sizes. This header also cuts vectors into
   the segments in which pipelines work. */
#pragma once

#include "coll/kit/flow.h"
#include "coll/kit/pattern.h"

/* Where blocks lie. `memory` has block `base` to the last one, and then blocks
   0 to base - 1. A user's vector has base 0. A rank's scratch may begin with
   the rank's own block, so that its ranges never wrap. `memory` may be shorter
   than all blocks. */
typedef struct baton__blocks {
    baton_view_t memory;
    const size_t *at; /* block i is bytes at[i] to at[i + 1] of the vector */
    int parts;
    int base;
    /* A message of block `original_block` alone is sent from `original`, from
       which the block is copied to its place. If `original` has no bytes, the
       message is sent from the block's place. */
    baton_view_t original;
    int original_block;
} baton__blocks_t;

/* Returns the parts + 1 offsets, in bytes, of blocks that differ by at most one
   element. They are valid until the flow is closed. NULL means no memory, which
   is the schedule's error. */
size_t *baton__cut_evenly(baton__flow_t *flow, size_t count, size_t element,
                          int parts);

/* Returns the offsets of blocks of counts[i] elements. NULL means the schedule
   has an error: no memory, or too many bytes, where it names the builder. */
size_t *baton__cut_by_counts(baton__flow_t *flow, const char *builder,
                             const size_t *counts, size_t element, int parts);

/* Returns the offsets of P blocks of a vector of `bytes` bytes. Block r has
   block_bytes[r]; their sum must be `bytes`. If block_bytes is NULL, blocks are
   equal, and `bytes` must be a multiple of P. `what` names the vector in
   errors. NULL means the schedule has an error. */
size_t *baton__cut_bytes(baton__flow_t *flow, const char *builder,
                         const char *what, size_t bytes,
                         const size_t *block_bytes);

/* Returns the bytes of blocks [first, first + count), which may wrap around the
   end. */
size_t baton__blocks_bytes(const baton__blocks_t *blocks, int first, int count);

/* Returns the place of a range of blocks, which must be in one piece. A single
   block always is. */
baton_view_t baton__blocks_view(const baton__blocks_t *blocks, int first,
                                int count);

/* Returns the place from which a message of a single block is sent. */
baton_view_t baton__blocks_outgoing(const baton__blocks_t *blocks, int block);

/* Sends a range as one message. If the range is in two pieces, it is copied to
   scratch first. */
void baton__blocks_send(baton__flow_t *flow, int peer,
                        const baton__blocks_t *blocks, int first, int count);

/* Receives a range as one message, through scratch if it is in two pieces. */
void baton__blocks_recv(baton__flow_t *flow, int peer,
                        const baton__blocks_t *blocks, int first, int count);

/* Copies a range of blocks. */
void baton__blocks_copy(baton__flow_t *flow, const baton__blocks_t *target,
                        const baton__blocks_t *source, int first, int count);

/* Reduces a range of blocks: target = received (op) own if received_left, else
   own (op) received. */
void baton__blocks_reduce(baton__flow_t *flow, const baton__blocks_t *target,
                          baton_view_t received, const baton__blocks_t *own,
                          int first, int count, bool received_left);

/* ---- segments ---------------------------------------------------------- */

/* Returns how many segments of about chunk_bytes (0: default_bytes) a vector of
   `count` elements is cut into; 0 for an empty vector. Segment i is
   baton__segment_of(view, element, segments, i). A segment is at most 1 GiB,
   below any transport's largest message. */
size_t baton__segment_count(size_t count, size_t element, size_t chunk_bytes,
                            size_t default_bytes);
baton_view_t baton__segment_of(baton_view_t vector, size_t element,
                               size_t segments, size_t index);

/* Returns the bytes of the largest block. */
size_t baton__blocks_most(const baton__blocks_t *blocks);

/* Returns how many segments each block is cut into: the same number for all
   blocks, so that both ends of a message agree. */
size_t baton__blocks_segments(const baton__blocks_t *blocks, size_t element,
                              size_t chunk_bytes, size_t default_bytes);

/* The default segment of pipelines: short enough to be in cache when it is
   reduced, long enough to hide the cost of a message. */
#define BATON__SEGMENT_BYTES ((size_t)64 * 1024)

/* Scratch that segments use in turn, `count` at a time, each on cache lines of
   its own. */
typedef struct baton__slots {
    baton_view_t memory;
    size_t stride;
    size_t count;
} baton__slots_t;
baton__slots_t baton__slots_open(baton_schedule_t *schedule, size_t count,
                                 size_t bytes);

/* Opens slots for an algorithm that receives a whole vector in each round.
   Short vectors get a slot for each round, so that all receives are posted when
   the epoch begins. Long vectors use `long_slots` slots in turn. */
baton__slots_t baton__slots_for_rounds(baton_schedule_t *schedule, int rounds,
                                       size_t bytes, int long_slots);

baton_view_t baton__slot_of(const baton__slots_t *slots, size_t index,
                            size_t bytes);
