/* A schedule: the DAG of one rank, built once and run any number of times.

       building --commit--> idle --start--> running --> idle ...
           |                  \-- destroy       \-- a node failed --> failed
           \-- destroy                                      (destroy it)

   Adders return ids and never fail: the first error sticks to the schedule and
   commit reports it with the node's name. So a builder reads like a picture of
   its DAG:

       recv#0 --+
                +--> reduce#2 --> send#3
       copy#1 --+

       baton_node_t recv = baton_add_recv(s, left, incoming);
       baton_node_t copy = baton_add_copy(s, sum, input);
       baton_node_t add = baton_add_reduce(s, BATON_F32, BATON_SUM,
                                           sum, sum, incoming);
       baton_node_t send = baton_add_send(s, right, sum);
       baton_before(s, recv, add);
       baton_before(s, copy, add);
       baton_before(s, add, send);

   Threads: one thread at a time builds a schedule. Ids belong to the schedule
   that returned them. (The adders are verb first, against the noun_verb rule of
   the rest, because a builder consists of them.) */
#ifndef BATON_SCHEDULE_H
#define BATON_SCHEDULE_H

#include <baton/status.h>
#include <baton/types.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baton_group baton_group_t;       /* P ranks; engine.h, mpi.h */
typedef struct baton_schedule baton_schedule_t; /* owned by its creator */

typedef struct baton_node {
    uint32_t index;
} baton_node_t;

typedef struct baton_buffer {
    uint32_t index;
} baton_buffer_t;

/* A node's operand: `bytes` bytes of a buffer, from `offset`. */
typedef struct baton_view {
    baton_buffer_t buffer;
    size_t offset;
    size_t bytes;
} baton_view_t;

/* ---- life ------------------------------------------------------------- */

/* Makes an empty schedule for this rank of the group. The name is copied; it
   appears in messages. BATON_ERR_INVALID, BATON_ERR_NO_MEMORY. */
BATON_CHECKED baton_status_t baton_schedule_create(baton_group_t *group,
                                                   const char *name,
                                                   baton_schedule_t **out);

/* Validates and freezes. From here on an epoch allocates nothing. All ranks of
   a group commit their schedules in the same order: that is what pairs them up.

   Checked here: ids and ranges, cycles, needs that can't be met, message sizes
   the transport can't carry, and hazards (two nodes whose views overlap, one of
   them writing, neither surely ordered before the other). With BATON_VERIFY=1,
   set on all ranks when the group is made, commit is collective: rank 0 gets
   all graphs, compares every send with its receive, and simulates an epoch that
   all ranks start, in which no message is buffered and call nodes do nothing
   but go on. Then all ranks commit, or none does, for the same reason.

   On an error the schedule stays as it was, nothing is taken from the group,
   and baton_error_message() names the nodes. BATON_ERR_INVALID, _CYCLE,
   _HAZARD, _UNREACHABLE, _LIMIT, _UNSUPPORTED, _MISMATCH, _DEADLOCK,
   _NO_MEMORY, or whatever an adder met; BATON_ERR_STATE when committed already.
 */
BATON_CHECKED baton_status_t baton_schedule_commit(baton_schedule_t *schedule);

/* Frees the schedule; NULL is allowed. While an epoch runs here: waits for it,
   but at most for BATON_DESTROY_MS (then the epoch is cancelled). A receive
   that no message met is withdrawn. Blocks; never from a call node. */
void baton_schedule_destroy(baton_schedule_t *schedule);

int baton_schedule_rank(const baton_schedule_t *schedule);
int baton_schedule_size(const baton_schedule_t *schedule); /* ranks, P */
const char *baton_schedule_name(const baton_schedule_t *schedule);

/* For builders: makes `status` the schedule's sticky error, with a message, as
   if an adder had met it. Keeps the first one. */
void baton_schedule_fail(baton_schedule_t *schedule, baton_status_t status,
                         const char *format, ...) BATON_PRINTF(3, 4);

/* ---- buffers ---------------------------------------------------------- */

/* User memory of `bytes` bytes, which must stay valid while an epoch runs. NULL
   may be bound and replaced before the first start. bind_input: no node may
   write it. */
baton_buffer_t baton_buffer_bind(baton_schedule_t *schedule, void *memory,
                                 size_t bytes, baton_memory_t kind);
baton_buffer_t baton_buffer_bind_input(baton_schedule_t *schedule,
                                       const void *memory, size_t bytes,
                                       baton_memory_t kind);

/* Memory that commit allocates (aligned to 64 bytes, not initialised) and the
   schedule owns. */
baton_buffer_t baton_buffer_scratch(baton_schedule_t *schedule, size_t bytes,
                                    baton_memory_t kind);

/* Puts other memory of the same size behind a bound buffer, before the commit
   or between epochs; a call node may do it while its epoch runs, for views
   whose nodes are all behind it. Buffers may be bound to the same memory, and
   commit checks them as the one that they are; from then on a buffer that a
   node writes must share memory with the others as it did at commit, and be
   rebound together with them. BATON_ERR_BUSY while an epoch runs,
   BATON_ERR_INVALID for an id that is not a bound buffer, and where memory is
   shared in another way: from a call node at once, else from the next start,
   or the epoch that begins without one. */
BATON_CHECKED baton_status_t baton_buffer_rebind(baton_schedule_t *schedule,
                                                 baton_buffer_t buffer,
                                                 void *memory);

/* Where the view of a bound buffer lies now; NULL for scratch and where nothing
   is bound. For builders, to find out whether two views are the same memory.
   Where groups have no payload (sim.h) it must not be used to reach it. */
const void *baton_view_address(const baton_schedule_t *schedule,
                               baton_view_t view);

static inline baton_view_t baton_view(baton_buffer_t buffer, size_t offset,
                                      size_t bytes)
{
    baton_view_t view = {buffer, offset, bytes};
    return view;
}

/* ---- nodes ------------------------------------------------------------ */

/* The k-th send added from p to q meets the k-th receive that q adds from p, in
   whatever order they fire. Sizes are equal. A rank may send to itself. */
baton_node_t baton_add_send(baton_schedule_t *schedule, int peer,
                            baton_view_t source);
baton_node_t baton_add_recv(baton_schedule_t *schedule, int peer,
                            baton_view_t target);

/* target = left (op) right, elementwise; three views of one size, a multiple of
   the element's. target may be the same view as left or right. */
baton_node_t baton_add_reduce(baton_schedule_t *schedule, baton_dtype_t dtype,
                              const baton_op_t *op, baton_view_t target,
                              baton_view_t left, baton_view_t right);
baton_node_t baton_add_copy(baton_schedule_t *schedule, baton_view_t target,
                            baton_view_t source);
baton_node_t baton_add_nop(baton_schedule_t *schedule);

/* Runs on the driving thread, in the epoch given. BATON_OK satisfies the node's
   successors; BATON_SKIP completes it without satisfying them (they may still
   fire through other edges); an error fails the epoch. It may not wait, commit
   or destroy; it may start other schedules. Keep it short: it holds up every
   schedule of its engine. */
typedef baton_status_t (*baton_call_fn)(void *arg, uint64_t epoch);
baton_node_t baton_add_call(baton_schedule_t *schedule, baton_call_fn fn,
                            void *arg);

/* ---- external activation ---------------------------------------------- */

/* A schedule with armed receives can be started by its peers: an epoch begins
   when this rank starts it or when an armed receive gets a message that names
   it, whichever comes first (after Di Girolamo et al. 2015; papers: eager-SGD,
   section 4.1). Nodes without predecessors fire when the epoch begins, however
   it began, except these:

   on_start   fires when (and if) this rank calls start for the epoch.
   armed_recv stays posted across epochs, for a message of `peer`'s activate. A
              message for an epoch that retired here is dropped, one for the
              running epoch satisfies its successors, one for the next begins
              it, one for a later epoch is kept until its turn.
   activate   sends {epoch, origin} to `peer`'s armed receive. The origin is the
              rank that began the epoch. An arrival from an armed receive counts
              for it only if the peer lies farther from that message's origin
              than this rank does, in ranks modulo P: so a tree by offset never
              goes round the ring twice.

   All three are optional (below) by nature. The k-th activate from p to q meets
   the k-th armed receive of q from p. */
baton_node_t baton_add_on_start(baton_schedule_t *schedule);
baton_node_t baton_add_armed_recv(baton_schedule_t *schedule, int peer);
baton_node_t baton_add_activate(baton_schedule_t *schedule, int peer);

/* ---- dependencies ----------------------------------------------------- */

/* b may fire only after a completed. An edge added twice counts once. */
void baton_before(baton_schedule_t *schedule, baton_node_t a, baton_node_t b);

/* A node fires when `need` of its incoming edges are satisfied, at most once an
   epoch. Default BATON_NEED_ALL; BATON_NEED_ANY is 1; any k from 1 to the
   number of edges. Later arrivals are consumed without effect. */
#define BATON_NEED_ALL 0u
#define BATON_NEED_ANY 1u
void baton_set_need(baton_schedule_t *schedule, baton_node_t node,
                    uint32_t need);

/* The epoch retires without waiting for an optional node: one behind a branch
   not taken, or a straggler of a k-of-n. An optional receive may be overtaken
   by the end of its epoch; its message is charged to that epoch (dropped when
   it comes), never to a later one. So it must write scratch, and a place in it
   that no other node writes. */
void baton_set_optional(baton_schedule_t *schedule, baton_node_t node);

/* Composition. Everything added after baton_schedule_mark() and before enclose
   is put between `entry` and `exit`: nodes without predecessors get `entry`
   before them, except on_start and armed_recv, which take none; nodes that the
   epoch waits for, and that lead to no other such node, get `exit` after them.
   So `exit` waits for all that an epoch waits for, and for no optional node.
   Where there is no such node entry comes directly before exit. `entry` and
   `exit` were added before the mark. */
typedef struct baton_mark {
    uint32_t node;
    uint32_t edge;
} baton_mark_t;
baton_mark_t baton_schedule_mark(const baton_schedule_t *schedule);
void baton_enclose(baton_schedule_t *schedule, baton_mark_t since,
                   baton_node_t entry, baton_node_t exit);

#ifdef __cplusplus
}
#endif
#endif
