#include "common/sparse_check.h"
#include "common/splitmix.h"
#include <math.h>
#include <string.h>

/* The tolerance of a sum, relative to the sum of the addends' magnitudes. It
   allows about 170 roundings of f32. */
#define TOLERANCE 1e-5

/* ---- gradients ---------------------------------------------------------- */

uint64_t gradient_key(uint64_t seed, uint64_t step, int rank)
{
    return splitmix(splitmix(seed + splitmix(step)) + (uint64_t)rank);
}

float gradient_at(uint64_t key, size_t element)
{
    uint64_t bits = splitmix(key + element);
    double sum = 0;
    for (int part = 0; part < 4; part++) {
        sum += (double)(bits >> (16 * part) & 0xffff) / 65536;
    }
    return (float)(sum - 2);
}

void gradient_fill(uint64_t key, float *elements, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        elements[i] = gradient_at(key, i);
    }
}

/* ---- sums --------------------------------------------------------------- */

sparse_slice_t sparse_slice_of(size_t n, int ranks, int rank)
{
    sparse_slice_t slice = {.first = n * (size_t)rank / (size_t)ranks};
    slice.count = n * ((size_t)rank + 1) / (size_t)ranks - slice.first;
    return slice;
}

void sparse_slice_add_gradients(sparse_slice_t *slice, uint64_t seed,
                                uint64_t step, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        uint64_t key = gradient_key(seed, step, rank);
        for (size_t i = 0; i < slice->count; i++) {
            double value = (double)gradient_at(key, slice->first + i);
            slice->gradients[i] += value;
            slice->magnitudes[i] += fabs(value);
        }
    }
}

/* Returns the index of the element that an entry of a result belongs to. */
static size_t sparse_element(const baton_sparse_result_t *result, size_t entry)
{
    return result->indices != NULL ? result->indices[entry] : entry;
}

void sparse_slice_add_result(const sparse_slice_t *slice,
                             const baton_sparse_result_t *result, double *sums)
{
    const float *values = result->values;
    for (size_t i = 0; i < result->count; i++) {
        size_t element = sparse_element(result, i);
        if (element >= slice->first && element - slice->first < slice->count) {
            sums[element - slice->first] += (double)values[i];
        }
    }
}

size_t sparse_slice_find_loss(const sparse_slice_t *slice, const double *sums)
{
    for (size_t i = 0; i < slice->count; i++) {
        double error = fabs(sums[i] - slice->gradients[i]);
        if (!(error <= TOLERANCE * slice->magnitudes[i])) {
            return i;
        }
    }
    return slice->count;
}

/* ---- one result --------------------------------------------------------- */

const char *sparse_check(const baton_sparse_result_t *result, size_t n,
                         size_t *entry_out)
{
    const float *values = result->values;
    *entry_out = result->count;
    if (result->indices == NULL && result->count != n) {
        return "a dense result has an entry for each element";
    }
    for (size_t i = 0; i < result->count; i++) {
        size_t element = sparse_element(result, i);
        *entry_out = i;
        if (element >= n) {
            return "the index is out of range";
        }
        if (i > 0 && element <= sparse_element(result, i - 1)) {
            return "the index is not above that of the entry before";
        }
        if (!isfinite(values[i])) {
            return "the value is not finite";
        }
    }
    return NULL;
}

/* Adds a word to a hash by FNV-1a (Fowler, Noll, Vo), which takes words here
   instead of bytes. */
static uint64_t add_word(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * UINT64_C(0x100000001b3);
}

uint64_t sparse_hash(const baton_sparse_result_t *result)
{
    const float *values = result->values;
    uint64_t hash = add_word(UINT64_C(0xcbf29ce484222325), result->count);
    for (size_t i = 0; i < result->count; i++) {
        uint32_t bits = 0;
        memcpy(&bits, &values[i], sizeof(bits));
        hash = add_word(hash, (uint64_t)sparse_element(result, i) << 32 | bits);
    }
    return hash;
}
