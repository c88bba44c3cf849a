/* What a thread of a reduction kernel does with its elements, run on the host.
 */
#ifndef TESTS_CUDA_ELEMENTS_H
#define TESTS_CUDA_ELEMENTS_H

#include "cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether it can be done here; prints why not. */
bool elements_there(void);

void elements_reduce(baton__cuda_op_t op, baton_dtype_t dtype, void *target,
                     const void *left, const void *right, size_t count);

#ifdef __cplusplus
}
#endif
#endif
