/* Selection: the largest elements of a vector, and sparse lists of entries.
   What the sparse collectives (sparse.h) are made of, for builders of your own.

   Elements are f32, f64, f16 or bf16. All selections are exact and have the
   same result on every machine: by magnitude, of equal magnitudes the lower
   index first; a zero is never selected; a NaN has the largest magnitude of
   all. Indices have 32 bits and come out ascending.

   Threads: pure functions of their arguments; any thread. They allocate
   nothing: callers bring scratch memory. A pointer that is needed must not be
   NULL; one to no elements may be. With a pointer that is, or with another type
   of elements, nothing is done, the result is 0, and baton_error_message names
   it. */
#ifndef BATON_SELECT_H
#define BATON_SELECT_H

#include <baton/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether this is an element type that can be selected from. */
bool baton_select_supports(baton_dtype_t dtype);

/* ---- dense to indices -------------------------------------------------- */

typedef enum baton_side {
    BATON_SIDE_BOTH,     /* by magnitude */
    BATON_SIDE_POSITIVE, /* the largest of the positive elements */
    BATON_SIDE_NEGATIVE  /* the smallest of the negative elements */
} baton_side_t;

/* What is selected from: `count` elements, the first of which has index
   `first`; first + count is at most UINT32_MAX. */
typedef struct baton_selection {
    baton_dtype_t dtype;
    baton_side_t side;
    const void *values;
    size_t count;
    uint32_t first;
} baton_selection_t;

/* A magnitude as an integer, in the order of magnitudes: 0 for a zero, and the
   largest, the same for all, for NaNs. Thresholds are such keys, so comparing
   with them is exact. */
typedef uint64_t baton_magnitude_t;

/* The key of |value|, rounded once, to the type, to nearest even; and the
   magnitude of a key. */
baton_magnitude_t baton_magnitude_of(baton_dtype_t dtype, double value);
double baton_magnitude_value(baton_dtype_t dtype, baton_magnitude_t key);

/* Bytes of scratch memory that a selection of up to k of up to `count` elements
   needs; it grows with both arguments. Of that of `count`, k + O(sqrt(k count /
   s) + count / s) candidates of 12 bytes, where s, the size of a sample, is at
   most 16384. */
size_t baton_select_scratch_bytes(size_t count, size_t k);

/* Writes the indices of the k largest elements, fewer where fewer are not zero,
   and returns their number. `indices` has room for k. `scratch` is aligned to 8
   bytes. *threshold_out (if not NULL): the magnitude of the smallest that was
   selected, 0 where none was. One pass over the elements where a sample's
   threshold holds, as it nearly always does. */
size_t baton_select_topk(const baton_selection_t *from, size_t k,
                         uint32_t *indices, void *scratch,
                         baton_magnitude_t *threshold_out);

/* Writes the indices of the elements whose magnitude is at least `threshold`
   (and not zero), at most `capacity`, those of the lowest indices. Returns how
   many there are, which may be more than `capacity` says. None reaches a
   threshold above the key of NaNs. */
size_t baton_select_at_least(const baton_selection_t *from,
                             baton_magnitude_t threshold, uint32_t *indices,
                             size_t capacity);

/* A vector that is selected from while it is computed, in one pass over memory:

       g = right, or factor * right with `scale`
       new_velocity = momentum * velocity + g    where there is a velocity; and
       g = new_velocity                          with nesterov instead
       new_velocity = momentum * (velocity + g), g = new_velocity + g
       sum = left + g                            zeros for a left that is NULL

   With `short_velocity`, f32 only, both velocities are bf16. What rounding
   takes off the new one, and its later steps would have added, is added to g at
   once: m + m^2 + ... = m / (1 - m) times as much, for a momentum m. This is
   computed in f32.

   Sums are those of BATON_SUM, products those of baton_elements_scale. Where
   `right` is NULL, `sum` is there already. `sum` may be `left` or `right`, and
   new_velocity velocity; else they do not overlap. The rest is as in
   baton_selection_t. With `stream` the results are written past the caches, as
   those of a part of a long vector should be; a vector of 8 MiB and more always
   is. */
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
    /* NULL, or a magnitude from which on a selection of the k largest looks
       first; 0: unknown. Becomes the one for the next vector much like this,
       which then takes no sample. Results do not depend on it. */
    baton_magnitude_t *guess;
} baton_accumulation_t;

/* The whole sum is computed, and the selection is that of baton_select_topk, or
   of baton_select_at_least, on it. */
size_t baton_accumulate_topk(const baton_accumulation_t *of, size_t k,
                             uint32_t *indices, void *scratch,
                             baton_magnitude_t *threshold_out);
size_t baton_accumulate_at_least(const baton_accumulation_t *of,
                                 baton_magnitude_t threshold, uint32_t *indices,
                                 size_t capacity);

/* The elements of a vector from some magnitude on, as entries (see below):
   likely more than the k largest. From them, and from what is added to the
   vector later as lists, the k largest are found without reading it again. */
typedef struct baton_candidates {
    void *entries; /* room for `capacity`; the caller's */
    size_t capacity, count;
    baton_magnitude_t low;  /* all from this key on are there; 0: they are more
                               than `capacity` */
    baton_magnitude_t high; /* the k-th is likely below; 0: unknown */
} baton_candidates_t;

/* As many candidates as there nearly always are at most. */
size_t baton_candidates_room(size_t count, size_t k);

/* Computes the whole sum, and finds the candidates for its k largest elements,
   of both signs. `scratch` is that of a selection of k. */
void baton_candidates_find(const baton_accumulation_t *of, size_t k,
                           baton_candidates_t *candidates, void *scratch);

/* How many elements baton_select_at_least would select. */
size_t baton_select_count(const baton_selection_t *from,
                          baton_magnitude_t threshold);

/* RedSync's trimmed top-k: elements below a threshold between mean and maximum,
   lowered until at least k are left, are trimmed first. The result is that of
   baton_select_topk. (Fang et al. 2019, "Accelerating Distributed Deep
   Learning Training with Gradient Compression", algorithm 2.) */
size_t baton_select_trimmed(const baton_selection_t *from, size_t k,
                            uint32_t *indices, void *scratch);

/* RedSync's binary search for a threshold, k at least 1: that of a selection of
   k to 2k elements where the search finds one, else of the exact k-th. 0 where
   the vector has no k elements that are not zero. The threshold may be used
   again on later vectors (sampled threshold search). (Their
   algorithm 3.) */
baton_magnitude_t baton_select_search(const baton_selection_t *from, size_t k,
                                      uint32_t *indices, void *scratch);

/* ---- lists of entries -------------------------------------------------- */

/* A list of entries is what sparse messages consist of: {index, value} one
   after the other without padding, 4 bytes and the element's. Their address
   need not be aligned. Lists are ascending by index, without doubles. */
size_t baton_entry_bytes(baton_dtype_t dtype);

uint32_t baton_entry_index(baton_dtype_t dtype, const void *entries, size_t i);

/* entries[i] = {indices[i], dense[indices[i]]}; with clear the dense element
   becomes 0. */
void baton_entries_gather(baton_dtype_t dtype, void *entries,
                          const uint32_t *indices, size_t count,
                          const void *dense);
void baton_entries_take(baton_dtype_t dtype, void *entries,
                        const uint32_t *indices, size_t count, void *dense);

/* dense[index] = value. */
void baton_entries_put(baton_dtype_t dtype, const void *entries, size_t count,
                       void *dense);

/* dense[index] += factor * value, for a factor of 1 without a rounding of its
   own. The entries then have what dense had before, so that
   baton_entries_put undoes the addition. */
void baton_entries_add(baton_dtype_t dtype, void *entries, size_t count,
                       double factor, void *dense);

/* Separates indices and values; either may be NULL. */
void baton_entries_split(baton_dtype_t dtype, const void *entries, size_t count,
                         uint32_t *indices, void *values);

/* A list to read. */
typedef struct baton_entries {
    const void *data;
    size_t count;
} baton_entries_t;

/* out = the sum of `lists`, whose union it has; returns its length. Values of
   one index are added in the order of the lists. `out` overlaps none of them,
   and has room for the union; `lists` is used up. */
size_t baton_entries_sum(baton_dtype_t dtype, baton_entries_t *lists,
                         size_t list_count, void *out);

/* The same; but where the first list has no entry of an index, the sum of the
   others begins with the element of `dense`. */
size_t baton_entries_sum_onto(baton_dtype_t dtype, const void *dense,
                              baton_entries_t *lists, size_t list_count,
                              void *out);

/* Copies the entries whose index is among `indices`, which are ascending, too;
   with `clear` their values are 0. Returns how many. `out` has room for one
   more than there are. */
size_t baton_entries_common(baton_dtype_t dtype, const void *entries,
                            size_t count, const uint32_t *indices,
                            size_t index_count, bool clear, void *out);

/* Copies the k largest entries of a list to `out`, where all elements from
   candidates->low on are in the list. SIZE_MAX: fewer than k reach `low`, and
   elements below it are not known. `scratch` has
   baton_entries_largest_scratch_bytes(count, k), aligned to 8 bytes. */
size_t baton_entries_largest(baton_dtype_t dtype, const void *entries,
                             size_t count, size_t k,
                             const baton_candidates_t *candidates, void *out,
                             void *scratch);
size_t baton_entries_largest_scratch_bytes(size_t count, size_t k);

/* Splits a list by magnitude: keeps its k largest entries (in place), and
   writes the others to `dropped` (if not NULL, room for count). Returns how
   many were kept, and *dropped_out. `scratch` has
   baton_entries_scratch_bytes(count, k). */
size_t baton_entries_topk(baton_dtype_t dtype, void *entries, size_t count,
                          size_t k, void *dropped, size_t *dropped_out,
                          void *scratch);
size_t baton_entries_scratch_bytes(size_t count, size_t k);

/* ---- dense vectors ----------------------------------------------------- */

/* values[i] *= factor; f16 and bf16 round to f32 and then to the type. */
void baton_elements_scale(baton_dtype_t dtype, void *values, size_t count,
                          double factor);

/* What there is to know about magnitudes. Sums are of doubles, in an order that
   is the same on all machines. */
typedef struct baton_magnitudes {
    double sum;                /* of |x| */
    double square_sum;         /* of x^2 */
    baton_magnitude_t largest; /* key */
} baton_magnitudes_t;
baton_magnitudes_t baton_elements_measure(baton_dtype_t dtype,
                                          const void *values, size_t count);

#ifdef __cplusplus
}
#endif
#endif
