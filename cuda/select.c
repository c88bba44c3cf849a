/* Selection and lists of entries as functions of the port. The kernels were
   loaded when the GPU was attached. */
#include "cuda/gpu.h"

#include <baton/cuda_select.h>

/* What cuda_select.h's functions return, with the name of the GPU. */
static baton_status_t leave(baton__gpu_t *gpu, baton_stream_t stream,
                            baton_status_t status)
{
    if (status != BATON_OK) {
        status =
            baton_error_set(status, "%s: %s", gpu->name, baton_error_message());
    }
    baton__gpu_leave(gpu);
    baton__gpu_busy(gpu, stream);
    return status;
}

size_t baton__gpu_select_bytes(void *device, baton_dtype_t dtype, size_t count,
                               size_t k)
{
    (void)device;
    return baton_cuda_select_bytes(dtype, count, k);
}

static baton_cuda_workspace_t workspace_of(void *scratch, baton_dtype_t dtype,
                                           size_t count, size_t k,
                                           baton_stream_t stream)
{
    return (baton_cuda_workspace_t){
        .memory = scratch,
        .bytes = baton_cuda_select_bytes(dtype, count, k),
        .stream = stream};
}

baton_status_t baton__gpu_select_topk(void *device, baton_stream_t stream,
                                      const baton_selection_t *from, size_t k,
                                      uint32_t *indices,
                                      baton_device_selected_t *selected_out,
                                      void *scratch)
{
    baton__gpu_t *gpu = device;
    const baton_cuda_workspace_t workspace =
        workspace_of(scratch, from->dtype, from->count, k, stream);
    baton_status_t status = baton__gpu_enter(gpu);
    return status != BATON_OK
               ? status
               : leave(gpu, stream,
                       baton_cuda_select_topk(from, k, indices, selected_out,
                                              &workspace));
}

baton_status_t baton__gpu_select_sampled(void *device, baton_stream_t stream,
                                         const baton_selection_t *from,
                                         size_t k, bool reuse,
                                         uint32_t *indices,
                                         baton_device_selected_t *selected,
                                         void *scratch)
{
    baton__gpu_t *gpu = device;
    const baton_cuda_workspace_t workspace =
        workspace_of(scratch, from->dtype, from->count, k, stream);
    baton_status_t status = baton__gpu_enter(gpu);
    return status != BATON_OK
               ? status
               : leave(gpu, stream,
                       baton_cuda_select_sampled(from, k, reuse, indices,
                                                 selected, &workspace));
}

baton_status_t baton__gpu_gather(void *device, baton_stream_t stream,
                                 const baton_device_entries_t *list,
                                 const uint32_t *indices, void *dense,
                                 bool clear)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    status = clear ? baton_cuda_entries_take(list, indices, dense, stream)
                   : baton_cuda_entries_gather(list, indices, dense, stream);
    return leave(gpu, stream, status);
}

baton_status_t baton__gpu_put(void *device, baton_stream_t stream,
                              const baton_device_entries_t *list, void *dense)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    return status != BATON_OK
               ? status
               : leave(gpu, stream,
                       baton_cuda_entries_put(list, dense, stream));
}

baton_status_t baton__gpu_add(void *device, baton_stream_t stream,
                              const baton_device_entries_t *list, double factor,
                              void *dense)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    return status != BATON_OK
               ? status
               : leave(gpu, stream,
                       baton_cuda_entries_add(list, factor, dense, stream));
}

baton_status_t baton__gpu_scale(void *device, baton_stream_t stream,
                                baton_dtype_t dtype, void *target,
                                const void *source, size_t count, double factor)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    return status != BATON_OK
               ? status
               : leave(gpu, stream,
                       baton_cuda_elements_scale(dtype, target, source, count,
                                                 factor, stream));
}

baton_status_t baton__gpu_square_sum(void *device, baton_stream_t stream,
                                     baton_dtype_t dtype, const void *values,
                                     size_t count, double *sum_out,
                                     void *scratch)
{
    baton__gpu_t *gpu = device;
    const baton_cuda_workspace_t workspace =
        workspace_of(scratch, dtype, count, 1, stream);
    baton_status_t status = baton__gpu_enter(gpu);
    return status != BATON_OK
               ? status
               : leave(gpu, stream,
                       baton_cuda_elements_square_sum(dtype, values, count,
                                                      sum_out, &workspace));
}

baton_status_t baton__gpu_clear(void *device, baton_stream_t stream,
                                void *target, size_t bytes)
{
    baton__gpu_t *gpu = device;
    if (bytes == 0) {
        return BATON_OK;
    }
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    cudaError_t error = cudaMemsetAsync(target, 0, bytes, stream);
    return leave(gpu, stream, baton__gpu_report(gpu, error, "cudaMemsetAsync"));
}
