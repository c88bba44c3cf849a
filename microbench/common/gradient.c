#include "common/gradient.h"

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t gradient_key(uint64_t seed, uint64_t step, int rank)
{
    return mix(mix(seed + mix(step)) + (uint64_t)rank);
}

float gradient_at(uint64_t key, size_t element)
{
    uint64_t bits = mix(key + element);
    double sum = 0;
    for (int part = 0; part < 4; part++) {
        sum += (double)(bits >> (16 * part) & 0xffff) / 65536;
    }
    return (float)(sum - 2);
}
