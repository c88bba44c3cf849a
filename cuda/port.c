/* The GPU's functions as a port, and reductions. */
#include "cuda/gpu.h"
#include "cuda/kernels.h"

/* The built-in operation that this one is, or is a copy of. */
static baton__cuda_op_t find(const baton_op_t *op)
{
    static const baton_op_t *const built_in[BATON__CUDA_OPS] = {
        [BATON__CUDA_SUM] = BATON_SUM,
        [BATON__CUDA_PROD] = BATON_PROD,
        [BATON__CUDA_MIN] = BATON_MIN,
        [BATON__CUDA_MAX] = BATON_MAX,
    };
    int found = 0;
    while (found < BATON__CUDA_OPS && op->reduce != built_in[found]->reduce) {
        found++;
    }
    return (baton__cuda_op_t)found;
}

bool baton__gpu_reduces(void *device, const baton_op_t *op, baton_dtype_t dtype)
{
    (void)device;
    size_t bytes = baton_dtype_size(dtype);
    return bytes != 0 && baton_op_element_bytes(op, dtype) == bytes &&
           find(op) != BATON__CUDA_OPS;
}

baton_status_t baton__gpu_reduce(void *device, baton_stream_t stream,
                                 const baton_op_t *op, baton_dtype_t dtype,
                                 void *target, const void *left,
                                 const void *right, size_t count)
{
    baton__gpu_t *gpu = device;
    if (count == 0) {
        return BATON_OK;
    }
    baton_status_t status = baton__gpu_enter(gpu);
    if (status != BATON_OK) {
        return status;
    }
    cudaError_t error = baton__cuda_reduce(stream, find(op), dtype, target,
                                           left, right, count, gpu->blocks);
    status = baton__gpu_report(gpu, error, "a reduction kernel");
    baton__gpu_leave(gpu);
    baton__gpu_busy(gpu, stream);
    return status;
}

baton_device_port_t baton__gpu_port(const baton__gpu_t *gpu)
{
    baton_device_port_t port = {
        .size = sizeof port,
        .name = gpu->name,
        .allocate = baton__gpu_allocate,
        .release = baton__gpu_release,
        .check = baton__gpu_check,
        .copy = baton__gpu_copy,
        .reduces = baton__gpu_reduces,
        .reduce = baton__gpu_reduce,
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
        .kin = baton__gpu_kin(),
        .close = baton__gpu_close,
        .select_bytes = baton__gpu_select_bytes,
        .select = baton__gpu_select,
        .entries = baton__gpu_entries,
        .scale = baton__gpu_scale,
        .square_sum = baton__gpu_square_sum,
        .clear = baton__gpu_clear,
    };
    for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
        port.streams[k] = gpu->streams[k];
    }
    return port;
}
