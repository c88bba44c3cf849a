/* Contributions whose sums can be checked. A contribution is a linear model of
   its elements: element j is base + j * slope modulo 2^64, where base and slope
   are hashes of the rank and the iteration. A sum of linear models is a linear
   model, so two numbers determine a result, and a result that was torn or
   misplaced fits no model. */
#ifndef MICROBENCH_LINEAR_MODEL_H
#define MICROBENCH_LINEAR_MODEL_H

#include <stddef.h>
#include <stdint.h>

typedef struct linear_model {
    uint64_t base;
    uint64_t slope;
} linear_model_t;

/* The contribution of `rank` in `iteration`, which counts from 1. `salt` makes
   runs differ. */
linear_model_t linear_model_of(uint64_t salt, int rank, uint32_t iteration);

linear_model_t linear_model_add(linear_model_t a, linear_model_t b);
uint64_t linear_model_at(linear_model_t model, size_t element);

void linear_model_fill(linear_model_t model, uint64_t *data, size_t count);

/* Returns the first element that the model does not fit, or `count`. */
size_t linear_model_find_mismatch(linear_model_t model, const uint64_t *data,
                                  size_t count);

#endif
