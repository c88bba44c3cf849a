/* How kernels are launched: as the driver does it, or, in tests on a machine
   without a GPU, by a loop over blocks and threads. */
#ifndef BATON_CUDA_LAUNCH_H
#define BATON_CUDA_LAUNCH_H

#if defined(BATON_CUDA_ON_CPU)

#include "support/cuda_on_cpu.h"

#else

#include <cuda_runtime.h>

namespace baton_cuda
{

/* The arguments have the types of the kernel's parameters. Unlike <<<>>> this
   reports the launch's own error, and leaves the thread's last one alone. */
template <class type> struct exactly {
    typedef type t;
};

template <class... parameters>
cudaError_t launch(void (*kernel)(parameters...), unsigned blocks,
                   unsigned threads, cudaStream_t stream,
                   typename exactly<parameters>::t... arguments)
{
    void *addresses[] = {(void *)&arguments...};
    return cudaLaunchKernel((const void *)kernel, dim3(blocks), dim3(threads),
                            addresses, 0, stream);
}

/* Loads a kernel for the current device, so that its first launch need not. */
template <class... parameters>
cudaError_t load(cudaError_t before, void (*kernel)(parameters...))
{
    cudaFuncAttributes attributes;
    return before != cudaSuccess
               ? before
               : cudaFuncGetAttributes(&attributes, (const void *)kernel);
}

} // namespace baton_cuda

#endif

#endif
