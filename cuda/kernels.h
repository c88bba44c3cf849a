/* What the .cu files give to the .c files. Each function puts kernels into the
   stream and returns; none allocates, synchronises, or asks the device for a
   result. Addresses are of device memory, elements aligned to their size. */
#pragma once

#include <baton/device.h>

#if defined(BATON_CUDA_ON_CPU) /* a test; see launch.h */
#include "support/cuda_on_cpu.h"
#else
#include <cuda_runtime_api.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum baton__cuda_op {
    BATON__CUDA_SUM,
    BATON__CUDA_PROD,
    BATON__CUDA_MIN,
    BATON__CUDA_MAX,
    BATON__CUDA_BAND,
    BATON__CUDA_BOR,
    BATON__CUDA_BXOR,
    BATON__CUDA_AVG,
    BATON__CUDA_OPS
} baton__cuda_op_t;

/* Loads all kernels of this library for the current device, and tells how many
   blocks of a reduction run on one multiprocessor at a time: the least over all
   of them. cudaErrorNoKernelImageForDevice: the device is too old. */
cudaError_t baton__cuda_reduce_load(unsigned *blocks_out);
cudaError_t baton__cuda_select_load(void);
cudaError_t baton__cuda_entries_load(void);

/* Whether there are kernels for it. */
bool baton__cuda_reduces(baton__cuda_op_t op, baton_dtype_t dtype);

/* target[i] = left[i] (op) right[i], in at most `blocks` blocks. Any alignment;
   target may equal left or right. `ranks` divides an average. */
cudaError_t baton__cuda_reduce(cudaStream_t stream, baton__cuda_op_t op,
                               baton_dtype_t dtype, void *target,
                               const void *left, const void *right,
                               size_t count, double ranks, unsigned blocks);

/* The port's functions of these names. A selection reads the vector once where
   a sample's threshold holds (SAMPLED: two or three times); where it does not,
   or where more elements are tied than there is room for, four (f16, bf16),
   five (f32) or eight times (f64) more. `scratch` is about 16 bytes for each 4
   KiB of the vector, and 8 (f64: 12) for each of 2k candidates and of what a
   sample may be wrong by. */
size_t baton__cuda_select_bytes(baton_dtype_t dtype, size_t count, size_t k);
cudaError_t baton__cuda_select(cudaStream_t stream,
                               const baton_device_selection_t *selection);
cudaError_t baton__cuda_square_sum(cudaStream_t stream, baton_dtype_t dtype,
                                   const void *values, size_t count,
                                   double *sum_out, void *scratch);
cudaError_t baton__cuda_entries(cudaStream_t stream,
                                const baton_device_transfer_t *transfer);
cudaError_t baton__cuda_scale(cudaStream_t stream, baton_dtype_t dtype,
                              void *target, const void *source, size_t count,
                              double factor);

#ifdef __cplusplus
}
#endif
