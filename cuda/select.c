/* Selection and lists of entries as functions of the port. The kernels were
   loaded when the GPU was attached. */
#include "cuda/gpu.h"

#include "cuda/select.h"

/* What select.h's functions return, with the name of the GPU. */
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

static baton_status_t select_from(const baton_device_selection_t *s,
                                  const baton_cuda_workspace_t *workspace)
{
    switch (s->method) {
    case BATON_DEVICE_TRIMMED:
        return baton_cuda_select_trimmed(&s->from, s->k, s->indices,
                                         s->selected, workspace);
    case BATON_DEVICE_SAMPLED:
    case BATON_DEVICE_REUSED:
        return baton_cuda_select_sampled(&s->from, s->k,
                                         s->method == BATON_DEVICE_REUSED,
                                         s->indices, s->selected, workspace);
    case BATON_DEVICE_TOPK:
    default:
        return baton_cuda_select_topk(&s->from, s->k, s->indices, s->selected,
                                      workspace);
    }
}

baton_status_t baton__gpu_select(void *device, baton_stream_t stream,
                                 const baton_device_selection_t *selection)
{
    baton__gpu_t *gpu = device;
    const baton_cuda_workspace_t workspace =
        workspace_of(selection->scratch, selection->from.dtype,
                     selection->from.count, selection->k, stream);
    baton_status_t status = baton__gpu_enter(gpu);
    return status != BATON_OK
               ? status
               : leave(gpu, stream, select_from(selection, &workspace));
}

static baton_status_t move_entries(const baton_device_transfer_t *t,
                                   baton_stream_t stream)
{
    switch (t->direction) {
    case BATON_DEVICE_TAKE:
        return baton_cuda_entries_take(&t->list, t->indices, t->dense, stream);
    case BATON_DEVICE_PUT:
        return baton_cuda_entries_put(&t->list, t->dense, stream);
    case BATON_DEVICE_ADD:
        return baton_cuda_entries_add(&t->list, t->factor, t->dense, stream);
    case BATON_DEVICE_GATHER:
    default:
        return baton_cuda_entries_gather(&t->list, t->indices, t->dense,
                                         stream);
    }
}

baton_status_t baton__gpu_entries(void *device, baton_stream_t stream,
                                  const baton_device_transfer_t *transfer)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    return status != BATON_OK
               ? status
               : leave(gpu, stream, move_entries(transfer, stream));
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
