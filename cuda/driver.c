/* Looks up the driver's functions. This library is not linked with libcuda.so,
   which only machines with a GPU have. CUDA's runtime loads libcuda.so and
   finds the functions in it. */
#include "cuda/gpu.h"

typedef struct entry {
    const char *name;
    /* The CUDA version whose signature of the function gpu.h declares. */
    unsigned version;
    void **slot;
} entry_t;

static cudaError_t driver_find(const entry_t *entry,
                               enum cudaDriverEntryPointQueryResult *found)
{
#if CUDART_VERSION >= 12050
    return cudaGetDriverEntryPointByVersion(
        entry->name, entry->slot, entry->version, cudaEnableDefault, found);
#else
    return cudaGetDriverEntryPoint(entry->name, entry->slot, cudaEnableDefault,
                                   found);
#endif
}

baton_status_t baton__driver_load(baton__gpu_t *gpu)
{
    baton__driver_t *out = &gpu->driver;
    const entry_t entries[] = {
        {"cuDeviceGet", 2000, (void **)&out->device_get},
        {"cuDeviceGetAttribute", 2000, (void **)&out->device_get_attribute},
        {"cuDevicePrimaryCtxRetain", 7000, (void **)&out->context_retain},
        {"cuDevicePrimaryCtxRelease", 11000, (void **)&out->context_release},
        {"cuCtxPushCurrent", 4000, (void **)&out->context_push},
        {"cuCtxPopCurrent", 4000, (void **)&out->context_pop},
        {"cuThreadExchangeStreamCaptureMode", 10010,
         (void **)&out->exchange_capture_mode},
        {"cuPointerGetAttributes", 7000, (void **)&out->pointer_attributes},
        {"cuStreamWaitValue64", 11070, (void **)&out->stream_wait_value},
        {"cuStreamWriteValue64", 11070, (void **)&out->stream_write_value},
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        enum cudaDriverEntryPointQueryResult found =
            cudaDriverEntryPointSymbolNotFound;
        cudaError_t error = driver_find(&entries[i], &found);
        if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
            (void)cudaGetLastError();
            return baton_error_set(BATON_ERR_UNSUPPORTED,
                                   "the NVIDIA driver has no %s; a newer one "
                                   "is needed",
                                   entries[i].name);
        }
    }
    return BATON_OK;
}
