#include "cuda/gpu_cluster.h"
#include <baton/cuda.h>

static void attach(void *arg, int rank, baton_engine_t *engine)
{
    support_ok(baton_cuda_attach(engine, 0));
}

gpu_cluster_t gpu_cluster_open(int size)
{
    gpu_cluster_t self = {.cluster = support_cluster_prepare(
                              size, SUPPORT_ONE_THREAD, attach, NULL)};
    for (int r = 0; r < size; r++) {
        self.streams[r] = gpu_stream();
    }
    return self;
}

void gpu_cluster_close(gpu_cluster_t *self)
{
    for (int r = 0; r < self->cluster->size; r++) {
        gpu_must(cudaStreamDestroy(self->streams[r]), "cudaStreamDestroy");
    }
    support_cluster_close(self->cluster);
}

void *gpu_allocate(baton_memory_t kind, size_t bytes)
{
    void *memory = NULL;
    gpu_must(kind == BATON_MEMORY_DEVICE ? cudaMalloc(&memory, bytes)
                                         : cudaMallocHost(&memory, bytes),
             "allocating");
    return memory;
}

void gpu_release(baton_memory_t kind, void *memory)
{
    gpu_must(kind == BATON_MEMORY_DEVICE ? cudaFree(memory)
                                         : cudaFreeHost(memory),
             "releasing");
}

cudaStream_t gpu_stream(void)
{
    cudaStream_t stream = NULL;
    gpu_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
    return stream;
}

void gpu_copy(cudaStream_t stream, void *target, const void *source,
              size_t bytes)
{
    gpu_must(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream),
             "cudaMemcpyAsync");
}

void gpu_synchronise(cudaStream_t stream)
{
    gpu_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}
