/* The functions of the .cu files that the .c files call. Each function puts
   kernels into the stream and returns. None allocates, synchronises, or reads a
   result from the device. Addresses are of device memory, and elements are
   aligned to their size. */
#pragma once

#include <baton/device.h>

#if defined(BATON_CUDA_ON_CPU) /* a test without a GPU; see launch.h */
#include "support/cuda_on_cpu.h"
#else
#include <cuda_runtime_api.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The reductions of which there are kernels, in the order of BATON_OP_LIST
   (baton/build.h); AVG, which is not in that list, comes last.
   tests/cuda/test_reduce.cpp relies on the order. */
#define BATON__CUDA_OP_LIST(X)                                                 \
    X(SUM) X(PROD) X(MIN) X(MAX) X(BAND) X(BOR) X(BXOR) X(AVG)

typedef enum baton__cuda_op {
#define BATON__CUDA_OP(NAME) BATON__CUDA_##NAME,
    BATON__CUDA_OP_LIST(BATON__CUDA_OP)
#undef BATON__CUDA_OP
        BATON__CUDA_OPS
} baton__cuda_op_t;

/* Load all kernels for the current device. `blocks_out` gets the number of
   blocks of a reduction kernel that can run on a multiprocessor at the same
   time. It differs between kernels; this is the least of their numbers.
   cudaErrorNoKernelImageForDevice means that the device is too old. */
cudaError_t baton__cuda_reduce_load(unsigned *blocks_out);
cudaError_t baton__cuda_select_load(void);
cudaError_t baton__cuda_entries_load(void);

/* Returns whether there is a kernel for this operation and type. */
bool baton__cuda_reduces(baton__cuda_op_t op, baton_dtype_t dtype);

/* Computes target[i] = left[i] (op) right[i] with at most `blocks` blocks. Any
   alignment is allowed; target may equal left or right. An average divides by
   `ranks`. */
cudaError_t baton__cuda_reduce(cudaStream_t stream, baton__cuda_op_t op,
                               baton_dtype_t dtype, void *target,
                               const void *left, const void *right,
                               size_t count, double ranks, unsigned blocks);

/* These three functions are those of the same names in the device port
   (baton/device.h). A selection first estimates a threshold from a sample. It
   reads the vector once if at least k elements reach this threshold (method
   SAMPLED: two or three times). If fewer do, or more elements are tied than the
   scratch memory has capacity for, the selection reads the vector four (f16,
   bf16), five (f32) or eight (f64) times more. `scratch` has about 16 bytes for
   each 4 KiB of the vector, and 8 bytes (f64: 12) for each candidate. The
   number of candidates is 2k plus the margin of error of the sample. */
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
