/* Recovery of a group: all ranks agree that nothing runs any more, and go on in
   the group's next incarnation. The incarnation is the number of the group's
   recoveries so far. Each message carries the incarnation of its sender, and a
   rank drops messages of an earlier incarnation.

   A rank joins when baton_group_recover was called and no node of its schedules
   is in motion (sched/run.h). From then on the rank is in the next incarnation,
   but baton_group_recover returns only after all ranks have joined. For
   schedules with a baton_recover_fn the ranks also agree on the highest epoch
   that any of them has completed.

   A failed schedule stays failed until all ranks call baton_group_recover: only
   the application knows whether its peers are still there, and what to do with
   half a step. */
#pragma once

#include "progress/state/stepper.h"

/* Begins a recovery on this rank: fails the running epoch of each schedule, and
   the next epoch of each schedule that has messages and runs no epoch. No other
   recovery of the group may be in progress. */
void baton__recovery_begin(baton_group_t *group);

/* Ends recoveries, because a rank is lost and will not join, or because the
   group is destroyed. */
void baton__recovery_give_up(baton_group_t *group);

/* Advances groups that recover or are PARTING, and schedules that recover.
   Returns true if anything happened. */
bool baton__recovery_advance(baton__stepper_t *stepper);

/* Returns true if a group recovers, shrinks or parts, and the driver must make
   steps now and then although no event may wake it: stepper.must_retry or
   transport.strangers is set. */
bool baton__recovery_asks(const baton__stepper_t *stepper);

/* Begins to destroy the group, which has no schedules any more. The ranks say
   farewell: they tell each other that they destroy the group. The group is
   PARTING until all ranks have said so, and a root's endpoint has left
   (baton_transport_t, leave), or until this rank leaves alone. A group that
   shares its root's endpoint, or is unattended, parts in the background: it is
   dormant while it waits for other ranks. */
void baton__recovery_part(baton_group_t *group);

/* Makes steps look at a dormant group again, because an event may have given it
   something to do. */
void baton__recovery_rouse(baton_group_t *group);

/* Handles a message of a recovery, or a farewell. */
void baton__recovery_receive(baton_group_t *group, const baton_header_t *header,
                             int peer);

/* Ends a schedule's part in a recovery, before it is destroyed or after a loss.
   The schedule stays failed. */
void baton__recovery_leave(baton__task_t *task);

/* Returns the rank for which the recovery, or the farewell, waits; that rank
   may itself wait for another one. Returns -1 if there is none, for example
   while a node of this rank is in motion. */
int baton__recovery_awaits(const baton_group_t *group);
