/* A rank's part of a collective as a sequential task flow: a builder adds nodes
   in the order in which one thread would run them, and the edges follow from
   the data. A node comes after the last node that wrote the bytes it reads, and
   after the nodes that read or wrote the bytes it writes. So a schedule built
   this way has no hazard, independent nodes may overlap, and consecutive phases
   of a builder are pipelined as far as their data permit.

       send(next, block 0)        send#0
       recv(previous, slot)       recv#1 ---+
       reduce(block 1, slot)                +--> reduce#2 --+--> send#3
       send(next, block 1)                                  |
       recv(previous, slot)                                 +--> recv#4

   Peers are ranks of a team: all ranks of the group, or some of them in an
   order of their own. Messages and operands of 0 bytes add no nodes: both ends
   know the size. Buffers are distinguished by their ids, so a builder whose
   source and target are the same memory must use only one of the two buffers.
 */
#pragma once

#include "coll/kit/pattern.h"

#include <baton/build.h>

/* A range of bytes of one buffer that were all written by the same node, and
   read by the same nodes since then. */
typedef struct baton__span {
    size_t begin, end;
    uint32_t buffer;
    /* 1 + the node that wrote the bytes last; 0: no node did */
    uint32_t writer;
    /* The nodes that have read the bytes since then form a list in the flow's
       array `readers`. This field is 1 + the index of the list's first entry;
       0: no node has read the bytes. */
    uint32_t readers;
} baton__span_t;

typedef struct baton__reader {
    uint32_t node;
    /* 1 + the index of the list's next entry in the flow's array `readers`; 0:
       this is the last entry. Two lists may share their last entries. */
    uint32_t next;
} baton__reader_t;

typedef struct baton__flow {
    baton_schedule_t *schedule;
    int rank; /* this process's rank in the team */
    int size; /* the team's number of ranks */
    /* For each rank of the team, its rank in the group. NULL: the team is the
       group, in the same order. */
    const int *ranks;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t element;       /* bytes of an element of the flow's vectors */
    baton__span_t *spans; /* the known spans, sorted by buffer and offset */
    size_t span_count, span_capacity;
    baton__reader_t *readers;
    size_t reader_count, reader_capacity;
    /* The memory that baton__flow_alloc has given out. */
    struct baton__flow_memory *memory;
    /* 1 + the receive that was added last; 0: no receive was added yet. */
    uint32_t last_recv;
    /* 1 + the node after which all further sends come; 0: further sends need
       not come after any such node. */
    uint32_t round;
    /* True if the next reduction yields the total of the team. An average then
       divides the total by the number of ranks, unless `is_inner` is set.
       Builders set this field before each reduction. */
    bool is_total;
    /* True if the team is a part of the group, so that the team's totals are
       not the group's. */
    bool is_inner;
    bool failed; /* there was no memory; the schedule has this error */
} baton__flow_t;

/* Opens a flow over all ranks of the schedule's group. `dtype` and `op` are
   those of the flow's reductions; `op` is NULL if the flow has no
   reductions. */
baton__flow_t baton__flow_open(baton_schedule_t *schedule, baton_dtype_t dtype,
                               const baton_op_t *op);

/* Frees the memory of the flow and of baton__flow_alloc. The schedule
   remains. */
void baton__flow_close(baton__flow_t *flow);

/* Returns `count` words, which are zero, and valid until the flow is closed. If
   there is no memory, sets the schedule's error and returns NULL. */
size_t *baton__flow_alloc(baton__flow_t *flow, size_t count);

/* Makes `size` ranks of the group the team of all further nodes. ranks[rank] is
   this process's rank in the group. */
void baton__flow_team(baton__flow_t *flow, const int *ranks, int rank,
                      int size);

/* Returns the rank that is `distance` further around the ring of the team's
   ranks; see baton__rank_shift. */
static inline int baton__flow_peer(const baton__flow_t *flow, int64_t distance)
{
    return baton__rank_shift(flow->rank, distance, flow->size);
}

/* Makes all further sends come after the last receive so far. Algorithms in
   rounds call this function: otherwise a message that can be sent early would
   occupy the network port before a message for which other ranks wait. */
void baton__flow_next_round(baton__flow_t *flow);

void baton__flow_send(baton__flow_t *flow, int peer, baton_view_t source);
void baton__flow_recv(baton__flow_t *flow, int peer, baton_view_t target);
void baton__flow_copy(baton__flow_t *flow, baton_view_t target,
                      baton_view_t source);
void baton__flow_reduce(baton__flow_t *flow, baton_view_t target,
                        baton_view_t left, baton_view_t right);

/* Returns true if a rank should copy data of this view into scratch, which is
   shared memory, before its peers read the data: otherwise the operating system
   copies the data for them, which takes about four times as long. On 2
   processors of an AMD EPYC all-reduces of malloc'ed vectors by pairwise
   exchange take 0.5 to 0.8 of the time with these copies, for 256 KiB to 16 MiB
   on 4 and 8 ranks. */
bool baton__flow_stages(const baton__flow_t *flow, baton_view_t view);

/* Returns a view of a new scratch buffer of `bytes` bytes. */
baton_view_t baton__flow_scratch(baton__flow_t *flow, size_t bytes);
