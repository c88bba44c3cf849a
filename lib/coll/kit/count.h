/* Counts of ranks that are stored as an element of a vector, so that the
   all-reduce of the vector sums them, too. A rank that is to be counted
   contributes a one, and any other rank a zero. */
#pragma once

#include <baton/types.h>

/* Returns the largest count for which a sum of ones is exact in the type. */
uint64_t baton__largest_count(baton_dtype_t dtype);

/* Returns the count that the element at `at` stands for. An element with all
   bits zero is the count 0 in every type. A float is multiplied by `factor`,
   and rounded. */
uint32_t baton__count_of(baton_dtype_t dtype, const char *at, double factor);
