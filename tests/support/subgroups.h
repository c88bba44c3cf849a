/* Random groups of some ranks of other groups. All of their ranks make, use and
   destroy them in the same random order. Many exist at once; they overlap, are
   made of each other, and may outlive the group that they were made of. */
#pragma once

#include <baton/baton.h>

/* Runs one of the group's at most 8 ranks, and destroys the group. The seed is
   the same on all ranks. Returns NULL or an error message, which is valid until
   this thread's next call. */
const char *subgroups_run(baton_group_t *group, uint64_t seed, int rounds);
