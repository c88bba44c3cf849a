/* The reduction kernels of libbaton_cuda, with the cases of the CPU's kernels.
   Compiled with BATON_CUDA_ON_CPU, as test_reduce_on_cpu, the CPU runs the
   kernels. In gpu_reduce a GPU does. */
#include "cuda/kernels.h"

#include <algorithm>
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

/* The kind of each operation of which there are kernels; reduce_cases.h says
   why an average has this one. */
enum { BATON__OP_AVG = BATON__OP_COUNT };
#define KIND(NAME) BATON__OP_##NAME,
static const int kinds[] = {BATON__CUDA_OP_LIST(KIND)};

static baton__cuda_op_t op_of(baton__op_kind_t kind)
{
    return (baton__cuda_op_t)(std::find(kinds, kinds + BATON__CUDA_OPS, kind) -
                              kinds);
}

static bool has(baton__op_kind_t kind, baton_dtype_t dtype)
{
    return op_of(kind) != BATON__CUDA_OPS &&
           baton__cuda_reduces(op_of(kind), dtype);
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
