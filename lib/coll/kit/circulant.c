#include "coll/kit/phases.h"

/* The circulant graph. Let P = s0 > s1 > ... > 1 be numbers each of which is at
   least half of the number before it. In the reduce-scatter a rank begins with
   partial sums of s0 blocks, the first of which is its own block. The rank
   sends all but the first s1 blocks to rank + s1, and reduces the blocks that
   come from rank - s1 with its own: then it has partial sums of s1 blocks. The
   next step does the same with s2, and the last one leaves the sum of the
   rank's own block. For any P, all ranks take part in the same way. The steps
   of 5 ranks, 5 > 3 > 2 > 1, where blocks are given as offsets from the rank:

       0 1 2 3 4    send 3 4 to +3    recv, reduce 0 1 from -3
       0 1 2        send 2   to +2    recv, reduce 0   from -2
       0 1          send 1   to +1    recv, reduce 0   from -1
       0

   The all-gather takes the same steps in the opposite order: a rank that has
   `have` blocks, the first of which is its own, gets the next blocks from the
   rank that is `have` ranks further. */
void baton__circulant_reduce_scatter(baton__flow_t *flow,
                                     const baton__blocks_t *target,
                                     const baton__blocks_t *source,
                                     baton_view_t result)
{
    int rank = flow->rank;
    int size = flow->size;
    for (int have = size; have > 1;) {
        int keep = baton__circulant_less(have, false);
        int give = have - keep;
        baton_view_t received =
            baton__flow_scratch(flow, baton__blocks_bytes(target, rank, give));
        baton__blocks_send(flow, baton__rank_shift(rank, keep, size), source,
                           rank + keep, give);
        baton__flow_recv(flow, baton__rank_shift(rank, -(int64_t)keep, size),
                         received);
        baton__blocks_t last = {.memory = result,
                                .at = target->at,
                                .parts = target->parts,
                                .base = rank};
        bool ends = keep == 1 && result.bytes > 0;
        flow->is_total = keep == 1;
        baton__blocks_reduce(flow, ends ? &last : target, received, source,
                             rank, give, true);
        if (source != target) {
            baton__blocks_copy(flow, target, source, rank + give, keep - give);
            source = target;
        }
        baton__flow_next_round(flow);
        have = keep;
    }
}

/* Returns the number of blocks that a rank has after a step of the all-gather,
   if it has `have` blocks before the step. */
static int circulant_next_of(int have, int size, bool doubled)
{
    int next = size;
    for (int less = size; less > have;) {
        next = less;
        less = baton__circulant_less(less, doubled);
    }
    return next;
}

void baton__circulant_allgather(baton__flow_t *flow,
                                const baton__blocks_t *blocks,
                                baton__skips_t skips)
{
    int rank = flow->rank;
    int size = flow->size;
    for (int have = 1; have < size;) {
        int next = circulant_next_of(have, size, skips == BATON__SKIPS_DOUBLED);
        int more = next - have;
        baton__blocks_send(flow, baton__rank_shift(rank, -(int64_t)have, size),
                           blocks, rank, more);
        baton__blocks_recv(flow, baton__rank_shift(rank, have, size), blocks,
                           rank + have, more);
        baton__flow_next_round(flow);
        have = next;
    }
}
