/* Small natural numbers in any element type; see count.h. */
#include "coll/kit/count.h"

#include "base/half.h"

#include <baton/select.h>

uint64_t baton__largest_count(baton_dtype_t dtype)
{
    const baton_dtype_t part = baton__part_of(dtype);
    const unsigned digits = baton__digits_of(part);
    if (digits > 30) {
        return INT32_MAX;
    }
    return (1u << digits) - (baton_select_supports(part) ? 0 : 1);
}

uint32_t baton__count_of(baton_dtype_t dtype, const char *at, double factor)
{
    /* A complex number has the count in its real part. */
    const baton_dtype_t real = baton__part_of(dtype);
    /* If no rank has contributed, a float is -0. The sum of magnitudes turns it
       into 0. */
    return baton_select_supports(real)
               ? (uint32_t)(baton_elements_measure(real, at, 1).sum * factor +
                            0.5)
               : (uint32_t)baton__bits_at(at, baton_dtype_size(dtype));
}
