/* What a user would write, compiled with -O3 -march=native: the measure of
   Baton's kernels. In a file of its own, for its flags. */
#include "bench/bench.h"

#include <math.h>

void bench_native_sum(float *restrict target, const float *left,
                      const float *right, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        target[i] = left[i] + right[i];
    }
}

void bench_native_add(float *restrict target, const float *right, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        target[i] += right[i];
    }
}

float bench_native_magnitudes(const float *values, size_t count)
{
    enum { LANES = 64 };
    float sums[LANES] = {0}, all = 0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            sums[j] += fabsf(values[i + j]);
        }
    }
    for (; i < count; i++) {
        all += fabsf(values[i]);
    }
    for (size_t j = 0; j < LANES; j++) {
        all += sums[j];
    }
    return all;
}
