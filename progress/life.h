/* The life of an epoch on one rank: how it begins, issues its nodes, and ends.
   The step calls these; all of them are the driver's. */
#ifndef BATON_PROGRESS_LIFE_H
#define BATON_PROGRESS_LIFE_H

#include "progress/step.h"

/* Gives the schedule a turn in the next step. */
void baton__life_runnable(baton__stepper_t *stepper,
                          baton_schedule_t *schedule);

/* Begins the next epoch when the application has started it or a kept header
   names it; lets a running one know of the application's start. */
void baton__life_begin_if_due(baton__stepper_t *stepper,
                              baton_schedule_t *schedule);

/* What the operations of the running epoch work on. */
baton__context_t baton__life_context(baton_schedule_t *schedule);

/* Issues a node that may fire: false when that failed the epoch. */
bool baton__life_issue(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       uint32_t node, const baton__context_t *context);

/* Posts an armed receive (again): false when that failed the schedule. */
bool baton__life_arm(baton__stepper_t *stepper, baton_schedule_t *schedule,
                     uint32_t node);

/* The running epoch is through. */
void baton__life_retire(baton__stepper_t *stepper, baton_schedule_t *schedule);

/* A failed schedule comes to rest once nothing of it is in flight. */
void baton__life_settle(baton__stepper_t *stepper, baton_schedule_t *schedule);

void baton__life_cancel(baton__stepper_t *stepper, baton_schedule_t *schedule);

#endif
