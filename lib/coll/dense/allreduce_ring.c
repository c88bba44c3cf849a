#include "coll/dense/allreduce.h"
#include "coll/tune/algorithms.h"

/* The vector is cut in P blocks, a block in chunks; the chunks of one index of
   all blocks are a column. A column goes round the ring by itself, in 2(P - 1)
   hops: in hop h a rank sends its chunk of block rank - h to the next rank, and
   receives that of block rank - h - 1 from the previous one. For P - 1 hops
   what comes is reduced with this rank's part (reduce-scatter: the last result
   is the whole sum, and goes to the target), for another P - 1 it is the sum
   already (all-gather). A column of 3 ranks:

       hop          0               1               2               3

       source -> send        +-> send        +-> send        +-> send
                             |               |               |
                 recv        |   recv        |   recv -------+   recv
                   |         |     |         |
       source -> sum --------+-> sum --------+

   A chunk is received in a slot of scratch, where it need not arrive: the
   reduction may read it in the message. The sum of it and of the source goes to
   the target.

   Pipelining. Columns take turns in LANES lanes, so that a chunk of one is
   received while another one's is reduced or sent, and what was received is
   reduced and sent on while it is in cache. Lanes bound what is in flight, too:
   posting receives by the thousand is slow. In the reduce-scatter a lane
   receives hop h when what it received in hop h - 2 has been sent on (two slots
   will do, then); in the all-gather, two chunks at a time. It sends hop 0 of
   its next column when it has reduced hop 0 of its last one.

   No deadlock: what a message of column c, hop h waits for, on either side, are
   messages of smaller c, or of the same c and smaller h.

   Every block's sum is made in one order, along the ring from the rank of the
   block's number on (what comes is the left operand), and then copied: so it is
   the same on all ranks, bit for bit. */

#define LANES 2
#define SLOTS 2

/* The default grain. On one host the receiver's processor makes the copy, so
   chunks overlap with nothing there and each message costs 2 us: of 64 KiB to 4
   MiB this was the best from 1 to 64 MiB, on 2 and on 4 ranks. */
#define CHUNK_BYTES ((size_t)512 * 1024)

/* A node that may not be there: empty chunks have none. */
typedef struct maybe {
    bool there;
    baton_node_t node;
} maybe_t;

typedef struct lane {
    maybe_t idle[SLOTS]; /* the last node that uses what even, odd hops of the
                            reduce-scatter received */
    maybe_t gathered[2]; /* its last all-gather receives, newest first */
    maybe_t first_sum;   /* its last column's, of hop 0 */
} lane_t;

typedef struct ring {
    baton_schedule_t *schedule;
    const baton__flow_t *flow; /* ranks, type and reduction */
    const baton__blocks_t *target, *source;
    size_t element; /* bytes */
    size_t columns;
    lane_t lanes[LANES];
    baton__slots_t slots; /* SLOTS of each lane */
} ring_t;

static maybe_t some(baton_node_t node)
{
    maybe_t maybe = {.there = true, .node = node};
    return maybe;
}

static void after(ring_t *ring, maybe_t first, baton_node_t then)
{
    if (first.there) {
        baton_before(ring->schedule, first.node, then);
    }
}

/* The chunk of a column in the block that this rank sends in a hop. In hop h
   the previous rank sends what this one would in hop h + 1. */
static baton_view_t chunk_of(const ring_t *ring, const baton__blocks_t *vector,
                             size_t column, int hop)
{
    int block =
        baton__rank_shift(ring->flow->rank, -(int64_t)hop, ring->flow->size);
    return baton__segment_of(baton__blocks_view(vector, block, 1),
                             ring->element, ring->columns, column);
}

static int neighbour(const ring_t *ring, int distance)
{
    return baton__rank_shift(ring->flow->rank, distance, ring->flow->size);
}

/* State that is passed from one hop of a column to the next. */
typedef struct column {
    size_t index;
    lane_t *lane;
    baton_view_t part;  /* what this rank sends in the next hop, */
    maybe_t ready;      /* and after which node */
    maybe_t first_send; /* of hop 0, which reads the source */
} column_t;

static void add_send(ring_t *ring, column_t *column, int hop)
{
    if (column->part.bytes == 0) {
        return;
    }
    baton_node_t send =
        baton_add_send(ring->schedule, neighbour(ring, 1), column->part);
    after(ring, column->ready, send);
    if (hop == 0) {
        after(ring, column->lane->first_sum, send);
        column->first_send = some(send);
    } else if (hop < ring->flow->size - 1) {
        column->lane->idle[(hop - 1) % SLOTS] = some(send);
    }
}

static void add_reduce_scatter(ring_t *ring, column_t *column, int hop)
{
    size_t slot = column->index % LANES * SLOTS + (size_t)hop % SLOTS;
    maybe_t *idle = &column->lane->idle[hop % SLOTS];
    baton_view_t received =
        baton__slot_of(&ring->slots, slot, column->part.bytes);
    baton_node_t recv =
        baton_add_recv(ring->schedule, neighbour(ring, -1), received);
    after(ring, *idle, recv);

    baton_node_t sum = baton_add_reduce(
        ring->schedule, ring->flow->dtype, ring->flow->op, column->part,
        received, chunk_of(ring, ring->source, column->index, hop + 1));
    baton_before(ring->schedule, recv, sum);
    if (hop == 0) {
        column->lane->first_sum = some(sum);
    }
    *idle = column->ready = some(sum);
}

static void add_all_gather(ring_t *ring, column_t *column, int hop)
{
    int last = ring->flow->size - 1;
    baton_node_t recv =
        baton_add_recv(ring->schedule, neighbour(ring, -1), column->part);
    maybe_t *gathered = column->lane->gathered;
    after(ring, gathered[1], recv);
    /* It overwrites what this rank sent in hop h - (P - 1): for the first one
       that was the source, for the others a partial sum. */
    if (hop == last && ring->source == ring->target) {
        after(ring, column->first_send, recv);
    } else if (hop > last) {
        after(ring, column->lane->idle[0], recv);
        after(ring, column->lane->idle[1], recv);
    }
    gathered[1] = gathered[0];
    gathered[0] = column->ready = some(recv);
}

static void add_column(ring_t *ring, size_t index)
{
    column_t column = {
        .index = index,
        .lane = &ring->lanes[index % LANES],
        .part = chunk_of(ring, ring->source, index, 0),
    };
    int last = ring->flow->size - 1;
    for (int hop = 0; hop < 2 * last; hop++) {
        add_send(ring, &column, hop);
        column.part = chunk_of(ring, ring->target, index, hop + 1);
        if (column.part.bytes == 0) {
            column.ready.there = false;
        } else if (hop < last) {
            add_reduce_scatter(ring, &column, hop);
        } else {
            add_all_gather(ring, &column, hop);
        }
    }
}

static void add(baton__flow_t *flow, const baton__blocks_t *target,
                const baton__blocks_t *source, size_t element,
                size_t chunk_bytes)
{
    ring_t ring = {
        .schedule = flow->schedule,
        .flow = flow,
        .target = target,
        .source = source,
        .element = element,
        .columns =
            baton__blocks_segments(target, element, chunk_bytes, CHUNK_BYTES),
    };
    size_t lanes = ring.columns < LANES ? ring.columns : LANES;
    size_t most = baton__segment_of(baton__blocks_view(target, 0, 1), element,
                                    ring.columns, 0)
                      .bytes;
    ring.slots = baton__slots_open(flow->schedule, lanes * SLOTS, most);
    for (size_t index = 0; index < ring.columns; index++) {
        add_column(&ring, index);
    }
}

void baton_allreduce_ring(baton_schedule_t *schedule,
                          const baton_allreduce_t *args)
{
    baton__allreduce_in_blocks(schedule, "all-reduce by ring", args, add);
}

const baton_algorithm_t baton__allreduce_ring_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "ring",
    .build.allreduce = baton_allreduce_ring,
    .phases = {&baton__reduce_scatter_ring_algorithm,
               &baton__allgather_ring_algorithm},
    .exact = baton__exact_flat,
};
