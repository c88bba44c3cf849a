/* Functions that the epoch_*.c files share with each other, and with queues.c,
   which issues nodes of the device. Each file calls only files below it here:

       epoch_arrive.c     messages and completions from outside
       epoch_issue.c      nodes are issued, step by step; the epoch retires
       epoch_begin.c      the start, or an activation
       epoch_receive.c    a receive and its message meet, or its peer is lost
       epoch_fail.c       failure
       epoch_end.c        the end of any epoch
       epoch_state.c      basic operations on the state

   Functions that return a bool and may fail the epoch return false if they have
   failed it. */
#pragma once

#include "progress/state/stepper.h"

/* ---- issue ------------------------------------------------------------ */

/* Completes, skips or fails a node. `result` is the value that issuing it has
   returned, or the status with which it has completed. */
bool baton__epoch_take_result(baton_schedule_t *schedule, uint32_t node,
                              int result);

/* ---- begin ------------------------------------------------------------ */

/* Has an armed receive take its activation, or drops the message if it is not
   one that Baton sends. */
void baton__epoch_activate(baton_schedule_t *schedule, uint32_t node,
                           baton_message_t *message);

/* ---- receive ---------------------------------------------------------- */

/* Fires a receive, which takes a message that came early or waits for one. */
bool baton__epoch_fire_receive(baton_schedule_t *schedule, uint32_t node);
/* Passes a message to a waiting receive. */
bool baton__epoch_take_message(baton_schedule_t *schedule, uint32_t node,
                               baton_message_t *message);

/* Holds back a send until its peer has committed the schedule. If the peer is
   lost, fails the epoch, unless the send is optional. */
bool baton__epoch_hold_send(baton_schedule_t *schedule, uint32_t node);

/* True if a receive that is not optional waits, although a message of a later
   epoch has come for it: the peer has ended the running epoch without the send,
   which is on a branch that the peer did not take. */
bool baton__epoch_is_left_out(const baton_schedule_t *schedule, uint32_t node);
void baton__epoch_fail_left_out(baton_schedule_t *schedule, uint32_t node);

/* Fails the epoch at a node whose message has failed; `why`, which may be NULL,
   is the transport's detail. After BATON_ERR_TRANSPORT the peer may be lost.
   Then the node is held until the transport reports the loss, so that the error
   names the peer, or until a poll brings no event. */
void baton__epoch_fail_message(baton_schedule_t *schedule, uint32_t node,
                               baton_status_t status, const char *why);

/* Fails the epoch at a node whose peer is lost. */
void baton__epoch_fail_lost(baton_schedule_t *schedule, uint32_t node);

/* ---- fail ------------------------------------------------------------- */

/* Fails the epoch at a node; this thread's error message says why. */
void baton__epoch_fail_at(baton_schedule_t *schedule, uint32_t node,
                          baton_status_t status);

/* True if memory is bound to all operands of the node. No memory is needed if
   `bytes`, the number of bytes that the node uses of each operand, is 0, or in
   a group whose messages carry no data (baton_group_has_payload). Otherwise
   fails the epoch. */
bool baton__epoch_has_memory(baton_schedule_t *schedule, uint32_t node,
                             size_t bytes);
/* True if `bytes` is a whole number of elements; else fails the epoch. */
bool baton__epoch_is_whole(baton_schedule_t *schedule, uint32_t node,
                           size_t bytes, size_t element);
/* True if `bytes` is a whole number of the node's elements, and
   baton__epoch_has_memory is true; else fails the epoch. */
bool baton__epoch_can_compute(baton_schedule_t *schedule, uint32_t node,
                              size_t bytes);

/* Returns the bytes of an element of a reduction; 1 for any other node. */
size_t baton__epoch_element_of(const baton__op_t *op);

/* Called between epochs. Fails the next epoch if a failure that a peer has
   reported affects it. */
void baton__epoch_fail_if_due(baton_schedule_t *schedule);

/* ---- end -------------------------------------------------------------- */

/* Ends a failed epoch if no node of it is in motion (sched/run.h). From then on
   the application may use the epoch's buffers again. */
void baton__epoch_end_if_drained(baton__task_t *task);

/* Called when a node of a failed epoch is no longer in motion (sched/run.h). If
   it was the last such node of an abandoned schedule, frees the schedule and
   returns true. */
bool baton__epoch_end_in_draining(baton_schedule_t *schedule, uint32_t node);

/* Publishes the numbers of the last epoch that has retired and of the epoch
   that has failed (0: no epoch has), and wakes the threads that wait for
   them. */
void baton__epoch_publish(baton_schedule_t *schedule, uint64_t failed,
                          uint64_t retired);

/* ---- state ------------------------------------------------------------ */

/* Begins this rank's part in the running epoch, which its application has
   started. */
void baton__epoch_come(baton_schedule_t *schedule);

/* For each receive there is a list of the messages that came before the receive
   fired, in the order of their epochs. */
/* Removes the running epoch's message from a receive's list, and returns it;
   NULL if there is none. */
baton_message_t *baton__epoch_find_early(baton__run_t *run, uint32_t ordinal);
/* Adds a message to a receive's list. Returns false if there is no memory. */
bool baton__epoch_keep_early(baton__run_t *run, uint32_t ordinal,
                             baton_message_t *message);

/* Receives the message of a loan (sched/loans.h) into the target of the loan's
   receive, because the message can no longer be read in place. If the transfer
   goes on when this returns, the receive, which had completed, is in motion
   again: until it has completed a second time, task.unlent names it, and no
   node is issued. */
baton_status_t baton__epoch_receive_lent(baton_schedule_t *schedule,
                                         uint32_t loan);

/* Returns the index of the plan's first loan to a reduce; if the reduce has
   none, the index that its first loan would have. */
uint32_t baton__epoch_first_loan(const baton__plan_t *plan, uint32_t reduce);
/* Gives back the messages that were lent to a reduce, which has read them. */
void baton__epoch_return_loans(baton_schedule_t *schedule, uint32_t reduce);
/* Gives back all lent messages, because the epoch has failed. */
void baton__epoch_return_all_loans(baton_schedule_t *schedule);

/* True if an async node was begun, and baton_async_complete has not been called
   for it. */
bool baton__epoch_is_open(const baton_schedule_t *schedule, uint32_t node);
