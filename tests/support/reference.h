/* A reference for the reduction of one element of any bits, written from
   types.h and independent of the kernels. */
#pragma once

#include "ops/kernels.h"

#include <stdbool.h>

/* The type of an element's two parts if it is complex, of its value if it is a
   pair; else its own. Where the index of a pair lies. */
baton_dtype_t reference_part(baton_dtype_t dtype);
bool reference_is_complex(baton_dtype_t dtype);
size_t reference_index_at(baton_dtype_t dtype);

/* One element of any type, in memory. */
void reference_combine(baton__op_kind_t kind, baton_dtype_t dtype, void *target,
                       const void *left, const void *right);

/* (left + right) / ranks, of floats and complex; f16, bf16 are rounded once. */
void reference_average(baton_dtype_t dtype, void *target, const void *left,
                       const void *right, int ranks);

/* What follows is of types without parts. Elements are bits, the low ones. */
uint64_t reference_reduce(baton__op_kind_t kind, baton_dtype_t dtype,
                          uint64_t left, uint64_t right);

bool reference_is_float(baton_dtype_t dtype);
bool reference_is_nan(baton_dtype_t dtype, uint64_t bits);

/* The exact value of a float type's bits. */
double reference_value(baton_dtype_t dtype, uint64_t bits);

/* The f16 or bf16 that is nearest to a value, ties to even. */
uint64_t reference_half(baton_dtype_t dtype, double value);

/* The first 8 bytes of an element, if it has more. */
uint64_t reference_load(const void *data, size_t index, baton_dtype_t dtype);
void reference_store(void *data, size_t index, baton_dtype_t dtype,
                     uint64_t bits);

/* One of a type's zeros, ones, extremes, infinities and NaNs; `which` wraps. */
#define REFERENCE_SPECIALS ((size_t)20)
uint64_t reference_special(baton_dtype_t dtype, uint64_t which);
