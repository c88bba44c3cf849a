/* The schedule object, in the order of its life: a graph, to which adders
   (functions such as baton_add_send) add nodes; a plan, which commit makes; a
   run, which the engine's driver steps. All else that driving a schedule needs
   is in the task that embeds the schedule; see progress/state/task.h.

   Ownership: the builder's thread owns the graph. The plan is read-only after
   the commit. The driver owns `run`. */
#pragma once

#include "base/text.h"
#include "sched/run.h"
#include "transport/group.h"

typedef struct baton__edge {
    uint32_t from;
    uint32_t to;
} baton__edge_t;

typedef struct baton__buffer {
    size_t bytes;
    /* Bound memory; not accessed if messages carry no data, as in a cost-only
       simulation. */
    char *memory;
    baton_memory_t kind;
    bool placed; /* the builder has set `kind` */
    bool scratch;
    /* The buffer is scratch in the transport's memory, which peers can read in
       place. */
    bool shared;
    bool input;   /* no node may write the buffer */
    bool written; /* a node writes the buffer */
    /* The buffer was bound to other memory after baton__check_rebound last
       succeeded. */
    bool rebound;
    /* The memory of buffers that overlapped at commit is one space, whose
       number is that of its first buffer. */
    uint32_t space;
    /* The offset of this buffer in its space. */
    size_t base;
    /* While commit decides where scratch is: a reduce or a copy uses the
       buffer. */
    bool computed;
    /* While commit allocates scratch: the end of the part of the buffer that
       nodes use. */
    size_t used;
    /* While commit allocates scratch: a node writes the buffer, or sends from
       it. A receive whose message is lent does not write. */
    bool stored;
} baton__buffer_t;

/* The size of `sentence`, the error message that a schedule keeps. */
#define BATON__SENTENCE_BYTES 512

/* The fields that each step uses come first, on few cache lines. */
struct baton_schedule {
    baton_group_t *group;
    /* By buffer: its current address. The array is NULL before the commit. */
    char **addresses;
    baton__op_t *ops; /* the graph's records; after the commit, the plan's */
    struct baton__offload *offload; /* see offload.h; NULL without a device */
    baton__run_t run;
    baton__plan_t plan;

    /* The schedule's name; in a group with a name, "group/schedule". The text
       is in memory after the struct, except in a simulation. */
    const char *name;
    char *terms; /* the terms as text (see terms.c); NULL if there are none */
    uint64_t terms_hash;

    /* ---- the rest of the graph ------------------------------------------ */

    /* By node: the need, which is the number of satisfied edges with which the
       node fires (baton_set_need). BATON_NEED_ALL stands for all edges until
       the commit replaces it by their number. */
    uint32_t *needs;
    uint32_t count; /* number of nodes */
    bool committed; /* committed and not destroyed */
    /* destroyed; the struct remains, since the owner may still have a
       handle. */
    bool destroyed;
    uint32_t capacity;
    baton_status_t sticky; /* the first error that an adder has found */
    baton__edge_t *edges;  /* the graph's edges, until the commit */
    uint32_t edge_count;
    uint32_t edge_capacity;
    baton__buffer_t *buffers;
    uint32_t buffer_count;
    uint32_t buffer_capacity;
    uint32_t depth; /* the most epochs that are started and not ended */
    /* The bound buffers by address, for checks after a rebind; see alias.c. */
    struct baton__range *ranges;
    /* The number of pairs of bound buffers that overlapped at commit and of
       which at least one is written (count_overlaps in alias.c). */
    uint64_t overlaps;
    uint32_t slot_count; /* number of places for contents of activations */
    uint32_t length_count;
    /* During a commit: the graph's records and needs, while `ops` and `needs`
       are those of the plan. Otherwise NULL. */
    baton__op_t *built_ops;
    uint32_t *built_needs;

    /* Zeroed memory that the plan has for the struct that embeds this one:
       annex_bytes bytes, and annex_peer_bytes bytes for each of plan.peers.
       Both numbers are multiples of 8, and set before the commit makes the
       plan. */
    char *annex;
    size_t annex_bytes;
    size_t annex_peer_bytes;

    /* The message of the error `sticky`. After the commit: the message of a
       failed epoch. NULL if there is no message. */
    char *sentence;
    /* The name of an adder that was called after the commit, which is an error;
       NULL: no adder was. */
    const char *misused;
};

/* The error of a commit. Its message begins with the schedule's name. */
#define BATON__COMMIT_ERROR(status, schedule, text, ...)                       \
    baton__error(status, "commit of \"%s\" failed: " text, (schedule)->name,   \
                 __VA_ARGS__)

/* Returns a node's name, such as "recv#17". The text is in one of a few buffers
   that this thread uses in turn, so it is valid only for the arguments of one
   message. */
const char *baton__node_name(const baton_schedule_t *schedule, uint32_t node);

/* Returns a buffer's place, such as "64 bytes at 0x7ffd5c" or "64 bytes of
   scratch". The text is valid as long as that of baton__node_name. */
const char *baton__buffer_place(const baton_schedule_t *schedule,
                                uint32_t buffer);

/* Returns false, with this thread's error set, if the schedule is NULL or
   destroyed, or if this process is a forked child. */
bool baton__is_schedule(const baton_schedule_t *schedule, const char *function);

/* Stores a message in *sentence, whose memory is allocated first if it is NULL.
   Without memory the message is lost. */
void baton__sentence_set(char **sentence, const char *message);

/* Returns the schedule's `sentence`; "" if it has none. */
static inline const char *
baton__schedule_sentence(const baton_schedule_t *schedule)
{
    return schedule->sentence != NULL ? schedule->sentence : "";
}

/* Returns true if nodes may be added to the schedule. `adder` names the
   function that is to add one. Returns false if an earlier error is kept, which
   commit will report. Returns false if the schedule is committed: the next
   start then reports the call of `adder`. Also returns false if
   baton__is_schedule does. */
bool baton__graph_open(baton_schedule_t *schedule, const char *adder);

/* Adds to `text` the first terms (terms.c) that differ between this schedule
   and another rank's. `others` has that rank's terms from the `from`-th on
   (remarks are not counted), or is NULL if they are unknown. If both terms
   follow remarks, and the remarks differ, the remarks are added, too. */
void baton__terms_compare(baton__text_t *text, const baton_schedule_t *schedule,
                          const char *others, size_t from, int other_rank);

/* Returns the schedule's terms from the `from`-th on. If there are remarks
   before that term, and they fit into `size` bytes together with it, the text
   begins with the remarks. */
const char *baton__terms_from(const baton_schedule_t *schedule, size_t from,
                              size_t size);

/* Compares the schedule's terms, from the `from`-th on, with another rank's.
   `is_cut` is true if the text of the other rank's terms is cut off at its end.
   Returns 0 if the first difference is in `others`; otherwise the number of the
   term from which on the ranks must exchange more terms to find it. */
size_t baton__terms_next(const baton_schedule_t *schedule, const char *others,
                         size_t from, bool is_cut);

/* Grows the array whose pointer is at `items` to `capacity` elements. If there
   is no memory, returns false, and the schedule keeps the error. */
bool baton__graph_grow(baton_schedule_t *schedule, void *items, uint32_t count,
                       uint32_t capacity, size_t size);

/* What commit notes of a receive: the reduce that may read its message in place
   (loans.h); and of a send: whether its data comes from a reduce. */
typedef struct baton__lending {
    /* The message can't be lent: another node may read its data. */
    bool spoiled;
    /* the send's data, or a part of it, is the result of a reduce */
    bool made;
    uint8_t operand; /* the message's index among the operands of `reduce` */
    uint32_t reduce; /* the reduce's id; BATON__NO_NODE if there is none */
} baton__lending_t;

/* A topological order of the nodes, and the predecessors of each node, without
   doubled edges. */
typedef struct baton__order {
    uint32_t *order;    /* the nodes, each after its predecessors */
    uint32_t *position; /* by node: the node's index in `order` */
    /* The predecessors of node i are preds[first[i]] to preds[first[i + 1] -
       1]. */
    uint32_t *first;
    uint32_t *preds;
    /* By node; NULL if messages of this group are never lent. */
    baton__lending_t *loans;
} baton__order_t;

/* Checks the graph, and sets the error message if it is not valid. On success
   the caller frees `out`. */
baton_status_t baton__validate(const baton_schedule_t *schedule,
                               baton__order_t *out);
void baton__order_free(baton__order_t *order);

/* Finds the bound buffers that share memory (alias.c). Called before hazards
   are checked. Returns an error if a node's operands overlap in part. */
baton_status_t baton__find_aliases(baton_schedule_t *schedule);

/* Returns BATON_ERR_INVALID if the buffer does not share memory with the same
   buffers in the same way as at commit. */
baton_status_t baton__check_alias(const baton_schedule_t *schedule,
                                  uint32_t buffer);
/* Checks all rebound buffers by baton__check_alias and baton__check_bound. */
baton_status_t baton__check_rebound(baton_schedule_t *schedule);

/* Returns an error if two unordered nodes access the same bytes, at least one
   of them writing; or if a node uses a length but does not happen after the
   receive that sets it. Also finds order->loans. */
baton_status_t baton__check_hazards(const baton_schedule_t *schedule,
                                    baton__order_t *order);

/* Makes the plan and the run of a valid graph, with tags and all memory that
   epochs need. On an error the graph is as before. */
baton_status_t baton__plan_create(baton_schedule_t *schedule,
                                  const baton__order_t *order);
/* Called before the graph is checked. If the group's ranks share plans, and one
   of the shared plans was made of a graph like this one, gives the schedule
   that plan. Then plan.shared is true. */
baton_status_t baton__plan_adopt(baton_schedule_t *schedule);
void baton__plan_destroy(baton_schedule_t *schedule);
/* Frees all memory of the schedule except the struct itself, which is marked as
   destroyed. */
void baton__schedule_fini(baton_schedule_t *schedule);

/* Returns the peer of a message node. */
static inline int baton__peer_of(const baton_schedule_t *schedule,
                                 const baton__op_t *op)
{
    return (int)(op->peer ^ schedule->plan.flip);
}

/* Returns the index of `peer` in plan.peers; peer_count if it is not there. */
uint32_t baton__plan_peer(const baton__plan_t *plan, int peer);
