/* Small natural numbers in any element type; see count.h. */
#include "coll/kit/count.h"

#include "base/half.h"

#include <baton/select.h>

uint64_t baton__largest_count(baton_dtype_t dtype)
{
    static const uint32_t less[BATON_DTYPE_COUNT] = {
        [BATON_I8] = INT8_MAX,   [BATON_U8] = UINT8_MAX,
        [BATON_I16] = INT16_MAX, [BATON_U16] = UINT16_MAX,
        [BATON_F16] = 1u << 11,  [BATON_BF16] = 1u << 8,
        [BATON_F32] = 1u << 24,  [BATON_C64] = 1u << 24};
    return less[dtype] > 0 ? less[dtype] : INT32_MAX;
}

uint32_t baton__count_of(baton_dtype_t dtype, const char *at, double factor)
{
    /* A complex number has the count in its real part. */
    const baton_dtype_t real = dtype == BATON_C64    ? BATON_F32
                               : dtype == BATON_C128 ? BATON_F64
                                                     : dtype;
    /* If no rank has contributed, a float is -0. The sum of magnitudes turns it
       into 0. */
    return baton_select_supports(real)
               ? (uint32_t)(baton_elements_measure(real, at, 1).sum * factor +
                            0.5)
               : (uint32_t)baton__bits_at(at, baton_dtype_size(dtype));
}
