/* The sum as a user would write it, with which Baton's kernels are compared.
   This file is compiled with -O3 -march=native. */
#include "bench/bench.h"

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
