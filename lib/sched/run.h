/* The state of one schedule while its epochs run: pure, without thread, clock
   or I/O. Production and simulation step this same state.

   An epoch begins with its counters reset and its roots ready. The caller pops
   and issues ready nodes, and reports each completion, which satisfies the
   edges to the node's successors. A node fires (becomes ready) when as many of
   its edges are satisfied as it needs. The epoch can retire (end, so that the
   next one can begin) when all required nodes have completed and no node is in
   motion. A node is in motion while the transport, an async operation or the
   device works on it, and so may access its memory: in the states MOVING, BEGUN
   and QUEUED.

       idle --begin--> running --retire--> idle
        |                 |
        +-----fail--------+--> draining -(none in motion)--> failed
        |                                                      |
        +------recover--> recovering <--------recover----------+
                              |
                              +--(all ranks have come)--> idle

   A schedule without messages goes from draining back to idle. A schedule that
   can't recover goes from recovering back to failed. Every node enters the
   ready queue at most once an epoch, so the queue is an array with one place a
   node. */
#pragma once

#include "ops/op.h"

#define BATON__NO_NODE UINT32_MAX

/* A receive into scratch, and the one reduce that reads its data; see
   loans.h. */
typedef struct baton__loan {
    uint32_t receive;
    uint32_t reduce;
    /* The index of the received data among the operands of the reduce. */
    uint8_t operand;
} baton__loan_t;

/* The plan that commit created. The arrays `successors`, `roots`, `on_starts`,
   `armed` and `asyncs` have ids of nodes. The fields that each message needs
   come first, on one cache line. */
typedef struct baton__plan {
    /* `count` + 1 records. The last one is no node's: it only marks where the
       successors of the last node end. */
    const baton__op_t *ops;
    uint32_t *successors; /* the successors of all nodes, in one array */
    /* A hash table of the receives. The key is the peer, the tag, and whether
       the message is an activation. Its size is a power of two; an entry is 1 +
       the id of a node, or 0. */
    uint32_t *incoming;
    uint32_t incoming_mask;
    /* A plan that another rank has made first has that rank's peers in its
       records. The exclusive or of such a peer and `flip` is the corresponding
       peer of this rank; see share.h. */
    uint32_t flip;
    uint32_t count, armed_count, on_start_count, loan_count;
    /* By node: number of edges that must be satisfied before the node fires. */
    const uint32_t *needs;
    void *memory; /* holds the arrays of the plan and the run */
    /* The plan was made for another rank: only `peers` and the arrays of the
       run are in `memory`. */
    bool shared;
    /* The plan is a model (share.h), which other ranks use, so `memory`
       outlives the schedule. */
    bool is_model;
    uint32_t *roots; /* nodes that fire when an epoch begins */
    uint32_t *on_starts;
    /* The armed receives, which can take a message at any time: a message for
       the next epoch that comes between epochs begins that epoch. See
       baton_add_armed_recv. */
    uint32_t *armed;
    uint32_t *asyncs;
    /* the ranks with which this rank exchanges messages, in ascending order */
    uint32_t *peers;
    /* By index in `peers`: the numbers of messages from the peer (0) and to it
       (1), both of those with data (0) and of activations (1). Not used if
       `shared`. */
    uint32_t (*message_counts)[2][2];
    baton__loan_t *loans; /* sorted by the reduces' ids */
    size_t awaited_bytes; /* bytes of the messages that an epoch waits for */
    uint32_t root_count, async_count, peer_count, receive_count;
    uint32_t slot_count, length_count;
    uint32_t required; /* number of nodes that an epoch waits for */
    uint32_t messages; /* number of nodes that send or receive a message */
    int rank;
    int size;
} baton__plan_t;

/* Returns the node that receives this message, or BATON__NO_NODE. */
uint32_t baton__plan_receiver(const baton__plan_t *plan, int peer, uint32_t tag,
                              bool activates);

/* Returns the place in the table `incoming` where the search for this message's
   receive begins, so that the caller can prefetch it. */
const uint32_t *baton__plan_place(const baton__plan_t *plan, int peer,
                                  uint32_t tag, bool activates);

/* Adds a receive, whose tag is set, to the table `incoming`. */
void baton__plan_add_receiver(baton__plan_t *plan, uint32_t node);

typedef enum baton__run_state {
    BATON__RUN_IDLE,
    BATON__RUN_RUNNING,
    BATON__RUN_DRAINING,
    BATON__RUN_FAILED,
    BATON__RUN_RECOVERING,
    BATON__RUN_STATE_COUNT
} baton__run_state_t;

/* The state of a node in the running epoch. */
typedef enum baton__node_state {
    /* The node was not issued yet. Or the epoch no longer waits for it: it was
       withdrawn, or is an armed receive without a message, or an optional send
       or receive whose peer is lost. */
    BATON__NODE_IDLE,
    /* A send to a peer that has not committed yet; or a send or receive whose
       message has failed, while the peer may be lost. */
    BATON__NODE_HELD,
    BATON__NODE_WAITING, /* a receive that has fired and has no message yet */
    /* A send or an accepted message that the transport works on. */
    BATON__NODE_MOVING,
    BATON__NODE_BEGUN,  /* an async node that has begun and not completed */
    BATON__NODE_QUEUED, /* the node's work is in a stream of the device */
    /* the node has completed without satisfying the edges to its successors */
    BATON__NODE_SKIPPED,
    BATON__NODE_COMPLETED
} baton__node_state_t;

#define BATON__LENGTH_UNSET SIZE_MAX

typedef struct baton__run {
    const baton__plan_t *plan;
    uint32_t *left;  /* by node: number of edges still needed; wraps below 0 */
    uint32_t *ready; /* the ready nodes: ready[head] to ready[tail - 1] */
    uint8_t *state;  /* baton__node_state_t of each node */
    /* By length (baton_length_t): the bytes in this epoch, or
       BATON__LENGTH_UNSET. The second half of the array has the largest value
       that is allowed for each length; commit sets these. */
    size_t *lengths;
    baton__activation_t *activations;
    baton__async_t *asyncs;
    /* By receive: messages that arrived early, for a later epoch. Where ranks
       share plans this is NULL until there is such a message. */
    baton_message_t **early;
    /* By loan: the lent message, from its arrival until the reduce has read it;
       otherwise NULL. */
    baton_message_t **lent;
    uint32_t head, tail;
    uint32_t required_left;
    /* Number of nodes in the states HELD, MOVING, BEGUN and QUEUED, plus the
       number of required receives that wait for their messages. */
    uint32_t waited;
    /* Points to the sum of `waited` over all schedules of the engine, which
       this run keeps up to date. NULL: there is no such sum. */
    uint32_t *waited_by_all;
    /* Number of optional receives that wait for their messages. */
    uint32_t optional_waiting;
    /* Number of armed receives that have their message for this epoch. */
    uint32_t unarmed;
    uint32_t early_count;
    uint32_t lent_count;
    uint64_t epoch; /* the last epoch that began */
    /* Number of nodes that have completed so far, over all epochs. From it the
       watchdog sees whether an epoch makes progress. */
    uint64_t progress_count;
    baton__run_state_t phase;
    /* This rank has started the epoch, and the on-start nodes have fired. */
    bool started;
} baton__run_t;

/* Begins the epoch after the last one. */
void baton__run_begin(baton__run_t *run);

/* Called when this rank's application has started the running epoch: fires the
   on-start nodes, once. */
void baton__run_started(baton__run_t *run);

static inline bool baton__run_has_ready(const baton__run_t *run)
{
    return run->head != run->tail;
}

static inline uint32_t baton__run_pop(baton__run_t *run)
{
    return run->ready[run->head++];
}

/* Changes a node's state, and updates the counts of nodes that the epoch waits
   for. This neither satisfies successors nor counts as a completion: to
   complete a node, call baton__run_complete, baton__run_skip or
   baton__run_complete_queued. */
void baton__run_enter(baton__run_t *run, uint32_t node,
                      baton__node_state_t state);

/* Completes a node, and satisfies the node's successors. */
void baton__run_complete(baton__run_t *run, uint32_t node);
/* Completes a node without satisfying the node's successors. */
void baton__run_skip(baton__run_t *run, uint32_t node);

/* Called when a node was put into a stream. From now on the epoch waits for the
   node, and the node's successors on the device are satisfied. */
void baton__run_queue(baton__run_t *run, uint32_t node);
/* Called when the work of a node that was put into a stream is done. Completes
   the node, and satisfies its successors that are not on the device. */
void baton__run_complete_queued(baton__run_t *run, uint32_t node);

/* Tells what to do with a message for a receive. */
typedef enum baton__when {
    BATON__WHEN_PAST, /* drop the message: its epoch has passed */
    BATON__WHEN_NOW,  /* take the message now: the receive waits for it */
    /* Keep the message for later: it is for a later epoch, or its receive has
       not fired yet. */
    BATON__WHEN_LATER,
} baton__when_t;
baton__when_t baton__run_when_of(const baton__run_t *run, uint32_t node,
                                 uint64_t epoch);

/* Stores the content of the activation that an armed receive got, and satisfies
   the receive's successors. An activate, which is a node that sends the
   activation on, is not satisfied if its peer is nearer to the origin than this
   rank, because an activation travels only away from its origin. */
void baton__run_activate(baton__run_t *run, uint32_t node,
                         baton__activation_t activation);

/* Returns the bytes of a node's operands in this epoch. */
static inline size_t baton__run_bytes(const baton__run_t *run,
                                      const baton__op_t *op)
{
    if (op->length == BATON__NO_LENGTH ||
        run->lengths[op->length] == BATON__LENGTH_UNSET) {
        return op->bytes;
    }
    return run->lengths[op->length];
}

/* Returns true if nothing keeps the running epoch from retiring. */
static inline bool baton__run_is_through(const baton__run_t *run)
{
    return run->required_left == 0 && run->waited == 0 &&
           run->head == run->tail && run->phase == BATON__RUN_RUNNING;
}

/* True if the running epoch can never retire: a required node has not fired,
   and nothing can fire it any more. */
bool baton__run_is_stuck(const baton__run_t *run);

/* The only function that changes the phase. The phase of a task's run is
   changed by baton__task_set_phase, which calls this function. */
void baton__run_set_phase(baton__run_t *run, baton__run_state_t phase);
