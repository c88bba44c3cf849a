/* Vectors of any element type, and their reduction by the reference. */
#pragma once

#include "support/random.h"
#include <baton/build.h>
#include <stdbool.h>

/* The reductions of the library, and one of a user (exclusive or), which takes
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

/* One that takes the type; turns go round all of them. */
support_op_t support_op_for(baton_dtype_t dtype, size_t turn);

/* Fills a rank's vector with random values whose reduction over 32 ranks is
   exact in every type, and the same with neutral elements between: any bits for
   integers; small integers for the sum of floats, signs and a few twos for
   their product; signed primes for that of complex numbers, so that
   no part becomes 0; 0 and 1 for
   logical operations. */
void support_fill_exact(void *data, size_t count, baton_dtype_t dtype,
                        support_op_t op, int rank, support_random_t *random);

/* Any bits, among them NaNs with payloads, infinities and subnormals. */
void support_fill_bits(void *data, size_t bytes, support_random_t *random);

/* target = target (op) right, exactly, for values of support_fill_exact; of an
   average the sum, which the next function divides. */
void support_reduce(void *target, const void *right, size_t count,
                    baton_dtype_t dtype, support_op_t op);
void support_divide(void *target, size_t count, baton_dtype_t dtype,
                    support_op_t op, int ranks);
