/* What the .cu files give to the .c files. */
#ifndef BATON_CUDA_KERNELS_H
#define BATON_CUDA_KERNELS_H

#include <baton/types.h>

#if defined(BATON_CUDA_ON_CPU) /* a test; see launch.h */
#include "support/reduce_on_cpu.h"
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
    BATON__CUDA_OPS
} baton__cuda_op_t;

/* Loads all kernels of this library for the current device, and tells how many
   blocks of a reduction run on one multiprocessor at a time: the least over all
   of them. cudaErrorNoKernelImageForDevice: the device is too old. */
cudaError_t baton__cuda_reduce_load(unsigned *blocks_out);
cudaError_t baton__cuda_select_load(void);
cudaError_t baton__cuda_entries_load(void);

/* Puts target[i] = left[i] (op) right[i] into the stream, in at most `blocks`
   blocks. Any alignment; target may equal left or right. */
cudaError_t baton__cuda_reduce(cudaStream_t stream, baton__cuda_op_t op,
                               baton_dtype_t dtype, void *target,
                               const void *left, const void *right,
                               size_t count, unsigned blocks);

#ifdef __cplusplus
}
#endif
#endif
