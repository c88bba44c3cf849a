/* Recovery of a group: all ranks agree that nothing runs any more, and go on in
   the next incarnation, in which messages of the one before mean nothing.

   A rank joins when baton_group_recover was called and nothing of its
   schedules is in motion. From then on it is in the next incarnation, but waits
   until all ranks have joined before it returns. Schedules with a
   baton_recover_fn also wait for the highest epoch that any rank had completed.

   A failed schedule stays failed until all ranks call baton_group_recover: only
   the application knows whether its peers are still there, and what to do with
   half a step. */
#pragma once

#include "progress/stepper.h"

/* Recover was called on this rank: cancels what runs. Must not be called while
   another recovery goes on. */
void baton__recovery_begin(baton_group_t *group);

/* A rank of the group is lost: what waits for it fails, also in the groups that
   share its endpoint. */
void baton__recovery_lose(baton_group_t *group, int peer, const char *detail);

/* Advances groups that recover; true if anything happened. */
bool baton__recovery_advance(baton__stepper_t *stepper);

/* A group recovers, shrinks or parts, and nothing need tell this rank of what
   it waits for: a peer has no room for what it is to be told, a
   baton_recover_fn is to be asked again, or see transport.strangers. */
bool baton__recovery_asks(const baton__stepper_t *stepper);

/* The group, which has no schedules any more, is being destroyed: is in parting
   until all ranks have come to that, or this one parts alone. One that shares
   its root's endpoint does so while its rank goes on: it is dormant while it
   waits for others. */
void baton__recovery_part(baton_group_t *group);

/* A dormant group has something to do. */
void baton__recovery_rouse(baton_group_t *group);

/* A message of a recovery, or a farewell, has arrived. */
void baton__recovery_receive(baton_group_t *group, const baton_header_t *header,
                             int peer);

/* The schedule is about to be destroyed: the recovery goes on without it. */
void baton__recovery_leave(baton_schedule_t *schedule);

/* The rank that the recovery, or the farewell, waits for, which may itself wait
   for another; -1 if that is none, as with something of this rank in motion. */
int baton__recovery_awaits(const baton_group_t *group);
