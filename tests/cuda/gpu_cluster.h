/* Several ranks in this process, all on GPU 0, and memory of that GPU. Failures
   are reported to cmocka, but failures of CUDA end the program. */
#pragma once

#include "cuda/on_gpu.h"
#include "support/device_cluster.h"

enum { GPU_RANKS = 5 };

/* Stands at the end of a file. Defines a main that runs all tests, or that runs
   none if there is no GPU. */
#define RUN_GPU_TESTS                                                          \
    int main(int argc, char **argv)                                            \
    {                                                                          \
        return gpu_there() ? support_run_tests(argc, argv, NULL, NULL)         \
                           : GPU_SKIPPED;                                      \
    }

/* The ranks share one engine, which has a progress thread. */
typedef struct gpu_cluster {
    support_cluster_t *cluster;
    cudaStream_t streams[GPU_RANKS]; /* by rank: a stream of the application */
} gpu_cluster_t;

gpu_cluster_t gpu_cluster_open(int size);
void gpu_cluster_close(gpu_cluster_t *self);

/* If `kind` is BATON_MEMORY_HOST, the memory is pinned, so that the GPU can
   copy to and from it. */
void *gpu_allocate(baton_memory_t kind, size_t bytes);
void gpu_release(baton_memory_t kind, void *memory);

/* Returns a stream that does not wait for the default stream. */
cudaStream_t gpu_stream(void);
void gpu_copy(cudaStream_t stream, void *target, const void *source,
              size_t bytes);
void gpu_synchronise(cudaStream_t stream);
