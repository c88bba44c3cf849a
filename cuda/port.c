/* Makes the port of <baton/device.h> out of the GPU's functions, and attaches
   it to an engine. The functions that launch kernels are here. */
#include "cuda/gpu.h"
#include "cuda/kernels.h"

#include <baton/cuda.h>

/* Returns the built-in operation that `op` is, or is a copy of; BATON__CUDA_OPS
   if `op` is no built-in operation. */
static baton__cuda_op_t port_find(const baton_op_t *op)
{
#define BUILT_IN(NAME) BATON_##NAME,
    static const baton_op_t *const built_in[] = {BATON__CUDA_OP_LIST(BUILT_IN)};
    int found = 0;
    while (found < BATON__CUDA_OPS && op->reduce != built_in[found]->reduce) {
        found++;
    }
    return (baton__cuda_op_t)found;
}

static bool can_reduce(void *device, const baton_op_t *op, baton_dtype_t dtype)
{
    baton__cuda_op_t found = port_find(op);
    return found != BATON__CUDA_OPS &&
           baton_op_element_bytes(op, dtype) == baton_dtype_size(dtype) &&
           baton__cuda_reduces(found, dtype);
}

static baton_status_t port_reduce(void *device, baton_stream_t stream,
                                  const baton_op_t *op, baton_dtype_t dtype,
                                  void *target, const void *left,
                                  const void *right, size_t count)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    return status != BATON_OK
               ? status
               : baton__gpu_put(gpu, stream, "a reduction kernel",
                                baton__cuda_reduce(stream, port_find(op), dtype,
                                                   target, left, right, count,
                                                   (double)(uintptr_t)op->arg,
                                                   gpu->blocks));
}

/* ---- selection and lists of entries ------------------------------------ */

static size_t select_bytes(void *device, baton_dtype_t dtype, size_t count,
                           size_t k)
{
    return baton__cuda_select_bytes(dtype, count, k);
}

static baton_status_t
port_select_from(void *device, baton_stream_t stream,
                 const baton_device_selection_t *selection)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    return status != BATON_OK
               ? status
               : baton__gpu_put(gpu, stream, "a selection",
                                baton__cuda_select(stream, selection));
}

static baton_status_t move_entries(void *device, baton_stream_t stream,
                                   const baton_device_transfer_t *transfer)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = baton__gpu_enter(gpu);
    return status != BATON_OK
               ? status
               : baton__gpu_put(gpu, stream, "a list's kernel",
                                baton__cuda_entries(stream, transfer));
}

/* Enters the GPU, unless the user's vector is not aligned. A kernel would fail
   on such a vector, and after that the process could no longer use the GPU. */
static baton_status_t enter_with(const baton__gpu_t *gpu, baton_dtype_t dtype,
                                 const void *values)
{
    if ((uintptr_t)values % baton_dtype_size(dtype) != 0) {
        return baton_error_set(BATON_ERR_INVALID,
                               "%s: a vector of %s begins at %p, which is not "
                               "aligned to its elements",
                               gpu->name, baton_dtype_name(dtype), values);
    }
    return baton__gpu_enter(gpu);
}

static baton_status_t port_scale(void *device, baton_stream_t stream,
                                 baton_dtype_t dtype, void *target,
                                 const void *source, size_t count,
                                 double factor)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = enter_with(gpu, dtype, source);
    if (status != BATON_OK) {
        return status;
    }
    return source == NULL
               ? baton__gpu_put(gpu, stream, "cudaMemsetAsync",
                                cudaMemsetAsync(target, 0,
                                                count * baton_dtype_size(dtype),
                                                stream))
               : baton__gpu_put(gpu, stream, "a kernel that scales",
                                baton__cuda_scale(stream, dtype, target, source,
                                                  count, factor));
}

static baton_status_t square_sum(void *device, baton_stream_t stream,
                                 baton_dtype_t dtype, const void *values,
                                 size_t count, double *sum_out, void *scratch)
{
    baton__gpu_t *gpu = device;
    baton_status_t status = enter_with(gpu, dtype, values);
    return status != BATON_OK
               ? status
               : baton__gpu_put(gpu, stream, "a sum of squares",
                                baton__cuda_square_sum(stream, dtype, values,
                                                       count, sum_out,
                                                       scratch));
}

/* ---- the table and the engine ------------------------------------------ */

baton_device_port_t baton__gpu_port(const baton__gpu_t *gpu)
{
    baton_device_port_t port = {
        .size = sizeof port,
        .name = gpu->name,
        .allocate = baton__gpu_allocate,
        .release = baton__gpu_release,
        .check = baton__gpu_check,
        .copy = baton__gpu_copy,
        .reduces = can_reduce,
        .reduce = port_reduce,
        .event_create = baton__gpu_event_create,
        .event_destroy = baton__gpu_event_destroy,
        .record = baton__gpu_record,
        .follow = baton__gpu_follow,
        .query = baton__gpu_query,
        .await = baton__gpu_await,
        .raise = baton__gpu_raise,
        .descriptor = gpu->descriptor,
        .arm = baton__gpu_arm,
        .get_handle = baton__gpu_get_handle,
        .open_handle = baton__gpu_open_handle,
        .kin = baton__gpu_handle_scope(),
        .close = baton__gpu_close,
        .select_bytes = select_bytes,
        .select = port_select_from,
        .entries = move_entries,
        .scale = port_scale,
        .square_sum = square_sum,
    };
    for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
        port.streams[k] = gpu->streams[k];
    }
    return port;
}

baton_status_t baton_cuda_attach(baton_engine_t *engine, int ordinal)
{
    if (engine == NULL) {
        return baton_error_set(BATON_ERR_INVALID,
                               "baton_cuda_attach: engine is NULL");
    }
    baton__gpu_t *gpu = NULL;
    baton_status_t status = baton__gpu_open(ordinal, &gpu);
    if (status != BATON_OK) {
        return status;
    }
    baton_device_port_t port = baton__gpu_port(gpu);
    status = baton_engine_attach_device(engine, &port, gpu);
    if (status != BATON_OK) {
        baton__gpu_close(gpu);
    }
    return status;
}
