/* Which ranks are elected in an epoch. */
#ifndef BATON_COLL_PARTIAL_ELECT_H
#define BATON_COLL_PARTIAL_ELECT_H

#include <stdbool.h>
#include <stdint.h>

/* Whether `rank` is one of the `count` ranks, of `size`, that are elected in
   `epoch`. Each block of `size` epochs goes `count` times through one
   permutation of the ranks, `count` ranks an epoch. With one, the rank is
   baton_partial_elect's. */
bool baton__elects(uint64_t seed, uint64_t epoch, int size, uint32_t count,
                   int rank);

#endif
