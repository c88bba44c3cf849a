/* Vectors of any element type, and their reduction by the reference. */
#pragma once

#include "support/random.h"
#include <baton/build.h>

/* The library's reductions, and a user's reduction (exclusive or) that takes
   every type. */
typedef enum support_op {
#define SUPPORT_OP_ENUM(NAME, name) SUPPORT_##NAME,
    BATON_OP_LIST(SUPPORT_OP_ENUM)
#undef SUPPORT_OP_ENUM
        SUPPORT_AVG,
    SUPPORT_XOR,
    SUPPORT_OP_COUNT
} support_op_t;

const baton_op_t *support_op(support_op_t op);

/* Returns a reduction that takes the type. Consecutive values of `turn` go
   through all such reductions. */
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

/* Computes target = target (op) right, exactly, for values of
   support_fill_exact. For an average it computes the sum; support_divide
   divides it. */
void support_reduce(void *target, const void *right, size_t count,
                    baton_dtype_t dtype, support_op_t op);
void support_divide(void *target, size_t count, baton_dtype_t dtype,
                    support_op_t op, int ranks);
