/* Nodes that the device does, and epochs that begin when a stream of the user
   gets there: see sched/offload.h. All functions are the driver's; those that
   take a schedule need one that has an offload. queues.c issues nodes and asks
   the device, and fails epochs; queues_state.c has what both change. */
#pragma once

#include "progress/stepper.h"
#include "sched/offload.h"

/* Puts the first ready node, which the device does, into a stream. False when
   that failed the epoch. */
bool baton__queues_issue(baton_schedule_t *schedule, uint32_t node,
                         const baton__context_t *context);

/* The end of a turn: if all that is left of the epoch is in streams, has one of
   them raise the flag. Never where a node leads to one on the host, so that
   whatever follows the flag begins when the driver has retired the epoch. */
void baton__queues_end_turn(baton_schedule_t *schedule);

/* Whether this epoch, which the application has asked for, was to begin in the
   order of a stream that has not got there. begin: it has begun; external: a
   peer began it. */
bool baton__queues_waits(const baton_schedule_t *schedule, uint64_t epoch);
void baton__queues_begin(baton_schedule_t *schedule, bool external);

/* The epoch has failed, or has retired: its start is no longer waited for; what
   is in streams is waited for as before. */
void baton__queues_stop(baton_schedule_t *schedule);

/* All epochs up to this one have ended: raises the flag. */
void baton__queues_raise(const baton_schedule_t *schedule, uint64_t epoch);

/* Asks the device what has been done. True if something has. */
bool baton__queues_poll(baton__stepper_t *stepper);

/* A schedule of the group leaves, or all that were abandoned do (NULL): the
   device is asked no more. */
void baton__queues_forget(const baton_group_t *group,
                          const baton_schedule_t *only);

/* ---- state -------------------------------------------------------------- */

/* Has the device asked about the schedule in each step, until it has nothing to
   be asked for. */
void baton__queues_list(baton_schedule_t *schedule);

/* The queue's stream; and records the event of its last node there, behind all
   that is in it now. */
baton_stream_t baton__queues_stream_of(const baton__offload_t *offload,
                                       const baton__queue_t *queue);
baton_status_t baton__queues_record(const baton__offload_t *offload,
                                    const baton__queue_t *queue);

/* The start is no longer waited for. */
void baton__queues_forget_start(baton_schedule_t *schedule);
