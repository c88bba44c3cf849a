/* What ranks tell each other about a schedule, besides its messages:

   hello    to each peer, when the schedule was committed: its name, and how
   many messages of which sizes it has with that peer. A rank that does not know
   the schedule yet ignores it; it will say hello itself. welcome  the answer to
   a hello, with the same content. So each of two ranks hears of the other once
   both have committed, in whatever order. Before, nothing is sent to a peer;
   and if the two do not agree on their messages the schedule fails on both.
   failure  to each peer, when an epoch fails: the first cause, and the rank
   that met it. The peer's epoch fails then, too, and it tells its own peers. A
   failure is also sent when the schedule is destroyed or its group recovered,
   for peers that would go on; and to a peer that says hello later.

   A notice that a transport has no room for is sent in a later step. */
#ifndef BATON_PROGRESS_NOTICE_H
#define BATON_PROGRESS_NOTICE_H

#include "progress/stepper.h"

/* After the commit: says hello, unless the peers are known to have committed.
 */
void baton__notice_hello(baton__stepper_t *stepper, baton_schedule_t *schedule);

/* Before the schedule is destroyed: tells the peers, unless it has failed, of
   which they know. */
void baton__notice_destroy(baton__stepper_t *stepper,
                           baton_schedule_t *schedule);

/* Before a schedule is destroyed that was never committed: tells the peers that
   have committed it. False if there was not room for all. */
bool baton__notice_retract(baton_schedule_t *schedule);

/* Sends the notices that are due; true if one was sent. */
bool baton__notice_send(baton__stepper_t *stepper);

/* A notice has arrived. */
void baton__notice_receive(baton__stepper_t *stepper, baton_group_t *group,
                           baton_message_t *message);

/* The message's schedule was destroyed here: its sender is told, and then the
   message is dropped. */
void baton__notice_refuse(baton_group_t *group, baton_message_t *message);

/* Removes the schedule from those with notices to send. */
void baton__notice_forget(baton__stepper_t *stepper,
                          baton_schedule_t *schedule);

#endif
