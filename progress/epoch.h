/* The life of an epoch on one rank: how it begins, issues its nodes, takes what
   arrives, retires or fails. The state is lib/sched/run.h's; this connects it
   to transports and to the threads that wait. All functions are the driver's.
 */
#pragma once

#include "progress/stepper.h"

/* Begins the next epoch if the application has started it, or a peer activates
   it. A running one learns of the application's start. */
void baton__epoch_begin_if_due(baton_schedule_t *schedule);

/* A turn: issues up to `nodes` ready nodes, and retires the epoch if it is
   complete. */
void baton__epoch_turn(baton_schedule_t *schedule, uint32_t nodes);

/* A message of a schedule has arrived. */
void baton__epoch_deliver(baton_group_t *group, baton_message_t *message);

/* A send has ended, or an accepted message is in its target. */
void baton__epoch_complete_transfer(const baton_event_t *event);

/* Completes async nodes: those that other threads have completed; and those
   whose poll function says so, true if there was one. */
void baton__epoch_collect_asyncs(baton_schedule_t *schedule);
bool baton__epoch_poll_asyncs(baton_schedule_t *schedule);

/* A peer has committed the schedule: issues the sends that were held back. */
void baton__epoch_introduce(baton_schedule_t *schedule, int peer);

/* A poll has brought nothing: fails the epochs of which a node's message has
   failed, and no peer is lost. */
void baton__epoch_end_doubts(baton__stepper_t *stepper);

/* One that has on_failure fails if any rank of its group is lost. */
void baton__epoch_fail_if_lost(baton_schedule_t *schedule);

/* A peer is lost: epochs that need it fail. */
void baton__epoch_lose_peer(baton_group_t *group, int peer, const char *detail);

/* ---- failure ---------------------------------------------------------- */

/* Fails the running epoch, or the schedule between epochs; peers are told.
   `message` is what waiting threads get. */
void baton__epoch_fail(baton_schedule_t *schedule,
                       const baton__failure_t *failure, const char *message);

/* The same for a cause on this rank, in the epoch that runs or would be next;
   with this thread's error message. */
void baton__epoch_fail_here(baton_schedule_t *schedule, baton_status_t status);

/* Fails the running epoch if the application has cancelled it; true then. */
bool baton__epoch_cancel_if_asked(baton_schedule_t *schedule);

/* A peer's epoch has failed, its `epoch`-th or a later one: fails this rank's
   as soon as it gets there. */
void baton__epoch_fail_from(baton_schedule_t *schedule, uint64_t epoch,
                            const baton__failure_t *failure,
                            const char *message);

/* The same of a schedule that recovers: in force once it has. */
void baton__epoch_fail_recovered(baton_schedule_t *schedule, uint64_t epoch,
                                 const baton__failure_t *failure,
                                 const char *message);

/* Calls what is called when epochs end, for those that have: from epoch
   `failed` on (0: none) they have failed. Last: it may start the next one. */
void baton__epoch_tell_ended(baton_schedule_t *schedule, uint64_t failed);

/* The last epoch that has ended, or, in a failed schedule, will not begin. */
uint64_t baton__epoch_last_ended(const baton_schedule_t *schedule);

/* The schedule is destroyed while something of it is in motion: waiting threads
   get its failure, and it is freed when that has ended. */
void baton__epoch_abandon(baton_schedule_t *schedule);

/* How the schedule failed, and the message that says so. Any thread. */
baton__failure_t baton__epoch_failure(const baton_schedule_t *schedule,
                                      char *sentence_out, size_t bytes);

/* The schedule is recovered: forgets its failure. A thread that still waits for
   an epoch sees another generation, and gets the outcome from past_outcome. */
void baton__epoch_forget_failure(baton_schedule_t *schedule);
baton_status_t baton__epoch_past_outcome(const baton_schedule_t *schedule,
                                         uint64_t epoch);

/* The error of an epoch that failed before the last recovery, if wait and test
   have not returned it and no other was started since; else BATON_OK. */
baton_status_t baton__epoch_unreported(const baton_schedule_t *schedule);

/* Drops messages that came for later epochs. */
void baton__epoch_drop_early(baton_schedule_t *schedule);
