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

#include <baton/build.h>

/* Bytes of one buffer that the same node wrote and the same nodes read. */
typedef struct baton__span {
    size_t begin, end;
    uint32_t buffer;
    uint32_t writer; /* node + 1; 0 means none */
    /* Place + 1 in `readers` of a list of the nodes that have read the bytes
       since they were written. */
    uint32_t readers;
} baton__span_t;

typedef struct baton__reader {
    uint32_t node;
    uint32_t next; /* place + 1 of the next reader; lists share their tails */
} baton__reader_t;

typedef struct baton__flow {
    baton_schedule_t *schedule;
    int rank; /* this process's rank in the team */
    int size; /* the team's number of ranks */
    /* By rank of the team: the rank in the group. NULL: the ranks are the
       same. */
    const int *ranks;
    baton_dtype_t dtype;
    const baton_op_t *op;
    baton__span_t *spans; /* sorted by buffer and place */
    size_t span_count, span_room;
    baton__reader_t *readers;
    size_t reader_count, reader_room;
    struct baton__flow_memory *memory; /* allocated by baton__flow_alloc */
    uint32_t last_recv;                /* node + 1; 0 means none yet */
    /* 1 + the node after which sends come; 0: none. */
    uint32_t round;
    /* The next reduction yields the sum of all ranks of the group, so an
       average divides there. Builders set this before each reduction. */
    bool is_total;
    bool is_inner; /* a total of the team is no total of the group */
    bool failed;   /* no memory; the schedule has the error */
} baton__flow_t;

/* Opens a flow over all ranks of the schedule's group. dtype and op are those
   of its reductions; op is NULL if there are none. */
baton__flow_t baton__flow_open(baton_schedule_t *schedule, baton_dtype_t dtype,
                               const baton_op_t *op);

/* Frees the flow's memory, also that of baton__flow_alloc. The schedule stays.
 */
void baton__flow_close(baton__flow_t *flow);

/* Returns zeroed words that are valid until the flow is closed; NULL means no
   memory, which is the schedule's error. */
size_t *baton__flow_alloc(baton__flow_t *flow, size_t count);

/* Makes `size` ranks of the group the team from here on. This process is at
   index `rank` of them. */
void baton__flow_team(baton__flow_t *flow, const int *ranks, int rank,
                      int size);

/* From here on sends also come after the last receive so far. This is for
   algorithms in rounds: otherwise a message that can go early would take the
   port from a message that others wait for. */
void baton__flow_next_round(baton__flow_t *flow);

void baton__flow_send(baton__flow_t *flow, int peer, baton_view_t source);
void baton__flow_recv(baton__flow_t *flow, int peer, baton_view_t target);
void baton__flow_copy(baton__flow_t *flow, baton_view_t target,
                      baton_view_t source);
void baton__flow_reduce(baton__flow_t *flow, baton_view_t target,
                        baton_view_t left, baton_view_t right);

/* True if data of this view should be copied into scratch before peers read it:
   otherwise the system copies it for them, which takes about four times as
   long. On 2 processors of an AMD EPYC all-reduces of malloc'ed vectors by
   pairwise exchange take 0.5 to 0.8 of the time with these copies, for 256 KiB
   to 16 MiB on 4 and 8 ranks. */
bool baton__flow_stages(const baton__flow_t *flow, baton_view_t view);

/* Returns a view of a whole new scratch buffer. */
baton_view_t baton__flow_scratch(baton__flow_t *flow, size_t bytes);
