/* The reductions of the GPU against the host's kernels: the same bits.

   test_elements is linked with elements.cu, which runs the kernels' functions
   of one element, compiled for the host. What that can't show is the device's
   own arithmetic, which is IEEE 754's, and the launches: gpu_elements is the
   same program over the kernels, on a GPU. */
#include "cuda/elements.h"
#include "support/cmocka.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 65536 /* elements of a comparison */

static const baton_op_t *const ops[BATON__CUDA_OPS] = {
    [BATON__CUDA_SUM] = &baton_op_sum,
    [BATON__CUDA_PROD] = &baton_op_prod,
    [BATON__CUDA_MIN] = &baton_op_min,
    [BATON__CUDA_MAX] = &baton_op_max,
};

typedef struct vectors {
    unsigned char left[BLOCK * 8], right[BLOCK * 8];
    unsigned char host[BLOCK * 8], gpu[BLOCK * 8];
} vectors_t;

static vectors_t v;

/* ---- comparing -------------------------------------------------------- */

static uint64_t bits_at(const unsigned char *data, size_t i, size_t bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, data + i * bytes, bytes); /* little-endian, as GPUs are */
    return bits;
}

static bool is_nan(uint64_t bits, baton_dtype_t dtype)
{
    if (dtype == BATON_F32) {
        return (bits & 0x7fffffff) > 0x7f800000;
    }
    return dtype == BATON_F64 &&
           (bits & (UINT64_MAX >> 1)) > UINT64_C(0x7ff0000000000000);
}

/* The host leaves one thing open: which payload the sum or product of two NaNs
   of f32 or f64 has. */
static bool is_open(baton__cuda_op_t op, baton_dtype_t dtype, uint64_t left,
                    uint64_t right)
{
    return (op == BATON__CUDA_SUM || op == BATON__CUDA_PROD) &&
           is_nan(left, dtype) && is_nan(right, dtype);
}

static void compare(baton__cuda_op_t op, baton_dtype_t dtype, size_t count)
{
    size_t bytes = baton_dtype_size(dtype);
    ops[op]->reduce(NULL, v.host, v.left, v.right, count, dtype);
    elements_reduce(op, dtype, v.gpu, v.left, v.right, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t host = bits_at(v.host, i, bytes);
        uint64_t gpu = bits_at(v.gpu, i, bytes);
        uint64_t left = bits_at(v.left, i, bytes);
        uint64_t right = bits_at(v.right, i, bytes);
        bool same = is_open(op, dtype, left, right)
                        ? is_nan(host, dtype) && is_nan(gpu, dtype)
                        : host == gpu;
        if (!same) {
            fail_msg("%s of %s %#llx and %#llx is %#llx on the host, %#llx by "
                     "the kernels",
                     ops[op]->name, baton_dtype_name(dtype),
                     (unsigned long long)left, (unsigned long long)right,
                     (unsigned long long)host, (unsigned long long)gpu);
        }
    }
}

static void compare_all_ops(baton_dtype_t dtype, size_t count)
{
    for (int op = 0; op < BATON__CUDA_OPS; op++) {
        compare((baton__cuda_op_t)op, dtype, count);
    }
}

/* ---- values ----------------------------------------------------------- */

static void put(unsigned char *data, size_t i, size_t bytes, uint64_t bits)
{
    memcpy(data + i * bytes, &bits, bytes);
}

/* Of each type: zeros, ones, the least and the largest subnormal and normal
   numbers, infinities, quiet and signalling NaNs with payloads; and the bounds
   of integers. */
#define HALVES(one, subnormal, infinity)                                       \
    0, 1, subnormal, subnormal + 1, one, infinity - 1, infinity, infinity + 1, \
        infinity + subnormal / 2 + 1, 0x7fff
static const uint64_t f16_kinds[] = {HALVES(0x3c00, 0x03ff, 0x7c00)};
static const uint64_t bf16_kinds[] = {HALVES(0x3f80, 0x007f, 0x7f80)};
static const uint64_t f32_kinds[] = {
    0,          1,          0x007fffff, 0x00800000, 0x3f800000,
    0x3f800001, 0x33800000, 0x7f7fffff, 0x7f800000, 0x7f800001,
    0x7fa55aa5, 0x7fc00000, 0x7fc00123, 0x7fffffff};
static const uint64_t f64_kinds[] = {0,
                                     1,
                                     UINT64_C(0x000fffffffffffff),
                                     UINT64_C(0x0010000000000000),
                                     UINT64_C(0x3ff0000000000000),
                                     UINT64_C(0x3ff0000000000001),
                                     UINT64_C(0x3ca0000000000000),
                                     UINT64_C(0x7fefffffffffffff),
                                     UINT64_C(0x7ff0000000000000),
                                     UINT64_C(0x7ff0000000000001),
                                     UINT64_C(0x7ff55aa55aa55aa5),
                                     UINT64_C(0x7ff8000000000000),
                                     UINT64_C(0x7ff8000000000123),
                                     UINT64_C(0x7fffffffffffffff)};
static const uint64_t integer_kinds[] = {0, 1, 2, 3, 0x55, UINT64_MAX >> 1};

typedef struct kinds {
    const uint64_t *bits;
    size_t count;
} kinds_t;

#define KINDS(array)                                                           \
    {                                                                          \
        array, sizeof(array) / sizeof((array)[0])                              \
    }

static kinds_t kinds_of(baton_dtype_t dtype)
{
    const kinds_t f16 = KINDS(f16_kinds), bf16 = KINDS(bf16_kinds),
                  f32 = KINDS(f32_kinds), f64 = KINDS(f64_kinds),
                  integers = KINDS(integer_kinds);
    return dtype == BATON_F16    ? f16
           : dtype == BATON_BF16 ? bf16
           : dtype == BATON_F32  ? f32
           : dtype == BATON_F64  ? f64
                                 : integers;
}

/* The k-th: with either sign, or of integers with all bits turned, and shifted
   so that the highest bit of any type is met. */
static uint64_t kind_at(baton_dtype_t dtype, size_t k)
{
    kinds_t kinds = kinds_of(dtype);
    size_t bits = baton_dtype_size(dtype) * 8;
    uint64_t value = kinds.bits[k / 2];
    bool integer = kinds.bits == integer_kinds;
    if (k % 2 == 0) {
        return integer ? value >> (value > 0x55 ? 64 - bits : 0) : value;
    }
    return integer ? ~(value >> (value > 0x55 ? 64 - bits : 0))
                   : value | UINT64_C(1) << (bits - 1);
}

/* ---- tests ------------------------------------------------------------ */

static void test_elements_of_all_kinds(void **state)
{
    for (int dtype = 0; dtype < BATON_DTYPE_COUNT; dtype++) {
        size_t bytes = baton_dtype_size((baton_dtype_t)dtype);
        size_t count = 2 * kinds_of((baton_dtype_t)dtype).count;
        for (size_t i = 0; i < count * count; i++) {
            put(v.left, i, bytes, kind_at((baton_dtype_t)dtype, i / count));
            put(v.right, i, bytes, kind_at((baton_dtype_t)dtype, i % count));
        }
        compare_all_ops((baton_dtype_t)dtype, count * count);
    }
}

static void fill_random(unsigned char *data, size_t bytes,
                        support_random_t *random)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t bits = support_random_next(random);
        memcpy(data + i, &bits, 8);
    }
}

static void test_elements_of_random_bits(void **state)
{
    support_random_t random = support_random(support_seed(), 0);
    for (int dtype = 0; dtype < BATON_DTYPE_COUNT; dtype++) {
        for (int round = 0; round < 16; round++) {
            fill_random(v.left, sizeof v.left, &random);
            fill_random(v.right, sizeof v.right, &random);
            compare_all_ops((baton_dtype_t)dtype, BLOCK);
        }
    }
}

static void test_elements_of_bytes_in_all_pairs(void **state)
{
    for (size_t i = 0; i < BLOCK; i++) {
        v.left[i] = (unsigned char)(i >> 8);
        v.right[i] = (unsigned char)i;
    }
    compare_all_ops(BATON_I8, BLOCK);
    compare_all_ops(BATON_U8, BLOCK);
}

/* All 2^16 values of a half, with each special one and with 32 random ones, on
   either side. */
static void compare_halves(baton_dtype_t dtype, uint16_t with)
{
    for (size_t i = 0; i < BLOCK; i++) {
        put(v.left, i, 2, i);
        put(v.right, i, 2, with);
    }
    compare_all_ops(dtype, BLOCK);
    for (size_t i = 0; i < BLOCK; i++) {
        put(v.left, i, 2, with);
        put(v.right, i, 2, i);
    }
    compare_all_ops(dtype, BLOCK);
}

static void test_elements_of_all_halves(void **state)
{
    const baton_dtype_t halves[] = {BATON_F16, BATON_BF16};
    support_random_t random = support_random(support_seed(), 1);
    for (int h = 0; h < 2; h++) {
        for (size_t k = 0; k < 2 * kinds_of(halves[h]).count; k++) {
            compare_halves(halves[h], (uint16_t)kind_at(halves[h], k));
        }
        for (int i = 0; i < 32; i++) {
            compare_halves(halves[h], (uint16_t)support_random_next(&random));
        }
    }
}

int main(void)
{
    if (!elements_there()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements_of_all_kinds),
        cmocka_unit_test(test_elements_of_random_bits),
        cmocka_unit_test(test_elements_of_bytes_in_all_pairs),
        cmocka_unit_test(test_elements_of_all_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
