/* Allocates memory, checks pointers, and copies. */
#include "cuda/gpu.h"

baton_status_t baton__gpu_allocate(void *device, baton_memory_t kind,
                                   size_t bytes, void **out)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    /* CUDA returns NULL for zero bytes, so at least one byte is allocated.
       cudaMalloc and cudaHostAlloc align to at least 256 bytes. */
    size_t size = bytes == 0 ? 1 : bytes;
    void *memory = NULL;
    cudaError_t error =
        kind == BATON_MEMORY_DEVICE
            ? cudaMalloc(&memory, size)
            : cudaHostAlloc(&memory, size, cudaHostAllocPortable);
    size_t left = 0, all = 0;
    if (error == cudaErrorMemoryAllocation && kind == BATON_MEMORY_DEVICE &&
        cudaMemGetInfo(&left, &all) == cudaSuccess) {
        (void)cudaGetLastError();
        status =
            baton_error_set(BATON_ERR_NO_MEMORY,
                            "%s: no memory for %zu bytes: %zu of %zu are free",
                            gpu->name, size, left, all);
    } else {
        status = baton__gpu_report(
            gpu, error,
            kind == BATON_MEMORY_DEVICE ? "cudaMalloc" : "cudaHostAlloc");
    }
    baton__gpu_leave(gpu);
    if (status == BATON_OK) {
        *out = memory;
    }
    return status;
}

void baton__gpu_release(void *device, baton_memory_t kind, void *memory)
{
    baton__gpu_t *gpu = device;
    if (memory == NULL || baton__gpu_enter(gpu) != BATON_OK) {
        return; /* the context is gone, and so is its memory */
    }
    /* An error here comes from earlier work, and was already reported by
       baton__gpu_query. */
    (void)baton__gpu_end(gpu, "cudaFree",
                         kind == BATON_MEMORY_DEVICE ? cudaFree(memory)
                                                     : cudaFreeHost(memory));
}

/* ---- kinds of memory -------------------------------------------------- */

/* Checks that the memory is of `kind` on this GPU. Otherwise the message says
   of what kind the memory is. */
static baton_status_t memory_compare(const baton__gpu_t *gpu,
                                     const struct cudaPointerAttributes *is,
                                     baton_memory_t kind)
{
    if (is->type == cudaMemoryTypeDevice) {
        return kind == BATON_MEMORY_DEVICE && is->device == gpu->ordinal
                   ? BATON_OK
                   : baton_error_set(BATON_ERR_INVALID, "memory of device %d",
                                     is->device);
    }
    if (is->type == cudaMemoryTypeManaged) {
        return kind == BATON_MEMORY_DEVICE || gpu->managed_by_host
                   ? BATON_OK
                   : baton_error_set(BATON_ERR_INVALID,
                                     "managed memory, which the host of this "
                                     "GPU can't use while the GPU works");
    }
    if (kind == BATON_MEMORY_HOST) {
        return BATON_OK;
    }
    return baton_error_set(BATON_ERR_INVALID, is->type == cudaMemoryTypeHost
                                                  ? "pinned host memory"
                                                  : "host memory");
}

/* Checks the kind of memory of the first and of the last byte only. So an array
   that is mapped in several pieces (cuMemMap) passes, too. */
baton_status_t baton__gpu_check(void *device, const void *memory, size_t bytes,
                                baton_memory_t kind)
{
    const baton__gpu_t *gpu = device;
    const char *const ends[] = {memory, (const char *)memory + bytes - 1};
    baton_status_t status = bytes == 0 ? BATON_OK : baton__gpu_enter(gpu);
    if (status != BATON_OK || bytes == 0) {
        return status;
    }
    for (int i = 0; i < 2 && status == BATON_OK; i++) {
        struct cudaPointerAttributes is;
        cudaError_t error = cudaPointerGetAttributes(&is, ends[i]);
        status = baton__gpu_report(gpu, error, "cudaPointerGetAttributes");
        if (status == BATON_OK) {
            status = memory_compare(gpu, &is, kind);
        }
    }
    baton__gpu_leave(gpu);
    return status;
}

baton_status_t baton__gpu_copy(void *device, baton_stream_t stream,
                               void *target, const void *source, size_t bytes)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = bytes == 0 ? BATON_OK : baton__gpu_enter(gpu);
    /* CUDA derives the direction from the addresses. */
    return status != BATON_OK || bytes == 0
               ? status
               : baton__gpu_put(gpu, stream, "cudaMemcpyAsync",
                                cudaMemcpyAsync(target, source, bytes,
                                                cudaMemcpyDefault, stream));
}
