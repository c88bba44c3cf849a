/* Random bits as a function of their purpose: there is no state, so the order
   of calls does not matter. */
#pragma once

#include <stdint.h>

/* A bijection of 64 bits whose results show no pattern of the argument (the
   finaliser of splitmix64: Steele, Lea, Flood 2014). */
static inline uint64_t baton__mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Returns the k-th group of 64 random bits of a stream under a seed. Bits for
   different purposes come from different streams; `stream` is the number of one
   of them, for example a rank. */
static inline uint64_t baton__random(uint64_t seed, uint64_t stream, uint64_t k)
{
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
    return baton__mix(baton__mix(baton__mix(seed + step) ^ (stream + step)) +
                      k * step);
}
