/* Epochs that are given up, on ranks that are threads or processes: in each
   round a rank cancels an all-reduce, sooner or later, and all recover. */
#pragma once

#include <baton/baton.h>

/* Runs one rank through so many rounds. However an epoch ends, its memory is
   the rank's as soon as wait has returned; sums are right again behind the
   recovery. Returns NULL, or what is wrong, in words that are valid until this
   thread's next call; and how often the process has allocated since a few
   rounds had passed. */
const char *given_up_run(baton_group_t *group, uint64_t seed, int rounds,
                         int64_t *allocated_out);
