/* Who may begin an epoch of a majority all-reduce. */
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
   key - x and swaps the two or not, as both of them would decide. */
int baton_partial_elect(uint64_t seed, uint64_t epoch, int size)
{
    uint64_t n = (uint64_t)size;
    uint64_t block = (epoch - 1) / n; /* epochs are numbered from 1 */
    uint64_t x = (epoch - 1) % n;
    for (uint64_t round = 0; round < DRAW_ROUNDS; round++) {
        uint64_t key = mix(mix(mix(seed) ^ block) ^ round);
        uint64_t other = (key % n + n - x) % n;
        uint64_t larger = x > other ? x : other;
        if ((mix(key ^ larger) & 1) != 0) {
            x = other;
        }
    }
    return (int)x;
}
