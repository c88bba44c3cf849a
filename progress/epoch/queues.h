/* Nodes that the device executes, and epochs that begin when a user's stream
   gets to their start; see sched/offload.h. Functions that take a schedule may
   be called only for one that has an offload: a part on the device. queues.c
   issues nodes, queries the device, and fails epochs; queues_state.c has the
   basic operations that queues.c, epoch_fail.c and epoch_end.c share. */
#pragma once

#include "progress/state/stepper.h"
#include "sched/offload.h"

/* Puts the first ready node, which the device executes, into a stream. Returns
   false if that failed the epoch. */
bool baton__queues_issue(baton_schedule_t *schedule, uint32_t node,
                         const baton__context_t *context);

/* Called when nodes were issued: if all remaining nodes of the epoch are in
   streams and a user's stream may wait for the epoch, has one stream raise the
   flag, for which that user's stream waits, after these nodes. If a node in a
   stream has a successor that the CPU executes, no stream raises the flag: the
   driver raises it when it retires the epoch. */
void baton__queues_seal_if_due(baton_schedule_t *schedule);

/* True if the application has started this epoch on a stream, and that stream
   has not got to the start. */
bool baton__queues_waits(const baton_schedule_t *schedule, uint64_t epoch);
/* Begins to wait for the stream on which the epoch was started. If `external`,
   a peer has already begun the epoch, so the epoch is not held. */
void baton__queues_begin(baton_schedule_t *schedule, bool external);

/* Called when the epoch has failed or retired. Stops waiting for the stream to
   get to the epoch's start. The driver goes on waiting for nodes in streams. */
void baton__queues_stop(baton_schedule_t *schedule);

/* Raises the schedule's flag to `epoch`, because all epochs up to this one have
   ended. */
void baton__queues_raise(const baton_schedule_t *schedule, uint64_t epoch);

/* Queries the device. Completes nodes whose work is done, and begins this
   rank's part in each epoch to whose start a user's stream has got. Returns
   true if there was any such node or epoch. */
bool baton__queues_poll(baton__stepper_t *stepper);

/* Stops querying the device about `only`, a schedule of the group that is being
   destroyed. If `only` is NULL, does so for all schedules of the group; these
   were abandoned. */
void baton__queues_forget(const baton_group_t *group,
                          const baton_schedule_t *only);

/* ---- state -------------------------------------------------------------- */

/* Has each step query the device about the schedule, until the schedule has no
   events to query. */
void baton__queues_list(baton_schedule_t *schedule);

/* Returns the queue's stream. */
baton_stream_t baton__queues_stream_of(const baton__offload_t *offload,
                                       const baton__queue_t *queue);
/* Records the event of the queue's last node in the queue's stream, after all
   operations that are in the stream now. */
baton_status_t baton__queues_record(const baton__offload_t *offload,
                                    const baton__queue_t *queue);

/* Stops waiting for a stream to get to the epoch's start. */
void baton__queues_forget_start(baton_schedule_t *schedule);
