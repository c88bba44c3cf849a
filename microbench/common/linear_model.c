#include "common/linear_model.h"
#include "common/splitmix.h"

linear_model_t linear_model_of(uint64_t salt, int rank, uint32_t iteration)
{
    uint64_t key = (uint64_t)(uint32_t)rank << 32 | iteration;
    uint64_t base = splitmix(salt ^ splitmix(key));
    return (linear_model_t){.base = base, .slope = splitmix(base)};
}

linear_model_t linear_model_add(linear_model_t a, linear_model_t b)
{
    return (linear_model_t){a.base + b.base, a.slope + b.slope};
}

uint64_t linear_model_at(linear_model_t model, size_t element)
{
    return model.base + element * model.slope;
}

void linear_model_fill(linear_model_t model, uint64_t *data, size_t count)
{
    for (size_t j = 0; j < count; j++) {
        data[j] = linear_model_at(model, j);
    }
}

size_t linear_model_find_mismatch(linear_model_t model, const uint64_t *data,
                                  size_t count)
{
    for (size_t j = 0; j < count; j++) {
        if (data[j] != linear_model_at(model, j)) {
            return j;
        }
    }
    return count;
}
