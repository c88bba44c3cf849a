/* Random gradients that every rank can compute of every other, and what must
   hold of the results of sparse all-reduces of them, whatever the algorithm. */
#ifndef MICROBENCH_SPARSE_CHECK_H
#define MICROBENCH_SPARSE_CHECK_H

#include <baton/baton.h>

/* Determines the gradient of `rank` in `step`. */
uint64_t gradient_key(uint64_t seed, uint64_t step, int rank);

/* Between -2 and 2: a sum of four uniform numbers, so that the distribution is
   close to a normal one, as that of gradients is. */
float gradient_at(uint64_t key, size_t element);
void gradient_fill(uint64_t key, float *elements, size_t count);

/* The sums of some elements over all steps, of which one rank keeps account, so
   that all ranks together have one vector of each. */
typedef struct sparse_slice {
    size_t first, count;
    double *gradients;  /* [count], of all ranks */
    double *magnitudes; /* [count], of these gradients */
} sparse_slice_t;

/* Which of n elements this rank's slice has. Sets no memory. */
sparse_slice_t sparse_slice_of(size_t n, int ranks, int rank);

/* Adds the gradients of all ranks in a step. */
void sparse_slice_add_gradients(sparse_slice_t *slice, uint64_t seed,
                                uint64_t step, int ranks);

/* Adds the part of a result of f32 that is in the slice to sums[count]. */
void sparse_slice_add_result(const sparse_slice_t *slice,
                             const baton_sparse_result_t *result, double *sums);

/* Returns the first place of the slice where sums[count] is not the sum of all
   gradients, or `count`. */
size_t sparse_slice_find_loss(const sparse_slice_t *slice, const double *sums);

/* The element that an entry of a result is about. */
size_t sparse_element(const baton_sparse_result_t *result, size_t entry);

/* Says what is wrong with a result of f32 for n elements, and *entry_out where:
   indices that are not ascending or not below n, values that are not finite; or
   a dense result that does not have n entries, which is wrong behind its last
   one. Returns NULL if nothing is. */
const char *sparse_check(const baton_sparse_result_t *result, size_t n,
                         size_t *entry_out);

/* A hash of the count, the indices and the bits of the values. */
uint64_t sparse_hash(const baton_sparse_result_t *result);

#endif
