#include "gpu/sort.h"

#include "gpu/gpu.h"

#include <cub/device/device_radix_sort.cuh>
#include <stdlib.h>

enum { THREADS = 256, BLOCKS = 2048 };

/* ---- values ------------------------------------------------------------ */

static __device__ uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static __global__ void fill_normal(float *values, size_t count)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < count; i += stride) {
        uint64_t bits = mixed((i + 1) * UINT64_C(0x9e3779b97f4a7c15));
        float u = ((float)(bits >> 40) + 0.5f) * 0x1p-24f;
        float v = (float)(bits & 0xffffff) * 0x1p-24f;
        values[i] = sqrtf(-2 * logf(u)) * cospif(2 * v);
    }
}

void gpu_fill_normal(cudaStream_t stream, float *values, size_t count)
{
    fill_normal<<<BLOCKS, THREADS, 0, stream>>>(values, count);
    gpu_must(cudaGetLastError(), "fill_normal");
}

/* ---- one read ---------------------------------------------------------- */

/* The sum is written where it is a value that no such sum has; so the reads
   are needed, and there are no writes. */
static __global__ void read_all(const float4 *values, size_t loads, float *sink)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll 8
    for (; i < loads; i += stride) {
        float4 load = values[i];
        sum += fabsf(load.x) + fabsf(load.y) + fabsf(load.z) + fabsf(load.w);
    }
    if (sum < 0) {
        *sink = sum;
    }
}

void gpu_read(cudaStream_t stream, const float *values, size_t count,
              float *sink)
{
    read_all<<<BLOCKS, THREADS, 0, stream>>>((const float4 *)values, count / 4,
                                             sink);
    gpu_must(cudaGetLastError(), "read_all");
}

/* ---- the sort ---------------------------------------------------------- */

struct gpu_sort {
    size_t count, temporary_bytes;
    uint32_t *keys, *sorted_keys, *indices, *sorted_indices;
    void *temporary;
};

static __global__ void magnitudes(const float *values, size_t count,
                                  uint32_t *keys, uint32_t *indices)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < count; i += stride) {
        keys[i] = __float_as_uint(values[i]) & 0x7fffffff;
        indices[i] = (uint32_t)i;
    }
}

/* Without temporary memory it tells how much is needed. */
static void sort_pairs(gpu_sort_t *sort, cudaStream_t stream)
{
    gpu_must(cub::DeviceRadixSort::SortPairsDescending(
                 sort->temporary, sort->temporary_bytes, sort->keys,
                 sort->sorted_keys, sort->indices, sort->sorted_indices,
                 sort->count, 0, 31, stream),
             "cub::DeviceRadixSort");
}

gpu_sort_t *gpu_sort_open(cudaStream_t stream, const float *values,
                          size_t count)
{
    gpu_sort_t *sort = (gpu_sort_t *)calloc(1, sizeof *sort);
    if (sort == NULL) {
        gpu_must(cudaErrorMemoryAllocation, "calloc");
        return NULL;
    }
    const size_t bytes = count * sizeof(uint32_t);
    sort->count = count;
    sort->keys = (uint32_t *)gpu_alloc(bytes);
    sort->sorted_keys = (uint32_t *)gpu_alloc(bytes);
    sort->indices = (uint32_t *)gpu_alloc(bytes);
    sort->sorted_indices = (uint32_t *)gpu_alloc(bytes);
    sort_pairs(sort, stream);
    sort->temporary = gpu_alloc(sort->temporary_bytes);
    magnitudes<<<BLOCKS, THREADS, 0, stream>>>(values, count, sort->keys,
                                               sort->indices);
    gpu_must(cudaGetLastError(), "magnitudes");
    return sort;
}

void gpu_sort_run(gpu_sort_t *sort, cudaStream_t stream)
{
    sort_pairs(sort, stream);
}

void gpu_sort_close(gpu_sort_t *sort)
{
    gpu_free(sort->keys);
    gpu_free(sort->sorted_keys);
    gpu_free(sort->indices);
    gpu_free(sort->sorted_indices);
    gpu_free(sort->temporary);
    free(sort);
}
