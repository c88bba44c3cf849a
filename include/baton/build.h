/* For authors of collectives: a schedule is the DAG of one rank, built once and
   run any number of times.

       building --commit--> idle --start--> running --> idle ...
                             ^                  |
                             |                  +-- failed, here or on a peer
                             |                  v
                             +-- recover ---- failed

   Adders, the functions baton_add_*, return ids and never fail: the first error
   sticks to the schedule, and commit reports it with the node's name. So a
   builder reads like a picture of its DAG:

       recv#0 --+
                +--> reduce#2 --> send#3
       copy#1 --+

       baton_node_t recv = baton_add_recv(s, left, incoming);
       baton_node_t copy = baton_add_copy(s, sum, input);
       baton_node_t add = baton_add_reduce_local(s, BATON_F32, BATON_SUM,
                                           sum, sum, incoming);
       baton_node_t send = baton_add_send(s, right, sum);
       baton_before(s, recv, add);
       baton_before(s, copy, add);
       baton_before(s, add, send);

   Threads: one thread at a time builds a schedule, starts it, and destroys it;
   any threads may test, wait and cancel. Ids belong to the schedule that
   returned them. (Unlike all other functions, adders have the verb first in
   their names, because builders consist of them.) */
#ifndef BATON_BUILD_H
#define BATON_BUILD_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BATON_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define BATON_PRINTF(text, first)
#endif

typedef struct baton_node {
    uint32_t index;
} baton_node_t;

typedef struct baton_buffer {
    uint32_t index;
} baton_buffer_t;

/* A node's operand: `bytes` bytes of a buffer, beginning at `offset`. */
typedef struct baton_view {
    baton_buffer_t buffer;
    size_t offset;
    size_t bytes;
} baton_view_t;

/* ---- life ------------------------------------------------------------- */

/* Creates an empty schedule for this rank of the group. The name is copied. It
   appears in messages, and identifies the schedule across ranks: the k-th
   schedule of a name on one rank belongs with the k-th of that name on every
   other. Schedules of different names may be created and committed in any
   order. A commit that failed may be tried again; or all ranks destroy the
   schedule and create another one. Allowed in a call node. BATON_ERR_INVALID: a
   pointer is NULL. BATON_ERR_NO_MEMORY. */
BATON_CHECKED baton_status_t baton_schedule_create(baton_group_t *group,
                                                   const char *name,
                                                   baton_schedule_t **out);

/* Validates the schedule and allocates all that its epochs need; an epoch
   allocates nothing. Commit does not wait for other ranks: a message to a rank
   that has not committed the schedule yet is held back until that rank has. If
   two ranks have committed different numbers or sizes of messages for each
   other, the schedule fails with BATON_ERR_MISMATCH on both when one of them
   begins an epoch. A schedule that never runs costs no message.

   Commit checks ids and ranges, cycles, needs that can't be met, message sizes
   that the transport can't carry, and hazards. A hazard is a pair of nodes that
   this rank's own dependencies do not order, although their views overlap and
   one of the nodes writes. (An order by way of other ranks does not count.)
   With BATON_VERIFY=1, set on all ranks when the group is created, commit is
   collective: rank 0 gets all graphs, compares every send with its receive, and
   simulates an epoch that all ranks start, in which no message is buffered and
   every call node succeeds. Then all ranks commit, or all fail for the same
   reason.

   On an error the schedule and the group are as before, and
   baton_error_message() names the nodes. BATON_ERR_INVALID, _CYCLE, _HAZARD,
   _UNREACHABLE, _LIMIT, _UNSUPPORTED, _MISMATCH, _DEADLOCK, _NO_MEMORY, or the
   first error of an adder. BATON_ERR_STATE: committed already, or in a call
   node. */
BATON_CHECKED baton_status_t baton_schedule_commit(baton_schedule_t *schedule);

/* The schedule's group; NULL for NULL. */
baton_group_t *baton_schedule_group(const baton_schedule_t *schedule);
int baton_schedule_rank(const baton_schedule_t *schedule);
/* baton_schedule_size returns the number of ranks, P, and baton_schedule_hosts
   the number of hosts that these ranks are on. */
int baton_schedule_size(const baton_schedule_t *schedule);
int baton_schedule_hosts(const baton_schedule_t *schedule);
/* host_of returns a rank's host, counted from 0 in the order of the hosts'
   first ranks; 0 if unknown; -1 if there is no such rank. host_block returns
   the number of consecutive ranks on each host (the last host has the remaining
   ranks); 0 if ranks are placed otherwise. */
int baton_schedule_host_of(const baton_schedule_t *schedule, int rank);
int baton_schedule_host_block(const baton_schedule_t *schedule);
/* The number of processors that the ranks of a host may use, on the host that
   has the fewest; 0 if unknown. */
int baton_schedule_processors(const baton_schedule_t *schedule);
const char *baton_schedule_name(const baton_schedule_t *schedule);

/* Draws the schedule: writes a file in the language of graphviz, from which
   `dot -Tsvg path` makes a picture. The file has a line for each node, with its
   name, its peer and the bytes of each of its views, and a line for each edge.
   An edge into a node that needs only some of its edges is dashed, with the
   label "k of n". Optional nodes are gray. The schedule may be unfinished, be
   committed or not, and may have an error, but no epoch may run during the
   call. The thread that builds or starts the schedule calls this. An existing
   file is overwritten, so ranks need paths of their own. BATON_ERR_INVALID: a
   pointer is NULL, or the schedule is destroyed. BATON_ERR_NO_MEMORY.
   BATON_ERR_SYSTEM: the file can't be opened or written. */
BATON_CHECKED baton_status_t
baton_schedule_write_dot(const baton_schedule_t *schedule, const char *path);

/* For builders: makes `status`, with a message, the error that commit will
   report, as if an adder had met it. No effect after the first error. */
void baton_schedule_fail(baton_schedule_t *schedule, baton_status_t status,
                         const char *format, ...) BATON_PRINTF(3, 4);

/* For builders: states a property that must be the same on all ranks but does
   not show in a message's size, such as the type and the reduction. If ranks
   have stated different properties, or in another order, the schedule fails
   with BATON_ERR_MISMATCH as above, and the error names the first difference.
   One call may state several properties, separated by ", ". A text that begins
   with a parenthesis is a remark: it is not compared, but shown in errors if it
   differs. */
void baton_schedule_agree(baton_schedule_t *schedule, const char *format, ...)
    BATON_PRINTF(2, 3);

/* ---- buffers ---------------------------------------------------------- */

/* Makes a buffer of `bytes` bytes of the user's memory, which must stay valid
   while an epoch runs. `memory` may be NULL if other memory is bound before the
   first start. No node may write a buffer that baton_buffer_bind_input made. */
baton_buffer_t baton_buffer_bind(baton_schedule_t *schedule, void *memory,
                                 size_t bytes);
baton_buffer_t baton_buffer_bind_input(baton_schedule_t *schedule,
                                       const void *memory, size_t bytes);

/* Makes a buffer of scratch: memory that commit allocates (aligned to 64 bytes,
   not initialised) and the schedule owns. At the beginning of an epoch its
   contents are undefined. If only one reduce reads the data of a receive, the
   data may never be stored in scratch: the reduce reads it in the message (see
   baton_set_no_scratch). */
baton_buffer_t baton_buffer_scratch(baton_schedule_t *schedule, size_t bytes);

/* Sets a buffer's kind of memory; host memory by default. */
void baton_buffer_set_memory(baton_schedule_t *schedule, baton_buffer_t buffer,
                             baton_memory_t memory);

/* Binds other memory of the same size to a bound buffer, before the commit or
   between epochs. With a depth above 1 (baton_schedule_set_depth) this is
   allowed at any time, for later starts. A call node may do it while its epoch
   runs, for a buffer whose nodes all come after it. Several buffers may be
   bound to the same memory; commit treats them as one. After the commit a
   buffer that a node writes must share memory with the same buffers as at the
   commit: rebind them together. BATON_ERR_BUSY: an epoch runs.
   BATON_ERR_INVALID: the id is not a bound buffer; or memory is shared in
   another way, which is reported at once in a call node, else by the next
   start. */
BATON_CHECKED baton_status_t baton_buffer_rebind(baton_schedule_t *schedule,
                                                 baton_buffer_t buffer,
                                                 void *memory);

/* Does the same as baton_buffer_rebind for a collective that was created as in
   baton.h: binds other vectors of the same sizes. `source` must be NULL if the
   collective was created in place or this rank has no source, and must not be
   NULL otherwise: BATON_ERR_INVALID. `target` is ignored on ranks without one.
   In any schedule, `source` is bound to the first buffer that
   baton_buffer_bind_input made, and `target` to the first one that
   baton_buffer_bind made. */
BATON_CHECKED baton_status_t baton_schedule_rebind(baton_schedule_t *schedule,
                                                   const void *source,
                                                   void *target);

/* The size of a buffer, bound or scratch; SIZE_MAX if there is none. */
size_t baton_buffer_bytes(const baton_schedule_t *schedule,
                          baton_buffer_t buffer);

/* The address of a view of a bound buffer; NULL for scratch, and if no memory
   is bound. Builders compare addresses to find views of the same memory. If the
   group's buffers have no memory (baton_group_has_payload), the address must
   not be used to access memory. */
const void *baton_view_address(const baton_schedule_t *schedule,
                               baton_view_t view);

/* True if the view lies in ordinary memory, although ranks of this host can
   read shared memory (scratch, and memory of baton_memory_alloc) in place. The
   kernel copies ordinary memory for those ranks, which takes longer. So a
   builder may copy such a view into scratch itself. */
bool baton_view_is_private(const baton_schedule_t *schedule, baton_view_t view);

/* Returns a view with these fields. */
baton_view_t baton_view(baton_buffer_t buffer, size_t offset, size_t bytes);

/* ---- nodes ------------------------------------------------------------ */

/* The k-th send added from p to q matches the k-th receive that q adds from p,
   in whatever order they fire. Their sizes must be equal, unless they are set
   in the epoch (baton_set_length). A rank may send to itself. */
baton_node_t baton_add_send(baton_schedule_t *schedule, int peer,
                            baton_view_t source);
baton_node_t baton_add_recv(baton_schedule_t *schedule, int peer,
                            baton_view_t target);

/* Returns the reduction that computes the final value of an element in a
   collective with BATON_AVG (see BATON_OP_LIST below). The reduction is valid
   as long as the schedule exists. NULL: there is no memory, or no such
   schedule. */
const baton_op_t *baton_schedule_average(const baton_schedule_t *schedule);

/* target = left (op) right, elementwise. The three views have one size, which
   is a multiple of the element's size. target may be the same view as left or
   right. */
baton_node_t baton_add_reduce_local(baton_schedule_t *schedule,
                                    baton_dtype_t dtype, const baton_op_t *op,
                                    baton_view_t target, baton_view_t left,
                                    baton_view_t right);
baton_node_t baton_add_copy(baton_schedule_t *schedule, baton_view_t target,
                            baton_view_t source);
baton_node_t baton_add_nop(baton_schedule_t *schedule);

/* A call node's access to its epoch (see "inside a call node", below). Valid
   during the call, on its thread. */
typedef struct baton_call baton_call_t;

/* The function of a call node. It runs on the driving thread. BATON_OK
   satisfies the node's successors; BATON_SKIP completes the node without
   satisfying them (they may still fire through other edges); an error fails the
   epoch. The function may create schedules, destroy those that are not
   committed, and start others. Wait (for an epoch that has not ended), commit,
   recover and destroy return BATON_ERR_STATE there. It should be short: it
   holds up every schedule of its engine. */
typedef baton_status_t (*baton_call_fn)(void *arg, baton_call_t *call);
baton_node_t baton_add_call(baton_schedule_t *schedule, baton_call_fn fn,
                            void *arg);

/* Promises that a call, async or device call node, and any work that it begins,
   does not read scratch. A receive that comes before a call node without this
   promise always stores its data in its view. With the promise, data that only
   one reduce reads can be reduced straight from the message, which saves a
   copy. */
void baton_set_no_scratch(baton_schedule_t *schedule, baton_node_t node);

/* ---- nodes that complete elsewhere ------------------------------------ */

/* An async node that has begun in an epoch and not completed. */
typedef struct baton_async {
    void *record;  /* used by the library */
    uint64_t turn; /* changes with each use of the record */
} baton_async_t;

/* The functions of an async node. The struct must outlive the schedule. Only
   `start` is required.

   start   begins the work, on the driving thread, like a call node's function.
           BATON_OK: the work has begun, and the node completes when any thread
           calls baton_async_complete (even before start has returned), or when
           `poll` reports it. BATON_DONE: the node is complete. BATON_SKIP and
           errors are as for a call node.
   poll    is called by the driver now and then, less and less often, until the
           node completes. Returns BATON_AGAIN, BATON_OK, BATON_SKIP, or an
           error.
   cancel  is called when the epoch has failed: the work should end soon, and
           its status no longer counts. Threads that wait for the epoch go on
           only when the node has completed, as the work may use memory until
           then. */
typedef struct baton_async_ops {
    baton_status_t (*start)(void *arg, baton_call_t *call, baton_async_t async);
    baton_status_t (*poll)(void *arg);
    void (*cancel)(void *arg);
} baton_async_ops_t;

baton_node_t baton_add_async(baton_schedule_t *schedule,
                             const baton_async_ops_t *ops, void *arg);

/* Completes the node, once: BATON_OK, BATON_SKIP, or an error that fails its
   epoch. Any thread, including the driver's, until the schedule is destroyed;
   after that `async` is invalid. BATON_ERR_STATE: the node has completed
   already. `poll` and `cancel` may be running in another thread meanwhile, and
   for a moment after this has returned, until a wait for the epoch has
   returned. */
BATON_CHECKED baton_status_t baton_async_complete(baton_async_t async,
                                                  baton_status_t status);

/* ---- lengths that are known in the epoch only -------------------------- */

/* A number of bytes that is set anew in each epoch, by a receive or by a call
   node. While it is not set, its nodes work on their whole views. */
typedef struct baton_length {
    uint32_t index;
} baton_length_t;

baton_length_t baton_add_length(baton_schedule_t *schedule);

/* Gives a node a length. A receive with a length takes a message of any size up
   to its view's, and sets the length to that size. A send, a reduce or a copy
   with a length works on that many bytes at the beginning of its views; a
   reduce fails the epoch if the length is not a whole number of elements. The
   nodes that set a length must happen before those that use it; commit checks
   this for receives. Several nodes may have the same length, but at most one of
   them a receive. */
void baton_set_length(baton_schedule_t *schedule, baton_node_t node,
                      baton_length_t length);

/* ---- inside a call node ----------------------------------------------- */

uint64_t baton_call_epoch(const baton_call_t *call);

/* Explains why the call node's function is about to return `status`, an error.
   The sentence becomes part of the epoch's error, on all ranks. Returns
   `status`. */
baton_status_t baton_call_fail(baton_call_t *call, baton_status_t status,
                               const char *format, ...) BATON_PRINTF(3, 4);

/* The address of a view, in bound memory or scratch. NULL if the group's
   buffers have no memory (baton_group_has_payload), if no memory is bound, and
   for a view that exceeds its buffer. */
void *baton_call_address(const baton_call_t *call, baton_view_t view);

/* True if a node has completed in this epoch and satisfied its successors. So a
   call node with a need below BATON_NEED_ALL can find out which of its edges
   are satisfied. */
bool baton_call_completed(const baton_call_t *call, baton_node_t node);

/* baton_call_length reads a length (SIZE_MAX while it is not set), and
   baton_call_set_length sets it for nodes that come after this one.
   BATON_ERR_INVALID: there is no such length, or the value is larger than the
   smallest view of a node with this length. */
size_t baton_call_length(const baton_call_t *call, baton_length_t length);
BATON_CHECKED baton_status_t baton_call_set_length(baton_call_t *call,
                                                   baton_length_t length,
                                                   size_t bytes);

/* baton_call_word reads the word that came with an armed receive's message in
   this epoch (0 before the message has come). baton_call_set_word sets the word
   that an activate node will send; see below. BATON_ERR_INVALID: the node is
   not an activate, or has fired. */
uint64_t baton_call_word(const baton_call_t *call, baton_node_t armed_recv);
BATON_CHECKED baton_status_t baton_call_set_word(baton_call_t *call,
                                                 baton_node_t activate,
                                                 uint64_t word);

/* ---- external activation ---------------------------------------------- */

/* A schedule with armed receives can be started by its peers: an epoch begins
   when this rank starts it or when an armed receive gets a message for it,
   whichever comes first (after Di Girolamo et al. 2015, "Exploiting Offload
   Enabled Network Interfaces"). Nodes without predecessors fire when the epoch
   begins, however it began, except these:

   on_start   fires when this rank calls start for the epoch, if it does.
   armed_recv stays posted across epochs, for messages of `peer`'s activate. A
              message for an epoch that has retired here is dropped; one for the
              running epoch satisfies the node's successors; one for the next
              epoch begins it; one for a later epoch is kept for that.
   activate   sends {epoch, origin, word} to `peer`'s armed receive. The origin
              is the rank that began the epoch. The message of an armed receive
              triggers the activate only if `peer` is farther from that
              message's origin than this rank is, in ranks modulo P. So an
              activation tree by offset from the origin never goes round all
              ranks twice. The word is 0 unless a call node sets it, for example
              to a counting tree's count.

   All three are optional (see below). The k-th activate from p to q matches
   the k-th armed receive of q from p. */
baton_node_t baton_add_on_start(baton_schedule_t *schedule);
baton_node_t baton_add_armed_recv(baton_schedule_t *schedule, int peer);
baton_node_t baton_add_activate(baton_schedule_t *schedule, int peer);

/* ---- dependencies ----------------------------------------------------- */

/* Adds an edge: b may fire only after a has completed. An edge that is added
   twice counts once. */
void baton_before(baton_schedule_t *schedule, baton_node_t a, baton_node_t b);

/* A node fires when `need` of its incoming edges are satisfied, at most once an
   epoch: BATON_NEED_ALL (the default), BATON_NEED_ANY (1), or any k from 1 to
   the number of edges. Edges that are satisfied later have no effect. */
#define BATON_NEED_ALL 0u
#define BATON_NEED_ANY 1u
void baton_set_need(baton_schedule_t *schedule, baton_node_t node,
                    uint32_t need);

/* Makes a node optional: the epoch retires without waiting for the node to
   fire, or, if it is a receive, for its message. Examples are a branch that may
   not be taken, and a straggler of k of n. A message that comes later is
   dropped: it belongs to the epoch that sent it, and to no other. A required
   node that can no longer fire fails the epoch. A long send completes when its
   message has been accepted or dropped, which may be as late as the end of the
   receiver's epoch. If the sender's epoch must not wait for that, make the send
   optional, too. Long means longer than baton_transport_t.copy_bytes; over MPI
   also longer than 16 KiB, if no node is before or after the send. */
void baton_set_optional(baton_schedule_t *schedule, baton_node_t node);

/* Composition. The nodes added between baton_enclose_begin and
   baton_enclose_end are put between the nodes `entry` and `exit`, which were
   added before. Nodes without predecessors get `entry` before them, except
   on_start and armed_recv, which take none. Nodes that the epoch waits for, and
   that lead to no other node that it waits for, get `exit` after them. So
   `exit` waits for all enclosed nodes that the epoch waits for, and for no
   optional node. If the epoch waits for none of the enclosed nodes, `entry`
   comes directly before `exit`. Enclosures may be nested. */
typedef struct baton_enclosure {
    uint32_t node;
    uint32_t edge;
} baton_enclosure_t;
baton_enclosure_t baton_enclose_begin(const baton_schedule_t *schedule);
void baton_enclose_end(baton_schedule_t *schedule, baton_enclosure_t begun,
                       baton_node_t entry, baton_node_t exit);

/* ---- epochs -----------------------------------------------------------

   Start, test, wait and cancel are in baton.h. If a schedule has armed
   receives, the epoch that is started may be running already, or may have
   retired. Then start only fires its on_start nodes, or has nothing to do. Wait
   returns BATON_ERR_STATE before this rank's first start, even if a peer has
   begun an epoch, and in a call node. Start returns BATON_ERR_STATE before the
   commit, and if an adder was called after the commit. A call node may cancel
   its epoch. For an epoch that failed, wait returns its error even after a
   recovery. With a timeout_ms of at least 100, the message of a
   BATON_ERR_TIMEOUT names the rank that all others wait for.

   Destroy waits for an epoch that runs here, whether or not this rank started
   it. Peers that begin a later epoch fail, and learn why; destroy does not wait
   until they have. Peers may still be in epochs that have ended here, or may
   not have committed the schedule yet: messages from them are dropped.
   BATON_ERR_TIMEOUT: within BATON_DESTROY_MS a transfer in progress or an async
   node has not ended. The schedule is destroyed all the same, and its group and
   engine can be. But its memory is still in use, and scratch is freed only when
   that transfer or node has ended. Until then each further call of destroy
   returns BATON_ERR_TIMEOUT at once; the first call after that returns
   BATON_OK, and bound memory can be freed. An async node must complete within
   BATON_DESTROY_MS: a later completion is not noticed, and destroy goes on to
   return BATON_ERR_TIMEOUT. BATON_ERR_STATE (in a call node): nothing has
   happened. */

/* baton_schedule_epoch returns the number of the last epoch that has retired
   here since the commit or the last recovery, and baton_schedule_started the
   number of the last epoch that this rank has started. */
uint64_t baton_schedule_epoch(const baton_schedule_t *schedule);
uint64_t baton_schedule_started(const baton_schedule_t *schedule);

/* Sets how many epochs may be in flight, started and not ended: 1 (the default)
   to BATON_MAX_DEPTH, or to 8 in an engine with a device. They run one after
   another, each with the memory that was bound when it was started. With a
   depth above 1 the thread that starts, and call nodes, may rebind buffers at
   any time, for later starts. The k-th start of a rank matches the k-th of the
   others, whose depth may differ. A failed epoch fails all that were started
   after it; a cancel gives up all of them. Call this before the commit, which
   returns BATON_ERR_LIMIT above 8 with a device, and BATON_ERR_UNSUPPORTED
   above 1 with armed receives. */
#define BATON_MAX_DEPTH 1024
void baton_schedule_set_depth(baton_schedule_t *schedule, uint32_t depth);

/* Start and wait in one call, with the errors of both. After BATON_ERR_TIMEOUT
   and _INTERRUPTED the epoch has been started: wait again. */
BATON_CHECKED baton_status_t baton_schedule_run(baton_schedule_t *schedule,
                                                int timeout_ms);

/* Test and wait as in baton.h, for one epoch. BATON_ERR_STATE: `epoch` is not
   in 1..baton_schedule_started(). */
BATON_CHECKED baton_status_t baton_schedule_test_epoch(
    baton_schedule_t *schedule, uint64_t epoch, bool *done_out);
BATON_CHECKED baton_status_t baton_schedule_wait_epoch(
    baton_schedule_t *schedule, uint64_t epoch, int timeout_ms);

/* Waits for this epoch, or, if `epoch` is 0, for the last one started, while
   the program polls something else. The wait calls `fn` on this thread again
   and again, and sleeps for at most 50 us in between. While `fn` returns
   BATON_OK the wait goes on; any other status ends the wait, which returns it,
   and the epoch goes on. The rules for a call node's function apply to `fn`. */
typedef baton_status_t (*baton_turn_fn)(void *arg);
BATON_CHECKED baton_status_t
baton_schedule_wait_with(baton_schedule_t *schedule, uint64_t epoch,
                         int timeout_ms, baton_turn_fn fn, void *arg);

/* The messages that this rank has sent for the schedule in all epochs,
   including those of activates, and their bytes of payload. */
typedef struct baton_traffic {
    uint64_t messages;
    uint64_t bytes;
} baton_traffic_t;
baton_traffic_t baton_schedule_sent(const baton_schedule_t *schedule);

/* Keeps armed receives from beginning an epoch after `epoch`; their messages
   wait until the limit is raised. A value below the current limit has no
   effect. A new or recovered schedule has no limit until the first call. One
   thread at a time may call this for a schedule. */
void baton_schedule_limit(baton_schedule_t *schedule, uint64_t epoch);

/* Sets a function that is called once for each epoch of this rank, in order,
   when it has retired or failed, with its number and outcome. The function is
   also called for epochs that peers began, and for started epochs that can't
   begin any more. NULL removes it. Any thread may call this at any time, for
   epochs that end from then on. After another such call, or destroy, has
   returned, the function is not called any more.

   It runs on the driving thread, like a call node's function, and should be as
   short. It may start schedules (this one, too), rebind buffers of this one,
   create schedules, test and cancel. Commit, recover, destroy, and a wait for
   an epoch that has not ended return BATON_ERR_STATE. Threads that wait for the
   epoch may go on before it has returned. */
typedef void (*baton_end_fn)(void *arg, uint64_t epoch, baton_status_t status);
void baton_schedule_on_end(baton_schedule_t *schedule, baton_end_fn fn,
                           void *arg);

/* ---- failure and recovery --------------------------------------------- */

/* An epoch fails once, for the first cause that this rank learns of: a node
   that failed, a cancel, a peer that is gone, or the failure of a peer's epoch.
   The schedule's peers are told the cause and the rank where it occurred, and
   fail with the same status. (A rank that commits the schedule only when others
   already recover fails with BATON_ERR_CANCELLED.) A peer that still has an
   earlier epoch to complete completes it first. The schedule stays failed until
   it is recovered or destroyed. A schedule that has neither messages nor
   on_recover can be started again at once. */
typedef struct baton_failure {
    baton_status_t status; /* status of the first cause */
    int rank;              /* the rank where the cause occurred */
    uint64_t epoch;        /* the epoch in which the cause occurred there */
    char message[512];     /* the error message of that rank */
} baton_failure_t;

/* Stores how the schedule failed. BATON_ERR_STATE: the schedule has not failed,
   or is not committed. */
BATON_CHECKED baton_status_t
baton_schedule_failure(const baton_schedule_t *schedule, baton_failure_t *out);

/* Sets a function that is called when the schedule is being recovered, before
   its next epoch, for builders that keep state across epochs. `epoch` is the
   last one that any rank completed before the failure, so its result exists
   somewhere. baton_schedule_epoch, which is reset afterwards, still says how
   far this rank has come. The function returns true when it is done. Until then
   it is called again and again, while the group's recovery goes on. So it may
   start another schedule (one without on_recover) to exchange more with other
   ranks, and poll until that schedule's epoch has retired. If one rank of the
   group has a schedule with on_recover, all must. The function runs on the
   driving thread, like a call node's. Call this before the commit, at most
   once. */
typedef bool (*baton_recover_fn)(void *arg, uint64_t epoch);
void baton_schedule_on_recover(baton_schedule_t *schedule, baton_recover_fn fn,
                               void *arg);

/* Sets a function that is called when the schedule has failed and stays failed:
   once none of its nodes is in progress, and before threads that wait for it
   wake. The function runs on the driving thread, like a call node's. `status`
   is that of the first cause. A schedule with this function fails, with
   BATON_ERR_TRANSPORT, as soon as a rank of its group is lost, in an epoch or
   between two, whether it has messages with that rank or not. Call this before
   the commit, at most once. */
typedef void (*baton_failed_fn)(void *arg, baton_status_t status);
void baton_schedule_on_failure(baton_schedule_t *schedule, baton_failed_fn fn,
                               void *arg);

/* Promises an order, as of blocking collectives: all ranks start the epochs of
   the group's schedules that have this promise in one order, and a rank starts
   each of them only after the one before has ended there. If two ranks wait in
   epochs of different schedules, they have broken the promise: both schedules
   fail with BATON_ERR_MISMATCH, whose message says how the ranks differ. Call
   this before the first start. */
void baton_schedule_in_order(baton_schedule_t *schedule);

/* ---- reductions of your own ------------------------------------------- */

/* target[i] = left[i] (op) right[i] for count elements. target may equal left
   or right, but overlaps them in no other way. The function runs on the
   engine's driving thread, in the default floating-point mode (round to
   nearest, subnormals kept). It must not call into Baton and should not
   block. */
typedef void (*baton_reduce_fn)(void *arg, void *target, const void *left,
                                const void *right, size_t count,
                                baton_dtype_t dtype);

/* Fills count elements with the reduction's neutral element. */
typedef void (*baton_identity_fn)(void *arg, void *target, size_t count,
                                  baton_dtype_t dtype);

/* A reduction, associative up to rounding. Builders keep one order of operands
   on all ranks, so that results are bit-identical. Users fill in a reduction of
   their own (usually static const), which must outlive every schedule that uses
   it. */
struct baton_op {
    const char *name;
    baton_reduce_fn reduce;
    baton_identity_fn identity; /* NULL if no partial collective uses it */
    void *arg;
    /* True if left (op) right = right (op) left. If not, builders reduce in the
       order of ranks, and those that can't (the ring) fail. */
    bool commutative;
    /* The size of an element, if it is not that of the element type: a pair of
       value and index, for example. 0 means the type's. The functions are
       passed the type in any case. */
    size_t element_bytes;
    /* The supported types, a bit 1u << dtype for each; 0: all. */
    uint32_t dtypes;
};

/* Returns the bytes of an element that `op` reduces; 0 if `dtype` is
   invalid. */
size_t baton_op_element_bytes(const baton_op_t *op, baton_dtype_t dtype);

/* True if op->dtypes includes this type. */
bool baton_op_takes(const baton_op_t *op, baton_dtype_t dtype);

/* Checks that op reduces dtype. BATON_ERR_INVALID: op is NULL or has no
   function, dtype is invalid, or op does not support it; the message says which
   built-in reductions do. All functions that are given an op and a dtype check
   this. */
BATON_CHECKED baton_status_t baton_op_check(const baton_op_t *op,
                                            baton_dtype_t dtype);

/* The built-in reductions, and the types that they support:

       SUM, PROD          integers, floats, complex
       MIN, MAX           integers, floats
       BAND, BOR, BXOR    integers, bool: bitwise
       LAND, LOR, LXOR    integers, bool: logical
       MINLOC, MAXLOC     pairs
       AVG                floats, complex

   Integer sums and products wrap modulo 2^bits. The neutral element of a float
   sum is -0, as x + -0 is x for every x. So a sum without contributions is -0,
   which equals 0. MIN and MAX of floats: a NaN operand gives a NaN. Of a zero
   and a negative zero, MIN is the negative one and MAX the positive.

   For LAND, LOR and LXOR, 0 is false and all else is true; the result of two
   elements is 0 or 1. MINLOC and MAXLOC of pairs: the value is the MIN or MAX
   of the two values. The index is that of the operand with this value, or the
   lower one if the values are equal, as zeros of either sign are. MINLOC and
   MAXLOC prefer a NaN to any other value. The padding bytes of a pair become 0.

   AVG is for reduce, reduce-scatter, all-reduce and partial collectives. The
   last reduction of an element is baton_schedule_average(): a copy of BATON_AVG
   whose `arg` is the number of ranks. It computes (left + right) / ranks, and
   rounds f16 and bf16 once, from f32. The reductions before it are BATON_SUM's,
   and round each time: if a sum overflows, the result is infinite, although the
   mean might be finite. To avoid that, scale the elements before and use
   BATON_SUM, or use f32. In a partial collective, too, the divisor is the
   number of ranks that live, not of those that were active: late contributions
   count as much. Integers are not supported: they would lose the fraction.

   A complex product is (ac - bd) + (ad + bc)i, as computed: infinite factors
   may give NaNs. Its neutral element, 1, keeps finite numbers, but not the sign
   of every zero. */
#define BATON_OP_LIST(X)                                                       \
    X(SUM, sum)                                                                \
    X(PROD, prod)                                                              \
    X(MIN, min)                                                                \
    X(MAX, max)                                                                \
    X(BAND, band)                                                              \
    X(BOR, bor)                                                                \
    X(BXOR, bxor)                                                              \
    X(LAND, land)                                                              \
    X(LOR, lor)                                                                \
    X(LXOR, lxor)                                                              \
    X(MINLOC, minloc)                                                          \
    X(MAXLOC, maxloc)

/* ---- groups, waits and errors, for builders --------------------------- */

/* The engine that the group was made in; NULL for NULL. */
baton_engine_t *baton_group_engine(const baton_group_t *group);

/* Waits until condition(arg) is true, as wait does for a schedule: makes
   progress or sleeps, and can be interrupted (engine.h). The wait calls the
   condition again and again on this thread, which may be driving; so it must be
   short, and make no call of the library. A thread that makes the condition
   true calls notify, which wakes all waiting threads (any thread;
   async-signal-safe). BATON_ERR_TIMEOUT, _INTERRUPTED; BATON_ERR_STATE: in a
   call node, and the condition is not true. */
typedef bool (*baton_condition_fn)(const void *arg);
BATON_CHECKED baton_status_t baton_engine_wait(baton_engine_t *engine,
                                               baton_condition_fn condition,
                                               const void *arg, int timeout_ms);
void baton_engine_notify(baton_engine_t *engine);

/* The number of recoveries of the group so far. */
unsigned baton_group_recoveries(const baton_group_t *group);

/* True if the buffers of this group have memory. False in a cost-only
   simulation (sim.h), where call nodes must not touch data. */
bool baton_group_has_payload(const baton_group_t *group);

/* True for a group of the simulator: one thread builds the schedules of all
   ranks, so no rank can wait for another in a builder. */
bool baton_group_is_simulated(const baton_group_t *group);

/* Keeps a pointer with the group, like an attribute of an MPI communicator: one
   for each `key`, an address of the caller's choice. The first value that is
   set stays; a `value` of NULL only queries. Returns the stored value, `value`
   or an earlier one; NULL if there is none, or no memory. `destroy` (unless
   NULL) is called with the value when the group is being destroyed, and may
   destroy schedules then. */
typedef void (*baton_attribute_destroy_fn)(void *value);
void *baton_group_attribute(baton_group_t *group, const void *key, void *value,
                            baton_attribute_destroy_fn destroy);

/* For transports, devices and builders of your own: sets this thread's error
   message, and returns `status`. The library adds the name of the object. */
baton_status_t baton_error_set(baton_status_t status, const char *format, ...)
    BATON_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif
