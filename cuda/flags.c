/* Flags: words in pinned host memory, which the GPU sees too.

   Streams wait for and write a word by themselves where the GPU can do that
   with 64 bits (cuStreamWaitValue64); elsewhere a kernel of one thread does,
   which takes a place on a multiprocessor while it waits.

   Words come from slabs that stay until the GPU is closed, and none is used
   again: a stream of the application may still wait for a flag that has been
   destroyed. */
#include "cuda/gpu.h"
#include "cuda/kernels.h"

#include <stdlib.h>

#define FLAGS_PER_SLAB 64

/* A cache line each. */
typedef struct flag {
    _Alignas(64) _Atomic uint64_t word; /* host and GPU */
    uint64_t *on_device;                /* the word's address there */
} flag_t;
_Static_assert(sizeof(flag_t) == 64, "a flag is a cache line");
_Static_assert(sizeof(_Atomic uint64_t) == sizeof(uint64_t) &&
                   ATOMIC_LLONG_LOCK_FREE == 2,
               "the GPU writes the word as a plain integer");

typedef struct baton__flag_slab {
    struct baton__flag_slab *next;
    size_t used;
    flag_t *flags; /* pinned */
} baton__flag_slab_t;

baton_status_t baton__gpu_flags_open(baton__gpu_t *gpu)
{
    int waits = 0;
    CUresult error = gpu->driver.device_get_attribute(
        &waits, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, gpu->device);
    gpu->stream_waits = waits != 0;
    return baton__gpu_report_driver(gpu, error, "cuDeviceGetAttribute");
}

void baton__gpu_flags_close(baton__gpu_t *gpu)
{
    while (gpu->flag_slabs != NULL) {
        baton__flag_slab_t *slab = gpu->flag_slabs;
        gpu->flag_slabs = slab->next;
        (void)baton__gpu_report(gpu, cudaFreeHost(slab->flags), "cudaFreeHost");
        free(slab);
    }
}

static cudaError_t allocate(flag_t **flags_out, char **on_device_out)
{
    cudaError_t error =
        cudaHostAlloc((void **)flags_out, FLAGS_PER_SLAB * sizeof(flag_t),
                      cudaHostAllocPortable | cudaHostAllocMapped);
    if (error == cudaSuccess) {
        error = cudaHostGetDevicePointer((void **)on_device_out, *flags_out, 0);
        if (error != cudaSuccess) {
            (void)cudaFreeHost(*flags_out);
        }
    }
    return error;
}

static cudaError_t add_slab(baton__gpu_t *gpu)
{
    baton__flag_slab_t *slab = calloc(1, sizeof *slab);
    if (slab == NULL) {
        return cudaErrorMemoryAllocation;
    }
    char *on_device = NULL;
    cudaError_t error = allocate(&slab->flags, &on_device);
    if (error != cudaSuccess) {
        free(slab);
        return error;
    }
    slab->next = gpu->flag_slabs;
    gpu->flag_slabs = slab;
    for (size_t i = 0; i < FLAGS_PER_SLAB; i++) {
        atomic_init(&slab->flags[i].word, 0);
        slab->flags[i].on_device = (void *)(on_device + i * sizeof(flag_t));
    }
    return cudaSuccess;
}

/* Another flag; its slab stays in front of those that are full. */
static cudaError_t take(baton__gpu_t *gpu, flag_t **out)
{
    cudaError_t error = cudaSuccess;
    if (gpu->flag_slabs == NULL || gpu->flag_slabs->used == FLAGS_PER_SLAB) {
        error = add_slab(gpu);
    }
    if (error == cudaSuccess) {
        *out = &gpu->flag_slabs->flags[gpu->flag_slabs->used++];
    }
    return error;
}

baton_status_t baton__gpu_flag_create(void *device, void **out)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    flag_t *flag = NULL;
    (void)pthread_mutex_lock(&gpu->flag_lock);
    cudaError_t error = take(gpu, &flag);
    (void)pthread_mutex_unlock(&gpu->flag_lock);
    baton__gpu_leave(gpu);
    if (error == cudaSuccess) {
        *out = flag;
    }
    return baton__gpu_report(gpu, error, "cudaHostAlloc (for flags)");
}

void baton__gpu_flag_destroy(void *device, void *flag)
{
    if (flag != NULL) {
        /* Whoever still waits for it goes on. Streams compare the difference
           as a signed number. */
        baton__gpu_raise_now(device, flag, INT64_MAX);
    }
}

/* ---- use -------------------------------------------------------------- */

static baton_status_t await(const baton__gpu_t *gpu, cudaStream_t stream,
                            const flag_t *flag, uint64_t value)
{
    if (gpu->stream_waits) {
        CUresult error =
            gpu->driver.stream_wait_value(stream, (CUdeviceptr)flag->on_device,
                                          value, CU_STREAM_WAIT_VALUE_GEQ);
        return baton__gpu_report_driver(gpu, error, "cuStreamWaitValue64");
    }
    cudaError_t error = baton__cuda_flag_await(stream, flag->on_device, value);
    return baton__gpu_report(gpu, error, "a kernel that waits for a flag");
}

baton_status_t baton__gpu_await(void *device, baton_stream_t stream, void *flag,
                                uint64_t value)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    status = baton__gpu_check_stream(gpu, stream);
    if (status == BATON_OK) {
        status = await(gpu, stream, flag, value);
    }
    baton__gpu_leave(gpu);
    baton__gpu_busy(gpu, stream);
    return status;
}

/* What the stream did before is visible to whoever sees the value: the write
   has a fence of the whole system before it. */
static baton_status_t raise_flag(const baton__gpu_t *gpu, cudaStream_t stream,
                                 const flag_t *flag, uint64_t value)
{
    if (gpu->stream_waits) {
        CUresult error = gpu->driver.stream_write_value(
            stream, (CUdeviceptr)flag->on_device, value,
            CU_STREAM_WRITE_VALUE_DEFAULT);
        return baton__gpu_report_driver(gpu, error, "cuStreamWriteValue64");
    }
    cudaError_t error = baton__cuda_flag_raise(stream, flag->on_device, value);
    return baton__gpu_report(gpu, error, "a kernel that raises a flag");
}

baton_status_t baton__gpu_raise(void *device, baton_stream_t stream, void *flag,
                                uint64_t value)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    status = raise_flag(gpu, stream, flag, value);
    baton__gpu_leave(gpu);
    baton__gpu_busy(gpu, stream);
    return status;
}

void baton__gpu_raise_now(void *device, void *flag, uint64_t value)
{
    (void)device;
    flag_t *raised = flag;
    /* Release: the GPU sees what the host wrote before. */
    if (atomic_load_explicit(&raised->word, memory_order_relaxed) < value) {
        atomic_store_explicit(&raised->word, value, memory_order_release);
    }
}
