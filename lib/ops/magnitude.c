/* Magnitudes as integer keys, and checks of arguments. */
#include "base/error.h"
#include "base/half.h"
#include "ops/select.h"

#include <math.h>

bool baton_select_supports(baton_dtype_t dtype)
{
#define IS(NAME, ...) || dtype == BATON_##NAME
    return false BATON_FLOAT_LIST(IS);
}

/* ---- keys -------------------------------------------------------------- */

static uint64_t magnitude_infinity_key(baton_dtype_t dtype)
{
    return BATON__INFINITY(baton_dtype_size(dtype), baton__digits_of(dtype));
}

baton__filter_t baton__filter_of(baton_dtype_t dtype, baton_side_t side)
{
    uint64_t sign = UINT64_C(1) << (8 * baton_dtype_size(dtype) - 1);
    baton__filter_t filter = {
        .flip = side == BATON_SIDE_NEGATIVE ? sign : 0,
        .mask = side == BATON_SIDE_BOTH ? sign - 1 : UINT64_MAX,
        .nan = magnitude_infinity_key(dtype) + 1,
    };
    return filter;
}

uint64_t baton__key_at(const baton_selection_t *from,
                       const baton__filter_t *filter, size_t i)
{
    size_t size = baton_dtype_size(from->dtype);
    const char *at = (const char *)from->values + i * size;
    uint64_t bits = baton__bits_at(at, size);
    uint64_t sign = UINT64_C(1) << (8 * size - 1);
    uint64_t key = (bits ^ filter->flip) & filter->mask;
    if ((key & sign) != 0) {
        return 0;
    }
    return key < filter->nan ? key : filter->nan;
}

/* Rounds to a float by truncation, and sets its last bit if any cut bit was not
   0 (round to odd). A float has so many more bits than f16 and bf16 that
   rounding it to one of these types then gives the same result as rounding
   `size` directly. */
static float round_to_odd(double size)
{
    float narrow = (float)size;
    if (isnan(size) || (double)narrow == size) {
        return narrow;
    }
    uint32_t bits = baton__bits_of_f32(narrow);
    bits -= (double)narrow > size;
    return baton__f32_of_bits(bits | 1);
}

baton_magnitude_t baton_magnitude_of(baton_dtype_t dtype, double value)
{
    const double size = fabs(value);
    uint64_t bits = 0;
#define WRITE(NAME, name, bytes, type, digits)                                 \
    case BATON_##NAME: {                                                       \
        const double odd = bytes == 2 ? (double)round_to_odd(size) : size;     \
        const type element = baton__write_##name((baton__wide_##name)odd);     \
        bits = baton__bits_at(&element, sizeof element);                       \
        break;                                                                 \
    }
    switch ((int)dtype) {
        BATON_FLOAT_LIST(WRITE)
    }
    uint64_t nan = magnitude_infinity_key(dtype) + 1;
    return bits < nan ? bits : nan;
}

double baton_magnitude_value(baton_dtype_t dtype, baton_magnitude_t key)
{
#define READ(NAME, name, bytes, type, digits)                                  \
    case BATON_##NAME: {                                                       \
        type element;                                                          \
        baton__put_bits(&element, key, sizeof element);                        \
        return (double)baton__read_##name(element);                            \
    }
    switch ((int)dtype) {
        BATON_FLOAT_LIST(READ)
    default:
        return 0;
    }
}

bool baton__is_selectable(baton_dtype_t dtype, const char *function)
{
    bool right = baton_select_supports(dtype);
    if (!right) {
        (void)baton__error(BATON_ERR_INVALID,
                           "%s: dtype is %s; allowed: f32, f64, f16, bf16",
                           function, baton_dtype_name(dtype));
    }
    return right;
}

bool baton__selection_is_valid(const baton_selection_t *from,
                               const char *function)
{
    return baton__is_given(from, true, function, "from") &&
           baton__is_selectable(from->dtype, function) &&
           baton__is_given(from->values, from->count > 0, function,
                           "from->values");
}

bool baton__topk_is_valid(const baton_selection_t *from, size_t k,
                          const uint32_t *indices, const void *scratch,
                          const char *function)
{
    if (!baton__selection_is_valid(from, function)) {
        return false;
    }
    bool selects = k > 0 && from->count > 0;
    return baton__is_given(indices, selects, function, "indices") &&
           baton__is_given(scratch, selects, function, "scratch");
}
