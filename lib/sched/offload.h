/* What a schedule has on its engine's device: queues of the nodes that have
   been put into streams and are not known to be done, events, and what it needs
   to begin and end in the order of a user's stream.

   A node for the device is put into a stream when its need is met by
   predecessors that have completed, or have been put into streams themselves:
   then its stream follows their events. Its successors on the device are
   satisfied by that, all others when its work is done. So a row of such nodes
   costs no visit to the host.

       copy#0 --+                     stream of copies   copy#0, event
                +--> reduce#2 --> ..  stream for the rest
       reduce#1-+                         reduce#1, follow copy#0, reduce#2

   Behind each node an event is recorded, which other streams follow, and for
   which the driver asks. */
#pragma once

#include "sched/schedule.h"

/* A schedule's nodes in one stream, in the order in which they were put there.
   Nodes are BATON__NO_NODE where there is none. */
typedef struct baton__queue {
    uint32_t first, last;
} baton__queue_t;

/* Epochs that may be in flight when they were started on streams. */
enum { BATON__STARTS = 8 };

typedef struct baton__offload {
    baton__device_t *device;
    baton__queue_t queues[BATON_DEVICE_STREAMS];

    /* The stepper's list of those with something to ask the device for. */
    baton_schedule_t *next;
    bool listed;

    uint32_t required; /* nodes in the queues that the epoch waits for */
    bool sealed;       /* all that is left of the epoch is in the queues, and
                          one of the streams raises the flag */
    bool waits;        /* the epoch's start waits for the stream it was given */

    /* By node; NULL in a schedule without nodes for the device. */
    uint32_t *behind;     /* the next one in its queue */
    void **events;        /* or NULL where the host does the node */
    uint32_t *first_pred; /* predecessors on the device: from here up to the */
    uint32_t *preds;      /* next node's first */

    /* Of each start, by its epoch: an event in the user's stream. The
       application writes `on` before it raises `requested`. */
    void *starts[BATON__STARTS];
    bool on[BATON__STARTS];
    baton__flag_t *flag; /* reaches `base` + an epoch when that has ended */
    _Atomic uint64_t base;
    _Atomic bool awaited; /* some stream of the user waits for the flag */
} baton__offload_t;

static inline bool baton__op_offloaded(const baton__op_t *op)
{
    return (op->flags & BATON__ON_DEVICE) != 0;
}

/* The queue of a node for the device: BATON_DEVICE_IN, _OUT or _WORK. */
int baton__offload_queue(const baton_schedule_t *schedule,
                         const baton__op_t *op);

/* Finds out where scratch lies and which nodes the device does; refuses what it
   can't. Before the hazards are checked; of a graph that is valid otherwise. */
baton_status_t baton__place(baton_schedule_t *schedule);

/* BATON_ERR_INVALID: what is bound to the buffer is not the memory that it was
   said to be. */
baton_status_t baton__check_bound(const baton_schedule_t *schedule,
                                  uint32_t buffer);

/* Makes schedule->offload, in a group that has a device. destroy: nothing of it
   is in a stream. */
baton_status_t baton__offload_create(baton_schedule_t *schedule,
                                     const baton__order_t *order);
void baton__offload_destroy(baton_schedule_t *schedule);
