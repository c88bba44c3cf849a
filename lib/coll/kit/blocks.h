/* A vector cut in blocks, one for each rank of a team, and ranges of them that
   may go round its end: what scatter, gather and their relatives move. Blocks
   may be empty and of any sizes. Also the segments that pipelines work in. */
#pragma once

#include "coll/kit/flow.h"
#include "coll/kit/pattern.h"

/* Where blocks lie. `memory` begins with block `base`, goes on to the last one,
   and then from block 0 to base - 1: a vector has base 0, a rank's scratch may
   begin with its own block, so that its ranges never go round the end. It may
   hold fewer than all blocks. */
typedef struct baton__blocks {
    baton_view_t memory;
    const size_t *at; /* block i is bytes at[i] to at[i + 1] of the vector */
    int parts;
    int base;
    /* Where a message of block `original_block` alone is sent from, which is
       copied from there to its place; no bytes: from its place. */
    baton_view_t original;
    int original_block;
} baton__blocks_t;

/* The offsets of blocks in bytes, parts + 1 of them, until the flow is closed:
   blocks that differ by at most one element; of counts[i] elements each. NULL
   means the schedule has an error (no memory, or too many bytes), which names
   the builder. */
size_t *baton__cut_evenly(baton__flow_t *flow, size_t count, size_t element,
                          int parts);
size_t *baton__cut_by_counts(baton__flow_t *flow, const char *builder,
                             const size_t *counts, size_t element, int parts);

/* Offsets of P blocks in a vector of `bytes` bytes: block_bytes[r] each, whose
   sum must be `bytes`, or NULL: equal ones, of which `bytes` must be a
   multiple. `what` names the vector. NULL means the schedule's error. */
size_t *baton__cut_bytes(baton__flow_t *flow, const char *builder,
                         const char *what, size_t bytes,
                         const size_t *block_bytes);

/* Blocks [first, first + count), counted round the end: their bytes. */
size_t baton__blocks_bytes(const baton__blocks_t *blocks, int first, int count);

/* Their place, where they are in one piece; a single block always is. outgoing:
   what a message of a single block is sent from. */
baton_view_t baton__blocks_view(const baton__blocks_t *blocks, int first,
                                int count);
baton_view_t baton__blocks_outgoing(const baton__blocks_t *blocks, int block);

/* One message of a range. Where it is in two pieces it goes through scratch. */
void baton__blocks_send(baton__flow_t *flow, int peer,
                        const baton__blocks_t *blocks, int first, int count);
void baton__blocks_recv(baton__flow_t *flow, int peer,
                        const baton__blocks_t *blocks, int first, int count);

/* A range of blocks; and target = received (op) own, the other way round where
   what was received is on the right. */
void baton__blocks_copy(baton__flow_t *flow, const baton__blocks_t *target,
                        const baton__blocks_t *source, int first, int count);
void baton__blocks_reduce(baton__flow_t *flow, const baton__blocks_t *target,
                          baton_view_t received, const baton__blocks_t *own,
                          int first, int count, bool received_left);

/* ---- segments ---------------------------------------------------------- */

/* How many segments of about chunk_bytes (0: of default_bytes) a vector of
   `count` elements is cut in; 0 for none. Segment i is
   baton__segment_of(view, element, segments, i). A segment is at most 1 GiB,
   below any transport's largest message. */
size_t baton__segment_count(size_t count, size_t element, size_t chunk_bytes,
                            size_t default_bytes);
baton_view_t baton__segment_of(baton_view_t vector, size_t element,
                               size_t segments, size_t index);

/* The bytes of the largest block; and how many segments each block is cut in,
   the same number, so that both ends of a message agree. */
size_t baton__blocks_most(const baton__blocks_t *blocks);
size_t baton__blocks_segments(const baton__blocks_t *blocks, size_t element,
                              size_t chunk_bytes, size_t default_bytes);

/* What pipelines take without being told: small enough to be in cache when it
   is reduced, long enough to hide what a message costs. */
#define BATON__SEGMENT_BYTES ((size_t)64 * 1024)

/* Scratch that `count` segments take turns in, each on cache lines of its own.
 */
typedef struct baton__slots {
    baton_view_t memory;
    size_t stride;
    size_t count;
} baton__slots_t;
baton__slots_t baton__slots_open(baton_schedule_t *schedule, size_t count,
                                 size_t bytes);

/* One for each round of an algorithm that receives a whole vector in each, so
   that all receives are posted when the epoch begins; long vectors take turns
   in `long_slots`. */
baton__slots_t baton__slots_for_rounds(baton_schedule_t *schedule, int rounds,
                                       size_t bytes, int long_slots);

baton_view_t baton__slot_of(const baton__slots_t *slots, size_t index,
                            size_t bytes);
