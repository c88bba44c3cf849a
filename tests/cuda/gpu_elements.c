/* The kernels for test_elements.c, on a GPU. Addresses and counts change from
   call to call, so that all ways through the kernels are met: vectors with
   heads and tails, single elements, elements that are not aligned. */
#include "cuda/elements.h"
#include "cuda/on_gpu.h"

#include <string.h>

enum { ROOM = 1 << 20 };

static char *memory[3];

bool elements_there(void)
{
    unsigned blocks = 0;
    if (!gpu_there()) {
        return false;
    }
    gpu_must(baton__cuda_reduce_load(&blocks), "loading the kernels");
    for (int i = 0; i < 3; i++) {
        gpu_must(cudaMalloc((void **)&memory[i], ROOM), "cudaMalloc");
    }
    return true;
}

void elements_reduce(baton__cuda_op_t op, baton_dtype_t dtype, void *target,
                     const void *left, const void *right, size_t count)
{
    static unsigned call;
    size_t element = baton_dtype_size(dtype), bytes = count * element;
    /* In turn: aligned alike, then by elements, then by bytes. */
    const size_t shifts[4][3] = {{0, 0, 0},
                                 {element, element, element},
                                 {0, element, 3 * element},
                                 {1, 2, 3}};
    const size_t *shift = shifts[call++ % 4];
    char *at[3];
    for (int i = 0; i < 3; i++) {
        at[i] = memory[i] + shift[i];
    }
    gpu_must(cudaMemset(memory[0], 0xa5, bytes + 64), "cudaMemset");
    gpu_must(cudaMemcpy(at[1], left, bytes, cudaMemcpyDefault), "left");
    gpu_must(cudaMemcpy(at[2], right, bytes, cudaMemcpyDefault), "right");
    /* Few blocks: each thread then has several elements. */
    gpu_must(baton__cuda_reduce(NULL, op, dtype, at[0], at[1], at[2], count,
                                call % 3 == 0 ? 2 : 1000),
             "baton__cuda_reduce");
    gpu_must(cudaMemcpy(target, at[0], bytes, cudaMemcpyDefault), "target");
    unsigned char behind[16];
    gpu_must(
        cudaMemcpy(behind, at[0] + bytes, sizeof behind, cudaMemcpyDefault),
        "behind");
    for (size_t i = 0; i < sizeof behind; i++) {
        if (behind[i] != 0xa5) {
            memset(target, 0x5a, bytes); /* no result is that */
        }
    }
}
