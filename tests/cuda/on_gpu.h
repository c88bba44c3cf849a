/* Declarations that the tests on a GPU share. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The exit status of a test that was skipped. */
enum { GPU_SKIPPED = 77 };

/* Opens GPU 0 and closes it again. If there is none, prints the reason. */
bool gpu_there(void);

/* Ends the program with a message unless `error` is cudaSuccess. */
void gpu_must(cudaError_t error, const char *doing);

/* gpu_spin puts a kernel into the stream that runs for `us` microseconds.
   gpu_spin_and_fill puts one that then also sets `count` numbers. */
void gpu_spin(cudaStream_t stream, unsigned us);
void gpu_spin_and_fill(cudaStream_t stream, unsigned us, float *memory,
                       size_t count, float value);

/* Adds `value` to each of `count` numbers. */
void gpu_add(cudaStream_t stream, float *memory, size_t count, float value);

#ifdef __cplusplus
}
#endif
