#include "gpu/gpu.h"

namespace
{

__device__ unsigned long long now()
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

__global__ void spin(unsigned us)
{
    unsigned long long begin = now();
    while (now() - begin < us * 1000ull) {
    }
}

__global__ void sum(float *target, const float *right, size_t count)
{
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += stride) {
        target[i] += right[i];
    }
}

__global__ void compute(float *sink, unsigned rounds)
{
    float value = (float)threadIdx.x;
    for (unsigned i = 0; i < rounds; i++) {
        value = value * 0.999f + 0.5f;
    }
    if (value < 0) { /* never, but the compiler can't know */
        *sink = value;
    }
}

unsigned processors()
{
    int device = 0, count = 0;
    gpu_must(cudaGetDevice(&device), "cudaGetDevice");
    gpu_must(
        cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
    return (unsigned)count;
}

} // namespace

void gpu_spin(cudaStream_t stream, unsigned us)
{
    spin<<<1, 1, 0, stream>>>(us);
    gpu_must(cudaGetLastError(), "spin");
}

void gpu_sum(cudaStream_t stream, float *target, const float *right,
             size_t count)
{
    size_t blocks = (count + 255) / 256;
    sum<<<(unsigned)(blocks < 1024 ? blocks : 1024), 256, 0, stream>>>(
        target, right, count);
    gpu_must(cudaGetLastError(), "sum");
}

void gpu_compute(cudaStream_t stream, float *sink, unsigned rounds)
{
    /* Half of the threads that fit, so that other kernels find room. */
    compute<<<processors(), 1024, 0, stream>>>(sink, rounds);
    gpu_must(cudaGetLastError(), "compute");
}
