/* The reduction kernels of libbaton_cuda, with the cases of the CPU's kernels.
   Compiled with BATON_CUDA_ON_CPU, as test_reduce_on_cpu, the CPU runs the
   kernels. In gpu_reduce a GPU does. */
#include "cuda/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "support/cmocka.h"
#include "support/reduce_cases.h"
}

#if !defined(BATON_CUDA_ON_CPU)
#include "cuda/on_gpu.h"
#endif

static_assert((int)BATON__CUDA_SUM == BATON__OP_SUM &&
                  (int)BATON__CUDA_PROD == BATON__OP_PROD &&
                  (int)BATON__CUDA_MIN == BATON__OP_MIN &&
                  (int)BATON__CUDA_MAX == BATON__OP_MAX &&
                  (int)BATON__CUDA_BAND == BATON__OP_BAND &&
                  (int)BATON__CUDA_BOR == BATON__OP_BOR &&
                  (int)BATON__CUDA_BXOR == BATON__OP_BXOR,
              "the same order");

static baton__cuda_op_t op_of(baton__op_kind_t kind)
{
    return kind == BATON__OP_COUNT ? BATON__CUDA_AVG : (baton__cuda_op_t)kind;
}

static bool has(baton__op_kind_t kind, baton_dtype_t dtype)
{
    bool is_here = kind == BATON__OP_COUNT || (int)kind < BATON__CUDA_AVG;
    return is_here && baton__cuda_reduces(op_of(kind), dtype);
}

/* Uses few blocks, in which each thread has several vectors, and many blocks by
   turns. */
static void reduce(const reduce_subject_t *, baton__op_kind_t kind,
                   baton_dtype_t dtype, void *target, const void *left,
                   const void *right, size_t count)
{
    static unsigned calls;
    const unsigned blocks[] = {1, 3, 1000};
    assert_int_equal(baton__cuda_reduce(nullptr, op_of(kind), dtype, target,
                                        left, right, count, REDUCE_RANKS,
                                        blocks[calls++ % 3]),
                     cudaSuccess);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
}

static void test_reduce_matches_reference(void **)
{
    void *memory = nullptr;
    unsigned blocks = 0;
    assert_int_equal(baton__cuda_reduce_load(&blocks), cudaSuccess);
    assert_int_equal(cudaMallocHost(&memory, REDUCE_BYTES), cudaSuccess);
    const reduce_subject_t subject = {"cuda", reduce, has, nullptr,
                                      static_cast<unsigned char *>(memory)};
    reduce_cases_run(&subject);
    assert_int_equal(cudaFreeHost(memory), cudaSuccess);
}

int main()
{
#if !defined(BATON_CUDA_ON_CPU)
    if (!gpu_there()) {
        return GPU_SKIPPED;
    }
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_matches_reference),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
