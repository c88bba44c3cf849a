#include "coll/dense/allreduce.h"
#include "coll/kit/blocks.h"
#include "coll/kit/check.h"
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
    maybe_t idle[SLOTS];      /* the last node that uses what even, odd hops of
                                 the reduce-scatter received */
    maybe_t gathered[2];      /* its last all-gather receives, newest first */
    maybe_t first_sum;        /* its last column's, of hop 0 */
    baton_view_t slot[SLOTS]; /* a chunk each, of the largest size */
} lane_t;

typedef struct ring {
    baton_schedule_t *schedule;
    const baton_allreduce_t *args;
    bool in_place;
    int rank;
    int size;
    size_t element; /* bytes */
    size_t count;   /* elements of the vector */
    size_t columns;
    lane_t lanes[LANES];
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

/* The chunk of a column in the block that this rank sends in a hop, as elements
   of the vector. In hop h the previous rank sends what this one would in hop
   h + 1. */
static baton__block_t chunk_of(const ring_t *ring, size_t column, int hop)
{
    int index = baton__rank_shift(ring->rank, -(int64_t)hop, ring->size);
    baton__block_t block =
        baton__block_of(ring->count, (size_t)ring->size, (size_t)index);
    baton__block_t chunk = baton__block_of(block.count, ring->columns, column);
    chunk.first += block.first;
    return chunk;
}

static baton_view_t part_of(const ring_t *ring, baton_view_t vector,
                            baton__block_t chunk)
{
    return baton_view(vector.buffer,
                      vector.offset + chunk.first * ring->element,
                      chunk.count * ring->element);
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
    if (chunk_of(ring, column->index, hop).count == 0) {
        return;
    }
    int next = baton__rank_shift(ring->rank, 1, ring->size);
    baton_node_t send = baton_add_send(ring->schedule, next, column->part);
    after(ring, column->ready, send);
    if (hop == 0) {
        after(ring, column->lane->first_sum, send);
        column->first_send = some(send);
    } else if (hop < ring->size - 1) {
        column->lane->idle[(hop - 1) % SLOTS] = some(send);
    }
}

static void add_reduce_scatter(ring_t *ring, column_t *column, int hop)
{
    const baton_allreduce_t *args = ring->args;
    baton__block_t chunk = chunk_of(ring, column->index, hop + 1);
    if (chunk.count == 0) {
        column->ready.there = false;
        return;
    }
    maybe_t *idle = &column->lane->idle[hop % SLOTS];
    column->part = part_of(ring, args->target, chunk);
    baton_view_t received = column->lane->slot[hop % SLOTS];
    received.bytes = column->part.bytes;
    int previous = baton__rank_shift(ring->rank, -1, ring->size);
    baton_node_t recv = baton_add_recv(ring->schedule, previous, received);
    after(ring, *idle, recv);

    baton_node_t sum =
        baton_add_reduce(ring->schedule, args->dtype, args->op, column->part,
                         received, part_of(ring, args->source, chunk));
    baton_before(ring->schedule, recv, sum);
    if (hop == 0) {
        column->lane->first_sum = some(sum);
    }
    *idle = column->ready = some(sum);
}

static void add_all_gather(ring_t *ring, column_t *column, int hop)
{
    baton__block_t chunk = chunk_of(ring, column->index, hop + 1);
    if (chunk.count == 0) {
        column->ready.there = false;
        return;
    }
    column->part = part_of(ring, ring->args->target, chunk);

    int previous = baton__rank_shift(ring->rank, -1, ring->size);
    baton_node_t recv = baton_add_recv(ring->schedule, previous, column->part);
    maybe_t *gathered = column->lane->gathered;
    after(ring, gathered[1], recv);
    /* It overwrites what this rank sent in hop h - (P - 1): for the first one
       that was the source, for the others a partial sum. */
    if (hop == ring->size - 1 && ring->in_place) {
        after(ring, column->first_send, recv);
    } else if (hop > ring->size - 1) {
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
        .part = part_of(ring, ring->args->source, chunk_of(ring, index, 0)),
    };
    for (int hop = 0; hop < 2 * (ring->size - 1); hop++) {
        add_send(ring, &column, hop);
        if (hop < ring->size - 1) {
            add_reduce_scatter(ring, &column, hop);
        } else {
            add_all_gather(ring, &column, hop);
        }
    }
}

/* Slots begin on cache lines of their own. */
static void add_slots(ring_t *ring, size_t chunk)
{
    size_t lanes = ring->columns < LANES ? ring->columns : LANES;
    size_t bytes = chunk * ring->element;
    size_t stride = (bytes + 63) / 64 * 64;
    baton_buffer_t scratch =
        baton_buffer_scratch(ring->schedule, lanes * SLOTS * stride);
    for (size_t i = 0; i < lanes * SLOTS; i++) {
        ring->lanes[i / SLOTS].slot[i % SLOTS] =
            baton_view(scratch, i * stride, bytes);
    }
}

void baton_allreduce_ring(baton_schedule_t *schedule,
                          const baton_allreduce_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by ring", &args)) {
        return;
    }
    if (!baton__check_commutative(schedule, "all-reduce by ring", args->op,
                                  BATON__ORDERED_ALLREDUCES)) {
        return;
    }
    size_t element = baton_op_element_bytes(args->op, args->dtype);
    ring_t ring = {
        .schedule = schedule,
        .args = args,
        .in_place = baton__allreduce_in_place(schedule, args),
        .rank = baton_schedule_rank(schedule),
        .size = baton_schedule_size(schedule),
        .element = element,
        .count = args->target.bytes / element,
    };
    size_t size = (size_t)ring.size;
    size_t block = baton__block_of(ring.count, size, 0).count;
    ring.columns =
        baton__segment_count(block, element, args->chunk_bytes, CHUNK_BYTES);
    if (ring.columns > 0 && ring.size > 1) {
        add_slots(&ring, baton__block_of(block, ring.columns, 0).count);
    }
    for (size_t index = 0; index < ring.columns; index++) {
        add_column(&ring, index);
    }
}

const baton_algorithm_t baton__allreduce_ring_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "ring",
    .formula = "2(p-1) alpha + (p-1)/p n (2 beta + gamma)",
    .build.allreduce = baton_allreduce_ring,
    .phases = {&baton__reduce_scatter_ring_algorithm,
               &baton__allgather_ring_algorithm},
    .exact = baton__exact_flat,
};
