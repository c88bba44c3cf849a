/* Plain loops, compiled for this machine. */
#ifndef BATON_MICROBENCH_BENCH_KERNELS_NATIVE_H
#define BATON_MICROBENCH_BENCH_KERNELS_NATIVE_H

#include <stddef.h>

/* target[i] = left[i] + right[i] */
void bench_native_sum(float *restrict target, const float *left,
                      const float *right, size_t count);

/* target[i] += right[i] */
void bench_native_add(float *restrict target, const float *right, size_t count);

/* The sum of |values[i]|, in many partial sums. */
float bench_native_magnitudes(const float *values, size_t count);

#endif
