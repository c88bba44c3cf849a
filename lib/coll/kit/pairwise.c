#include "coll/kit/phases.h"

/* Pairwise exchange: each rank exchanges messages with all others, and no
   message waits for a message of another rank. In step k = 1 .. P - 1 a rank
   sends to rank + k and receives from rank - k.

   Reduce-scatter: a rank sends the receiver's block of its source, and adds the
   received blocks to its own block:

       source --> send block +1 to +1,  send block +2 to +2,  ...

                           recv from -1       recv from -2
                                 |                  |
       source, own block --> reduce ----------> reduce ---> ... ---> target

   All-gather: a rank sends its block to all others, and receives theirs.

   If ranks share processors, and if the data that a rank sends are in memory
   that its peers can't read themselves (baton__flow_stages), the rank first
   copies the data into scratch: a segment at a time, with SLOTS segments of
   each of the others' blocks.

   Because no message waits for a third rank, a late rank delays only the sums
   that need its data. If ranks share processors, a rank can do all its work in
   one turn on the processor. The reduce-scatter writes only the sum of this
   rank's block, a segment at a time, and the segment stays in a cache from the
   first operand to the last. */

/* The number of segments that a rank reduces at a time: while one of them waits
   for a message, the other can be reduced. Each segment has a slot of scratch,
   into which the other ranks' operands are received one after another. Only the
   reduction reads the slot, so it may read each operand in the message, without
   a copy. */
#define SLOTS 2

static bool stages(const baton__flow_t *flow, baton_view_t view)
{
    int processors = baton_schedule_processors(flow->schedule);
    return processors > 0 && flow->size > processors &&
           baton__flow_stages(flow, view);
}

void baton__pairwise_reduce_scatter(baton__flow_t *flow, baton_view_t target,
                                    const baton__blocks_t *source,
                                    size_t chunk_bytes)
{
    size_t chunks = baton__blocks_segments(flow, source, chunk_bytes,
                                           BATON__PAIRWISE_BYTES);
    if (chunks == 0) {
        return;
    }
    baton_view_t own = baton__blocks_view(source, flow->rank, 1);
    const size_t longest =
        (baton__blocks_most(source) / flow->element + chunks - 1) / chunks *
        flow->element;
    const size_t others = (size_t)flow->size - 1;
    const bool staged =
        stages(flow, baton_view(own.buffer, own.offset, longest));
    const size_t turns = chunks < SLOTS ? chunks : SLOTS;
    baton__slots_t slots = baton__slots_open(flow->schedule, turns, longest);
    baton__slots_t copies =
        staged ? baton__slots_open(flow->schedule, turns * others, longest)
               : slots;
    for (size_t i = 0; i < chunks; i++) {
        baton_view_t sum = baton__segment_of(flow, target, chunks, i);
        baton_view_t received = baton__slot_of(&slots, i, sum.bytes);
        baton_view_t before = baton__segment_of(flow, own, chunks, i);
        for (int k = 1; k < flow->size; k++) {
            int to = baton__flow_peer(flow, k);
            int from = baton__flow_peer(flow, -k);
            baton_view_t sent = baton__segment_of(
                flow, baton__blocks_view(source, to, 1), chunks, i);
            if (staged) {
                baton_view_t copy = baton__slot_of(
                    &copies, i * others + (size_t)k - 1, sent.bytes);
                baton__flow_copy(flow, copy, sent);
                sent = copy;
            }
            baton__flow_send(flow, to, sent);
            baton__flow_recv(flow, from, received);
            flow->is_total = k == flow->size - 1;
            baton__flow_reduce(flow, sum, received, before);
            before = sum;
        }
    }
}

/* The segments are the same as those of the reduce-scatter. So each segment is
   sent as soon as its sum is complete, while it is in a cache. */
void baton__pairwise_allgather(baton__flow_t *flow,
                               const baton__blocks_t *blocks,
                               size_t chunk_bytes)
{
    size_t chunks = baton__blocks_segments(flow, blocks, chunk_bytes,
                                           BATON__PAIRWISE_BYTES);
    baton_view_t own = baton__blocks_outgoing(blocks, flow->rank);
    const bool staged = stages(flow, own);
    baton_view_t copy = staged ? baton__flow_scratch(flow, own.bytes) : own;
    for (size_t i = 0; i < chunks; i++) {
        baton_view_t sent = baton__segment_of(flow, copy, chunks, i);
        if (staged) {
            baton__flow_copy(flow, sent,
                             baton__segment_of(flow, own, chunks, i));
        }
        for (int k = 1; k < flow->size; k++) {
            int to = baton__flow_peer(flow, k);
            int from = baton__flow_peer(flow, -k);
            baton_view_t other = baton__blocks_view(blocks, from, 1);
            baton__flow_send(flow, to, sent);
            baton__flow_recv(flow, from,
                             baton__segment_of(flow, other, chunks, i));
        }
    }
}
