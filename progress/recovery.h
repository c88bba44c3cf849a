/* Recovery of a group: all ranks agree that nothing runs any more, and go on in
   the next incarnation, in which messages of the one before mean nothing.

   A rank comes when it is called (baton_group_recover) and nothing of its
   schedules moves. From then on it is in the next incarnation, but waits until
   all ranks have come before it returns. Schedules with a baton_recover_fn wait
   besides for the highest epoch that any rank had completed. */
#ifndef BATON_PROGRESS_RECOVERY_H
#define BATON_PROGRESS_RECOVERY_H

#include "progress/stepper.h"

/* This rank is called to: cancels what runs. Not while the one before goes on.
 */
void baton__recovery_begin(baton__stepper_t *stepper, baton_group_t *group);

/* A rank is gone, and will not come. */
void baton__recovery_give_up(baton__stepper_t *stepper, baton_group_t *group);

/* Goes on with groups that recover; true if anything moved. */
bool baton__recovery_advance(baton__stepper_t *stepper);

/* A message about it has arrived. */
void baton__recovery_receive(baton_group_t *group, baton_message_t *message);

/* The schedule is about to be destroyed: nobody waits for it any more. */
void baton__recovery_leave(baton__stepper_t *stepper,
                           baton_schedule_t *schedule);

/* A rank that has not come, or that waits for another; -1: this one, something
   of it still moves. */
int baton__recovery_awaits(const baton__stepper_t *stepper,
                           const baton_group_t *group);

#endif
