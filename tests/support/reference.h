/* A reference for the reduction of one element of any type. It follows the
   definitions in types.h, and is independent of the kernels. */
#pragma once

#include "base/half.h"
#include "ops/kernels.h"

#include <stdbool.h>

/* reference_index_at returns the offset of a pair's index. */
bool reference_is_complex(baton_dtype_t dtype);
size_t reference_index_at(baton_dtype_t dtype);

/* Combines one element of any type, in memory. */
void reference_combine(baton__op_kind_t kind, baton_dtype_t dtype, void *target,
                       const void *left, const void *right);

/* Computes (left + right) / ranks for floats and complex numbers. f16 and bf16
   are rounded once. */
void reference_average(baton_dtype_t dtype, void *target, const void *left,
                       const void *right, int ranks);

/* The functions from here on are for types without parts. The bits of an
   element are the low bits of a uint64_t. */
uint64_t reference_reduce(baton__op_kind_t kind, baton_dtype_t dtype,
                          uint64_t left, uint64_t right);

bool reference_is_float(baton_dtype_t dtype);
bool reference_is_nan(baton_dtype_t dtype, uint64_t bits);

/* Returns the exact value of a float type's bits. */
double reference_value(baton_dtype_t dtype, uint64_t bits);

/* Returns the f16 or bf16 that is nearest to a value, ties to even. */
uint64_t reference_half(baton_dtype_t dtype, double value);

/* Load and store an element, or the first 8 bytes of a longer one. */
uint64_t reference_load(const void *data, size_t index, baton_dtype_t dtype);
void reference_store(void *data, size_t index, baton_dtype_t dtype,
                     uint64_t bits);

/* Returns one of a type's zeros, ones, extremes, infinities and NaNs. `which`
   wraps around. */
#define REFERENCE_SPECIALS ((size_t)20)
uint64_t reference_special(baton_dtype_t dtype, uint64_t which);
