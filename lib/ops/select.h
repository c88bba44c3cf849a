/* The selection of a vector's largest elements: its kernels, and functions that
   several files use. */
#pragma once

#include <baton/select.h>

/* ---- kernels: a table for each instruction set ------------------------- */

/* A selection reads elements as integers. An element's key is (bits ^ flip) &
   mask, as a signed number. The key is negative if the selection is of one side
   (positive or negative elements) and the element is on the other side. */
typedef struct baton__filter {
    uint64_t flip;
    uint64_t mask;
    uint64_t nan; /* the key of all NaNs */
} baton__filter_t;

/* Computes `count` elements of the vector of->sum, from element `at` on, unless
   of->right is NULL.
   If `threshold` is not 0, also writes the index and the bits of each of these
   elements that reaches the threshold, and returns the number of elements that
   reach it. `indices` and `values` must have space for count +
   BATON__PASS_MORE.

   If of->stream is set, the elements are stored past the caches. Then the
   caller must call stream_end after the last pass, which orders these stores
   before later ones: a release alone does not. */
enum { BATON__PASS_MORE = 16 };
typedef size_t (*baton__pass_fn)(const baton_accumulation_t *of, size_t at,
                                 size_t count, const baton__filter_t *filter,
                                 uint64_t threshold, uint32_t *indices,
                                 void *values);

typedef void (*baton__scale_fn)(void *values, size_t count, double factor);

typedef size_t (*baton__count_fn)(const void *values, size_t count,
                                  const baton__filter_t *filter,
                                  uint64_t threshold);

typedef void (*baton__measure_fn)(const void *values, size_t count,
                                  baton_magnitudes_t *out);

typedef struct baton__select_kernels {
    struct {
        baton__pass_fn pass;
        baton__scale_fn scale;
        baton__count_fn count;
        baton__measure_fn measure;
    } of[BATON_DTYPE_COUNT];
    void (*stream_end)(void);
} baton__select_kernels_t;

/* The selection kernels of the instruction set in use. All sets have the same
   results. */
const baton__select_kernels_t *baton__select_kernels(void);

/* ---- shared by the files of selection ---------------------------------- */

baton__filter_t baton__filter_of(baton_dtype_t dtype, baton_side_t side);

/* Returns the key of one element. Returns 0 if a selection of one side leaves
   the element out because of its sign. */
uint64_t baton__key_at(const baton_selection_t *from,
                       const baton__filter_t *filter, size_t i);

/* Selects exactly the k largest elements; k is at most from->count. Looks first
   among the elements with a magnitude of at least `least`. `least` is a guess,
   and affects only the time, not the result. */
size_t baton__select_from(const baton_selection_t *from, size_t k,
                          baton_magnitude_t least, uint32_t *indices,
                          void *scratch);

/* Returns true if selection supports the element type. Otherwise sets this
   thread's error. */
bool baton__is_selectable(baton_dtype_t dtype, const char *function);

/* Returns true if the elements to select from were passed, and their type is
   supported. Otherwise sets this thread's error. */
bool baton__selection_is_valid(const baton_selection_t *from,
                               const char *function);

/* Returns true if the arguments of a selection of the k largest are not NULL.
   Otherwise sets this thread's error. */
bool baton__topk_is_valid(const baton_selection_t *from, size_t k,
                          const uint32_t *indices, const void *scratch,
                          const char *function);
