/* A rank's part of a collective as a sequential task flow: a builder adds nodes
   in the order in which one thread would run them, and the edges follow from
   the data. A node comes behind the last one that wrote what it reads, and
   behind those that read or wrote what it writes. So a schedule built this way
   has no hazard, everything independent may overlap, and phases that follow
   each other in a builder are pipelined as far as their data permits.

       send(next, block 0)        send#0
       recv(previous, slot)       recv#1 ---+
       reduce(block 1, slot)                +--> reduce#2 --+--> send#3
       send(next, block 1)                                  |
       recv(previous, slot)                                 +--> recv#4

   Peers are ranks of a team: all ranks of the group, or some of them in an
   order of their own. Messages and operands of 0 bytes add nothing: both ends
   know the size. Buffers are told apart by their ids, so a builder whose source
   and target are the same memory names one of them only. */
#pragma once

#include <baton/build.h>

/* Bytes of one buffer that were written, and read, by the same nodes. */
typedef struct baton__span {
    size_t begin, end;
    uint32_t buffer;
    uint32_t writer;  /* node + 1; 0 means none */
    uint32_t readers; /* of what the writer wrote: a list, by place + 1 */
} baton__span_t;

typedef struct baton__reader {
    uint32_t node;
    uint32_t next; /* place + 1; lists share their tails */
} baton__reader_t;

typedef struct baton__flow {
    baton_schedule_t *schedule;
    int rank;         /* of this process in the team */
    int size;         /* of the team */
    const int *ranks; /* in the group; NULL if the team is the group */
    baton_dtype_t dtype;
    const baton_op_t *op;
    baton__span_t *spans; /* by buffer and place */
    size_t span_count, span_room;
    baton__reader_t *readers;
    size_t reader_count, reader_room;
    struct baton__flow_memory *memory; /* what flow_alloc has given */
    uint32_t last_recv;                /* node + 1; 0 means none yet */
    uint32_t round;                    /* sends come behind this node; + 1 */
    /* What is reduced next is of all ranks of the group: an average divides
       there. Builders set it before each reduction. */
    bool is_total;
    bool is_inner; /* the team's totals are none of the group's */
    bool failed;   /* out of memory, which the schedule knows */
} baton__flow_t;

/* A flow over all ranks of the schedule's group; dtype and op are those of its
   reductions, NULL where there are none. Close frees what the flow has and has
   given, and leaves the schedule. */
baton__flow_t baton__flow_open(baton_schedule_t *schedule, baton_dtype_t dtype,
                               const baton_op_t *op);
void baton__flow_close(baton__flow_t *flow);

/* Zeroed words until the flow is closed; NULL: an error of the schedule. */
size_t *baton__flow_alloc(baton__flow_t *flow, size_t count);

/* From here on peers are these ranks, which include this one, at `rank`. */
void baton__flow_team(baton__flow_t *flow, const int *ranks, int rank,
                      int size);

/* From here on sends come behind the last receive so far, too: for algorithms
   in rounds, in which a message that could go earlier would take a port from
   one that others wait for. */
void baton__flow_next_round(baton__flow_t *flow);

void baton__flow_send(baton__flow_t *flow, int peer, baton_view_t source);
void baton__flow_recv(baton__flow_t *flow, int peer, baton_view_t target);
void baton__flow_copy(baton__flow_t *flow, baton_view_t target,
                      baton_view_t source);
void baton__flow_reduce(baton__flow_t *flow, baton_view_t target,
                        baton_view_t left, baton_view_t right);

/* True if what peers read of this view should be copied into scratch first: the
   system would copy it for them, and takes about four times as long. On 2
   processors of an AMD EPYC all-reduces of malloc'ed vectors by pairwise
   exchange take 0.5 to 0.8 of the time so, of 256 KiB to 16 MiB on 4 and 8
   ranks. */
bool baton__flow_stages(const baton__flow_t *flow, baton_view_t view);

/* All of a new scratch buffer. */
baton_view_t baton__flow_scratch(baton__flow_t *flow, size_t bytes);
