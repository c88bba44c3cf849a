/* Random groups of some ranks of others: made, used and destroyed by all of
   their ranks in one random order, many at once, overlapping, of each other,
   and behind the group that they were made of. */
#pragma once

#include <baton/baton.h>

/* What one of the group's at most 8 ranks does; the seed is the same on all of
   them. Destroys the group, too. Returns NULL, or what is wrong, valid until
   this thread's next call. */
const char *subgroups_run(baton_group_t *group, uint64_t seed, int rounds);
