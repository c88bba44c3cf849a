/* A schedule's part on its engine's device: queues of the nodes that have been
   put into streams and are not known to be done, events, and the state for
   epochs in the order of a user's stream.

   A device node is put into a stream when all predecessors that it needs have
   completed, or have been put into streams themselves: then its stream follows
   their events. Once the node is in the stream, its successors on the device
   are satisfied; its other successors are satisfied when its work is done. So a
   chain of device nodes does not return to the host.

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

/* The most epochs in flight that were started on streams. */
enum { BATON__STARTS = 8 };

typedef struct baton__offload {
    baton__device_t *device;
    baton__queue_t queues[BATON_DEVICE_STREAMS];

    /* Link of the stepper's list of schedules with events to query. */
    baton_schedule_t *next;
    bool listed;

    /* Number of nodes in the queues that the epoch waits for. */
    uint32_t required;
    bool sealed; /* all remaining nodes of the epoch are in the queues,
                    and a stream raises the flag after them */
    /* The application has started the running epoch on a stream that has not
       got to the start. A peer may have begun the epoch all the same. */
    bool waits;

    /* By node; NULL in a schedule without nodes for the device. */
    uint32_t *behind;     /* the next node in the same queue */
    void **events;        /* NULL if the host executes the node */
    uint32_t *first_pred; /* where a node's predecessors begin in `preds` */
    uint32_t *preds;      /* predecessors on the device */

    /* By the number of the epoch modulo BATON__STARTS: the event in the user's
       stream that marks the start of the epoch. */
    void *starts[BATON__STARTS];
    /* By the same index: the epoch was started on a stream. The application
       writes this before it raises `requested`. */
    bool on[BATON__STARTS];
    /* The flag has at least the value `base` + n when epoch n has ended. */
    baton__flag_t *flag;
    _Atomic uint64_t base;
    _Atomic bool awaited; /* a user's stream waits for the flag */
} baton__offload_t;

static inline bool baton__op_offloaded(const baton__op_t *op)
{
    return (op->flags & BATON__ON_DEVICE) != 0;
}

/* Returns the queue of a node for the device: BATON_DEVICE_IN, _OUT or
   _WORK. */
int baton__offload_queue(const baton_schedule_t *schedule,
                         const baton__op_t *op);

/* Decides the kind of memory of scratch and which nodes the device executes.
   Returns an error if the device can't execute one of these. Called for a valid
   graph, before hazards are checked. */
baton_status_t baton__place(baton_schedule_t *schedule);

/* Returns the error of the device's check function if the memory that is bound
   to the buffer is not of the buffer's kind. */
baton_status_t baton__check_bound(const baton_schedule_t *schedule,
                                  uint32_t buffer);

/* Makes schedule->offload, in a group that has a device. */
baton_status_t baton__offload_create(baton_schedule_t *schedule,
                                     const baton__order_t *order);
/* Frees schedule->offload, if there is one. No work of the schedule may be in a
   stream. */
void baton__offload_destroy(baton_schedule_t *schedule);
