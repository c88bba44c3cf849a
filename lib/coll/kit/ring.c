#include "coll/kit/phases.h"

/* Blocks go round the ring, P - 1 hops each. In hop h of the all-gather a rank
   sends block rank - h, which came in hop h - 1, and receives block
   rank - h - 1:

       own block --> send       +-> send       +-> send
                                |              |
                     recv ------+   recv ------+   recv

   In the reduce-scatter block b begins at rank b + 1 and ends at rank b as the
   sum. A received partial sum is reduced with this rank's own part, into the
   slot that received it, and is sent on from there. The last hop reduces into
   the target instead:

       source --> send       +-> send          +-> send
                             |                 |
                  recv       |      recv       |      recv
                    |        |        |        |        |
       source --> reduce ----+->    reduce ----+->    reduce --> target

   A block is cut into chunks: one is received while another is reduced or sent.
 */

/* These constants have the same values as those of allreduce_ring.c, for the
   reasons that are given there. */
#define CHUNK_BYTES ((size_t)512 * 1024)
#define SLOTS       2

static int block_of(const baton__flow_t *flow, int64_t hop)
{
    return baton__flow_peer(flow, -hop);
}

void baton__ring_allgather(baton__flow_t *flow, const baton__blocks_t *blocks,
                           size_t chunk_bytes)
{
    size_t chunks =
        baton__blocks_segments(flow, blocks, chunk_bytes, CHUNK_BYTES);
    int next = baton__flow_peer(flow, 1);
    int previous = baton__flow_peer(flow, -1);
    for (int hop = 0; hop < flow->size - 1; hop++) {
        baton_view_t out = baton__blocks_outgoing(blocks, block_of(flow, hop));
        baton_view_t in =
            baton__blocks_view(blocks, block_of(flow, hop + 1), 1);
        for (size_t i = 0; i < chunks; i++) {
            baton__flow_send(flow, next,
                             baton__segment_of(flow, out, chunks, i));
            baton__flow_recv(flow, previous,
                             baton__segment_of(flow, in, chunks, i));
        }
    }
}

void baton__ring_reduce_scatter(baton__flow_t *flow, baton_view_t target,
                                const baton__blocks_t *source,
                                size_t chunk_bytes)
{
    size_t chunks =
        baton__blocks_segments(flow, source, chunk_bytes, CHUNK_BYTES);
    int next = baton__flow_peer(flow, 1);
    int previous = baton__flow_peer(flow, -1);
    baton__slots_t slots =
        baton__slots_open(flow->schedule, SLOTS, baton__blocks_most(source));
    baton_view_t out = baton__blocks_view(source, block_of(flow, 1), 1);
    for (int hop = 0; hop < flow->size - 1; hop++) {
        baton_view_t own =
            baton__blocks_view(source, block_of(flow, hop + 2), 1);
        baton_view_t in = baton__slot_of(&slots, (size_t)hop, own.bytes);
        flow->is_total = hop == flow->size - 2;
        baton_view_t sum = flow->is_total ? target : in;
        for (size_t i = 0; i < chunks; i++) {
            baton_view_t received = baton__segment_of(flow, in, chunks, i);
            baton__flow_send(flow, next,
                             baton__segment_of(flow, out, chunks, i));
            baton__flow_recv(flow, previous, received);
            baton__flow_reduce(flow, baton__segment_of(flow, sum, chunks, i),
                               received,
                               baton__segment_of(flow, own, chunks, i));
        }
        out = in;
    }
}
