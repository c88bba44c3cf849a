/* The schedule object, in the order of its life: a graph that adders grow, a
   plan that commit makes, a run that the engine's driver steps.

   Ownership: the builder's thread owns the graph. The plan is read-only after
   the commit. The driver owns `run`, `turn`, `notices` and `failure`. All
   threads access `shared`. */
#pragma once

#include "base/text.h"
#include "ops/op.h"
#include "sched/run.h"
#include "transport/group.h"

#include <stdatomic.h>

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
    bool rebound; /* since the last baton__check_rebound */
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

/* How an epoch failed: the first cause, on the rank where it occurred. The
   message is in the schedule's `sentence`. */
typedef struct baton__failure {
    baton_status_t status; /* BATON_OK: none */
    int rank;
    uint64_t epoch; /* the epoch that failed there */
    bool final;     /* it can't be recovered */
    bool recovers;  /* the only cause is that `rank` recovers the group */
} baton__failure_t;

/* Stored outcomes of failed epochs, for late waits. */
enum { BATON__FAILURES = 8 };

/* The state of the introduction of a schedule to a peer. */
typedef enum baton__acquaintance {
    BATON__UNMET,   /* neither rank has sent a hello */
    BATON__GREETED, /* this rank has sent a hello, or is about to */
    BATON__MET      /* the peer has committed, or has left */
} baton__acquaintance_t;

/* The state of a schedule whose destroy has timed out: parts are still in
   motion, or all have ended. The struct exists until another destroy has
   returned BATON_OK. */
typedef enum baton__orphan {
    BATON__NO_ORPHAN,
    BATON__ORPHAN_MOVES,
    BATON__ORPHAN_ENDED
} baton__orphan_t;

/* The fields that each step uses come first, on few cache lines. */
struct baton_schedule {
    baton_group_t *group;
    char **addresses; /* of each buffer now; NULL before the commit */
    baton__op_t *ops; /* the graph's; after the commit, the plan's */

    /* Only the driver accesses these. */
    struct {
        baton_schedule_t *next_runnable;
        uint32_t moving;   /* nodes in the transport */
        uint32_t begun;    /* async nodes that have not completed */
        uint32_t queued;   /* nodes in streams of the device */
        size_t slice_done; /* bytes done of a node that runs in parts */
        /* 1 + a node that is held because its message failed; 0: none. See
           baton__epoch_fail_message. */
        uint32_t doubted;
        const char *why; /* the detail of that failure, or NULL */
        /* 1 + a completed receive whose lent message must be received after
           all, for which the next node waits; 0: none. */
        uint32_t unlent;
        uint32_t vain; /* one of 2^vain starts polls; see progress/engine.c */
        bool runnable;
        bool held;      /* its epoch waits until a stream gets to the start */
        bool abandoned; /* was destroyed; it is freed when no node is in
                           motion */
    } turn;

    struct baton__offload *offload; /* see offload.h; NULL without a device */
    baton__run_t run;
    uint64_t identity; /* name and attempt; see baton__identity */
    /* Sends and activates that were issued; the driver writes, any thread
       reads. */
    _Atomic uint64_t sent_messages;
    _Atomic uint64_t sent_bytes;
    baton__plan_t plan;

    /* Only the driver accesses these, too, less often. */
    struct {
        /* Links of the list of all committed schedules, or of the others. */
        baton_schedule_t *next;
        baton_schedule_t *previous;
        baton__peer_notice_t *due; /* notices to each of plan.peers */
        uint32_t due_count;        /* peers with a notice to send */
        uint32_t unmet;            /* peers in state BATON__UNMET */
        bool leaving; /* destroyed; it is freed when its notices are sent */
    } notices;

    baton_op_t average; /* baton_schedule_average */

    baton_recover_fn on_recover; /* called in a recovery; or NULL */
    void *on_recover_arg;
    baton_failed_fn on_failure; /* or NULL */
    void *on_failure_arg;
    /* The ranks' agreement on on_recover's epoch; two, like the group's. */
    baton__agreement_t agreements[2];

    baton_end_fn on_end; /* called when epochs end; or NULL */
    void *on_end_arg;
    uint64_t ended; /* the last epoch for which on_end was called */

    /* The last failed epochs: epoch << 8 | -status, by epoch modulo the length.
       Any thread reads them. */
    _Atomic uint64_t *failures;
    baton__failure_t failure;
    uint64_t failing_from; /* the first epoch that the failure affects; 0:
                              none */

    /* Fields of the watchdog and of the simulator. */
    struct {
        uint64_t seen_progress;  /* progress_count when it last changed */
        uint64_t seen_at_ns;     /* the time of that */
        uint8_t inquiries;       /* rounds of inquiries about this stall */
        bool reported;           /* the stall has been logged */
        uint64_t asked_epoch;    /* the last epoch about which a peer asked */
        uint64_t asked_progress; /* of this rank at the first such question */
        int asked_by;            /* the first rank that asked */
        struct baton__inquiry *inquiry; /* the last one, or NULL */
        bool matched;    /* simulated: compared with the other ranks */
        bool timed;      /* simulated: an epoch has begun and not ended */
        double began_us; /* the last epoch's begin, in virtual time */
        double ended_us; /* the last epoch's end, in virtual time */
    } notes;

    /* Between the application and the driver. */
    struct {
        _Atomic uint64_t requested; /* starts so far; the application writes */
        _Atomic uint64_t retired;   /* epochs so far; the driver writes */
        _Atomic uint64_t failed; /* first epoch that won't be completed, or 0 */
        _Atomic uint64_t limit;  /* highest epoch that may begin by itself */
        _Atomic bool mailed;     /* is in the mailbox */
        _Atomic uint64_t cancel; /* epoch to cancel, or 0 */
        baton_schedule_t *next_mail;
        _Atomic uint64_t started_ns; /* the last start; 0: its epoch ended at
                                        once, or was waited for */
        _Atomic bool waits_soon;     /* a hint: the last wait soon followed */
        _Atomic uint32_t waiters;    /* threads in wait, or completing a node */
        _Atomic uint32_t generation; /* recoveries so far */
        /* The last epoch that retired before the last recovery. The failure
           lock guards this and last_status. */
        uint64_t last_retired;
        baton_status_t last_status; /* of the epochs after that one */
        /* The last epoch whose failure wait or test has returned. */
        _Atomic uint64_t reported;
        /* The status of a failed epoch that was started before the last
           recovery, if no call has returned it; else BATON_OK. Until the next
           start wait returns it. */
        _Atomic int unreported;
        _Atomic int orphan; /* baton__orphan_t */
    } shared;

    const char *name; /* in memory after the struct, or elsewhere if simulated.
                         In a group with a name, "group/schedule" */
    char *terms;      /* see terms.c; NULL if there are none */
    uint64_t terms_hash;

    /* The rest of the graph. */
    uint32_t attempt; /* of the name */
    uint32_t *needs;  /* as set by the builder; after the commit, numbers of
                         edges */
    uint32_t count;   /* nodes */
    bool committed;   /* and not destroyed */
    bool in_order;    /* see baton_schedule_in_order */
    bool destroyed;   /* the owner may still have a handle */
    bool verifies;    /* it belongs to the verifier */
    uint32_t capacity;
    baton__edge_t *edges; /* until the commit */
    uint32_t edge_count;
    uint32_t edge_capacity;
    baton__buffer_t *buffers;
    uint32_t buffer_count;
    uint32_t buffer_capacity;
    uint32_t depth; /* epochs that may be started and not ended */
    /* The memory that was bound at the start of each epoch in flight, by epoch
       % depth; the driver takes it when the epoch begins. NULL if the depth is
       1. */
    char **bindings;
    _Atomic bool rebound;        /* a buffer is; the driver's lock guards the
                                    buffers */
    struct baton__range *ranges; /* see alias.c */
    uint64_t overlaps;           /* pairs of buffers, at commit */
    uint32_t slot_count;         /* of activations */
    uint32_t length_count;
    size_t *length_limits;  /* of each length, after the commit */
    baton__op_t *built_ops; /* during a commit: the graph's ops */
    uint32_t *built_needs;

    /* The first error of an adder. After the commit `sentence` has the message
       of a failed epoch. */
    baton_status_t sticky;
    char sentence[BATON__SENTENCE_BYTES];
    /* A failure in the next incarnation, which a recovered peer reported while
       this rank still recovers; in force after the recovery. failing_from 0:
       none. */
    struct {
        baton__failure_t failure;
        uint64_t failing_from;
        char sentence[BATON__SENTENCE_BYTES];
    } next;
    const char *misused; /* the name of an adder that was called after the
                            commit */
};

/* True if a failed schedule stays failed until it is recovered: its epochs have
   messages, or its builder keeps state across epochs. Otherwise the failed
   epoch retires. */
static inline bool
baton__schedule_stays_failed(const baton_schedule_t *schedule)
{
    return schedule->plan.messages > 0 || schedule->on_recover != NULL;
}

/* The length of `failures`. */
static inline uint32_t
baton__schedule_failures(const baton_schedule_t *schedule)
{
    return schedule->depth > BATON__FAILURES ? schedule->depth
                                             : BATON__FAILURES;
}

/* True if a transfer, an async node or the device still uses the schedule's
   memory, even if the epoch has failed. */
static inline bool baton__schedule_in_motion(const baton_schedule_t *schedule)
{
    return schedule->turn.moving > 0 || schedule->turn.begun > 0 ||
           schedule->turn.queued > 0;
}

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
/* Frees the schedule with all its memory. */
void baton__schedule_free(baton_schedule_t *schedule);

/* The peer of a message node. */
static inline int baton__peer_of(const baton_schedule_t *schedule,
                                 const baton__op_t *op)
{
    return (int)(op->peer ^ schedule->plan.flip);
}

/* The index of `peer` in plan.peers; peer_count if it is not there. */
uint32_t baton__plan_peer(const baton__plan_t *plan, int peer);
