/* The life of an epoch on one rank: how it begins, issues its nodes, takes what
   arrives, ends or fails. The state is lib/sched/run.h's; this connects it to
   transports and to who waits. All of it is the driver's. */
#ifndef BATON_PROGRESS_EPOCH_H
#define BATON_PROGRESS_EPOCH_H

#include "progress/stepper.h"

/* Begins the next epoch when it is due: the application has started it, or a
   peer activates it. Lets a running one know of the application's start. */
void baton__epoch_begin_if_due(baton__stepper_t *stepper,
                               baton_schedule_t *schedule);

/* A turn: issues up to `nodes` nodes that are ready, and ends an epoch that is
   through. */
void baton__epoch_turn(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       uint32_t nodes);

/* A message of a schedule has arrived. */
void baton__epoch_deliver(baton__stepper_t *stepper, baton_group_t *group,
                          baton_message_t *message);

/* A send has ended, or a message is where it belongs. */
void baton__epoch_complete_transfer(baton__stepper_t *stepper,
                                    const baton_event_t *event);

/* Async nodes: those that were completed elsewhere; those that have to be
   asked, true if one has completed. */
void baton__epoch_collect_asyncs(baton__stepper_t *stepper,
                                 baton_schedule_t *schedule);
bool baton__epoch_poll_asyncs(baton__stepper_t *stepper,
                              baton_schedule_t *schedule);

/* A peer has committed the schedule: what was held back for it goes out. */
void baton__epoch_introduce(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, int peer);

/* Nothing comes from this peer any more: epochs that need it fail. */
void baton__epoch_lose_peer(baton__stepper_t *stepper, baton_group_t *group,
                            int peer, baton_status_t status,
                            const char *detail);

/* ---- failure ---------------------------------------------------------- */

/* Fails the running epoch, or the schedule between epochs; peers are told.
   `message` is the sentence that who waits gets. */
void baton__epoch_fail(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       const baton__failure_t *failure, const char *message);

/* The same for a cause on this rank, in the epoch that runs, or would come
   next; the sentence is this thread's error message. */
void baton__epoch_fail_here(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, baton_status_t status);

/* A peer's epoch has failed, its `epoch`-th or a later one: fails this rank's
   as soon as it gets there. */
void baton__epoch_fail_from(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, uint64_t epoch,
                            const baton__failure_t *failure,
                            const char *message);

/* The schedule is destroyed, though something of it moves still: who waits is
   told that it has failed, and it is freed when that has ended. */
void baton__epoch_abandon(baton__stepper_t *stepper,
                          baton_schedule_t *schedule);

/* How the schedule failed, and the sentence that says so; any thread. */
baton__failure_t baton__epoch_failure(const baton_schedule_t *schedule,
                                      char *sentence_out, size_t bytes);

/* It is being recovered: a thread that still waits for an epoch finds another
   generation, and what came of the epoch by past_outcome. */
void baton__epoch_forget_failure(baton_schedule_t *schedule);
baton_status_t baton__epoch_past_outcome(const baton_schedule_t *schedule,
                                         uint64_t epoch);

/* Drops what came for later epochs. */
void baton__epoch_drop_early(baton_schedule_t *schedule);

#endif
