/* The life of an epoch on one rank: how it begins, issues its nodes, takes
   messages, retires or fails. The state is in lib/sched/run.h; these functions
   connect it to transports and to the threads that wait. They assert that their
   caller drives, unless a comment says "any thread". */
#pragma once

#include "progress/state/stepper.h"

/* Begins the next epoch if the application has started it or a peer has
   activated it. If a peer has begun the epoch already, fires the epoch's
   on-start nodes (baton_add_on_start) when the application has started it. In a
   failed schedule, ends the epochs that were started since the failure. */
void baton__epoch_begin_if_due(baton_schedule_t *schedule);

/* Does a schedule's part of a step: issues up to `nodes` ready nodes, and
   retires the epoch if it is complete. */
void baton__epoch_advance(baton_schedule_t *schedule, uint32_t nodes);

/* Passes a message that has arrived to its receive, keeps it for later, or
   drops it. */
void baton__epoch_deliver(baton_group_t *group, baton_message_t *message);

/* Completes a send that has ended, or a receive whose message is in its target,
   or fails the epoch if the transfer has failed. */
void baton__epoch_complete_transfer(const baton_event_t *event);

/* Completes the async nodes for which another thread has called
   baton_async_complete. */
void baton__epoch_collect_asyncs(baton_schedule_t *schedule);
/* Calls the poll functions of begun async nodes. True if a node has
   completed. */
bool baton__epoch_poll_asyncs(baton_schedule_t *schedule);

/* Called when a peer has committed the schedule. Allows messages to the peer,
   and issues the sends to the peer that were held back. `index` is the peer's
   index in plan.peers. */
void baton__epoch_introduce(baton_schedule_t *schedule, uint32_t index);

/* Called when a poll has brought no event. Fails each epoch in which a message
   has failed, unless the transport has reported the loss of the message's peer
   since; see baton__epoch_fail_message. */
void baton__epoch_end_doubts(baton__stepper_t *stepper);

/* Fails a schedule that has on_failure if any rank of its group is lost. */
void baton__epoch_fail_if_lost(baton_schedule_t *schedule);

/* Called when a peer is lost. Fails the running epoch if it needs the peer, and
   calls baton__epoch_fail_if_lost. */
void baton__epoch_lose(baton_schedule_t *schedule, int peer);

/* ---- failure ---------------------------------------------------------- */

/* Fails the running epoch, or between epochs the next one, and notifies the
   peers. Waits for the epoch return the failure's status, with `message` as the
   error message. Does nothing if the run (lib/sched/run.h) is in any other
   phase. */
void baton__epoch_fail(baton_schedule_t *schedule,
                       const baton__failure_t *failure, const char *message);

/* Calls baton__epoch_fail for a cause on this rank; the message is this
   thread's error message. */
void baton__epoch_fail_here(baton_schedule_t *schedule, baton_status_t status);

/* If the application has cancelled the running epoch, fails the epoch and
   returns true. */
bool baton__epoch_cancel_if_asked(baton_schedule_t *schedule);

/* Called when a peer has reported that the schedule has failed there from
   `epoch` on, or that the peer takes no part any more. Fails this rank's
   schedule as soon as it gets to that epoch. */
void baton__epoch_fail_from(baton_schedule_t *schedule, uint64_t epoch,
                            const baton__failure_t *failure,
                            const char *message);

/* Called instead of baton__epoch_fail_from for a schedule that recovers: the
   failure takes effect after the recovery. */
void baton__epoch_fail_recovered(baton_schedule_t *schedule, uint64_t epoch,
                                 const baton__failure_t *failure,
                                 const char *message);

/* Calls on_end for each epoch that has ended since the last call. Epochs from
   `failed` on get the status of the failure (0: no epoch has failed). Called
   after the end was published, since on_end may start the next epoch. */
void baton__epoch_tell_ended(baton__task_t *task, uint64_t failed);

/* Returns the last epoch that has ended. In a schedule that is failed or
   abandoned, the epochs that were started count as ended, since none of them
   will begin. */
uint64_t baton__epoch_last_ended(const baton__task_t *task);

/* Called when a schedule is destroyed while nodes of it are in motion
   (lib/sched/run.h). Makes waiting threads return the schedule's failure, and
   has the schedule freed when these nodes have ended. */
void baton__epoch_abandon(baton_schedule_t *schedule);

/* Returns how the schedule failed, and copies the message that says so. Any
   thread. */
baton__failure_t baton__epoch_failure(const baton__task_t *task,
                                      char *sentence_out, size_t bytes);

/* Forgets the failure of a schedule that is recovered, and increments its
   generation. A thread that still waits for an earlier epoch finds that the
   generation has changed, and gets the outcome from
   baton__epoch_past_outcome. */
void baton__epoch_forget_failure(baton__task_t *task);
/* Returns the outcome of an epoch that was started before the last recovery.
   Any thread. */
baton_status_t baton__epoch_past_outcome(const baton__task_t *task,
                                         uint64_t epoch);

/* Returns the error of an epoch that failed before the last recovery, if no
   wait or test has returned it and no other epoch was started since; else
   BATON_OK. Any thread. */
baton_status_t baton__epoch_unreported(const baton__task_t *task);

/* Drops the messages that came early for epochs up to `epoch`. */
void baton__epoch_drop_up_to(baton_schedule_t *schedule, uint64_t epoch);
