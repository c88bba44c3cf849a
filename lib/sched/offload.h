/* A schedule's part on its engine's device: queues of the nodes that have been
   put into streams and are not known to be done, events, and the state for
   epochs in the order of a user's stream.

   A device node is put into a stream when all predecessors that it needs have
   completed, or have been put into streams themselves: then its stream follows
   their events. This satisfies its successors on the device; all other
   successors are satisfied when its work is done. So a chain of device nodes
   does not return to the host.

       copy#0 --+                     stream of copies   copy#0, event
                +--> reduce#2 --> ..  stream for the rest
       reduce#1-+                         reduce#1, follow copy#0, reduce#2

   After each node an event is recorded, which other streams follow and the
   driver queries. */
#pragma once

#include "sched/schedule.h"

/* A schedule's nodes in one stream, in the order in which they were put there;
   BATON__NO_NODE if there are none. */
typedef struct baton__queue {
    uint32_t first, last;
} baton__queue_t;

/* Epochs started on streams that may be in flight. */
enum { BATON__STARTS = 8 };

typedef struct baton__offload {
    baton__device_t *device;
    baton__queue_t queues[BATON_DEVICE_STREAMS];

    /* Link of the stepper's list of schedules with events to query. */
    baton_schedule_t *next;
    bool listed;

    uint32_t required; /* nodes in the queues that the epoch waits for */
    bool sealed;       /* all remaining nodes of the epoch are in the queues,
                          and a stream raises the flag after them */
    bool waits;        /* the epoch has not begun: its stream has not got to the
                          start */

    /* By node; NULL in a schedule without nodes for the device. */
    uint32_t *behind;     /* the next node in its queue */
    void **events;        /* NULL if the host executes the node */
    uint32_t *first_pred; /* where a node's predecessors begin in `preds` */
    uint32_t *preds;      /* of all nodes, those on the device */

    /* Of each start, by its epoch: an event in the user's stream, and whether
       the start is on a stream. The application writes `on` before it raises
       `requested`. */
    void *starts[BATON__STARTS];
    bool on[BATON__STARTS];
    baton__flag_t *flag; /* reaches `base` + an epoch's number when it has
                            ended */
    _Atomic uint64_t base;
    _Atomic bool awaited; /* a user's stream waits for the flag */
} baton__offload_t;

static inline bool baton__op_offloaded(const baton__op_t *op)
{
    return (op->flags & BATON__ON_DEVICE) != 0;
}

/* The queue of a node for the device: BATON_DEVICE_IN, _OUT or _WORK. */
int baton__offload_queue(const baton_schedule_t *schedule,
                         const baton__op_t *op);

/* Decides the kind of memory of scratch and which nodes the device executes; an
   error if the device can't execute one. Called for a valid graph, before
   hazards are checked. */
baton_status_t baton__place(baton_schedule_t *schedule);

/* BATON_ERR_INVALID: the memory bound to the buffer is not of the buffer's
   kind. */
baton_status_t baton__check_bound(const baton_schedule_t *schedule,
                                  uint32_t buffer);

/* Makes schedule->offload, in a group that has a device. No work of the
   schedule may be in a stream when it is destroyed. */
baton_status_t baton__offload_create(baton_schedule_t *schedule,
                                     const baton__order_t *order);
void baton__offload_destroy(baton_schedule_t *schedule);
