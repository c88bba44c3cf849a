/* The schedule object, in the order of its life: a graph that adders grow, a
   plan that commit makes, a run that the engine's driver steps.

   Ownership: the builder's thread owns the graph. The plan is read-only after
   the commit. The driver owns `run`, `turn`, `notices` and `failure`. `shared`
   is accessed by all threads. */
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
    char *memory; /* as bound; not to be used where there is no payload */
    baton_memory_t kind;
    bool placed; /* the kind was said, not found out */
    bool scratch;
    bool shared;  /* scratch that the transport has allocated */
    bool input;   /* no node may write it */
    bool written; /* a node does */
    bool rebound; /* since the last check; see baton__check_rebound */
    /* Buffers that shared memory at commit have one space; this one begins
       `base` bytes into it. */
    uint32_t space;
    size_t base;
    /* While commit finds out where scratch lies: buffers that are in one kind
       of memory, and those that something computes on. */
    uint32_t joined;
    bool computed;
    /* While commit allocates scratch: the bytes up to the last that a node
       uses, and whether a node writes it, or sends from it. A received message
       that is lent to a reduction is not written. */
    size_t used;
    bool stored;
} baton__buffer_t;

/* A sentence that waits for its reader. */
#define BATON__SENTENCE_BYTES 512

/* How an epoch failed: the first cause, on the rank that met it. The sentence
   is the schedule's. */
typedef struct baton__failure {
    baton_status_t status; /* BATON_OK: none */
    int rank;
    uint64_t epoch; /* that it failed in there */
    bool final;     /* it can't be recovered */
    bool recovers;  /* that rank recovers the group; and nothing else failed */
} baton__failure_t;

enum { BATON__FAILURES = 8 }; /* for threads that ask late how an epoch ended */

/* What this rank and a peer know of each other's schedule. */
typedef enum baton__acquaintance {
    BATON__UNMET,   /* nothing: neither has said hello */
    BATON__GREETED, /* this rank has said hello, or is about to */
    BATON__MET      /* the peer is known to have committed, or to have left */
} baton__acquaintance_t;

/* Of a schedule whose destroy has timed out. The struct stays until another
   destroy has returned that nothing is in motion any more. */
typedef enum baton__orphan {
    BATON__NO_ORPHAN,
    BATON__ORPHAN_MOVES,
    BATON__ORPHAN_ENDED
} baton__orphan_t;

/* What a step touches comes first, on few cache lines. */
struct baton_schedule {
    baton_group_t *group;
    char **addresses; /* what is behind each buffer now; NULL before the commit
                       */
    baton__op_t *ops; /* the graph's; after the commit, the plan's */

    /* The driver's. */
    struct {
        baton_schedule_t *next_runnable;
        uint32_t moving;   /* nodes that the transport has */
        uint32_t begun;    /* async nodes that have not completed */
        uint32_t queued;   /* nodes that the device has */
        size_t slice_done; /* of a node that is computed on in parts */
        /* 1 + a node that is held since its message failed; 0: none. And more
           on why, or NULL. See baton__epoch_fail_message. */
        uint32_t doubted;
        const char *why;
        /* 1 + a completed receive whose message was lent, and has to be
           received after all, for which the next node waits; 0: none. */
        uint32_t unlent;
        uint32_t vain; /* one of 2^vain starts polls; see progress/engine.c */
        bool runnable;
        bool held;      /* its epoch waits for a stream to get to its start */
        bool abandoned; /* was destroyed: to be freed when nothing moves */
    } turn;

    struct baton__offload *offload; /* see offload.h; NULL without a device */
    baton__run_t run;
    uint64_t identity; /* name and attempt; see baton__identity */
    baton__plan_t plan;

    /* Also the driver's; used less often. */
    struct {
        baton_schedule_t *next; /* of all that are committed, or are not */
        baton_schedule_t *previous;
        baton__peer_notice_t *due; /* of each of plan.peers */
        uint32_t due_count;        /* peers that are to be told something */
        uint32_t unmet;            /* peers that neither side has greeted */
        bool leaving; /* destroyed: it is freed when its peers have been told */
    } notices;

    baton_op_t average; /* baton_schedule_average */

    /* The callback of a builder that keeps state across epochs, called after a
       recovery; and how the ranks find out what it is told. */
    baton_recover_fn on_recover;
    void *on_recover_arg;
    baton_failed_fn on_failure; /* or NULL */
    void *on_failure_arg;
    baton__agreement_t agreements[2]; /* as the group's */

    /* What is called when epochs end; or NULL. */
    baton_end_fn on_end;
    void *on_end_arg;
    uint64_t ended; /* the last epoch that it was called for */

    /* The last that failed, where others follow: epoch << 8 | -status, by the
       epoch. Any thread reads them. */
    _Atomic uint64_t *failures;
    baton__failure_t failure;
    uint64_t failing_from; /* the epoch that the failure is in force from; 0:
                              none */

    /* The watchdog's notes and the simulator's. */
    struct {
        uint64_t seen_progress;
        uint64_t seen_at_ns;
        uint8_t inquiries;    /* rounds of them, about this stall */
        bool reported;        /* the stall was */
        uint64_t asked_epoch; /* that a rank has inquired about, the last one */
        uint64_t asked_progress;        /* of this rank when one asked first */
        int asked_by;                   /* the first that did */
        struct baton__inquiry *inquiry; /* the last one, or NULL */
        bool matched;    /* simulated: compared with the other ranks */
        bool timed;      /* an epoch has begun and not ended */
        double began_us; /* of the last epoch, in virtual time */
        double ended_us;
    } notes;

    /* Between the application and the driver. */
    struct {
        _Atomic uint64_t requested; /* starts so far; the application writes */
        _Atomic uint64_t retired;   /* epochs so far; the driver writes */
        _Atomic uint64_t failed; /* first epoch that won't be completed, or 0 */
        _Atomic uint64_t limit;  /* highest epoch that may begin by itself */
        /* Sends and activates that were issued; the driver writes. */
        _Atomic uint64_t sent_messages;
        _Atomic uint64_t sent_bytes;
        _Atomic bool mailed;     /* is in the mailbox */
        _Atomic uint64_t cancel; /* epoch to be given up, or 0 */
        baton_schedule_t *next_mail;
        _Atomic uint64_t started_ns; /* the last start; 0: it ended there,
                                        or was waited for */
        _Atomic bool waits_soon;     /* a hint: the last wait came soon after */
        _Atomic uint32_t waiters;    /* threads in wait, or completing a node */
        /* The number of recoveries, and the outcome of the epochs before the
           last one, which the failure lock guards. */
        _Atomic uint32_t generation;
        uint64_t last_retired;
        baton_status_t last_status;
        /* The last epoch whose failure wait or test has returned. */
        _Atomic uint64_t reported;
        /* The status of an epoch that was started before the last recovery,
           and failed, if nothing has returned it; else BATON_OK. Until the next
           start it is wait's. */
        _Atomic int unreported;
        _Atomic int orphan; /* baton__orphan_t */
    } shared;

    const char *name; /* behind the struct; a simulated rank's, elsewhere. In a
                         group with a name, "group/schedule" */
    char *terms;      /* see terms.c; NULL where there are none */
    uint64_t terms_hash;

    /* The rest of the graph. */
    uint32_t attempt; /* of the name */
    uint32_t *needs;  /* as asked for; after the commit, edges to wait for */
    uint32_t count;   /* nodes */
    bool committed;   /* and not destroyed */
    bool destroyed;   /* by its owner, who may still have a handle */
    bool verifies;    /* it is the verifier's */
    uint32_t capacity;
    baton__edge_t *edges; /* until the commit */
    uint32_t edge_count;
    uint32_t edge_capacity;
    baton__buffer_t *buffers;
    uint32_t buffer_count;
    uint32_t buffer_capacity;
    uint32_t depth; /* epochs that may be started and not ended */
    /* What was bound at the start of each of those, by epoch % depth, for the
       driver to take when the epoch begins; NULL where the depth is 1. */
    char **bindings;
    _Atomic bool rebound; /* some buffer is; the driver's lock guards those */
    struct baton__range *ranges; /* see alias.c */
    uint64_t overlaps;           /* pairs of buffers, at commit */
    uint32_t slot_count;         /* of activations */
    uint32_t length_count;
    size_t *length_limits;  /* of each length, after the commit */
    baton__op_t *built_ops; /* while a commit goes on: the graph's */
    uint32_t *built_needs;

    /* The first error that an adder met; later, how an epoch failed. */
    baton_status_t sticky;
    char sentence[BATON__SENTENCE_BYTES];
    /* Of the next incarnation: a peer that has recovered told of it while this
       rank still did; failing_from 0: none. In force once it has. */
    struct {
        baton__failure_t failure;
        uint64_t failing_from;
        char sentence[BATON__SENTENCE_BYTES];
    } next;
    const char *misused; /* an adder that was called after the commit */
};

/* Whether a failed schedule stays so until it is recovered: its peers have a
   part in the epoch, or its owner keeps state across epochs. Else the failed
   epoch retires. */
static inline bool
baton__schedule_stays_failed(const baton_schedule_t *schedule)
{
    return schedule->plan.messages > 0 || schedule->on_recover != NULL;
}

/* How many epochs have a place in `failures`. */
static inline uint32_t
baton__schedule_failures(const baton_schedule_t *schedule)
{
    return schedule->depth > BATON__FAILURES ? schedule->depth
                                             : BATON__FAILURES;
}

/* Whether something works on its memory, whatever becomes of its epoch. */
static inline bool baton__schedule_in_motion(const baton_schedule_t *schedule)
{
    return schedule->turn.moving > 0 || schedule->turn.begun > 0 ||
           schedule->turn.queued > 0;
}

/* "recv#17", into a ring of buffers of this thread: good for the arguments of
   one message. */
const char *baton__node_name(const baton_schedule_t *schedule, uint32_t node);

/* Where a buffer lies, as "64 bytes at 0x7ffd5c" or "64 bytes of scratch"; the
   same ring. */
const char *baton__buffer_place(const baton_schedule_t *schedule,
                                uint32_t buffer);

/* False, with this thread's error, where the schedule is NULL or destroyed. */
bool baton__is_schedule(const baton_schedule_t *schedule, const char *function);

/* Whether the graph takes more: it does not after its first error, so that this
   one is reported; nor after the commit, which the next start reports. `adder`
   names the calling function, or is NULL if the caller adds nothing. */
bool baton__graph_open(baton_schedule_t *schedule, const char *adder);

/* Adds which of the terms of this schedule and of another rank's differ: of the
   others those from the `from`-th on are known, not counting remarks, or none
   if NULL. Remarks of both before one term are added if they differ. */
void baton__terms_compare(baton__text_t *text, const baton_schedule_t *schedule,
                          const char *others, size_t from, int other_rank);

/* The terms from the `from`-th on, with the remarks before it if that term fits
   into `room` bytes with them. */
const char *baton__terms_from(const baton_schedule_t *schedule, size_t from,
                              size_t room);

/* The same of terms that may be cut at their end. From which term on both ranks
   must be looked at to name the difference; 0: it is in these. */
size_t baton__terms_next(const baton_schedule_t *schedule, const char *others,
                         size_t from, bool is_cut);

/* Room for `room` of what the pointer at `items` points to; false, and the
   error sticks, without memory. */
bool baton__graph_grow(baton_schedule_t *schedule, void *items, uint32_t count,
                       uint32_t room, size_t size);

/* What is known of a node that receives, and of the one that may read its
   message in place, see loans.h; and of one that sends. */
typedef struct baton__lending {
    bool spoiled;
    bool made; /* what it sends, or a part of it, was reduced before */
    uint8_t operand;
    uint32_t reduce; /* or BATON__NO_NODE */
} baton__lending_t;

/* Checks the graph. On success `out` has what the later checks and the plan
   need, each edge once; the caller frees it. Sets the error message. */
typedef struct baton__order {
    uint32_t *order;    /* nodes */
    uint32_t *position; /* of each node in `order` */
    uint32_t *first;    /* predecessors of node i: first[i] .. first[i + 1] */
    uint32_t *preds;
    baton__lending_t *loans; /* by node; or NULL where messages are not lent */
} baton__order_t;

baton_status_t baton__validate(const baton_schedule_t *schedule,
                               baton__order_t *out);
void baton__order_free(baton__order_t *order);

/* Finds out which bound buffers share memory: before the hazards are checked.
   Refuses a node whose operands overlap in part. */
baton_status_t baton__find_aliases(baton_schedule_t *schedule);

/* BATON_ERR_INVALID: a buffer does not share memory with others as it did at
   commit. rebound: of all that were rebound. */
baton_status_t baton__check_alias(const baton_schedule_t *schedule,
                                  uint32_t buffer);
baton_status_t baton__check_rebound(baton_schedule_t *schedule);

/* Finds two nodes that touch the same bytes, one writing, in an unknown order;
   or a node that uses a length which a receive sets, without happening after
   it. */
baton_status_t baton__check_hazards(const baton_schedule_t *schedule,
                                    baton__order_t *order);

/* Makes plan and run of a valid graph, with all memory that epochs need, and
   tags. On an error the graph is as before. */
baton_status_t baton__plan_create(baton_schedule_t *schedule,
                                  const baton__order_t *order);
void baton__plan_destroy(baton_schedule_t *schedule);
/* Frees all of it. */
void baton__schedule_free(baton_schedule_t *schedule);

/* Where `peer` is in plan.peers; peer_count: it is not. */
uint32_t baton__plan_peer(const baton__plan_t *plan, int peer);
