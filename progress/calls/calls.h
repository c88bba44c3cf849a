/* Functions that the files of this folder share. These files implement the
   functions that an application calls on groups and schedules. The verifier
   (lib/sim/verify.c) uses the functions, too. */
#pragma once

#include "progress/state/task.h"

/* Returns true if an epoch is over, whatever its outcome is. */
bool baton__epoch_ended(const baton__task_t *task, uint64_t epoch);

/* True if an epoch is running, or was started and will run. */
bool baton__epoch_runs(const baton__task_t *task);

/* Returns BATON_ERR_INVALID for NULL and for a destroyed schedule,
   BATON_ERR_STATE before the commit. */
baton_status_t baton__check_committed(const baton_schedule_t *schedule,
                                      const char *function);

/* Commits a schedule that the verifier uses itself. That schedule is not
   verified, and does not keep the group from being destroyed (commit.c). */
baton_status_t baton__commit_unverified(baton_schedule_t *schedule);

/* Makes a group of `size` ranks of another group, among them this rank. The new
   group's channel is computed from `key`, so no messages are exchanged.
   `survive` says that the new group consists of the survivors of `of` after a
   loss. On success the group owns the array `ranks`. */
baton_status_t baton__create_subset(baton_group_t *of, uint64_t key,
                                    bool survive, int *ranks, int size,
                                    baton_group_t **out);

/* Makes progress until the condition is true of the group; see the driver's
   wait, in engine.h. */
baton_status_t baton__group_wait(const baton_group_t *group,
                                 baton_condition_fn condition, int timeout_ms,
                                 bool interruptible);
