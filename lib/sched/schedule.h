/* The schedule object, in the order of its life: a graph that adders grow, a
   plan that commit makes, a run that the engine's driver steps. The rest of
   what driving it needs is in the task that embeds it; see progress/task.h.

   Ownership: the builder's thread owns the graph. The plan is read-only after
   the commit. The driver owns `run`. */
#pragma once

#include "base/text.h"
#include "ops/op.h"
#include "sched/run.h"
#include "transport/group.h"

typedef struct baton__edge {
    uint32_t from;
    uint32_t to;
} baton__edge_t;

typedef struct baton__buffer {
    size_t bytes;
    char *memory; /* bound memory; not accessible without payload */
    baton_memory_t kind;
    bool placed; /* the builder has set `kind` */
    bool scratch;
    bool shared;  /* scratch that the transport has allocated */
    bool input;   /* no node may write it */
    bool written; /* a node writes it */
    bool rebound; /* since baton__check_rebound last succeeded */
    /* Buffers that overlapped at commit have one space; this buffer begins
       `base` bytes into it. */
    uint32_t space;
    size_t base;
    /* While commit places scratch: a buffer in the same kind of memory. */
    uint32_t joined;
    /* While commit places scratch: a reduce or copy uses the buffer. */
    bool computed;
    /* While commit allocates scratch: the end of the last view of a node. */
    size_t used;
    /* While commit allocates scratch: a node writes it, or sends from it. A
       receive whose message is lent does not write. */
    bool stored;
} baton__buffer_t;

/* A stored error message. */
#define BATON__SENTENCE_BYTES 512

/* The fields that each step uses come first, on few cache lines. */
struct baton_schedule {
    baton_group_t *group;
    char **addresses; /* of each buffer now; NULL before the commit */
    baton__op_t *ops; /* the graph's; after the commit, the plan's */
    struct baton__offload *offload; /* see offload.h; NULL without a device */
    baton__run_t run;
    baton__plan_t plan;

    const char *name; /* in memory after the struct, or elsewhere if simulated.
                         In a group with a name, "group/schedule" */
    char *terms;      /* see terms.c; NULL if there are none */
    uint64_t terms_hash;

    /* The rest of the graph. */
    uint32_t *needs; /* as set by the builder; after the commit, numbers of
                        edges */
    uint32_t count;  /* nodes */
    bool committed;  /* and not destroyed */
    bool destroyed;  /* the owner may still have a handle */
    uint32_t capacity;
    baton__edge_t *edges; /* until the commit */
    uint32_t edge_count;
    uint32_t edge_capacity;
    baton__buffer_t *buffers;
    uint32_t buffer_count;
    uint32_t buffer_capacity;
    uint32_t depth;              /* epochs that may be started and not ended */
    struct baton__range *ranges; /* see alias.c */
    uint64_t overlaps;           /* pairs of buffers, at commit */
    uint32_t slot_count;         /* of activations */
    uint32_t length_count;
    size_t *length_limits;  /* of each length, after the commit */
    baton__op_t *built_ops; /* during a commit: the graph's ops */
    uint32_t *built_needs;

    /* Zeroed memory that the plan has for the struct that embeds this one:
       annex_bytes, and annex_peer_bytes for each of plan.peers. Both are
       multiples of 8, and set before the commit makes the plan. */
    char *annex;
    size_t annex_bytes;
    size_t annex_peer_bytes;

    /* The first error of an adder. After the commit `sentence` has the message
       of a failed epoch. */
    baton_status_t sticky;
    char sentence[BATON__SENTENCE_BYTES];
    const char *misused; /* the name of an adder that was called after the
                            commit */
};

/* A node's name, "recv#17", in one of a few buffers of this thread: valid for
   the arguments of one message. */
const char *baton__node_name(const baton_schedule_t *schedule, uint32_t node);

/* A buffer's place, "64 bytes at 0x7ffd5c" or "64 bytes of scratch", in the
   same buffers. */
const char *baton__buffer_place(const baton_schedule_t *schedule,
                                uint32_t buffer);

/* False, with this thread's error, if the schedule is NULL or destroyed. */
bool baton__is_schedule(const baton_schedule_t *schedule, const char *function);

/* True if nodes may be added: not after the first error, so that commit reports
   this one; nor after the commit, which the next start reports. `adder` names
   the calling function, or is NULL if the caller adds nothing. */
bool baton__graph_open(baton_schedule_t *schedule, const char *adder);

/* Adds to `text` the first terms that differ between this schedule and another
   rank's. `others` has that rank's terms from the `from`-th on, not counting
   remarks; NULL if they are unknown. Remarks before the two terms are added if
   they differ. */
void baton__terms_compare(baton__text_t *text, const baton_schedule_t *schedule,
                          const char *others, size_t from, int other_rank);

/* The terms from the `from`-th on; with the remarks before it, if they and the
   term fit into `room` bytes. */
const char *baton__terms_from(const baton_schedule_t *schedule, size_t from,
                              size_t room);

/* Compares with another rank's terms, which may be cut at their end. Returns
   the number of the term from which on the ranks must exchange more terms to
   find the difference; 0: the difference is in these. */
size_t baton__terms_next(const baton_schedule_t *schedule, const char *others,
                         size_t from, bool is_cut);

/* Grows the array whose pointer is at `items` to `room` elements. Without
   memory it returns false, and the error sticks. */
bool baton__graph_grow(baton_schedule_t *schedule, void *items, uint32_t count,
                       uint32_t room, size_t size);

/* Of a receive: the reduce that may read its message in place (loans.h). Of a
   send: whether its data was reduced. */
typedef struct baton__lending {
    bool spoiled; /* the message can't be lent */
    bool made;    /* data that is sent, or a part of it, was reduced before */
    uint8_t operand; /* of the reduce */
    uint32_t reduce; /* or BATON__NO_NODE */
} baton__lending_t;

/* A topological order of the nodes, and their predecessors, each edge once. */
typedef struct baton__order {
    uint32_t *order;    /* nodes */
    uint32_t *position; /* of each node in `order` */
    uint32_t *first;    /* predecessors of node i: first[i] .. first[i + 1] */
    uint32_t *preds;
    baton__lending_t *loans; /* by node; NULL if messages are not lent */
} baton__order_t;

/* Checks the graph. On success the caller frees `out`. Sets the error message.
 */
baton_status_t baton__validate(const baton_schedule_t *schedule,
                               baton__order_t *out);
void baton__order_free(baton__order_t *order);

/* Finds the bound buffers that share memory; called before hazards are checked.
   An error if a node's operands overlap in part. */
baton_status_t baton__find_aliases(baton_schedule_t *schedule);

/* BATON_ERR_INVALID: a buffer does not share memory with others as it did at
   commit. check_rebound checks all rebound buffers. */
baton_status_t baton__check_alias(const baton_schedule_t *schedule,
                                  uint32_t buffer);
baton_status_t baton__check_rebound(baton_schedule_t *schedule);

/* Finds two unordered nodes that access the same bytes, one writing; or a node
   that uses a length but does not happen after the receive that sets it. */
baton_status_t baton__check_hazards(const baton_schedule_t *schedule,
                                    baton__order_t *order);

/* Makes the plan and the run of a valid graph, with tags and all memory that
   epochs need. On an error the graph is as before. */
baton_status_t baton__plan_create(baton_schedule_t *schedule,
                                  const baton__order_t *order);
/* Gives a graph that nothing has been checked of the plan of one like it, if
   its ranks share plans and there is one. */
baton_status_t baton__plan_adopt(baton_schedule_t *schedule, bool *adopted_out);
void baton__plan_destroy(baton_schedule_t *schedule);
/* Frees all memory of the schedule except for the struct, which then says that
   it was destroyed. */
void baton__schedule_fini(baton_schedule_t *schedule);

/* The peer of a message node. */
static inline int baton__peer_of(const baton_schedule_t *schedule,
                                 const baton__op_t *op)
{
    return (int)(op->peer ^ schedule->plan.flip);
}

/* The index of `peer` in plan.peers; peer_count if it is not there. */
uint32_t baton__plan_peer(const baton__plan_t *plan, int peer);
