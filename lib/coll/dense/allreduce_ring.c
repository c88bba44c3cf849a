#include "coll/dense/allreduce.h"

/* The vector is cut into P blocks, and each block into chunks. The chunks with
   the same index in all blocks are a column. A column goes round the ring by
   itself, in 2(P - 1) hops: in hop h a rank sends its chunk of block rank - h
   to the next rank, and receives that of block rank - h - 1 from the previous
   one. In the first P - 1 hops the received chunk is reduced with this rank's
   part (reduce-scatter; the last result is the whole sum). In the other P - 1
   hops it is the sum already (all-gather). A column of 3 ranks:

       hop          0               1               2               3

       source -> send        +-> send        +-> send        +-> send
                             |               |               |
                 recv        |   recv        |   recv -------+   recv
                   |         |     |         |
       source -> sum --------+-> sum --------+

   A chunk is received into a slot of scratch, but it need not be copied there:
   the reduction may read it in the message. The sum of the chunk and the source
   goes to the target.

   Pipelining. Columns use LANES lanes in turn, so that a chunk of one column is
   received while a chunk of another is reduced or sent, and a received chunk is
   reduced and sent on while it is in cache. Lanes also bound the messages in
   flight: posting receives by the thousand is slow. In the reduce-scatter a
   lane receives into two slots in turn; in the all-gather it receives two
   chunks at a time. A lane sends hop 0 of a column after it has received hop 0
   of its previous column.

   No deadlock: on either side a message of column c and hop h waits only for
   messages of smaller c, or of the same c and smaller h.

   The sum of a block is made in one order, along the ring from the rank of the
   block's number on, with the received chunk as the left operand. Then it is
   copied: so all ranks have the same bits. */

#define LANES 2
#define SLOTS 2

/* The default size of a chunk. On one host the receiver's processor makes the
   copy, so chunks do not overlap there, and each message costs 2 us. 512 KiB
   was the best of the sizes from 64 KiB to 4 MiB, for vectors of 1 to 64 MiB,
   on 2 and 4 ranks. */
#define CHUNK_BYTES ((size_t)512 * 1024)

/* The receives of a lane for which later nodes wait. Each field is 1 + the
   index of a receive node; 0: there is no such receive yet. */
typedef struct lane {
    uint32_t first; /* the receive of hop 0 of the lane's last column */
    /* The lane's last two receives in the all-gather, of any of its columns,
       the newer one first. Receives of empty chunks do not count. */
    uint32_t gathered[2];
} lane_t;

typedef struct ring {
    baton__flow_t *flow;
    const baton__blocks_t *target, *source;
    size_t columns;
    lane_t lanes[LANES];
    baton__slots_t slots; /* SLOTS slots for each lane */
} ring_t;

/* Returns the chunk of a column that this rank sends in a hop. In hop h the
   previous rank sends the chunk that this rank sends in hop h + 1. */
static baton_view_t allreduce_ring_chunk_of(const ring_t *ring,
                                            const baton__blocks_t *vector,
                                            size_t column, int hop)
{
    int block =
        baton__rank_shift(ring->flow->rank, -(int64_t)hop, ring->flow->size);
    return baton__segment_of(ring->flow, baton__blocks_view(vector, block, 1),
                             ring->columns, column);
}

/* Receives a chunk of the all-gather. The receive waits until the lane's second
   last chunk has arrived: so a lane receives two chunks at a time. */
static void allreduce_ring_gather(baton__flow_t *flow, lane_t *lane, int from,
                                  baton_view_t chunk)
{
    baton__flow_recv(flow, from, chunk);
    if (chunk.bytes > 0) {
        if (lane->gathered[1] > 0) {
            baton_before(flow->schedule, (baton_node_t){lane->gathered[1] - 1},
                         (baton_node_t){flow->last_recv - 1});
        }
        lane->gathered[1] = lane->gathered[0];
        lane->gathered[0] = flow->last_recv;
    }
}

static void add_column(ring_t *ring, size_t index)
{
    baton__flow_t *flow = ring->flow;
    lane_t *lane = &ring->lanes[index % LANES];
    int last = flow->size - 1;
    int next = baton__flow_peer(flow, 1);
    int previous = baton__flow_peer(flow, -1);
    baton_view_t chunk = allreduce_ring_chunk_of(ring, ring->source, index, 0);
    flow->round = lane->first;
    for (int hop = 0; hop < 2 * last; hop++) {
        baton__flow_send(flow, next, chunk);
        flow->round = 0;
        chunk = allreduce_ring_chunk_of(ring, ring->target, index, hop + 1);
        if (hop >= last) {
            allreduce_ring_gather(flow, lane, previous, chunk);
            continue;
        }
        size_t slot = index % LANES * SLOTS + (size_t)hop % SLOTS;
        baton_view_t received = baton__slot_of(&ring->slots, slot, chunk.bytes);
        baton__flow_recv(flow, previous, received);
        flow->is_total = hop == last - 1;
        baton__flow_reduce(
            flow, chunk, received,
            allreduce_ring_chunk_of(ring, ring->source, index, hop + 1));
        if (hop == 0) {
            lane->first = flow->last_recv;
        }
    }
}

static void allreduce_ring_add(baton__flow_t *flow,
                               const baton__blocks_t *target,
                               const baton__blocks_t *source,
                               size_t chunk_bytes)
{
    ring_t ring = {
        .flow = flow,
        .target = target,
        .source = source,
        .columns =
            baton__blocks_segments(flow, target, chunk_bytes, CHUNK_BYTES),
    };
    size_t lanes = ring.columns < LANES ? ring.columns : LANES;
    size_t most = baton__segment_of(flow, baton__blocks_view(target, 0, 1),
                                    ring.columns, 0)
                      .bytes;
    ring.slots = baton__slots_open(flow->schedule, lanes * SLOTS, most);
    for (size_t index = 0; index < ring.columns; index++) {
        add_column(&ring, index);
    }
}

void baton_add_allreduce_ring(baton_schedule_t *schedule,
                              const baton_allreduce_args_t *args)
{
    baton__allreduce_in_blocks(schedule, "all-reduce by ring", args,
                               allreduce_ring_add);
}

const baton_algorithm_t baton__allreduce_ring_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "ring",
    .build.allreduce = baton_add_allreduce_ring,
    .phases = {&baton__reduce_scatter_ring_algorithm,
               &baton__allgather_ring_algorithm},
    .exact = baton__exact_flat,
};
