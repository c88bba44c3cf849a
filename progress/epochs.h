/* What the application has asked of a schedule's epochs, and how they ended. */
#pragma once

#include "sched/schedule.h"

/* True if an epoch is over, whatever its outcome. */
bool baton__epoch_ended(const baton_schedule_t *schedule, uint64_t epoch);

/* Whether an epoch is running, or was started and will: under the driver's
   lock. */
bool baton__epoch_runs(const baton_schedule_t *schedule);

/* BATON_ERR_INVALID for NULL, and once it was destroyed; BATON_ERR_STATE before
   the commit. */
baton_status_t baton__check_committed(const baton_schedule_t *schedule,
                                      const char *function);
