/* What selections are compared with, and what they select from. */
#ifndef MICROBENCH_GPU_SORT_H
#define MICROBENCH_GPU_SORT_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fills the vector with normal values, the same in every run. */
void gpu_fill_normal(cudaStream_t stream, float *values, size_t count);

/* Reads the vector once, 16 bytes at a time. `sink` has room for one float. */
void gpu_read(cudaStream_t stream, const float *values, size_t count,
              float *sink);

/* The radix sort of CUB, of all magnitudes with their indices, largest first.
   The magnitudes are prepared by open: what is timed is the sort alone. */
typedef struct gpu_sort gpu_sort_t;
gpu_sort_t *gpu_sort_open(cudaStream_t stream, const float *values,
                          size_t count);
void gpu_sort_run(gpu_sort_t *sort, cudaStream_t stream);
void gpu_sort_close(gpu_sort_t *sort);

#ifdef __cplusplus
}
#endif
#endif
