#include "cuda/on_gpu.h"

#include <baton/cuda.h>
#include <baton/engine.h>
#include <cstdio>
#include <cstdlib>

void gpu_must(cudaError_t error, const char *doing)
{
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s: %s (%s)\n", doing, cudaGetErrorString(error),
                     cudaGetErrorName(error));
        std::exit(1);
    }
}

namespace
{

__device__ unsigned long long now()
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

__device__ void pass(unsigned us)
{
    unsigned long long begin = now();
    while (now() - begin < us * 1000ull) {
    }
}

__global__ void spin(unsigned us)
{
    pass(us);
}

__global__ void spin_and_fill(unsigned us, float *memory, size_t count,
                              float value)
{
    pass(us);
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) {
        memory[i] = value;
    }
}

__global__ void add(float *memory, size_t count, float value)
{
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) {
        memory[i] += value;
    }
}

} // namespace

/* Loads the kernels. If a kernel were loaded by its first launch, CUDA might
   then wait for all streams, and streams of the tests wait for work that is
   launched later. */
bool gpu_there(void)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = BATON_PROGRESS_MANUAL;
    baton_engine_t *engine = nullptr;
    cudaFuncAttributes attributes;
    bool there = baton_engine_open(&options, &engine) == BATON_OK &&
                 baton_cuda_attach(engine, 0) == BATON_OK;
    if (!there) {
        std::printf("skipped: %s\n", baton_error_message());
        return baton_engine_close(engine) == BATON_OK && there;
    }
    gpu_must(cudaFuncGetAttributes(&attributes, spin), "loading");
    gpu_must(cudaFuncGetAttributes(&attributes, spin_and_fill), "loading");
    gpu_must(cudaFuncGetAttributes(&attributes, add), "loading");
    return baton_engine_close(engine) == BATON_OK;
}

void gpu_spin(cudaStream_t stream, unsigned us)
{
    spin<<<1, 1, 0, stream>>>(us);
    gpu_must(cudaGetLastError(), "spin");
}

void gpu_spin_and_fill(cudaStream_t stream, unsigned us, float *memory,
                       size_t count, float value)
{
    spin_and_fill<<<1, 256, 0, stream>>>(us, memory, count, value);
    gpu_must(cudaGetLastError(), "spin_and_fill");
}

void gpu_add(cudaStream_t stream, float *memory, size_t count, float value)
{
    add<<<1, 256, 0, stream>>>(memory, count, value);
    gpu_must(cudaGetLastError(), "add");
}
