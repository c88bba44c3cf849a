/* A schedule's part on its engine's device: queues of the nodes that have been
   put into streams and are not known to be done, events, and the state of
   epochs that are started on a user's stream.

   A device node is put into a stream when all predecessors that it needs have
   completed, or have been put into streams themselves: then the node's stream
   first follows the predecessors' events, which means that it waits for them.
   As soon as the node is in the stream, the edges to its successors on the
   device are satisfied; the edges to its other successors are satisfied when
   its work is done. So a chain of device nodes does not wait for the driver
   between two nodes.

       copy#0 --+                     stream of copies   copy#0, event
                +--> reduce#2 --> ..  stream for the rest
       reduce#1-+                         reduce#1, follow copy#0, reduce#2

   After each node an event is recorded, which other streams follow and the
   driver queries. */
#pragma once

#include "sched/schedule.h"

/* A schedule's nodes in one stream, in the order in which they were put there.
   Both fields are BATON__NO_NODE if there are none. */
typedef struct baton__queue {
    uint32_t first, last;
} baton__queue_t;

/* The most epochs in flight that the application has started on streams
   (baton_schedule_start_on). */
enum { BATON__STARTS = 8 };

typedef struct baton__offload {
    baton__device_t *device;
    baton__queue_t queues[BATON_DEVICE_STREAMS];

    /* The next schedule in the stepper's list of schedules with events to query
       (`offloads` in progress/state/stepper.h). */
    baton_schedule_t *next;
    bool listed;

    /* Number of nodes in the queues that the epoch waits for. */
    uint32_t required;
    /* All remaining nodes of the epoch are in the queues, and a stream raises
       the flag after them. */
    bool sealed;
    /* The application has started the running epoch on one of its streams, and
       that stream has not reached the start yet. The epoch may run all the
       same, because a peer can begin it. */
    bool waits;

    /* The first three of these arrays are indexed by node. */
    uint32_t *after; /* the next node in the same queue */
    /* The event that is recorded after the node; NULL if the host executes the
       node. */
    void **events;
    /* The index at which the node's predecessors begin in `preds`; one more
       entry marks the end of the last node's. */
    uint32_t *first_pred;
    /* for each node that the device executes: those predecessors that the
       device executes, too */
    uint32_t *preds;

    /* By the number of the epoch modulo BATON__STARTS: the event in the user's
       stream that marks the start of the epoch. */
    void *starts[BATON__STARTS];
    /* By the same index as `starts`: true if the epoch was started on a stream.
       The application sets this before it raises the task's `requested`, which
       is the number of the last epoch started (progress/state/task.h). */
    bool on[BATON__STARTS];
    /* A value in memory that a user's stream can wait for. After epoch n has
       ended, it is at least `base` + n. */
    baton__flag_t *flag;
    _Atomic uint64_t base;
    _Atomic bool awaited; /* a user's stream waits for the flag */
} baton__offload_t;

static inline bool baton__op_offloaded(const baton__op_t *op)
{
    return (op->flags & BATON__ON_DEVICE) != 0;
}

/* Returns the number of the stream (BATON_DEVICE_IN, _OUT or _WORK) into which
   a node for the device is put. */
int baton__offload_queue(const baton_schedule_t *schedule,
                         const baton__op_t *op);

/* Decides whether scratch is device memory, and which nodes the device
   executes. Returns an error if the device can't execute one of these nodes.
   Called for a valid graph, before hazards are checked. */
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
