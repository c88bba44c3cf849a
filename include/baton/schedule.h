/* A schedule: the DAG of one rank, built once and run any number of times.

       building --commit--> idle --start--> running --> idle ...
                             ^                  |
                             |                  +-- failed, here or on a peer
                             |                  v
                             +-- recover ---- failed

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
   appears in messages, and with the attempt it says which schedules of the
   ranks belong together: the k-th that a rank makes of a name is the k-th of
   that name on the others, in whatever order ranks make and commit schedules
   of different names. A commit that failed may be tried again, or its schedule
   destroyed, and on all ranks the next attempt made. BATON_ERR_INVALID,
   BATON_ERR_NO_MEMORY. Allowed in a call node. */
BATON_CHECKED baton_status_t baton_schedule_create(baton_group_t *group,
                                                   const char *name,
                                                   baton_schedule_t **out);

/* Validates and freezes. From here on an epoch allocates nothing. Commit does
   not wait for other ranks; what is sent to a rank that has not committed the
   schedule yet is sent when it has. Where two ranks have committed different
   numbers or sizes of messages for each other the schedule fails with
   BATON_ERR_MISMATCH on both, as soon as they have heard of each other.

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

/* Destroys the schedule; NULL is allowed. Waits for an epoch that runs here,
   whoever began it, but at most for BATON_DESTROY_MS; then the epoch is
   cancelled, and threads that wait for it get BATON_ERR_CANCELLED. Peers that
   begin a later epoch fail, and learn why. Blocks; never from a call node.

   BATON_OK, also when the epoch was cancelled. BATON_ERR_TIMEOUT: a message
   was moving and its peer has not ended it, or an async node has not
   completed, within BATON_DESTROY_MS. The schedule is destroyed all the same,
   and its group and engine can be; but the memory that is named in the message
   is still in use, and scratch is not freed before that has ended. After
   BATON_ERR_STATE (from a call node) nothing happened. */
BATON_CHECKED baton_status_t baton_schedule_destroy(baton_schedule_t *schedule);

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
   whatever order they fire. Sizes are equal, unless they are set in the epoch
   (baton_set_length). A rank may send to itself. */
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

/* What a call node's function sees of its epoch (below, "inside a call node").
   Valid during the call, on its thread. */
typedef struct baton_call baton_call_t;

/* Runs on the driving thread. BATON_OK satisfies the node's successors;
   BATON_SKIP completes it without satisfying them (they may still fire through
   other edges); an error fails the epoch. It may not wait, commit, recover or
   destroy, which return BATON_ERR_STATE there; it may create schedules, destroy
   those that are not committed, and start others. Keep it short: it holds up
   every schedule of its engine, and with manual progress also the wait that it
   runs in. */
typedef baton_status_t (*baton_call_fn)(void *arg, baton_call_t *call);
baton_node_t baton_add_call(baton_schedule_t *schedule, baton_call_fn fn,
                            void *arg);

/* ---- nodes that complete elsewhere ------------------------------------ */

/* A node that was begun and has not completed, in one epoch. */
typedef struct baton_async {
    void *record;
    uint64_t turn;
} baton_async_t;

/* What an async node does; static const, it outlives the schedule. All but
   `start` may be NULL.

   start   as a call node's function, on the driving thread. BATON_OK: begun;
           the node completes when any thread calls baton_async_complete (also
           before start has returned), or when `poll` says so. BATON_DONE: it is
           complete. BATON_SKIP, an error: as of a call node.
   poll    asked by the driver every now and then while the node has not
           completed, less and less often: BATON_AGAIN, BATON_OK, or an error.
   cancel  the epoch has failed: the node should complete soon, its status does
           not count any more. Until it has, no thread that waits for the epoch
           returns, as what was begun may still use memory. */
typedef struct baton_async_ops {
    baton_status_t (*start)(void *arg, baton_call_t *call, baton_async_t async);
    baton_status_t (*poll)(void *arg);
    void (*cancel)(void *arg);
} baton_async_ops_t;

baton_node_t baton_add_async(baton_schedule_t *schedule,
                             const baton_async_ops_t *ops, void *arg);

/* Completes the node, once: BATON_OK, BATON_SKIP, or an error that fails its
   epoch. Any thread, also the driver's. BATON_ERR_STATE: the node has completed
   already. `poll` and `cancel` may be under way in another thread meanwhile;
   once complete has returned they may still run for a moment, until a wait for
   the epoch has returned. */
BATON_CHECKED baton_status_t baton_async_complete(baton_async_t async,
                                                  baton_status_t status);

/* ---- lengths that are known in the epoch only -------------------------- */

/* A number of bytes that an epoch sets: by a receive that takes what comes, or
   by a call node. Until it is set, in each epoch, the nodes that have it work
   on their whole views. */
typedef struct baton_length {
    uint32_t index;
} baton_length_t;

baton_length_t baton_add_length(baton_schedule_t *schedule);

/* Gives a node a length. A receive with one takes a message of any size up to
   its view, and sets the length to it. A send, a reduce or a copy works on the
   first so many bytes of its views; a reduce fails the epoch where these are no
   whole number of elements. The nodes that set a length come surely before
   those that use it; commit checks that of receives. Several nodes may have
   one length, but at most one receive. */
void baton_set_length(baton_schedule_t *schedule, baton_node_t node,
                      baton_length_t length);

/* ---- inside a call node ----------------------------------------------- */

uint64_t baton_call_epoch(const baton_call_t *call);

/* Says why the function is about to return `status`, an error: the sentence
   becomes part of the epoch's, on all ranks. Returns `status`. */
baton_status_t baton_call_fail(baton_call_t *call, baton_status_t status,
                               const char *format, ...) BATON_PRINTF(3, 4);

/* Where a view lies, in scratch, too; NULL in a group without payload (sim.h),
   for memory that is not bound, or a view that is not in its buffer. */
void *baton_call_address(const baton_call_t *call, baton_view_t view);

/* Whether a node has completed in this epoch and satisfied its successors: for
   a node with a need, which of its edges it was. */
bool baton_call_completed(const baton_call_t *call, baton_node_t node);

/* A length's value, SIZE_MAX where it is not set; and sets it, for nodes that
   come behind this one. BATON_ERR_INVALID: no such length, or more than the
   smallest view that a node uses it with. */
size_t baton_call_length(const baton_call_t *call, baton_length_t length);
BATON_CHECKED baton_status_t baton_call_set_length(baton_call_t *call,
                                                   baton_length_t length,
                                                   size_t bytes);

/* The word that came with an armed receive's message in this epoch (0 before
   that), and the one that an activate sends; see below. BATON_ERR_INVALID: the
   node is no activate, or has fired. */
uint64_t baton_call_word(const baton_call_t *call, baton_node_t armed_recv);
BATON_CHECKED baton_status_t baton_call_set_word(baton_call_t *call,
                                                 baton_node_t activate,
                                                 uint64_t word);

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
   activate   sends {epoch, origin, word} to `peer`'s armed receive. The origin
              is the rank that began the epoch. An arrival from an armed receive
              counts for it only if the peer lies farther from that message's
              origin than this rank does, in ranks modulo P: so a tree by offset
              never goes round the ring twice. The word is 0 unless a call node
              sets it: a counting tree's count, for example.

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

/* The epoch retires without waiting for an optional node that has not fired, or
   for an optional receive whose message has not come: a branch not taken, a
   straggler of a k-of-n. What comes for it later is dropped: a message belongs
   to the epoch that sent it, never to another. A required node that can't fire
   any more fails the epoch. A long send (baton_transport_t.copy_bytes) ends
   when its message was taken or dropped, which may be as late as the end of its
   receiver's epoch: make it optional, too, where that must not hold its own. */
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
