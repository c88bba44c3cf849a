/* Small natural numbers in any element type; see count.h. */
#include "coll/kit/count.h"

#include <baton/select.h>
#include <string.h>

uint64_t baton__largest_count(baton_dtype_t dtype)
{
    static const uint32_t less[BATON_DTYPE_COUNT] = {
        [BATON_I8] = INT8_MAX,   [BATON_U8] = UINT8_MAX,
        [BATON_I16] = INT16_MAX, [BATON_U16] = UINT16_MAX,
        [BATON_F16] = 1u << 11,  [BATON_BF16] = 1u << 8,
        [BATON_F32] = 1u << 24,  [BATON_C64] = 1u << 24};
    return less[dtype] > 0 ? less[dtype] : INT32_MAX;
}

#define COUNT_OF(type, at)                                                     \
    do {                                                                       \
        type value;                                                            \
        memcpy(&value, (at), sizeof value);                                    \
        return (uint32_t)value;                                                \
    } while (0)

uint32_t baton__count_of(baton_dtype_t dtype, const char *at, double factor)
{
    switch (dtype) {
    case BATON_I8:
    case BATON_U8:
        COUNT_OF(uint8_t, at);
    case BATON_I16:
    case BATON_U16:
        COUNT_OF(uint16_t, at);
    case BATON_I32:
    case BATON_U32:
        COUNT_OF(uint32_t, at);
    case BATON_I64:
    case BATON_U64:
        COUNT_OF(uint64_t, at);
    case BATON_F32:
    case BATON_F64:
    case BATON_F16:
    case BATON_BF16:
        /* If no rank has contributed, the element is -0. The sum of magnitudes
           turns it into 0. */
        return (uint32_t)(baton_elements_measure(dtype, at, 1).sum * factor +
                          0.5);
    case BATON_C64: /* reads the real part */
        return baton__count_of(BATON_F32, at, factor);
    case BATON_C128:
        return baton__count_of(BATON_F64, at, factor);
    /* This type and the types below have no sum, so they hold no count. */
    case BATON_BOOL:
    case BATON_I16_I32:
    case BATON_I32_I32:
    case BATON_I64_I32:
    case BATON_F32_I32:
    case BATON_F64_I32:
    case BATON_DTYPE_NONE:
    case BATON_DTYPE_COUNT:
        break;
    }
    return 0;
}
