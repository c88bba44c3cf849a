/* CUDA kernels on a machine without a GPU: the functions that a kernel calls,
   and a launch that runs a kernel's blocks one after another, with a fiber for
   each thread of a block. Warps exchange values as on a GPU, and the threads of
   a block meet at its barriers. A check makes sure that all lanes of a warp
   call the same operation. The order of blocks and threads is random, from
   BATON_SEED.

   This tests the logic of kernels. Threads take turns only at these operations,
   so the test finds no race between two operations, and says nothing about
   time. Device memory comes from malloc, so the address sanitizer finds
   accesses outside of it. */
#pragma once

#include "base/half.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- the kernels' side ------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__      static /* only one block runs at a time */
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

extern uint3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads(void);

inline void __threadfence(void)
{
}

/* Stores this lane's `value`. Waits until every lane of the warp has called
   this function with the same `operation`. Returns an array with the values of
   all lanes. */
const uint64_t *cpu_exchange(uint64_t value, int operation);

unsigned cpu_lane(void);

template <class type> uint64_t cpu_bits(type value)
{
    uint64_t bits = 0;
    static_assert(sizeof value <= sizeof bits, "too large for a lane");
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class type> type cpu_value(uint64_t bits)
{
    type value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned __ballot_sync(unsigned, int predicate)
{
    const uint64_t *all = cpu_exchange(predicate != 0, 1);
    unsigned bits = 0;
    for (unsigned i = 0; i < 32; i++) {
        bits |= (unsigned)all[i] << i;
    }
    return bits;
}

template <class type>
type __shfl_sync(unsigned, type value, int from, int width = 32)
{
    const uint64_t *all = cpu_exchange(cpu_bits(value), 2);
    unsigned base = cpu_lane() / (unsigned)width * (unsigned)width;
    return cpu_value<type>(all[base + (unsigned)from % (unsigned)width]);
}

template <class type> type __shfl_xor_sync(unsigned, type value, int with)
{
    const uint64_t *all = cpu_exchange(cpu_bits(value), 3);
    return cpu_value<type>(all[cpu_lane() ^ (unsigned)with]);
}

/* A lane that would read from outside of the warp gets its own value. */
template <class type> type __shfl_up_sync(unsigned, type value, unsigned by)
{
    const uint64_t *all = cpu_exchange(cpu_bits(value), 4);
    unsigned lane = cpu_lane();
    return cpu_value<type>(all[lane >= by ? lane - by : lane]);
}

template <class type> type __shfl_down_sync(unsigned, type value, unsigned by)
{
    const uint64_t *all = cpu_exchange(cpu_bits(value), 5);
    unsigned lane = cpu_lane();
    return cpu_value<type>(all[lane + by < 32 ? lane + by : lane]);
}

template <class type> type atomicAdd(type *at, type value)
{
    type before = *at;
    *at += value;
    return before;
}

template <class type> type atomicMax(type *at, type value)
{
    type before = *at;
    *at = before > value ? before : value;
    return before;
}

/* f16 is converted by the functions for the CPU (base/half.h). */
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

/* ---- the host's side --------------------------------------------------- */

typedef int cudaError_t;
typedef void *cudaStream_t;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1 };

typedef enum cudaMemcpyKind {
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost
} cudaMemcpyKind;

inline const char *cudaGetErrorString(cudaError_t)
{
    return "no error";
}

inline cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

inline cudaError_t cudaMalloc(void **out, size_t bytes)
{
    /* The memory is aligned as cudaMalloc aligns it. No spare bytes follow it,
       so that the sanitizer finds accesses past its end. */
    return posix_memalign(out, 256, bytes);
}

inline cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaMalloc(out, bytes);
}

inline cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}

inline cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

inline cudaError_t cudaDeviceSynchronize(void)
{
    /* There is nothing to wait for: a launch returns after all blocks have
       run. */
    return cudaSuccess;
}

inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                              cudaMemcpyKind)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}

inline cudaError_t cudaMemset(void *to, int byte, size_t bytes)
{
    memset(to, byte, bytes);
    return cudaSuccess;
}

/* Marks a kernel as loaded. A kernel that is not loaded can't be launched. So a
   test notices if baton_cuda_attach does not load all kernels. */
void cpu_load(const void *kernel);

struct cudaFuncAttributes {
};

inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *,
                                         const void *kernel)
{
    cpu_load(kernel);
    return cudaSuccess;
}

inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                                 const void *,
                                                                 int, size_t)
{
    *blocks = 4;
    return cudaSuccess;
}

/* Calls run(arg), which calls the kernel, once for each thread of each
   block. */
void cpu_launch(const void *kernel, unsigned blocks, unsigned threads,
                void (*run)(void *), void *arg);

template <class function>
void cpu_launch(const void *kernel, unsigned blocks, unsigned threads,
                function call)
{
    cpu_launch(
        kernel, blocks, threads, [](void *arg) { (*(function *)arg)(); },
        &call);
}
