/* Epochs of captured schedules: each is one launch; see sched/capture.h. All
   functions are the driver's. */
#ifndef BATON_PROGRESS_CAPTURED_H
#define BATON_PROGRESS_CAPTURED_H

#include "progress/stepper.h"

/* The epoch has begun. Launches it, unless its start has; fails it where that
   is not possible. */
void baton__captured_begin(baton__stepper_t *stepper,
                           baton_schedule_t *schedule);

/* Asks whether the device has done what was launched. *moved is set if so. True
   if the schedule, which was abandoned, has been freed. */
bool baton__captured_poll(baton__stepper_t *stepper, baton_schedule_t *schedule,
                          bool *moved);

#endif
