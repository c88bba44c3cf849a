/* Small natural numbers in any element type; see count.h. */
#include "coll/kit/count.h"

#include <string.h>

uint64_t baton__largest_count(baton_dtype_t dtype)
{
    switch (dtype) {
    case BATON_I8:
        return INT8_MAX;
    case BATON_U8:
        return UINT8_MAX;
    case BATON_I16:
        return INT16_MAX;
    case BATON_U16:
        return UINT16_MAX;
    case BATON_F16:
        return 1u << 11;
    case BATON_BF16:
        return 1u << 8;
    case BATON_F32:
        return 1u << 24;
    case BATON_I32:
    case BATON_I64:
    case BATON_U32:
    case BATON_U64:
    case BATON_F64:
    case BATON_DTYPE_COUNT:
        break;
    }
    return INT32_MAX;
}

/* The sum of no ranks is -0. */
static bool is_zero_f16(uint16_t bits)
{
    return (bits & 0x7fffu) == 0;
}

/* A small natural number as an IEEE binary16: 11 bits of precision, the lowest
   worth 2^(exponent - 25). */
static uint32_t count_of_f16(uint16_t bits)
{
    uint32_t exponent = bits >> 10;
    uint32_t mantissa = (bits & 0x3ffu) | 0x400u;
    return exponent >= 25 ? mantissa << (exponent - 25)
                          : mantissa >> (25 - exponent);
}

#define COUNT_OF(type, at)                                                     \
    do {                                                                       \
        type value;                                                            \
        memcpy(&value, (at), sizeof value);                                    \
        return (uint32_t)value;                                                \
    } while (0)

uint32_t baton__count_of(baton_dtype_t dtype, const char *at)
{
    uint16_t half;
    uint32_t word;
    float single;
    switch (dtype) {
    case BATON_I8:
        COUNT_OF(int8_t, at);
    case BATON_U8:
        COUNT_OF(uint8_t, at);
    case BATON_I16:
        COUNT_OF(int16_t, at);
    case BATON_U16:
        COUNT_OF(uint16_t, at);
    case BATON_I32:
    case BATON_U32:
        COUNT_OF(uint32_t, at);
    case BATON_I64:
    case BATON_U64:
        COUNT_OF(uint64_t, at);
    case BATON_F32:
        COUNT_OF(float, at);
    case BATON_F64:
        COUNT_OF(double, at);
    case BATON_F16:
        memcpy(&half, at, sizeof half);
        return is_zero_f16(half) ? 0 : count_of_f16(half);
    case BATON_BF16:
        memcpy(&half, at, sizeof half);
        word = (uint32_t)half << 16;
        memcpy(&single, &word, sizeof single);
        return (uint32_t)single;
    case BATON_DTYPE_COUNT:
        break;
    }
    return 0;
}
