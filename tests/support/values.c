#include "support/values.h"
#include <stdlib.h>
#include <string.h>

static void xor_reduce(void *arg, void *target, const void *left,
                       const void *right, size_t count, baton_dtype_t dtype)
{
    unsigned char *to = target;
    const unsigned char *a = left, *b = right;
    for (size_t i = 0; i < count * baton_dtype_size(dtype); i++) {
        to[i] = (unsigned char)(a[i] ^ b[i]);
    }
}

const baton_op_t *support_op(support_op_t op)
{
    static const baton_op_t exclusive_or = {
        .name = "xor", .reduce = xor_reduce, .commutative = true};
    switch (op) {
    case SUPPORT_SUM:
        return BATON_SUM;
    case SUPPORT_PROD:
        return BATON_PROD;
    case SUPPORT_MIN:
        return BATON_MIN;
    case SUPPORT_MAX:
        return BATON_MAX;
    case SUPPORT_XOR:
        return &exclusive_or;
    case SUPPORT_OP_COUNT:
        break;
    }
    abort();
}

bool support_is_float(baton_dtype_t dtype)
{
    return dtype == BATON_F16 || dtype == BATON_BF16 || dtype == BATON_F32 ||
           dtype == BATON_F64;
}

static bool is_signed(baton_dtype_t dtype)
{
    return dtype <= BATON_I64;
}

/* An integer below 2^11 in magnitude as binary16. */
static uint16_t half_of(int64_t value)
{
    uint64_t magnitude = (uint64_t)(value < 0 ? -value : value);
    if (magnitude == 0) {
        return 0;
    }
    unsigned exponent = 0;
    while (magnitude >> (exponent + 1) != 0) {
        exponent++;
    }
    uint64_t fraction = (magnitude << 10 >> exponent) & 0x3ffu;
    return (uint16_t)((value < 0 ? 0x8000u : 0) | (exponent + 15) << 10 |
                      fraction);
}

static int64_t integer_of_half(uint16_t bits)
{
    if ((bits & 0x7fffu) == 0) {
        return 0;
    }
    int exponent = (bits >> 10 & 31) - 15;
    int64_t magnitude = ((bits & 0x3ff) | 0x400) >> (10 - exponent);
    return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

/* Elements as integers: floats hold small ones, integers wrap. */
static void store(void *data, size_t i, baton_dtype_t dtype, int64_t value)
{
    size_t size = baton_dtype_size(dtype);
    unsigned char *to = (unsigned char *)data + i * size;
    float narrow = (float)value;
    double wide = (double)value;
    uint16_t half = half_of(support_is_float(dtype) ? value : 0);
    if (dtype == BATON_F16) {
        memcpy(to, &half, size);
    } else if (dtype == BATON_BF16) {
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof(bits));
        uint16_t upper = (uint16_t)(bits >> 16);
        memcpy(to, &upper, size);
    } else if (dtype == BATON_F32) {
        memcpy(to, &narrow, size);
    } else if (dtype == BATON_F64) {
        memcpy(to, &wide, size);
    } else {
        memcpy(to, &value, size); /* little-endian */
    }
}

static int64_t load(const void *data, size_t i, baton_dtype_t dtype)
{
    size_t size = baton_dtype_size(dtype);
    const unsigned char *from = (const unsigned char *)data + i * size;
    if (dtype == BATON_F16 || dtype == BATON_BF16) {
        uint16_t half;
        memcpy(&half, from, size);
        if (dtype == BATON_F16) {
            return integer_of_half(half);
        }
        uint32_t bits = (uint32_t)half << 16;
        float narrow;
        memcpy(&narrow, &bits, sizeof(narrow));
        return (int64_t)narrow;
    }
    if (dtype == BATON_F32) {
        float narrow;
        memcpy(&narrow, from, size);
        return (int64_t)narrow;
    }
    if (dtype == BATON_F64) {
        double wide;
        memcpy(&wide, from, size);
        return (int64_t)wide;
    }
    uint64_t bits = 0;
    memcpy(&bits, from, size);
    if (is_signed(dtype) && size < 8) {
        uint64_t sign = UINT64_C(1) << (size * 8 - 1);
        bits = (bits ^ sign) - sign;
    }
    return (int64_t)bits;
}

void support_fill_exact(void *data, size_t count, baton_dtype_t dtype,
                        support_op_t op, int rank, support_random_t *random)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = support_random_next(random);
        int64_t value = (int64_t)bits;
        if (support_is_float(dtype) && op == SUPPORT_PROD) {
            value = ((bits & 1) != 0 ? -1 : 1) * (rank < 4 ? 2 : 1);
        } else if (support_is_float(dtype)) {
            value = (int64_t)(bits % 15) - 7;
        }
        store(data, i, dtype, value);
    }
}

void support_fill_bits(void *data, size_t bytes, support_random_t *random)
{
    unsigned char *to = data;
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (unsigned char)support_random_next(random);
    }
}

static bool is_less(int64_t a, int64_t b, baton_dtype_t dtype)
{
    if (support_is_float(dtype) || is_signed(dtype)) {
        return a < b;
    }
    return (uint64_t)a < (uint64_t)b;
}

void support_reduce(void *target, const void *right, size_t count,
                    baton_dtype_t dtype, support_op_t op)
{
    if (op == SUPPORT_XOR) {
        xor_reduce(NULL, target, target, right, count, dtype);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t a = load(target, i, dtype);
        int64_t b = load(right, i, dtype);
        bool first = is_less(a, b, dtype) == (op == SUPPORT_MIN);
        int64_t result = first ? a : b;
        if (op == SUPPORT_SUM) {
            result = (int64_t)((uint64_t)a + (uint64_t)b);
        } else if (op == SUPPORT_PROD) {
            result = (int64_t)((uint64_t)a * (uint64_t)b);
        }
        store(target, i, dtype, result);
    }
}
