#include "support/values.h"
#include "support/reference.h"
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

/* A small integer as any type: its two's complement, or its float. */
static uint64_t bits_of(baton_dtype_t dtype, int64_t value)
{
    float narrow = (float)value;
    double wide = (double)value;
    uint64_t bits = (uint64_t)value;
    if (dtype == BATON_F16 || dtype == BATON_BF16) {
        return reference_half(dtype, wide);
    }
    if (dtype == BATON_F32) {
        bits = 0;
        memcpy(&bits, &narrow, sizeof narrow); /* little-endian */
    } else if (dtype == BATON_F64) {
        memcpy(&bits, &wide, sizeof bits);
    }
    return bits;
}

void support_fill_exact(void *data, size_t count, baton_dtype_t dtype,
                        support_op_t op, int rank, support_random_t *random)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = support_random_next(random);
        int64_t value = (int64_t)bits;
        if (reference_is_float(dtype) && op == SUPPORT_PROD) {
            value = ((bits & 1) != 0 ? -1 : 1) * (rank < 4 ? 2 : 1);
        } else if (reference_is_float(dtype)) {
            value = (int64_t)(bits % 15) - 7;
        }
        reference_store(data, i, dtype, bits_of(dtype, value));
    }
}

void support_fill_bits(void *data, size_t bytes, support_random_t *random)
{
    unsigned char *to = data;
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (unsigned char)support_random_next(random);
    }
}

void support_reduce(void *target, const void *right, size_t count,
                    baton_dtype_t dtype, support_op_t op)
{
    static const baton__op_kind_t kinds[] = {
        [SUPPORT_SUM] = BATON__OP_SUM,
        [SUPPORT_PROD] = BATON__OP_PROD,
        [SUPPORT_MIN] = BATON__OP_MIN,
        [SUPPORT_MAX] = BATON__OP_MAX,
    };
    if (op == SUPPORT_XOR) {
        xor_reduce(NULL, target, target, right, count, dtype);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        reference_store(target, i, dtype,
                        reference_reduce(kinds[op], dtype,
                                         reference_load(target, i, dtype),
                                         reference_load(right, i, dtype)));
    }
}
