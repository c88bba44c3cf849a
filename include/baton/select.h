/* Selection of the largest elements of a vector, and sparse lists of entries,
   for builders of your own. The sparse collectives (sparse.h) consist of these
   calls.

   Elements are f32, f64, f16 or bf16. All selections are exact and have the
   same result on every machine. Selections compare magnitudes; of elements with
   equal magnitudes, those with lower indices are selected first. Zeros are
   never selected; NaNs have the largest magnitude. Indices have 32 bits and are
   returned in ascending order.

   Any thread may call these functions, which depend on their arguments alone.
   They allocate nothing: callers provide scratch memory. No pointer may be
   NULL, except to zero elements. With a NULL pointer or another element type, a
   function does nothing and returns 0, and baton_error_message names the
   argument. */
#ifndef BATON_SELECT_H
#define BATON_SELECT_H

#include <baton/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* True if selection supports elements of this type. */
bool baton_select_supports(baton_dtype_t dtype);

/* ---- dense to indices -------------------------------------------------- */

typedef enum baton_side {
    BATON_SIDE_BOTH,     /* all elements, by magnitude */
    BATON_SIDE_POSITIVE, /* the largest of the positive elements */
    BATON_SIDE_NEGATIVE  /* the smallest of the negative elements */
} baton_side_t;

/* The elements to select from: `count` of them, with indices from `first` on;
   first + count is at most UINT32_MAX. */
typedef struct baton_selection {
    baton_dtype_t dtype;
    baton_side_t side;
    const void *values;
    size_t count;
    uint32_t first;
} baton_selection_t;

/* A magnitude as an integer key. Keys have the order of the magnitudes: the key
   of a zero is 0, and all NaNs have the same, largest key. Thresholds are keys,
   so comparing with them is exact. */
typedef uint64_t baton_magnitude_t;

/* baton_magnitude_of rounds |value| once, to nearest even, to the type, and
   returns the key of the result. baton_magnitude_value returns the magnitude of
   a key. */
baton_magnitude_t baton_magnitude_of(baton_dtype_t dtype, double value);
double baton_magnitude_value(baton_dtype_t dtype, baton_magnitude_t key);

/* Returns the bytes of scratch memory that a selection of up to k of up to
   `count` elements needs. The number grows with both arguments: it is 12 bytes
   for each of k + O(sqrt(k count / s) + count / s) candidates, where s, the
   size of a sample, is at most 16384. */
size_t baton_select_scratch_bytes(size_t count, size_t k);

/* Writes the indices of the k largest elements, or of all that are not zero if
   these are fewer, and returns their number. `indices` has room for k.
   `scratch` is aligned to 8 bytes. Stores the key of the smallest selected
   element in *threshold_out, or 0 if there is none; threshold_out may be NULL.
   First estimates a threshold from a sample. If at least k elements reach it,
   and not too many to be kept as candidates, reads the elements only once. This
   is nearly always so. */
size_t baton_select_topk(const baton_selection_t *from, size_t k,
                         uint32_t *indices, void *scratch,
                         baton_magnitude_t *threshold_out);

/* Writes the indices of the nonzero elements whose magnitude is at least
   `threshold`, but only the `capacity` lowest. Returns the number of such
   elements, which may exceed `capacity`. No element reaches a threshold above
   the key of NaNs. */
size_t baton_select_at_least(const baton_selection_t *from,
                             baton_magnitude_t threshold, uint32_t *indices,
                             size_t capacity);

/* Computes a vector and selects from it in one pass over memory:

       g = right, or factor * right with `scale`
       new_velocity = momentum * velocity + g    where there is a velocity; and
       g = new_velocity                          with nesterov instead
       new_velocity = momentum * (velocity + g), g = new_velocity + g
       sum = left + g                            zeros for a left that is NULL

   With `short_velocity`, f32 only, both velocities are bf16. The new velocity's
   rounding error r would have added r (m + m^2 + ...) = r m / (1 - m) to later
   steps, for a momentum m. This amount is added to g at once, in f32.

   Sums round like BATON_SUM, products like baton_elements_scale. If `right` is
   NULL, `sum` is already computed. `sum` may be `left` or `right`, and
   new_velocity may be velocity; otherwise nothing overlaps. Other fields are as
   in baton_selection_t. With `stream` the results bypass the caches: set this
   for parts of a long vector. Results of 8 MiB and more always bypass them. */
typedef struct baton_accumulation {
    baton_dtype_t dtype;
    baton_side_t side;
    void *sum;
    const void *left, *right;
    size_t count;
    uint32_t first;
    bool stream, scale, nesterov, short_velocity;
    double factor, momentum;
    const void *velocity;
    void *new_velocity;
    /* NULL, or a threshold that a selection of the k largest tries first, so
       that it needs no sample, and then updates for the next, similar vector.
       0: there is no threshold yet. Results do not depend on the threshold. */
    baton_magnitude_t *guess;
} baton_accumulation_t;

/* Both functions compute the whole sum. baton_accumulate_topk then selects from
   it as baton_select_topk does, baton_accumulate_at_least as
   baton_select_at_least does. */
size_t baton_accumulate_topk(const baton_accumulation_t *of, size_t k,
                             uint32_t *indices, void *scratch,
                             baton_magnitude_t *threshold_out);
size_t baton_accumulate_at_least(const baton_accumulation_t *of,
                                 baton_magnitude_t threshold, uint32_t *indices,
                                 size_t capacity);

/* The largest elements of a vector as entries (see below), probably more than
   k. After lists have been added to the vector, its k largest elements are
   found among these entries and the lists, without reading the vector again. */
typedef struct baton_candidates {
    void *entries; /* the caller's memory for `capacity` entries */
    size_t capacity, count;
    baton_magnitude_t low;  /* all elements from this key up are present; 0: the
                               candidates exceed `capacity` */
    baton_magnitude_t high; /* the k-th largest is probably below this key; 0:
                               unknown */
} baton_candidates_t;

/* Returns a capacity that the candidates hardly ever exceed. */
size_t baton_candidates_room(size_t count, size_t k);

/* Computes the whole sum, and finds the candidates for its k largest elements,
   of both signs. `scratch` is as for a selection of k. */
void baton_candidates_find(const baton_accumulation_t *of, size_t k,
                           baton_candidates_t *candidates, void *scratch);

/* Returns the number of elements that baton_select_at_least would find. */
size_t baton_select_count(const baton_selection_t *from,
                          baton_magnitude_t threshold);

/* RedSync's trimmed top-k: first drops elements below a threshold between mean
   and maximum, which is lowered until at least k are left. The result is the
   same as that of baton_select_topk. (Fang et al. 2019, "Accelerating
   Distributed Deep Learning Training with Gradient Compression", algorithm
   2.) */
size_t baton_select_trimmed(const baton_selection_t *from, size_t k,
                            uint32_t *indices, void *scratch);

/* RedSync's binary search for a threshold, for k of at least 1. Returns a
   threshold that selects k to 2k elements if the search finds one, else the key
   of the k-th largest element, or 0 if fewer than k elements are not zero. The
   threshold may be used again on later vectors (sampled threshold search).
   (Algorithm 3 of the same paper.) */
baton_magnitude_t baton_select_search(const baton_selection_t *from, size_t k,
                                      uint32_t *indices, void *scratch);

/* ---- lists of entries -------------------------------------------------- */

/* Sparse messages are lists of entries: {index, value} pairs without padding, 4
   bytes and the element's size, at any alignment. Lists ascend by index,
   without duplicates. This function returns the bytes of an entry. */
size_t baton_entry_bytes(baton_dtype_t dtype);

uint32_t baton_entry_index(baton_dtype_t dtype, const void *entries, size_t i);

/* entries[i] = {indices[i], dense[indices[i]]}; baton_entries_take also sets
   the dense element to 0. */
void baton_entries_gather(baton_dtype_t dtype, void *entries,
                          const uint32_t *indices, size_t count,
                          const void *dense);
void baton_entries_take(baton_dtype_t dtype, void *entries,
                        const uint32_t *indices, size_t count, void *dense);

/* Sets dense[index] = value for each entry. */
void baton_entries_put(baton_dtype_t dtype, const void *entries, size_t count,
                       void *dense);

/* Sets dense[index] += factor * value for each entry. If the factor is 1, only
   the addition rounds. Afterwards each entry's value is the old dense[index],
   so that baton_entries_put with these entries undoes the addition. */
void baton_entries_add(baton_dtype_t dtype, void *entries, size_t count,
                       double factor, void *dense);

/* Writes the entries' indices and values into two arrays; either may be
   NULL. */
void baton_entries_split(baton_dtype_t dtype, const void *entries, size_t count,
                         uint32_t *indices, void *values);

/* A list of entries, for reading only. */
typedef struct baton_entries {
    const void *data;
    size_t count;
} baton_entries_t;

/* Writes the sum of `lists`, with the union of their indices, to `out`, and
   returns its length. Values of one index are added in the order of the lists.
   `out` overlaps no list, and has room for the union; `lists` is
   overwritten. */
size_t baton_entries_sum(baton_dtype_t dtype, baton_entries_t *lists,
                         size_t list_count, void *out);

/* As baton_entries_sum, but if the first list has no entry for an index of the
   result, the element of `dense` with that index is added instead. */
size_t baton_entries_sum_onto(baton_dtype_t dtype, const void *dense,
                              baton_entries_t *lists, size_t list_count,
                              void *out);

/* Copies the entries whose index is among `indices`, which are ascending; with
   `clear` the copies' values are 0. Returns the number of copies. `out` has
   room for one more entry than that. */
size_t baton_entries_common(baton_dtype_t dtype, const void *entries,
                            size_t count, const uint32_t *indices,
                            size_t index_count, bool clear, void *out);

/* Copies the k largest entries of a list to `out`. The list has all elements
   whose key is at least candidates->low. Returns the number of entries copied.
   Returns SIZE_MAX if candidates->low is 0, or if fewer than k entries reach it
   and the elements below it are unknown. `scratch` has
   baton_entries_largest_scratch_bytes(count, k) bytes, aligned to 8. */
size_t baton_entries_largest(baton_dtype_t dtype, const void *entries,
                             size_t count, size_t k,
                             const baton_candidates_t *candidates, void *out,
                             void *scratch);
size_t baton_entries_largest_scratch_bytes(size_t count, size_t k);

/* Splits a list by magnitude: keeps its k largest entries (in place), and
   writes the others to `dropped` (if not NULL, with room for `count` entries).
   Returns the number of entries kept, and stores the number of those dropped in
   *dropped_out. `scratch` has baton_entries_scratch_bytes(count, k) bytes. */
size_t baton_entries_topk(baton_dtype_t dtype, void *entries, size_t count,
                          size_t k, void *dropped, size_t *dropped_out,
                          void *scratch);
size_t baton_entries_scratch_bytes(size_t count, size_t k);

/* ---- dense vectors ----------------------------------------------------- */

/* values[i] *= factor; f16 and bf16 round to f32 and then to the type. */
void baton_elements_scale(baton_dtype_t dtype, void *values, size_t count,
                          double factor);

/* Statistics of the magnitudes of a vector's elements x. Sums are computed in
   doubles, in an order that is the same on all machines. */
typedef struct baton_magnitudes {
    double sum;                /* the sum of all |x| */
    double square_sum;         /* the sum of all x^2 */
    baton_magnitude_t largest; /* the key of the largest magnitude */
} baton_magnitudes_t;
baton_magnitudes_t baton_elements_measure(baton_dtype_t dtype,
                                          const void *values, size_t count);

#ifdef __cplusplus
}
#endif
#endif
