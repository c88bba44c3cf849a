/* Enters and leaves the GPU's context, and turns CUDA's errors into a status
   and a message. */
#include "cuda/gpu.h"

/* After one of these errors the context is unusable, and every later call
   returns the same error. */
static const cudaError_t sticky[] = {
    cudaErrorIllegalAddress,
    cudaErrorLaunchTimeout,
    cudaErrorAssert,
    cudaErrorHardwareStackError,
    cudaErrorIllegalInstruction,
    cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace,
    cudaErrorInvalidPc,
    cudaErrorLaunchFailure,
    cudaErrorECCUncorrectable,
    cudaErrorNvlinkUncorrectable,
};

/* Returns advice for the user, to be appended to CUDA's own text if that does
   not suffice; otherwise an empty text. */
static const char *advice(cudaError_t error)
{
    for (size_t i = 0; i < sizeof sticky / sizeof sticky[0]; i++) {
        if (error == sticky[i]) {
            return "; a kernel or copy of this process failed, and the process "
                   "can't use the GPU any more";
        }
    }
    if (error == cudaErrorContextIsDestroyed ||
        error == cudaErrorDeviceUninitialized) {
        return "; the GPU's primary context was destroyed (cudaDeviceReset) "
               "while Baton used it";
    }
    if (error == cudaErrorCudartUnloading) {
        return "; the process is ending";
    }
    if (error == cudaErrorInvalidResourceHandle) {
        return "; is the stream one of another GPU or context?";
    }
    return "";
}

baton_status_t baton__gpu_report(const baton__gpu_t *gpu, cudaError_t error,
                                 const char *function)
{
    if (error == cudaSuccess) {
        return BATON_OK;
    }
    /* CUDA's runtime keeps the last error until it is read, so this call clears
       it. */
    (void)cudaGetLastError();
    return baton_error_set(
        error == cudaErrorMemoryAllocation ? BATON_ERR_NO_MEMORY
                                           : BATON_ERR_SYSTEM,
        "%s: %s failed: %s (%s)%s", gpu->name, function,
        cudaGetErrorString(error), cudaGetErrorName(error), advice(error));
}

/* The number of this thread's calls of baton__gpu_enter that baton__gpu_leave
   has not undone yet. */
static _Thread_local int depth;
/* The thread's capture mode before the outermost of these calls of
   baton__gpu_enter. */
static _Thread_local CUstreamCaptureMode outside;

baton_status_t baton__gpu_enter(const baton__gpu_t *gpu)
{
    CUresult error = gpu->driver.context_push(gpu->context);
    if (error == CUDA_SUCCESS && depth++ == 0) {
        outside = CU_STREAM_CAPTURE_MODE_RELAXED;
        (void)gpu->driver.exchange_capture_mode(&outside);
    }
    return baton__gpu_report(gpu, (cudaError_t)error, "cuCtxPushCurrent");
}

void baton__gpu_leave(const baton__gpu_t *gpu)
{
    if (--depth == 0) {
        (void)gpu->driver.exchange_capture_mode(&outside);
    }
    /* The pop fails only if the context was destroyed meanwhile. Then there is
       nothing to pop, and the next call reports the loss of the context. */
    CUcontext popped = NULL;
    (void)gpu->driver.context_pop(&popped);
}

baton_status_t baton__gpu_end(const baton__gpu_t *gpu, const char *function,
                              cudaError_t error)
{
    baton_status_t status = baton__gpu_report(gpu, error, function);
    baton__gpu_leave(gpu);
    return status;
}
