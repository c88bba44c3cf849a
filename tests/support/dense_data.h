/* Data for the dense builders, of any type, and the oracle for their results:
   each rank can tell what all others have contributed. */
#pragma once

#include "support/dense.h"
#include "support/values.h"

/* Values of an epoch of a case; its op and dtype are the case's. */
typedef struct dense_data {
    const dense_case_t *c;
    support_op_t op;
    uint64_t seed;
    uint64_t epoch;
} dense_data_t;

/* An operation that the builder and the type take; as support_op_for. */
support_op_t dense_op_for(const dense_builder_t *builder, baton_dtype_t dtype,
                          size_t turn);

/* A rank's source. */
void dense_fill(const dense_data_t *data, int rank, void *source);

/* Whether a rank's result is right, to the last bit. */
bool dense_is_right(const dense_data_t *data, int rank, const void *result);

/* Whether a rank's source is as it was filled. */
bool dense_is_untouched(const dense_data_t *data, int rank, const void *source);

/* The case, for messages; valid until the next call. */
const char *dense_text(const dense_case_t *c);

/* An operation whose elements are affine maps x -> a x + b modulo 2^32: it is
   associative and not commutative. */
typedef struct dense_affine {
    uint32_t a, b;
} dense_affine_t;
extern const baton_op_t dense_compose;
