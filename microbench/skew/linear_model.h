/* Contributions whose sums can be checked. A contribution is a linear model of
   its elements: element j is base + j * slope modulo 2^64, where base and slope
   are hashes of the rank and the iteration. A sum of linear models is a linear
   model. So two numbers determine a result, and a torn or misplaced result fits
   no model. */
#ifndef MICROBENCH_LINEAR_MODEL_H
#define MICROBENCH_LINEAR_MODEL_H

#include "common/splitmix.h"
#include <stddef.h>

typedef struct linear_model {
    uint64_t base;
    uint64_t slope;
} linear_model_t;

/* Returns the contribution of `rank` in `iteration`. Iterations are numbered
   from 1. Runs with a different `salt` have different contributions. */
static inline linear_model_t linear_model_of(uint64_t salt, int rank,
                                             uint32_t iteration)
{
    uint64_t key = (uint64_t)(uint32_t)rank << 32 | iteration;
    uint64_t base = splitmix(salt ^ splitmix(key));
    return (linear_model_t){.base = base, .slope = splitmix(base)};
}

static inline linear_model_t linear_model_add(linear_model_t a,
                                              linear_model_t b)
{
    return (linear_model_t){a.base + b.base, a.slope + b.slope};
}

static inline uint64_t linear_model_at(linear_model_t model, size_t element)
{
    return model.base + element * model.slope;
}

static inline void linear_model_fill(linear_model_t model, uint64_t *data,
                                     size_t count)
{
    for (size_t j = 0; j < count; j++) {
        data[j] = linear_model_at(model, j);
    }
}

/* Returns the first element that the model does not fit. Returns `count` if it
   fits all. */
static inline size_t linear_model_find_mismatch(linear_model_t model,
                                                const uint64_t *data,
                                                size_t count)
{
    size_t j = 0;
    while (j < count && data[j] == linear_model_at(model, j)) {
        j++;
    }
    return j;
}

#endif
