/* What must hold of the results of a sparse all-reduce, whatever its
   algorithm. */
#ifndef MICROBENCH_BENCH_SPARSE_CHECK_H
#define MICROBENCH_BENCH_SPARSE_CHECK_H

#include <baton/sparse.h>

/* What a sum may be off by, relative to the sum of the magnitudes of all that
   was added: about 170 roundings of f32. */
#define BENCH_SPARSE_TOLERANCE 1e-5

/* The sums of some elements over all steps, of which one rank keeps account, so
   that all ranks together have one vector of each. */
typedef struct bench_slice {
    size_t first, count;
    double *gradients;  /* [count], of all ranks */
    double *magnitudes; /* [count], of these gradients */
} bench_slice_t;

/* Which of n elements this rank's slice has. Sets no memory. */
bench_slice_t bench_slice_of(size_t n, int ranks, int rank);

/* Adds the gradients of all ranks in a step, as common/gradient.h has them. */
void bench_slice_add_gradients(bench_slice_t *slice, uint64_t seed,
                               uint64_t step, int ranks);

/* Adds the part of a result of f32 that is in the slice to sums[count]. */
void bench_slice_add_result(const bench_slice_t *slice,
                            const baton_sparse_result_t *result, double *sums);

/* Returns the first place of the slice where sums[count] is not the sum of all
   gradients, or `count`. */
size_t bench_slice_find_loss(const bench_slice_t *slice, const double *sums);

/* The element that an entry of a result is about. */
size_t bench_sparse_element(const baton_sparse_result_t *result, size_t entry);

/* Says what is wrong with a result of f32 for n elements, and *entry_out where:
   indices that are not ascending or not below n, values that are not finite; or
   a dense result that does not have n entries, which is wrong behind its last
   one. Returns NULL if nothing is. */
const char *bench_sparse_check(const baton_sparse_result_t *result, size_t n,
                               size_t *entry_out);

/* A hash of the count, the indices and the bits of the values. */
uint64_t bench_sparse_hash(const baton_sparse_result_t *result);

#endif
