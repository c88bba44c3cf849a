/* What select.cu and entries.cu have in common on the host. */
#ifndef BATON_CUDA_SELECT_HOST_H
#define BATON_CUDA_SELECT_HOST_H

#include "cuda/launch.h"

#include "cuda/select.h"

/* Load the kernels for the current device. kernels.h has these, too, for
   attach.c. */
extern "C" cudaError_t baton__cuda_select_load(void);
extern "C" cudaError_t baton__cuda_entries_load(void);

namespace baton_cuda
{

inline baton_status_t check_pointer(const void *pointer, size_t alignment,
                                    const char *function, const char *what)
{
    if (pointer == NULL) {
        return baton_error_set(BATON_ERR_INVALID, "%s: %s is NULL", function,
                               what);
    }
    if ((uintptr_t)pointer % alignment != 0) {
        return baton_error_set(BATON_ERR_INVALID,
                               "%s: %s is %p, which is not aligned to %zu "
                               "bytes",
                               function, what, pointer, alignment);
    }
    return BATON_OK;
}

inline baton_status_t unsupported(baton_dtype_t dtype, const char *function)
{
    return baton_error_set(
        BATON_ERR_INVALID,
        "%s: the element type is %s; allowed: f16, bf16, f32, f64", function,
        baton_dtype_name(dtype));
}

inline baton_status_t status_of(cudaError_t error, const char *function)
{
    return error == cudaSuccess
               ? BATON_OK
               : baton_error_set(BATON_ERR_SYSTEM,
                                 "%s: a kernel could not be launched: %s",
                                 function, cudaGetErrorString(error));
}

} // namespace baton_cuda

#endif
