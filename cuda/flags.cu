/* Flags for GPUs whose streams can't wait for 64-bit values: a kernel of one
   thread reads the word until it is large enough, or writes it. */
#include "cuda/kernels.h"

namespace
{

__global__ void await_word(const volatile unsigned long long *word,
                           unsigned long long value)
{
    while (*word < value) {
        __nanosleep(500);
    }
    /* What was written before the word is seen by what comes after. */
    __threadfence_system();
}

__global__ void raise_word(volatile unsigned long long *word,
                           unsigned long long value)
{
    __threadfence_system();
    if (*word < value) {
        *word = value;
    }
}

cudaError_t launch(cudaStream_t stream, const void *kernel, uint64_t *word,
                   uint64_t value)
{
    unsigned long long number = value;
    void *arguments[] = {&word, &number};
    return cudaLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, stream);
}

} // namespace

cudaError_t baton__cuda_flags_load(void)
{
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(
        &attributes, reinterpret_cast<const void *>(await_word));
    if (error == cudaSuccess) {
        error = cudaFuncGetAttributes(
            &attributes, reinterpret_cast<const void *>(raise_word));
    }
    return error;
}

cudaError_t baton__cuda_flag_await(cudaStream_t stream, uint64_t *word,
                                   uint64_t value)
{
    return launch(stream, reinterpret_cast<const void *>(await_word), word,
                  value);
}

cudaError_t baton__cuda_flag_raise(cudaStream_t stream, uint64_t *word,
                                   uint64_t value)
{
    return launch(stream, reinterpret_cast<const void *>(raise_word), word,
                  value);
}
