/* What cuda/reduce.cu needs beyond cuda_on_cpu.h, to be run by the processor.
   The conversions of f16 are the host's: those that the toolkit has for a GPU
   are in test_elements. */
#ifndef TESTS_SUPPORT_REDUCE_ON_CPU_H
#define TESTS_SUPPORT_REDUCE_ON_CPU_H

#ifdef __cplusplus
extern "C++" {
#endif

#include "ops/half.h"
#include "support/cuda_on_cpu.h"

#define __host__
#define __forceinline__ inline

struct __half_raw {
    uint16_t x;
};

struct __half {
    __half_raw raw;
    explicit __half(__half_raw from) : raw(from)
    {
    }
    operator __half_raw() const
    {
        return raw;
    }
};

inline float __half2float(__half value)
{
    return baton__f32_of_f16(value.raw.x);
}

inline __half __float2half_rn(float value)
{
    return __half(__half_raw{baton__f16_of_f32(value)});
}

inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                                 const void *,
                                                                 int, size_t)
{
    *blocks = 4;
    return cudaSuccess;
}

#ifdef __cplusplus
}
#endif
#endif
