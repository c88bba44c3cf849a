/* What the files that make up an epoch's life use of each other, and queues.c
   with what the device does. Each calls only what is below it here:

       epoch_arrive.c     messages, completions and losses from outside
       epoch_issue.c      nodes are issued, turn by turn; the epoch retires
       epoch_begin.c      the start, or an activation
       epoch_receive.c    a receive and its message meet
       epoch_fail.c       failure, and the end of any epoch
       epoch_state.c      what the state is changed by

   Functions that return a bool and may fail the epoch return false then. */
#pragma once

#include "progress/stepper.h"

/* ---- issue ------------------------------------------------------------ */

/* Ends a node by what issuing it, or its completion, has returned. */
bool baton__epoch_take_result(baton_schedule_t *schedule, uint32_t node,
                              int result);

/* ---- begin ------------------------------------------------------------ */

/* An activation counts for its armed receive. */
void baton__epoch_activate(baton_schedule_t *schedule, uint32_t node,
                           baton_message_t *message);

/* ---- receive ---------------------------------------------------------- */

/* A receive fires; a waiting one takes its message. */
bool baton__epoch_fire_receive(baton_schedule_t *schedule, uint32_t node);
bool baton__epoch_take_message(baton_schedule_t *schedule, uint32_t node,
                               baton_message_t *message);

/* Holds back a send whose peer has not committed the schedule yet; a peer that
   is lost never will. */
bool baton__epoch_hold_send(baton_schedule_t *schedule, uint32_t node);

/* True if a receive that the epoch waits for has a message of a later epoch:
   the peer has ended the running one without its send, on a branch not taken.
 */
bool baton__epoch_is_left_out(const baton_schedule_t *schedule, uint32_t node);
void baton__epoch_fail_left_out(baton_schedule_t *schedule, uint32_t node);

/* Fails the epoch at a node whose message has failed; `why` may say more. If
   the peer may be lost the node is held until the transport has reported that,
   so that the error names it, or a poll has brought nothing. */
void baton__epoch_fail_message(baton_schedule_t *schedule, uint32_t node,
                               baton_status_t status, const char *why);

/* Fails the epoch at a node whose peer is lost. */
void baton__epoch_fail_lost(baton_schedule_t *schedule, uint32_t node);

/* ---- fail ------------------------------------------------------------- */

/* Fails the epoch at a node; this thread's error message says why. */
void baton__epoch_fail_at(baton_schedule_t *schedule, uint32_t node,
                          baton_status_t status);

/* True if memory is bound to all operands of the node; if the bytes that it
   works on are a whole number of elements; if both is so. */
bool baton__epoch_has_memory(baton_schedule_t *schedule, uint32_t node,
                             size_t bytes);
bool baton__epoch_is_whole(baton_schedule_t *schedule, uint32_t node,
                           size_t bytes, size_t element);
bool baton__epoch_can_compute(baton_schedule_t *schedule, uint32_t node,
                              size_t bytes);

/* The bytes of an element of a reduction; else 1. */
size_t baton__epoch_element_of(const baton__op_t *op);

/* Fails the epoch that a peer's failure has named, once this rank gets to it.
 */
void baton__epoch_fail_if_due(baton_schedule_t *schedule);

/* A node of a failed epoch is no longer in motion. True if the schedule, which
   was abandoned, has been freed. */
bool baton__epoch_end_in_draining(baton_schedule_t *schedule, uint32_t node);

/* Tells all threads that an epoch has ended; `failed` is 0 or its number. */
void baton__epoch_publish(baton_schedule_t *schedule, uint64_t failed,
                          uint64_t retired);

/* ---- state ------------------------------------------------------------ */

/* Messages that came before their receive fired, in order of epochs: takes that
   of the running epoch, NULL if there is none; keeps one; drops those of epochs
   up to this one. */
baton_message_t *baton__epoch_find_early(baton__run_t *run, uint32_t ordinal);
void baton__epoch_keep_early(baton__run_t *run, uint32_t ordinal,
                             baton_message_t *message);
void baton__epoch_drop_up_to(baton_schedule_t *schedule, uint64_t epoch);

/* A message that was lent can't be read in place any more: receives it where it
   would be without the loan. Until it is there turn.unlent names the receive,
   which completes a second time, and no node is issued. */
baton_status_t baton__epoch_receive_lent(baton_schedule_t *schedule,
                                         uint32_t loan);

/* The plan's first loan to a reduce, or where it would be. What was lent is
   given back when the reduce has read it, or when the epoch fails. */
uint32_t baton__epoch_first_loan(const baton__plan_t *plan, uint32_t reduce);
void baton__epoch_return_loans(baton_schedule_t *schedule, uint32_t reduce);
void baton__epoch_return_all_loans(baton_schedule_t *schedule);

/* True if an async node that was begun has not been completed elsewhere. */
bool baton__epoch_is_open(const baton_schedule_t *schedule, uint32_t node);
