/* Ranks of this process on GPU 0, and its memory. Failures are cmocka's, except
   CUDA's, which end the program. */
#pragma once

#include "cuda/on_gpu.h"
#include "support/device_cluster.h"

enum { GPU_RANKS = 5 };

/* Stands at the end of a file: defines a main that runs all tests, or none
   where there is no GPU. */
#define RUN_GPU_TESTS                                                          \
    int main(int argc, char **argv)                                            \
    {                                                                          \
        return gpu_there() ? support_run_tests(argc, argv, NULL, NULL)         \
                           : GPU_SKIPPED;                                      \
    }

/* On one engine with a thread. */
typedef struct gpu_cluster {
    support_cluster_t *cluster;
    cudaStream_t streams[GPU_RANKS]; /* the application's, by rank */
} gpu_cluster_t;

gpu_cluster_t gpu_cluster_open(int size);
void gpu_cluster_close(gpu_cluster_t *self);

/* BATON_MEMORY_HOST: memory that the GPU copies to. */
void *gpu_allocate(baton_memory_t kind, size_t bytes);
void gpu_release(baton_memory_t kind, void *memory);

cudaStream_t gpu_stream(void); /* that does not wait for the default one */
void gpu_copy(cudaStream_t stream, void *target, const void *source,
              size_t bytes);
void gpu_synchronise(cudaStream_t stream);
