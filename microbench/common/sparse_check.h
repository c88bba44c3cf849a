/* Random gradients, each of which every rank can compute, and checks of sparse
   all-reduces that hold for any algorithm. */
#pragma once

#include <baton/baton.h>

/* Returns the key of the gradient that `rank` has in `step`; gradient_at
   computes its elements. */
uint64_t gradient_key(uint64_t seed, uint64_t step, int rank);

/* Returns an element between -2 and 2. It is the sum of four uniform numbers,
   so that the distribution is close to normal, like that of real gradients. */
float gradient_at(uint64_t key, size_t element);
void gradient_fill(uint64_t key, float *elements, size_t count);

/* The sums of all gradients over all steps, for one slice of the elements. Each
   rank has a slice of its own, so that the ranks together have each sum
   once. */
typedef struct sparse_slice {
    size_t first, count;
    /* An array of [count]: for each element, the sum of the gradients of all
       ranks. */
    double *gradients;
    /* An array of [count]: for each element, the sum of the gradients'
       magnitudes. */
    double *magnitudes;
} sparse_slice_t;

/* Returns the range of the slice that this rank has of a vector of n elements.
   Allocates nothing: gradients and magnitudes are NULL. */
sparse_slice_t sparse_slice_of(size_t n, int ranks, int rank);

/* Adds the gradients that all ranks have in a step. */
void sparse_slice_add_gradients(sparse_slice_t *slice, uint64_t seed,
                                uint64_t step, int ranks);

/* Adds the entries of an f32 result that lie in the slice to sums[count]. */
void sparse_slice_add_result(const sparse_slice_t *slice,
                             const baton_sparse_result_t *result, double *sums);

/* Returns the first index in the slice at which sums[count] differs from the
   sum of all gradients. Returns `count` if there is none. */
size_t sparse_slice_find_loss(const sparse_slice_t *slice, const double *sums);

/* Checks an f32 result for n elements. Returns NULL if it is right. Otherwise
   returns a text that says what is wrong, and sets *entry_out to the entry.
   Wrong are indices that do not ascend or are not below n, values that are not
   finite, and a dense result without exactly n entries (then *entry_out is the
   number of entries). */
const char *sparse_check(const baton_sparse_result_t *result, size_t n,
                         size_t *entry_out);

/* Returns a hash of the count, the indices and the bits of the values. */
uint64_t sparse_hash(const baton_sparse_result_t *result);
