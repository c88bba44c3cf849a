/* Counts of ranks, in the element type of a vector with which they are summed:
   a rank that is to be counted contributes a one, and any other rank a zero. */
#pragma once

#include <baton/types.h>

/* Returns the largest count that a sum of ones reaches exactly in the type. */
uint64_t baton__largest_count(baton_dtype_t dtype);

/* Reads a count. Zero has all bits zero in every type. A float is multiplied by
   `factor`, and rounded. */
uint32_t baton__count_of(baton_dtype_t dtype, const char *at, double factor);
