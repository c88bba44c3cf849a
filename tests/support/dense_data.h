/* Data of any type for the dense builders, and a check of their results. Each
   rank can compute the contributions of all ranks. */
#pragma once

#include "support/dense.h"
#include "support/values.h"

/* The values of one epoch of a case. `op` and `dtype` are the case's. */
typedef struct dense_data {
    const dense_case_t *c;
    support_op_t op;
    uint64_t seed;
    uint64_t epoch;
} dense_data_t;

/* Returns an operation that both the builder and the type support; see
   support_op_for. */
support_op_t dense_op_for(const dense_builder_t *builder, baton_dtype_t dtype,
                          size_t turn);

/* Fills a rank's source. */
void dense_fill(const dense_data_t *data, int rank, void *source);

/* Returns whether a rank's result is right, to the last bit. */
bool dense_is_right(const dense_data_t *data, int rank, const void *result);

/* Returns whether a rank's source still is as dense_fill has filled it. */
bool dense_is_untouched(const dense_data_t *data, int rank, const void *source);

/* Describes the case in words, for messages. The text is valid until the next
   call. */
const char *dense_text(const dense_case_t *c);

/* An element of an operation that composes affine maps x -> a x + b modulo
   2^32. It is associative and not commutative. */
typedef struct dense_affine {
    uint32_t a, b;
} dense_affine_t;
extern const baton_op_t dense_compose;
