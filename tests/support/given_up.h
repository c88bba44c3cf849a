/* Epochs that are given up, on ranks that are threads or processes: in each
   round a rank cancels an all-reduce, sooner or later, and all ranks
   recover. */
#pragma once

#include <baton/baton.h>

/* Runs one rank through `rounds` rounds. Checks that an epoch's memory belongs
   to the rank as soon as wait has returned, however the epoch has ended, and
   that sums are right again after the recovery. Returns NULL or an error
   message, which is valid until this thread's next call. *allocated_out is the
   number of allocations of the process after the first few rounds. */
const char *given_up_run(baton_group_t *group, uint64_t seed, int rounds,
                         int64_t *allocated_out);
