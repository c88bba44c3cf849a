#pragma once

#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood 2014): a bijection in which every bit affects
   all others. */
static inline uint64_t splitmix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
