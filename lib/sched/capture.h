/* A captured schedule (baton_schedule_set_captured): the device records its
   nodes once, as a graph, and each epoch is one launch of that.

   Commit assigns the nodes to streams and finds out which of them follow events
   of others. That is kept, so that nodes can be recorded again when a buffer
   has been rebound:

       reduce#0 --> reduce#1 --+            stream 0  reduce#0, reduce#1,
                               +--> reduce#3          follow copy#2, reduce#3
       copy#2 -----------------+            stream 1  copy#2, event

   Nops are recorded, too, as nothing: they only follow and are followed.

   Who launches. A start on a user's stream does so itself, on its own thread:
   what is put there later comes after the epoch. For any other start the driver
   does, when the epoch begins (progress/captured.h). Behind each launch is an
   event, offload->starts[] of its epoch, and each launch follows the one of the
   epoch before, unless that has retired. So the event of the last epoch that
   was requested tells that nothing of the schedule is in a stream any more. */
#ifndef BATON_SCHED_CAPTURE_H
#define BATON_SCHED_CAPTURE_H

#include "sched/schedule.h"

/* A node in its stream. */
typedef struct baton__capture_step {
    uint32_t node;
    uint32_t first_follow; /* of the steps that it follows; the next one's is
                              the end */
    uint8_t stream;
    bool followed; /* by a step in another stream: it needs an event */
} baton__capture_step_t;

typedef struct baton__capture {
    baton__capture_step_t *steps; /* in the order in which they are recorded;
                                     with one more, which ends the last */
    uint32_t *follows;            /* steps */
    uint32_t count;               /* of steps: all nodes */
    int streams;
    void *graph; /* NULL: nodes have to be recorded before the next launch */
} baton__capture_t;

/* Refuses a graph that can't be captured. */
baton_status_t baton__capture_check(const baton_schedule_t *schedule,
                                    const baton__order_t *order);

/* Makes the steps of a graph that can be: assign.c. False without memory. */
bool baton__capture_assign(const baton_schedule_t *schedule,
                           const baton__order_t *order,
                           baton__capture_t *capture);

/* Makes schedule->offload->capture, and records the nodes if memory is bound to
   all of their views. destroy: nothing of it is in a stream. */
baton_status_t baton__capture_create(baton_schedule_t *schedule,
                                     const baton__order_t *order);
void baton__capture_destroy(baton_schedule_t *schedule);

/* Records the nodes (again); no epoch is in flight. On an error there is no
   graph. The message begins with the schedule's name. */
baton_status_t baton__capture_record(baton_schedule_t *schedule);

/* Whether that has to be done before the next epoch. */
bool baton__capture_is_due(const baton_schedule_t *schedule);

/* Puts the epoch's launch into the stream, and its event. `raise`: and between
   the two what raises the flag. */
baton_status_t baton__capture_launch(const baton_schedule_t *schedule,
                                     baton_stream_t stream, uint64_t epoch,
                                     bool raise);

#endif
