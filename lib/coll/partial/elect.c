/* Which ranks may begin an epoch of a majority or candidates all-reduce.

   Ranks are elected without replacement: a keyed permutation for each P epochs.
   The mean is that of independent elections, with less variance, and no
   contribution waits for 2P epochs. */
#include "coll/partial/elect.h"

#include "base/random.h"

#include <baton/partial.h>

enum { DRAW_ROUNDS = 32 };

/* The generator's step first, so that 0 does not stay 0. */
static uint64_t mix(uint64_t x)
{
    return baton__mix(x + UINT64_C(0x9e3779b97f4a7c15));
}

/* A permutation of 0 .. size - 1 for each block of `size` epochs, without a
   table: swap-or-not (Hoang, Morris, Rogaway 2012). Each round pairs x with
   key - x and swaps the two or not, as both of them would decide. So a round is
   its own inverse, and the rounds backwards are the inverse permutation. */
static uint64_t swap_or_not(uint64_t seed, uint64_t block, uint64_t round,
                            uint64_t n, uint64_t x)
{
    uint64_t key = mix(mix(mix(seed) ^ block) ^ round);
    uint64_t other = (key % n + n - x) % n;
    uint64_t larger = x > other ? x : other;
    return (mix(key ^ larger) & 1) != 0 ? other : x;
}

int baton_partial_elect(uint64_t seed, uint64_t epoch, int size)
{
    uint64_t n = (uint64_t)size;
    uint64_t block = (epoch - 1) / n; /* epochs are numbered from 1 */
    uint64_t x = (epoch - 1) % n;
    for (uint64_t round = 0; round < DRAW_ROUNDS; round++) {
        x = swap_or_not(seed, block, round, n, x);
    }
    return (int)x;
}

bool baton__elects(uint64_t seed, uint64_t epoch, int size, uint32_t count,
                   int rank)
{
    uint64_t n = (uint64_t)size;
    uint64_t block = (epoch - 1) / n;
    uint64_t first = (epoch - 1) % n * count % n;
    uint64_t place = (uint64_t)rank;
    for (uint64_t round = DRAW_ROUNDS; round-- > 0;) {
        place = swap_or_not(seed, block, round, n, place);
    }
    return (place + n - first) % n < count;
}
