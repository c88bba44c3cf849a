/* Notices: the messages about a schedule that ranks send each other, besides
   the schedule's own messages. (Notices about a group are described in loss.h,
   recovery.h and shrink.h.)

   - HELLO announces a committed schedule to a peer. It contains the schedule's
     terms, on which all ranks must agree (sched/terms.c), and the numbers and
     sizes of the messages between the two ranks. It is sent when the first
     epoch begins or, if the schedule has on_failure, after the commit. A rank
     that lacks the schedule remembers the HELLO, and sends its own after its
     commit.
   - WELCOME is the reply, with the same content. So two ranks are introduced to
     each other after both have committed the schedule, and one of them has
     begun an epoch. Until then a rank holds back its messages to the peer. If
     the two schedules do not agree, they fail on both ranks.
   - FAILURE reports a failed epoch, with the first cause and the rank where it
     occurred, to each peer to which this rank has sent HELLO or WELCOME. The
     peer's epoch fails then, too, and the peer notifies its own peers. When a
     schedule is destroyed, FAILURE is also sent to the peers that would go on,
     and from then on in reply to a HELLO. A rank that has destroyed the
     schedule drops messages of earlier epochs.
   - FAILURES reports many schedules at once that have failed because a rank
     recovers the group.
   - INQUIRY asks what a rank waits for in a schedule's epoch, and STATE is the
     answer; see inquiry.h. The two ranks need not be peers.

   Schedules that are created and never run cost no notice.

   There is a queue for each rank. If a transport has no space for a notice, it
   is sent in a later step, which tries only the first notice of each queue.
   Replies and inquiries are sent first. They are stored as headers: a reply
   that kept the peer's message would keep the peer from sending others. The
   other notices are bits (BATON__TELL_HELLO and so on) for each peer of a
   schedule. */
#pragma once

#include "progress/state/stepper.h"

/* Called after the commit. Sends HELLO to peers that have sent theirs, and to
   all peers if the schedule has on_failure. */
void baton__notice_hello(baton_schedule_t *schedule);

/* Called before the schedule is destroyed. Fails the running epoch or, if no
   epoch runs and the schedule has messages, the next one. This notifies the
   peers. A schedule that has failed sends nothing, as its peers have been
   notified. */
void baton__notice_destroy(baton_schedule_t *schedule);

/* Called when this rank begins to recover the group. Fails the running epoch
   or, if no epoch runs, the next one. This notifies the peers. */
void baton__notice_recover(baton_schedule_t *schedule);

/* Called when this rank shrinks the group after a loss. Fails all epochs that
   this rank has not started, so that peers do not wait for them. */
void baton__notice_shrink(baton_group_t *group, int lost);

/* Called when the schedule is destroyed. Records the cause of its failure, and
   the first epoch without this rank, for peers that have not committed the
   schedule yet. `has_failed`: the schedule had failed before it was
   destroyed. */
void baton__notice_record(const baton__task_t *task, bool has_failed);

/* Tells peers that have committed a schedule that this rank will never commit
   it, because the uncommitted schedule is destroyed here. With identity 0,
   tells them this of all schedules that are not committed here, because the
   group is destroyed or shrunk. */
void baton__notice_retract(baton_group_t *group, uint64_t identity);

/* Sends queued notices. If `all`, tries every queue; otherwise tries only the
   queues whose rank had space at the last try. True if a notice was sent. */
bool baton__notice_send(baton__stepper_t *stepper, bool all);

/* Each function handles the notice after which it is named.
   baton__hello_receive also handles a WELCOME. */
void baton__hello_receive(baton_group_t *group, baton_message_t *message);
void baton__failure_receive(baton_group_t *group, baton_message_t *message);
void baton__failures_receive(baton_group_t *group, baton_message_t *message);
void baton__inquiry_receive(baton_group_t *group, baton_message_t *message);
void baton__state_receive(baton_group_t *group, baton_message_t *message);

/* True if the schedule is not committed here, and may still be committed. */
bool baton__notice_may_commit(const baton_group_t *group, uint64_t identity);

/* Handles the HELLO of a schedule that is not committed here. */
void baton__notice_early(baton_group_t *group, const baton_header_t *header,
                         int peer);

/* Queues a FAILURE for the peer that has sent this header. The FAILURE says
   that the header's schedule has failed or was destroyed here, and that this
   rank takes part in no epoch from `epoch` on. If there is no memory, nothing
   is queued. */
void baton__notice_answer(baton_group_t *group, const baton_header_t *header,
                          uint64_t epoch, int peer);

/* Begins an inquiry (inquiry.h): sends an INQUIRY to the ranks that the running
   epoch waits for. */
void baton__notice_inquire(baton__task_t *task);

/* Returns a peer for which notices are queued that must be sent before this
   rank leaves the group. Returns -1 if there is none. */
int baton__notice_awaits(const baton_group_t *group);

/* Drops the queued notices of a group whose schedules were all destroyed. */
void baton__notice_give_up(baton_group_t *group);

/* Removes the task's notices from the queues. */
void baton__notice_forget(baton__task_t *task);
