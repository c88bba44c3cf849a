/* Selection, inside. */
#ifndef BATON_OPS_SELECT_H
#define BATON_OPS_SELECT_H

#include <baton/select.h>

/* ---- kernels: a table for each instruction set ------------------------- */

/* A selection's elements are read as integers: (bits ^ flip) & mask, signed, is
   the key of an element, or negative for one of the other side. */
typedef struct baton__filter {
    uint64_t flip;
    uint64_t mask;
    uint64_t nan; /* the key of all NaNs */
} baton__filter_t;

/* Writes index and key of each element whose key is at least `threshold`, which
   is above 0, until there are more than `capacity`: then it stops, and returns
   a larger number. `indices` and `keys` have room for `capacity`; keys may be
   NULL. */
typedef size_t (*baton__filter_fn)(const void *values, size_t count,
                                   const baton__filter_t *filter,
                                   uint64_t threshold, uint32_t first,
                                   uint32_t *indices, uint64_t *keys,
                                   size_t capacity);

typedef size_t (*baton__count_fn)(const void *values, size_t count,
                                  const baton__filter_t *filter,
                                  uint64_t threshold);

typedef void (*baton__measure_fn)(const void *values, size_t count,
                                  baton_magnitudes_t *out);

/* Copies to memory that is not read again soon, past the caches, and meanwhile
   fetches as many bytes at each of two addresses. Where the processor has no
   such stores it is memcpy. After the last copy stream_end orders them before
   later stores, which a release alone does not. */
typedef void (*baton__stream_fn)(void *to, const void *from, size_t bytes,
                                 const char *ahead_left,
                                 const char *ahead_right);

typedef struct baton__select_kernels {
    baton__filter_fn filter[BATON_DTYPE_COUNT];
    baton__count_fn count[BATON_DTYPE_COUNT];
    baton__measure_fn measure[BATON_DTYPE_COUNT];
    baton__stream_fn stream;
    void (*stream_end)(void);
} baton__select_kernels_t;

/* The kernels of the instruction set that the reductions use. All sets have the
   same results. */
const baton__select_kernels_t *baton__select_kernels(void);

/* ---- what the files of selection share --------------------------------- */

baton__filter_t baton__filter_of(baton_dtype_t dtype, baton_side_t side);

/* The key of one element, 0 for one of the other side. */
uint64_t baton__key_at(const baton_selection_t *from,
                       const baton__filter_t *filter, size_t i);

/* Exact top-k, k at most the count, among the elements of magnitude `least` and
   more, where these are at least k; any result is exact, this is only where it
   looks first. */
size_t baton__select_from(const baton_selection_t *from, size_t k,
                          baton_magnitude_t least, uint32_t *indices,
                          void *scratch);

/* Whether an element type supports selection, with an error if not. */
bool baton__is_selectable(baton_dtype_t dtype, const char *function);

/* The same for the elements to select from. */
bool baton__selection_given(const baton_selection_t *from,
                            const char *function);

/* And for a selection of the k largest. */
bool baton__topk_given(const baton_selection_t *from, size_t k,
                       const uint32_t *indices, const void *scratch,
                       const char *function);

#endif
