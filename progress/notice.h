/* Notices, which ranks send each other about a schedule besides its messages:

   - HELLO announces a committed schedule to each peer: its terms, and the
     numbers and sizes of their messages. It is sent when the first epoch
     begins; or, of a schedule with on_failure, after the commit. A rank that
     lacks the schedule remembers it, and says HELLO when it has committed.
   - WELCOME is the reply, with the same content. So two ranks know each other
     when both have committed, and one has begun. Until then nothing is sent to
     a peer; if the two do not agree the schedule fails on both.
   - FAILURE reports a failed epoch to each peer that has said hello, or that
     was told, with the first cause and the rank where it occurred. The peer's
     epoch fails then, too, and it notifies its own peers. It is also sent when
     the schedule is destroyed, to peers that would go on, and in reply to a
     later HELLO. A peer that has destroyed the schedule takes no more messages
     of earlier epochs, and drops them.
   - FAILURES reports those of many schedules, since a rank recovers the group.
   - INQUIRY asks what the schedule waits for there, and STATE is the answer:
     see inquiry.h. Their ranks may be no peers.

   Schedules that are made and never run cost no notice.

   Each peer has a queue. A notice that a transport has no room for is sent in a
   later step, which tries only the first one of each queue. Bits say what is
   due of a schedule; replies go first, and keep no message of the peer, which
   could send no other. */
#pragma once

#include "progress/stepper.h"

/* After the commit: says hello to peers that have done so, or to all. */
void baton__notice_hello(baton_schedule_t *schedule);

/* Before the schedule is destroyed: fails a running epoch, or notifies the
   peers. A failed schedule sends nothing: they have been notified of it. */
void baton__notice_destroy(baton_schedule_t *schedule);

/* The group is being recovered here: fails a running epoch, or notifies the
   peers. */
void baton__notice_recover(baton_schedule_t *schedule);

/* The group is being shrunk here after a loss: tells peers that this rank
   starts nothing more in it, so that they do not wait for that. */
void baton__notice_shrink(baton_group_t *group, int lost);

/* The schedule is leaving its group: remembers from which epoch on, for peers
   that have not committed theirs yet; and why, if it had failed before it was
   destroyed. */
void baton__notice_depart(baton_schedule_t *schedule, bool has_failed);

/* A schedule is destroyed that was never committed, or its group, and all that
   were not (0): tells peers that have committed it. */
void baton__notice_retract(baton_group_t *group, uint64_t identity);

/* Sends the notices that are due, to each peer in the order in which they came
   to be: to all, or to those that have not been found to have no room. True if
   one was sent. */
bool baton__notice_send(baton__stepper_t *stepper, bool all);

/* A notice has arrived. */
void baton__notice_receive(baton_group_t *group, baton_message_t *message);

/* True if the schedule is not committed here, and may still be. */
bool baton__notice_may_commit(const baton_group_t *group, uint64_t identity);

/* A HELLO, of a schedule that is not committed here. */
void baton__notice_early(baton_group_t *group, const baton_header_t *header,
                         int peer);

/* Copies the content of any notice, which is then the transport's again; what
   is missing is 0. */
void baton__notice_take(const baton_group_t *group, baton_message_t *message,
                        void *content, size_t bytes);

/* Tells the peer that has sent a header that from `epoch` on its schedule fails
   here, or was destroyed. (Without memory to remember that, it is not told.) */
void baton__notice_answer(baton_group_t *group, const baton_header_t *header,
                          uint64_t epoch, int peer);

/* Tells of a loss, unless it is this rank that was lost: the ranks of this
   host, and one rank that tells those of other hosts, which is the first one on
   the host of the lost rank. If that one is lost, too, the next is told. So a
   loss is known to ranks that have no connection to any that noticed it, and
   few messages go to ranks that may be dying. A rank that is leaving the group
   tells of it with that. Where ranks leave a group as they like one that has
   left is no loss to others, and none are told. */
void baton__notice_lost(baton_group_t *group, int lost);

/* Asks the ranks that the running epoch waits for what they wait for. */
void baton__notice_inquire(const baton_group_t *group, uint64_t identity);

/* A peer that has had no room for what it is to be told before this rank leaves
   the group; -1: none. */
int baton__notice_awaits(const baton_group_t *group);

/* Forgets what peers were to be told by a group whose schedules were all
   destroyed. */
void baton__notice_give_up(baton_group_t *group);

/* Removes the schedule from those with notices to send. */
void baton__notice_forget(baton_schedule_t *schedule);
