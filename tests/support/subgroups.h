/* Random groups, each of some ranks of another group. All ranks make, use and
   destroy their groups in the same random order. Many groups exist at the same
   time. They overlap, are made of each other, and may outlive the group of
   which they were made. */
#pragma once

#include <baton/baton.h>

/* Runs one rank of a group of at most 8 ranks, and destroys the group. The seed
   is the same on all ranks. Returns NULL or an error message, which is valid
   until this thread's next call. */
const char *subgroups_run(baton_group_t *group, uint64_t seed, int rounds);
