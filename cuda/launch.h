/* Launches kernels through the driver, or, in tests on a machine without a GPU,
   in a loop over blocks and threads. */
#pragma once

#include "cuda/kernels.h"

#include <initializer_list>
#include <type_traits>

#if !defined(BATON_CUDA_ON_CPU)
#include <cuda_runtime.h>
#endif

namespace baton_cuda
{

template <class type> struct exactly {
    typedef type t;
};

/* Launches a kernel. The arguments are converted to the types of the kernel's
   parameters. Unlike <<<>>> this returns the error of a failed launch, as other
   calls do. After <<<>>> there would only be the thread's last error, which may
   be that of an earlier call. */
template <class... parameters>
cudaError_t launch(void (*kernel)(parameters...), unsigned blocks,
                   unsigned threads, cudaStream_t stream,
                   typename exactly<parameters>::t... arguments)
{
#if defined(BATON_CUDA_ON_CPU)
    cpu_launch((const void *)kernel, blocks, threads,
               [&]() { kernel(arguments...); });
    return cudaSuccess;
#else
    void *addresses[] = {(void *)&arguments...};
    return cudaLaunchKernel((const void *)kernel, dim3(blocks), dim3(threads),
                            addresses, 0, stream);
#endif
}

/* Loads kernels for the current device. Otherwise CUDA would load each of them
   at its first launch, in the middle of an epoch. */
template <class... kernels> cudaError_t load(kernels... all)
{
    cudaError_t error = cudaSuccess;
    cudaFuncAttributes attributes;
    const void *each[] = {(const void *)all...};
    for (size_t i = 0; i < sizeof...(all) && error == cudaSuccess; i++) {
        error = cudaFuncGetAttributes(&attributes, each[i]);
    }
    return error;
}

/* Calls `visit` with the element type `dtype` as a constant of the compiler's,
   so that `visit` can launch the instance of a kernel template for this type.
   Returns the result of `visit`. `dtype` must be a float type. */
template <baton_dtype_t D>
using constant = std::integral_constant<baton_dtype_t, D>;

template <class function>
cudaError_t by_type(baton_dtype_t dtype, function visit)
{
#define BATON__VISIT(NAME, ...)                                                \
    case BATON_##NAME:                                                         \
        return visit(constant<BATON_##NAME>());
    switch ((int)dtype) {
        BATON_FLOAT_LIST(BATON__VISIT)
    default:
        return cudaErrorInvalidValue;
    }
}

template <class function> cudaError_t for_each_type(function visit)
{
    cudaError_t error = cudaSuccess;
#define BATON__EACH(NAME, ...) BATON_##NAME,
    for (baton_dtype_t dtype : {BATON_FLOAT_LIST(BATON__EACH)}) {
        error = error == cudaSuccess ? by_type(dtype, visit) : error;
    }
    return error;
}

} // namespace baton_cuda
