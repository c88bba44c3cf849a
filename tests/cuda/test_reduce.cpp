/* The reduction kernels against the host's: heads, tails, vectors, elements
   that are not aligned, several rounds of a thread; and that nothing beside the
   target is written. test_reduce_on_cpu has the processor run the kernels,
   gpu_reduce a GPU. */
#include "cuda/kernels.h"
#include "cuda/launch.h"

extern "C" {
#include "support/cmocka.h"
#include "support/random.h"
}

#include <cstdio>
#include <cstring>

#if !defined(BATON_CUDA_ON_CPU)
#include "cuda/on_gpu.h"
#endif

namespace
{

enum { ROOM = 80000, MARGIN = 64 };

const baton_op_t *const ops[BATON__CUDA_OPS] = {BATON_SUM, BATON_PROD,
                                                BATON_MIN, BATON_MAX};
unsigned char before[3][ROOM], expected[ROOM], after[ROOM];
void *memory[3]; /* the GPU's: target, left, right */
support_random_t numbers;

void must(cudaError_t error)
{
    assert_int_equal(error, 0);
}

/* Small whole numbers: sums and products of any type are exact, and no NaN has
   an open payload. */
void fill(unsigned char *to, size_t count, baton_dtype_t dtype)
{
    size_t bytes = baton_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        uint64_t number = support_random_below(&numbers, 8);
        float f32 = (float)number;
        double f64 = (double)number;
        uint32_t bits = 0;
        std::memcpy(&bits, &f32, sizeof bits);
        static const uint16_t f16[8] = {0,      0x3c00, 0x4000, 0x4200,
                                        0x4400, 0x4500, 0x4600, 0x4700};
        uint16_t half =
            dtype == BATON_F16 ? f16[number] : (uint16_t)(bits >> 16);
        const void *from = dtype == BATON_F32   ? (const void *)&f32
                           : dtype == BATON_F64 ? (const void *)&f64
                           : dtype == BATON_F16 || dtype == BATON_BF16
                               ? (const void *)&half
                               : (const void *)&number;
        std::memcpy(to + i * bytes, from, bytes);
    }
}

struct layout {
    size_t at[3]; /* bytes behind 16-byte boundaries: target, left, right */
    int from[3];  /* which memory: the target may be an operand */
};

void compare(int op, baton_dtype_t dtype, size_t count, const layout &of,
             unsigned blocks)
{
    size_t bytes = baton_dtype_size(dtype), all = count * bytes + 2 * MARGIN;
    for (int i = 0; i < 3; i++) {
        std::memset(before[i], 0x5a, all);
    }
    for (int i = 1; i < 3; i++) {
        fill(before[of.from[i]] + MARGIN + of.at[i], count, dtype);
    }
    for (int i = 0; i < 3; i++) {
        must(cudaMemcpy(memory[i], before[i], all, cudaMemcpyHostToDevice));
    }
    char *where[3];
    for (int i = 0; i < 3; i++) {
        where[i] = (char *)memory[of.from[i]] + MARGIN + of.at[i];
    }
    std::memcpy(expected, before[of.from[0]], all);
    ops[op]->reduce(nullptr, expected + MARGIN + of.at[0],
                    before[of.from[1]] + MARGIN + of.at[1],
                    before[of.from[2]] + MARGIN + of.at[2], count, dtype);
    must(baton__cuda_reduce(nullptr, (baton__cuda_op_t)op, dtype, where[0],
                            where[1], where[2], count, blocks));
    must(cudaMemcpy(after, memory[of.from[0]], all, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < all; i++) {
        if (after[i] != expected[i]) {
            fail_msg("%s of %zu %s at %zu, %zu, %zu in %u blocks: byte %zu is "
                     "%#x, not %#x",
                     ops[op]->name, count, baton_dtype_name(dtype), of.at[0],
                     of.at[1], of.at[2], blocks, i - MARGIN, after[i],
                     expected[i]);
        }
    }
}

void compare_layouts(int op, baton_dtype_t dtype, size_t count)
{
    size_t e = baton_dtype_size(dtype);
    const layout layouts[] = {
        {{0, 0, 0}, {0, 1, 2}},                /* vectors */
        {{16 - e, 16 - e, 16 - e}, {0, 1, 2}}, /* a head of one */
        {{e % 16, e % 16, e % 16}, {0, 1, 2}}, /* a long head */
        {{0, e, 0}, {0, 1, 2}},                /* elements */
        {{1, 0, 3}, {0, 1, 2}},                /* bytes, but for i8 */
        {{e, e, e}, {0, 0, 2}},                /* target is left, */
        {{0, e, 0}, {0, 1, 0}},                /* or right */
    };
    for (const layout &of : layouts) {
        const unsigned blocks[] = {1, 3, 1000};
        compare(op, dtype, count, of,
                blocks[support_random_below(&numbers, 3)]);
    }
}

void test_reduce_has_the_bits_of_the_host(void **)
{
    static const size_t counts[] = {1, 2, 7, 15, 16, 17, 33, 300};
    for (int op = 0; op < BATON__CUDA_OPS; op++) {
        for (int dtype = 0; dtype < BATON_DTYPE_COUNT; dtype++) {
            for (size_t count : counts) {
                compare_layouts(op, (baton_dtype_t)dtype, count);
            }
        }
    }
}

/* Several vectors for each thread, the last ones not for all. */
void test_reduce_goes_on_to_the_next(void **)
{
    for (int dtype = 0; dtype < BATON_DTYPE_COUNT; dtype++) {
        size_t most =
            (ROOM - 3 * MARGIN) / baton_dtype_size((baton_dtype_t)dtype);
        compare_layouts(BATON__CUDA_SUM, (baton_dtype_t)dtype, most);
        compare_layouts(BATON__CUDA_MIN, (baton_dtype_t)dtype, most / 2 + 1);
    }
}

} // namespace

int main()
{
#if !defined(BATON_CUDA_ON_CPU)
    if (!gpu_there()) {
        return GPU_SKIPPED;
    }
#endif
    unsigned blocks = 0;
    must(baton__cuda_reduce_load(&blocks));
    numbers = support_random(support_seed(), 0);
    for (void *&each : memory) {
        must(cudaMalloc(&each, ROOM));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_has_the_bits_of_the_host),
        cmocka_unit_test(test_reduce_goes_on_to_the_next),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
