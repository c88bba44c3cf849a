/* Selection, inside. */
#ifndef BATON_OPS_SELECT_H
#define BATON_OPS_SELECT_H

#include "ops/select_kernels.h"

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

/* Whether a pointer is given where it is needed; if not, this thread's error
   names the function and the argument. */
bool baton__is_given(const void *pointer, bool needed, const char *function,
                     const char *what);

/* The same for an element type that has to support selection. */
bool baton__is_selectable(baton_dtype_t dtype, const char *function);

/* The same for the elements to select from. */
bool baton__selection_given(const baton_selection_t *from,
                            const char *function);

/* And for a selection of the k largest. */
bool baton__topk_given(const baton_selection_t *from, size_t k,
                       const uint32_t *indices, const void *scratch,
                       const char *function);

#endif
