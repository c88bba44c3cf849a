/* Finds the GPU, or explains why there is none; opens and closes it. */
#include "cuda/gpu.h"
#include "cuda/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- is there a GPU? -------------------------------------------------- */

/* Explains a driver that cannot be used. The runtime has one error for both a
   missing driver and one that is too old. */
static baton_status_t explain_driver(void)
{
    int driver = 0, runtime = CUDART_VERSION;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        return baton_error_set(
            BATON_ERR_UNSUPPORTED,
            "there is no NVIDIA driver on this machine (libcuda.so.1)");
    }
    return baton_error_set(BATON_ERR_UNSUPPORTED,
                           "the NVIDIA driver is too old: it supports CUDA "
                           "%d.%d, and libbaton_cuda was built with CUDA %d.%d",
                           driver / 1000, driver % 1000 / 10, runtime / 1000,
                           runtime % 1000 / 10);
}

/* Checks that there is a GPU with number `ordinal`. Otherwise the message says
   how many GPUs there are. */
static baton_status_t find_gpu(int ordinal)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver) {
        return explain_driver();
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
        return baton_error_set(
            BATON_ERR_UNSUPPORTED,
            "there is an NVIDIA driver, but no GPU that this process may use "
            "(CUDA_VISIBLE_DEVICES may hide it)");
    }
    if (error != cudaSuccess) {
        return baton_error_set(
            BATON_ERR_UNSUPPORTED, "CUDA can't be used: %s (%s)",
            cudaGetErrorString(error), cudaGetErrorName(error));
    }
    if (ordinal < 0 || ordinal >= count) {
        return baton_error_set(BATON_ERR_INVALID,
                               "there is no GPU %d: this process may use 0 to "
                               "%d",
                               ordinal, count - 1);
    }
    return BATON_OK;
}

/* ---- opening ---------------------------------------------------------- */

static baton_status_t gpu_describe(baton__gpu_t *gpu)
{
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, gpu->ordinal);
    if (error != cudaSuccess) {
        return baton__gpu_report(gpu, error, "cudaGetDeviceProperties");
    }
    (void)snprintf(gpu->name, sizeof gpu->name, "cuda:%d %s", gpu->ordinal,
                   properties.name);
    gpu->managed_by_host = properties.concurrentManagedAccess != 0;
    gpu->processors = (unsigned)properties.multiProcessorCount;
    return BATON_OK;
}

static baton_status_t retain_context(baton__gpu_t *gpu)
{
    CUresult error = gpu->driver.device_get(&gpu->device, gpu->ordinal);
    if (error != CUDA_SUCCESS) {
        return baton__gpu_report(gpu, (cudaError_t)error, "cuDeviceGet");
    }
    error = gpu->driver.context_retain(&gpu->context, gpu->device);
    if (error != CUDA_SUCCESS) {
        gpu->context = NULL;
    }
    return baton__gpu_report(gpu, (cudaError_t)error,
                             "cuDevicePrimaryCtxRetain");
}

/* Checks that a stream can wait for a 64-bit word in memory, as
   baton_schedule_wait_on requires. */
static baton_status_t check_stream_waits(baton__gpu_t *gpu)
{
    int can = 0;
    CUresult error = gpu->driver.device_get_attribute(
        &can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, gpu->device);
    if (error != CUDA_SUCCESS) {
        return baton__gpu_report(gpu, (cudaError_t)error,
                                 "cuDeviceGetAttribute");
    }
    return can != 0 ? BATON_OK
                    : baton_error_set(BATON_ERR_UNSUPPORTED,
                                      "%s: its streams can't wait for a value "
                                      "of 64 bits (cuStreamWaitValue64), which "
                                      "baton_schedule_wait_on needs",
                                      gpu->name);
}

/* Loads all kernels now. CUDA would load each when it is first used, which may
   wait for everything that the GPU does, and so would stall an epoch. */
static baton_status_t load_kernels(baton__gpu_t *gpu)
{
    unsigned blocks = 0;
    cudaError_t error = baton__cuda_reduce_load(&blocks);
    if (error == cudaSuccess) {
        error = baton__cuda_select_load();
    }
    if (error == cudaSuccess) {
        error = baton__cuda_entries_load();
    }
    if (error == cudaErrorNoKernelImageForDevice) {
        (void)cudaGetLastError();
        return baton_error_set(BATON_ERR_UNSUPPORTED,
                               "%s is older than the GPUs that libbaton_cuda "
                               "was compiled for (BATON_CUDA_ARCHITECTURES)",
                               gpu->name);
    }
    gpu->blocks = blocks * gpu->processors;
    return baton__gpu_report(gpu, error, "loading the kernels");
}

/* Runs a copy in each direction and a reduction on each stream, since a
   stream's first operations take longer. */
static baton_status_t warm_up(baton__gpu_t *gpu, float *there, float *here)
{
    baton_status_t status = BATON_OK;
    for (int k = 0; k < BATON_DEVICE_STREAMS && status == BATON_OK; k++) {
        cudaStream_t stream = gpu->streams[k];
        here[0] = 1;
        status = baton__gpu_copy(gpu, stream, there, here, sizeof *here);
        if (status == BATON_OK) {
            status = baton__gpu_report(
                gpu,
                baton__cuda_reduce(stream, BATON__CUDA_SUM, BATON_F32, there,
                                   there, there, 1, 0, gpu->blocks),
                "a reduction kernel");
        }
        if (status == BATON_OK) {
            status = baton__gpu_copy(gpu, stream, here, there, sizeof *here);
        }
        if (status == BATON_OK) {
            status = baton__gpu_report(gpu, cudaStreamSynchronize(stream),
                                       "cudaStreamSynchronize");
        }
        if (status == BATON_OK && here[0] != 2) {
            status = baton_error_set(
                BATON_ERR_SYSTEM,
                "%s: a test of the kernels failed: 1 + 1 is %g on stream %d",
                gpu->name, (double)here[0], k);
        }
    }
    return status;
}

static baton_status_t try_streams(baton__gpu_t *gpu)
{
    void *there = NULL, *here = NULL;
    baton_status_t status =
        baton__gpu_allocate(gpu, BATON_MEMORY_DEVICE, sizeof(float), &there);
    if (status == BATON_OK) {
        status =
            baton__gpu_allocate(gpu, BATON_MEMORY_HOST, sizeof(float), &here);
    }
    if (status == BATON_OK) {
        status = warm_up(gpu, there, here);
    }
    baton__gpu_release(gpu, BATON_MEMORY_HOST, here);
    baton__gpu_release(gpu, BATON_MEMORY_DEVICE, there);
    return status;
}

/* Sets up everything that lives in the GPU's context. */
static baton_status_t fill_context(baton__gpu_t *gpu)
{
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    status = load_kernels(gpu);
    if (status == BATON_OK) {
        status = baton__gpu_streams_open(gpu);
    }
    if (status == BATON_OK) {
        status = baton__gpu_wakes_open(gpu);
    }
    if (status == BATON_OK) {
        status = try_streams(gpu);
    }
    baton__gpu_leave(gpu);
    return status;
}

static baton_status_t open_parts(baton__gpu_t *gpu)
{
    static baton_status_t (*const steps[])(baton__gpu_t * gpu) = {
        gpu_describe, baton__driver_load, retain_context, check_stream_waits,
        fill_context};
    baton_status_t status = BATON_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == BATON_OK;
         i++) {
        status = steps[i](gpu);
    }
    return status;
}

baton_status_t baton__gpu_open(int ordinal, baton__gpu_t **out)
{
    baton_status_t status = find_gpu(ordinal);
    if (status != BATON_OK) {
        return status;
    }
    baton__gpu_t *gpu = calloc(1, sizeof *gpu);
    if (gpu == NULL) {
        return baton_error_set(BATON_ERR_NO_MEMORY,
                               "there is no memory for the state of GPU %d",
                               ordinal);
    }
    gpu->ordinal = ordinal;
    gpu->descriptor = -1;
    (void)snprintf(gpu->name, sizeof gpu->name, "cuda:%d", ordinal);
    status = open_parts(gpu);
    if (status != BATON_OK) {
        baton__gpu_close(gpu);
        return status;
    }
    *out = gpu;
    return BATON_OK;
}

/* ---- closing ---------------------------------------------------------- */

/* Frees everything that lives in the GPU's context. If the context is gone, all
   this is gone, too. */
static void close_parts(baton__gpu_t *gpu)
{
    if (gpu->context == NULL) {
        return;
    }
    if (baton__gpu_enter(gpu) == BATON_OK) {
        baton__gpu_streams_close(gpu);
        baton__gpu_mappings_close(gpu);
        baton__gpu_leave(gpu);
    }
    CUresult error = gpu->driver.context_release(gpu->device);
    (void)baton__gpu_report(gpu, (cudaError_t)error,
                            "cuDevicePrimaryCtxRelease");
}

void baton__gpu_close(void *device)
{
    baton__gpu_t *gpu = device;
    if (gpu == NULL) {
        return;
    }
    close_parts(gpu);
    if (gpu->descriptor >= 0) {
        (void)close(gpu->descriptor);
    }
    free(gpu);
}
