/* The schedule object, in the order of its life: a graph that adders grow, a
   plan that commit freezes, a run that the engine's driver steps.

   Who may touch what: the graph, its builder's thread. The plan, anybody (it is
   frozen). The run and `turn`, the driver. `shared`, all threads. */
#ifndef BATON_SCHED_SCHEDULE_H
#define BATON_SCHED_SCHEDULE_H

#include "ops/op.h"
#include "sched/run.h"
#include "transport/group.h"

#include <stdatomic.h>

#define BATON__NO_NODE UINT32_MAX

typedef struct baton__edge {
    uint32_t from;
    uint32_t to;
} baton__edge_t;

typedef struct baton__buffer {
    size_t bytes;
    char *memory; /* as bound; not to be used where there is no payload */
    baton_memory_t kind;
    bool scratch;
    bool input;   /* no node may write it */
    bool written; /* a node does */
    bool rebound; /* since the last check; see baton__check_rebound */
    /* Buffers that shared memory at commit have one space; this one begins
       `base` bytes into it. */
    uint32_t space;
    size_t base;
} baton__buffer_t;

/* A sentence that waits for its reader. */
#define BATON__SENTENCE_BYTES 512

/* Buffers whose addresses are in the schedule itself. */
enum { BATON__FEW_BUFFERS = 3 };

/* What a step touches comes first, on few cache lines. */
struct baton_schedule {
    baton_group_t *group;
    char **addresses; /* what is behind each buffer now */
    baton__op_t *ops; /* the graph's; after the commit, the plan's */

    /* The driver's. */
    struct {
        baton_schedule_t *next_runnable;
        uint32_t posted; /* messages in flight, armed ones included */
        bool runnable;
    } turn;

    baton__run_t run;
    char *few_addresses[BATON__FEW_BUFFERS];
    baton__plan_t plan;

    /* The driver's too, now and then: its list; the watchdog's notes and the
       simulator's. */
    struct {
        baton_schedule_t *next; /* of all that are committed */
        uint64_t seen_moves;
        uint64_t seen_at_ns;
        uint64_t reported_ns;
        bool matched;    /* simulated: compared with the other ranks */
        bool timed;      /* an epoch has begun and not ended */
        double began_us; /* of the last epoch, in virtual time */
        double ended_us;
    } notes;

    /* Between the application and the driver. */
    struct {
        _Atomic uint64_t requested; /* starts so far; the application writes */
        _Atomic uint64_t retired;   /* epochs so far; the driver writes */
        _Atomic uint64_t limit;     /* highest epoch that may begin by itself */
        _Atomic int status;         /* of the last epoch */
        _Atomic bool mailed;        /* is in the mailbox */
        _Atomic uint64_t cancel;    /* epoch to be given up, or 0 */
        baton_schedule_t *next_mail;
        uint64_t started_ns; /* of the last start: the application's */
        _Atomic bool prompt; /* its wait came right after it; a hint */
    } shared;

    char *name;

    /* The rest of the graph. */
    uint32_t *needs; /* as asked for; after the commit, edges to wait for */
    uint32_t count;  /* nodes */
    bool committed;
    uint32_t capacity;
    baton__edge_t *edges; /* until the commit */
    uint32_t edge_count;
    uint32_t edge_capacity;
    baton__buffer_t *buffers;
    uint32_t buffer_count;
    uint32_t buffer_capacity;
    _Atomic bool rebound; /* some buffer is; the driver's lock guards those */
    uint32_t header_count;
    baton__op_t *drawn_ops; /* while a commit goes on: the graph's */
    uint32_t *drawn_needs;

    /* The first error that an adder met; later, how an epoch failed. */
    baton_status_t sticky;
    char sentence[BATON__SENTENCE_BYTES];
};

/* "recv#17", into a ring of buffers of this thread: good for the arguments of
   one message. */
const char *baton__node_name(const baton_schedule_t *schedule, uint32_t node);

/* Whether the graph takes more: it does not after its first error, so that this
   one is reported. To call it on a committed schedule is a broken program. */
bool baton__graph_open(const baton_schedule_t *schedule);

/* Room for `room` of `items`; false, and the error sticks, without memory. */
bool baton__graph_grow(baton_schedule_t *schedule, void **items, uint32_t count,
                       uint32_t room, size_t size);

/* Checks the graph. On success `out` has what the later checks and the plan
   need, each edge once; the caller frees it. Sets the error message. */
typedef struct baton__order {
    uint32_t *order;    /* nodes */
    uint32_t *position; /* of each node in `order` */
    uint32_t *first;    /* predecessors of node i: first[i] .. first[i + 1] */
    uint32_t *preds;
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

/* Finds two nodes that touch the same bytes, one writing, in no sure order. */
baton_status_t baton__check_hazards(const baton_schedule_t *schedule,
                                    const baton__order_t *order);

/* A valid graph, up to the end of its commit, as bytes that another rank can
   make a graph of: for a simulation without data, in which no node computes
   anything (progress/verify_judge.c). unpack fills a schedule that was just
   created, and its first error sticks. */
size_t baton__pack_bytes(const baton_schedule_t *schedule);
void baton__pack(const baton_schedule_t *schedule, char *out);
void baton__unpack(baton_schedule_t *schedule, const char *data);

/* Makes plan and run of a valid graph, with all memory that epochs need. On an
   error the graph is as before. Tags: baton__assign_tags, which comes last. */
baton_status_t baton__freeze(baton_schedule_t *schedule,
                             const baton__order_t *order);
baton_status_t baton__assign_tags(baton_schedule_t *schedule);
void baton__return_tags(baton_schedule_t *schedule); /* the last ones given */
void baton__thaw(baton_schedule_t *schedule);      /* frees what freeze made */
void baton__keep_plan(baton_schedule_t *schedule); /* before: not its memory */

#endif
