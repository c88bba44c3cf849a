/* Vectors of any element type for tests, and reductions of them by reference.h,
   with which tests compare the results of the library. */
#pragma once

#include "support/random.h"
#include <baton/build.h>

/* The library's reductions, and a reduction that a user has defined: an
   exclusive or of all types. */
typedef enum support_op {
#define SUPPORT_OP_ENUM(NAME, name) SUPPORT_##NAME,
    BATON_OP_LIST(SUPPORT_OP_ENUM)
#undef SUPPORT_OP_ENUM
        SUPPORT_AVG,
    SUPPORT_XOR,
    SUPPORT_OP_COUNT
} support_op_t;

const baton_op_t *support_op(support_op_t op);

/* Returns a reduction that the type supports. Consecutive values of `turn` go
   through all these reductions. */
support_op_t support_op_for(baton_dtype_t dtype, size_t turn);

/* Fills a rank's vector with random values whose reduction over 32 ranks is
   exact in every type, also with neutral elements in between. Integers have any
   bits. Floats are small integers for a sum, and signs and a few twos for a
   product. Complex numbers are signed primes for a product, so that no part
   becomes 0. Logical operations get 0 and 1. */
void support_fill_exact(void *data, size_t count, baton_dtype_t dtype,
                        support_op_t op, int rank, support_random_t *random);

/* Fills memory with any bits, including NaNs with payloads, infinities and
   subnormals. */
void support_fill_bits(void *data, size_t bytes, support_random_t *random);

/* Computes target = target (op) right, for values of support_fill_exact, so
   that the result is exact. For an average computes only the sum, which
   support_divide then divides. */
void support_reduce(void *target, const void *right, size_t count,
                    baton_dtype_t dtype, support_op_t op);
void support_divide(void *target, size_t count, baton_dtype_t dtype,
                    support_op_t op, int ranks);
