#include "support/values.h"
#include "support/reference.h"
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
#define OP_ADDRESS(NAME, name) BATON_##NAME,
    static const baton_op_t *const all[] = {BATON_OP_LIST(OP_ADDRESS)};
    if (op == SUPPORT_XOR || op == SUPPORT_AVG) {
        return op == SUPPORT_XOR ? &exclusive_or : BATON_AVG;
    }
    return all[op];
}

support_op_t support_op_for(baton_dtype_t dtype, size_t turn)
{
    int op = (int)(turn % SUPPORT_OP_COUNT);
    while (!baton_op_takes(support_op((support_op_t)op), dtype)) {
        op = (op + 1) % SUPPORT_OP_COUNT;
    }
    return (support_op_t)op;
}

/* Returns the bits of a small integer in any type: in two's complement, or as a
   float. */
static uint64_t bits_of(baton_dtype_t dtype, int64_t value)
{
    float narrow = (float)value;
    double wide = (double)value;
    uint64_t bits = (uint64_t)value;
    if (reference_is_float(dtype) && baton_dtype_size(dtype) == 2) {
        return reference_half(dtype, wide);
    }
    if (dtype == BATON_F32) {
        bits = 0;
        /* This relies on little-endian order. */
        memcpy(&bits, &narrow, sizeof narrow);
    } else if (dtype == BATON_F64) {
        memcpy(&bits, &wide, sizeof bits);
    }
    return bits;
}

/* Returns the bits of a random value. `dtype` is an integer or float type,
   which may be the type of an element's part. */
static uint64_t exact_bits(baton_dtype_t dtype, support_op_t op, int rank,
                           uint64_t random)
{
    int64_t value = (int64_t)random;
    if (op == SUPPORT_LAND || op == SUPPORT_LOR || dtype == BATON_BOOL) {
        value = (random % 16 == 0) == (op == SUPPORT_LOR);
    } else if (op == SUPPORT_LXOR) {
        value = random % 2 == 0;
    } else if (reference_is_float(dtype) && op == SUPPORT_PROD) {
        value = ((random & 1) != 0 ? -1 : 1) * (rank < 4 ? 2 : 1);
    } else if (reference_is_float(dtype) || op == SUPPORT_MINLOC ||
               op == SUPPORT_MAXLOC) {
        value = (int64_t)(random % 15) - 7;
    }
    return bits_of(dtype, value);
}

static void fill_element(unsigned char *at, baton_dtype_t dtype,
                         support_op_t op, int rank, support_random_t *random)
{
    static const int64_t primes[][2] = {{1, 2}, {2, 3}, {1, 4}, {2, 5}, {1, 0}};
    uint64_t any = support_random_next(random);
    size_t size = baton_dtype_size(dtype);
    baton_dtype_t part = baton__part_of(dtype);
    memset(at, 0, size);
    if (reference_is_complex(dtype) && op == SUPPORT_PROD) {
        const int64_t *prime = primes[rank < 4 ? rank : 4];
        int64_t sign = rank < 4 && (any & 1) != 0 ? -1 : 1;
        reference_store(at, 0, part, bits_of(part, sign * prime[0]));
        reference_store(at, 1, part, bits_of(part, sign * prime[1]));
        return;
    }
    reference_store(at, 0, part, exact_bits(part, op, rank, any));
    if (reference_is_complex(dtype)) {
        reference_store(at, 1, part, exact_bits(part, op, rank, any >> 32));
    } else if (part != dtype) {
        int32_t index = (int32_t)(any >> 32);
        memcpy(at + reference_index_at(dtype), &index, sizeof index);
    }
}

void support_fill_exact(void *data, size_t count, baton_dtype_t dtype,
                        support_op_t op, int rank, support_random_t *random)
{
    size_t size = baton_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        fill_element((unsigned char *)data + i * size, dtype, op, rank, random);
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
    size_t size = baton_dtype_size(dtype);
    if (op == SUPPORT_XOR) {
        xor_reduce(NULL, target, target, right, count, dtype);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        unsigned char *at = (unsigned char *)target + i * size;
        reference_combine(
            op == SUPPORT_AVG ? BATON__OP_SUM : (baton__op_kind_t)op, dtype, at,
            at, (const unsigned char *)right + i * size);
    }
}

void support_divide(void *target, size_t count, baton_dtype_t dtype,
                    support_op_t op, int ranks)
{
    size_t size = baton_dtype_size(dtype);
    for (size_t i = 0; i < count && op == SUPPORT_AVG; i++) {
        unsigned char *at = (unsigned char *)target + i * size;
        unsigned char nothing[16] = {0};
        BATON_AVG->identity(NULL, nothing, 1, dtype);
        reference_average(dtype, at, at, nothing, ranks);
    }
}
