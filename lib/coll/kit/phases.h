/* Phases that several builders consist of, each added to a task flow by the
   ranks of its team. What a phase begins with was written before in the flow,
   so phases in a row need no edges between them. */
#pragma once

#include "coll/kit/blocks.h"

/* ---- recursive halving and doubling (halving.c) ------------------------ */

/* In which bit the ids differ that meet first. NEAREST_FIRST, the lowest: those
   that have met are neighbours, which keeps the order of ranks, and leaves
   blocks in an order of its own. NEAREST_LAST, the highest: the blocks that a
   rank has yet to share are neighbours, and block i is left at id i. */
typedef enum baton__halving_order {
    BATON__NEAREST_LAST,
    BATON__NEAREST_FIRST
} baton__halving_order_t;

/* Reduce-scatter among the ids of the core, one block for each. Partial sums
   are made in `target`; a rank begins with `source`, which may be the target.
   The last sum goes to `result` instead, if that has bytes. */
void baton__halving_reduce_scatter(baton__flow_t *flow,
                                   const baton__fold_t *fold,
                                   const baton__blocks_t *target,
                                   const baton__blocks_t *source,
                                   baton__halving_order_t order,
                                   baton_view_t result);

/* The same, backwards: all-gather of the blocks that it leaves. */
void baton__doubling_allgather(baton__flow_t *flow, const baton__fold_t *fold,
                               const baton__blocks_t *blocks,
                               baton__halving_order_t order);

/* ---- circulant graph (circulant.c) ------------------------------------- */

typedef enum baton__skips {
    BATON__SKIPS_HALVED, /* ceil(P / 2), ceil(P / 4), ..., 1 */
    BATON__SKIPS_DOUBLED /* 1, 2, 4, ...: Bruck's */
} baton__skips_t;

/* Reduce-scatter: block `rank` of target gets the sum, or `result`, if that has
   bytes; target's other blocks hold partial sums. `source` may be the target.
 */
void baton__circulant_reduce_scatter(baton__flow_t *flow,
                                     const baton__blocks_t *target,
                                     const baton__blocks_t *source,
                                     baton_view_t result);

/* All-gather of block `rank` of each rank. */
void baton__circulant_allgather(baton__flow_t *flow,
                                const baton__blocks_t *blocks,
                                baton__skips_t skips);

/* ---- ring (ring.c) ----------------------------------------------------- */

/* In chunks of about chunk_bytes (0: the default) and whole elements. */
void baton__ring_allgather(baton__flow_t *flow, const baton__blocks_t *blocks,
                           size_t element, size_t chunk_bytes);

/* `target` is this rank's block of the sum; source is not written, but for what
   is in the target. */
void baton__ring_reduce_scatter(baton__flow_t *flow, baton_view_t target,
                                const baton__blocks_t *source, size_t element,
                                size_t chunk_bytes);

/* ---- pairwise exchange (pairwise.c) ------------------------------------ */

/* The sum of a segment, and an operand that may have been copied, in half of 1
   MiB of L2. */
#define BATON__PAIRWISE_BYTES ((size_t)256 * 1024)

/* As the ring's; its default chunk_bytes is BATON__PAIRWISE_BYTES. */
void baton__pairwise_reduce_scatter(baton__flow_t *flow, baton_view_t target,
                                    const baton__blocks_t *source,
                                    size_t element, size_t chunk_bytes);
void baton__pairwise_allgather(baton__flow_t *flow,
                               const baton__blocks_t *blocks, size_t element,
                               size_t chunk_bytes);

/* ---- binomial trees (binomial.c) --------------------------------------- */

/* Blocks go down or up a binomial tree. An inner rank keeps the blocks of the
   ranks behind it in `blocks`, which need hold no others. The root has all. */
void baton__binomial_scatter(baton__flow_t *flow, int root,
                             const baton__blocks_t *blocks);
void baton__binomial_gather(baton__flow_t *flow, int root,
                            const baton__blocks_t *blocks);
