/* The state of one schedule while its epochs run: pure, without thread, clock
   or I/O. Production and simulation step this same state.

   An epoch begins with the counters reset and the roots ready. Ready nodes are
   popped and issued by the caller, who reports each completion; a completion
   satisfies the node's successors. The epoch can retire when no required node
   and nothing in flight is left.

       idle --begin--> running --retire--> idle
                          |
                          +--fail--> draining --(sends end)--> failed

   Every node enters the ready queue at most once an epoch, so the queue is an
   array with one slot a node. */
#ifndef BATON_SCHED_RUN_H
#define BATON_SCHED_RUN_H

#include "ops/op.h"

/* What commit froze. Lists are node ids. */
typedef struct baton__plan {
    const baton__op_t *ops; /* count + 1 records */
    uint32_t *successors;   /* all nodes' in one array */
    const uint32_t *needs;  /* edges that a node waits for */
    void *memory;           /* of all of it, and of the run's arrays */
    uint32_t *lists;        /* memory of the lists below */
    uint32_t *roots;        /* fire when an epoch begins */
    uint32_t *on_starts;
    uint32_t *armed;
    uint32_t *activates;
    uint32_t *stragglers; /* optional receives */
    uint32_t count, root_count, on_start_count;
    uint32_t armed_count, activate_count, straggler_count;
    uint32_t required; /* nodes that an epoch waits for */
    uint32_t messages; /* nodes that go through the transport */
    int rank;
    int size;
} baton__plan_t;

typedef enum baton__run_state {
    BATON__RUN_IDLE,
    BATON__RUN_RUNNING,
    BATON__RUN_DRAINING,
    BATON__RUN_FAILED,
    BATON__RUN_STATE_COUNT
} baton__run_state_t;

/* Where a message node's message is. LATE: posted for an epoch that has
   retired. LATE_AGAIN: that, and fired in the running epoch too. (Of several
   epochs that went by without their messages `owed` keeps count.) HELD: an
   armed receive keeps the message of a later epoch. */
typedef enum baton__flight {
    BATON__NOWHERE,
    BATON__IN_FLIGHT,
    BATON__LATE,
    BATON__LATE_AGAIN,
    BATON__HELD
} baton__flight_t;

typedef struct baton__run {
    const baton__plan_t *plan;
    uint32_t *left;  /* edges each node still waits for; wraps below 0 */
    uint32_t *ready; /* head .. tail */
    uint8_t *flight; /* baton__flight_t of each node */
    uint32_t *owed;  /* messages of retired epochs each straggler waits for */
    baton__header_t *headers;
    uint32_t head, tail;
    uint32_t required_left;
    uint32_t waited; /* messages in flight that the epoch waits for */
    uint64_t epoch;  /* the last that began */
    uint64_t moves;  /* completions so far: the watchdog's pulse */
    baton__run_state_t state;
    bool started; /* on_starts have fired in this epoch */
} baton__run_t;

/* Begins the epoch after the last one. */
void baton__run_begin(baton__run_t *run);

/* This rank's application has started the running epoch. */
void baton__run_started(baton__run_t *run);

static inline bool baton__run_has_ready(const baton__run_t *run)
{
    return run->head != run->tail;
}

static inline uint32_t baton__run_pop(baton__run_t *run)
{
    return run->ready[run->head++];
}

/* A node is done: its successors are satisfied, or not when it skipped. */
void baton__run_complete(baton__run_t *run, uint32_t node);
void baton__run_skip(baton__run_t *run, uint32_t node);

/* A node was issued and completes later. */
void baton__run_posted(baton__run_t *run, uint32_t node);

/* A straggler of an earlier epoch is still posted: keeps the firing for later.
   False when the node is free to be issued. */
bool baton__run_defer(baton__run_t *run, uint32_t node);

/* The message of a node that is no armed receive has ended. True: it belongs to
   the running epoch, complete it. False: it was late; `*again` tells whether
   the node is to be issued again: for the running epoch, or for the message of
   one more epoch that has retired. */
bool baton__run_landed(baton__run_t *run, uint32_t node, bool *again);

/* An armed receive got a header. Drop: post it again. */
typedef enum baton__arrival {
    BATON__ARRIVAL_DROP,
    BATON__ARRIVAL_NOW,
    BATON__ARRIVAL_HOLD
} baton__arrival_t;
baton__arrival_t baton__run_arrival(baton__run_t *run, uint32_t node);

/* Satisfies the edges of an armed receive with what its header says. */
void baton__run_arrive(baton__run_t *run, uint32_t node);

/* Whether a held header names the epoch after the last one. */
bool baton__run_activated(const baton__run_t *run);

/* Whether the running epoch is through. retire: ends it; optional receives that
   are still posted turn late. */
static inline bool baton__run_through(const baton__run_t *run)
{
    return run->required_left == 0 && run->waited == 0 &&
           run->head == run->tail && run->state == BATON__RUN_RUNNING;
}
void baton__run_retire(baton__run_t *run);

/* The one place where the state changes. */
void baton__run_enter(baton__run_t *run, baton__run_state_t state);

#endif
