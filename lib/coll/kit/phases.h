/* The phases from which several builders are made. Each function adds one
   rank's nodes to a task flow. The flow knows which nodes have written the data
   with which a phase begins, so consecutive phases need no edges between
   them. */
#pragma once

#include "coll/kit/blocks.h"

/* ---- recursive halving and doubling (halving.c) ------------------------ */

/* The bit in which the two ids of a pair differ in the first round. With
   NEAREST_FIRST it is the lowest bit: ids that have met are adjacent, which
   keeps the order of ranks, but the sum of block i is not left at id i. With
   NEAREST_LAST it is the highest bit: the blocks of which an id still has
   partial sums are adjacent after each round, and the sum of block i is left at
   id i. */
typedef enum baton__halving_order {
    BATON__NEAREST_LAST,
    BATON__NEAREST_FIRST
} baton__halving_order_t;

/* Adds a reduce-scatter among the ids of the core; there is one block for each
   id. The rank's own data are in `source`, which may be the target. Partial
   sums are made in `target`. If `result` has bytes, the last sum goes there
   instead. */
void baton__halving_reduce_scatter(baton__flow_t *flow,
                                   const baton__fold_t *fold,
                                   const baton__blocks_t *target,
                                   const baton__blocks_t *source,
                                   baton__halving_order_t order,
                                   baton_view_t result);

/* Adds an all-gather of the blocks that baton__halving_reduce_scatter leaves,
   by the same rounds in the opposite order. */
void baton__doubling_allgather(baton__flow_t *flow, const baton__fold_t *fold,
                               const baton__blocks_t *blocks,
                               baton__halving_order_t order);

/* ---- circulant graph (circulant.c) ------------------------------------- */

typedef enum baton__skips {
    /* The distances are ceil(P / 2), ceil(P / 4), ..., 1. */
    BATON__SKIPS_HALVED,
    /* The distances are 1, 2, 4, ..., as in Bruck's algorithm. */
    BATON__SKIPS_DOUBLED
} baton__skips_t;

/* Adds a reduce-scatter. The sum goes to `result` if that has bytes, else to
   block `rank` of target. The other blocks of target hold partial sums
   afterwards. `source` may be the target. */
void baton__circulant_reduce_scatter(baton__flow_t *flow,
                                     const baton__blocks_t *target,
                                     const baton__blocks_t *source,
                                     baton_view_t result);

/* Adds an all-gather. Each rank of the flow begins with the block whose number
   is its rank, and ends with all blocks. */
void baton__circulant_allgather(baton__flow_t *flow,
                                const baton__blocks_t *blocks,
                                baton__skips_t skips);

/* ---- ring (ring.c) ----------------------------------------------------- */

/* Adds an all-gather. Each rank of the flow begins with the block whose number
   is its rank, and ends with all blocks. Blocks are sent in chunks of whole
   elements and about chunk_bytes bytes; 0 means the default. */
void baton__ring_allgather(baton__flow_t *flow, const baton__blocks_t *blocks,
                           size_t chunk_bytes);

/* Adds a reduce-scatter, in chunks of about chunk_bytes bytes; 0 means the
   default. `target` gets this rank's block of the sum. If the target lies in
   the source, the rest of the source is not written. */
void baton__ring_reduce_scatter(baton__flow_t *flow, baton_view_t target,
                                const baton__blocks_t *source,
                                size_t chunk_bytes);

/* ---- pairwise exchange (pairwise.c) ------------------------------------ */

/* The default chunk: the sum of a chunk and a received operand take half of an
   L2 cache of 1 MiB. */
#define BATON__PAIRWISE_BYTES ((size_t)256 * 1024)

/* These two functions do by pairwise exchange what baton__ring_reduce_scatter
   and baton__ring_allgather do. The default chunk is BATON__PAIRWISE_BYTES. */
void baton__pairwise_reduce_scatter(baton__flow_t *flow, baton_view_t target,
                                    const baton__blocks_t *source,
                                    size_t chunk_bytes);
void baton__pairwise_allgather(baton__flow_t *flow,
                               const baton__blocks_t *blocks,
                               size_t chunk_bytes);

/* ---- binomial trees (binomial.c) --------------------------------------- */

/* These two functions add a scatter of blocks down a binomial tree from the
   root, and a gather up the tree. `blocks` has all blocks at the root, and at
   least those of the rank's subtree at another rank. */
void baton__binomial_scatter(baton__flow_t *flow, int root,
                             const baton__blocks_t *blocks);
void baton__binomial_gather(baton__flow_t *flow, int root,
                            const baton__blocks_t *blocks);
