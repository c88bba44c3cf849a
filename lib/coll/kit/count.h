/* Counting ranks in a vector's own element type: a sum of ones. */
#pragma once

#include <baton/types.h>

/* The largest count that a sum of ones reaches exactly in the type. */
uint64_t baton__largest_count(baton_dtype_t dtype);

/* Reads a count back; zero is all bits zero in every type. A float is
   multiplied by `factor`, and rounded. */
uint32_t baton__count_of(baton_dtype_t dtype, const char *at, double factor);
