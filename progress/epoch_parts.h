/* What the files that make up an epoch's life use of each other: epoch.c, and
   queues.c with what the device does. */
#ifndef BATON_PROGRESS_EPOCH_PARTS_H
#define BATON_PROGRESS_EPOCH_PARTS_H

#include "progress/stepper.h"

/* A node is complete; the device has it; the device has done it. */
void baton__epoch_complete(baton__stepper_t *stepper,
                           baton_schedule_t *schedule, uint32_t node);
void baton__epoch_queue(baton__stepper_t *stepper, baton_schedule_t *schedule,
                        uint32_t node);
void baton__epoch_complete_queued(baton__stepper_t *stepper,
                                  baton_schedule_t *schedule, uint32_t node);

/* True if the node's length is a whole number of elements, and memory is bound
   to its operands; else fails the epoch. */
bool baton__epoch_can_compute(baton__stepper_t *stepper,
                              baton_schedule_t *schedule, uint32_t node,
                              size_t bytes);

/* Fails the epoch at a node; this thread's error message says why. */
void baton__epoch_fail_at(baton__stepper_t *stepper, baton_schedule_t *schedule,
                          uint32_t node, baton_status_t status);

/* A node of a failed epoch is no longer in motion. True if the schedule, which
   was abandoned, has been freed. */
bool baton__epoch_end_in_draining(baton__stepper_t *stepper,
                                  baton_schedule_t *schedule, uint32_t node);

#endif
