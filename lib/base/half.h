/* Element types, and elements taken as integers. f16 and bf16 are converted to
   and from f32 with integer arithmetic and selects only, so that loops over
   elements vectorise. Rounding is to nearest even. Every NaN becomes the one
   canonical NaN, so that a result does not depend on which instructions
   converted it. */
#pragma once

#include <baton/types.h>

#include <string.h>

/* Returns the type of a complex number's parts or of a pair's value, or else
   the type itself; and of such a type the digits (baton/dtypes.h). */
static inline baton_dtype_t baton__part_of(baton_dtype_t dtype)
{
#define BATON__PART(NAME, name, bytes, type, PART)                             \
    case BATON_##NAME:                                                         \
        return BATON_##PART;
    switch ((int)dtype) {
        BATON_COMPLEX_LIST(BATON__PART)
        BATON_PAIR_LIST(BATON__PART)
    default:
        return dtype;
    }
}

static inline unsigned baton__digits_of(baton_dtype_t part)
{
#define BATON__DIGITS(NAME, name, bytes, type, digits)                         \
    case BATON_##NAME:                                                         \
        return digits;
    switch ((int)part) {
        BATON_SIGNED_LIST(BATON__DIGITS)
        BATON_UNSIGNED_LIST(BATON__DIGITS)
        BATON_FLOAT_LIST(BATON__DIGITS)
    default:
        return 1;
    }
}

/* The bits of a float's infinity, and of its canonical NaN. */
#define BATON__INFINITY(bytes, digits)                                         \
    (((UINT64_C(1) << (8 * (bytes) - (digits))) - 1) << ((digits)-1))
#define BATON__NAN(bytes, digits)                                              \
    (BATON__INFINITY(bytes, digits) | UINT64_C(1) << ((digits)-2))

/* The address of the lowest `size` bytes of a word. */
#define BATON__LOW_BYTES(word, size)                                           \
    ((char *)&(word) +                                                         \
     (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : sizeof(word) - (size)))

/* Returns the bits of an element of at most 8 bytes. */
static inline uint64_t baton__bits_at(const void *at, size_t size)
{
    uint64_t bits = 0;
    memcpy(BATON__LOW_BYTES(bits, size), at, size);
    return bits;
}

/* Writes an element of at most 8 bytes that has these bits. */
static inline void baton__put_bits(void *at, uint64_t bits, size_t size)
{
    memcpy(at, BATON__LOW_BYTES(bits, size), size);
}

static inline float baton__f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t baton__bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float baton__f32_of_f16(uint16_t half)
{
    const uint32_t rebias = (127u - 15u) << 23;
    const uint32_t top_exponent = 0x7c00u << 13;
    /* The smallest normal f16, as the bits of an f32. A subnormal is normalised
       exactly by giving it this exponent and a leading one, and subtracting the
       leading one again. */
    const uint32_t smallest = 113u << 23;
    uint32_t bits = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t exponent = bits & top_exponent;
    uint32_t normal = bits + rebias;
    uint32_t special = normal + rebias;
    uint32_t subnormal = baton__bits_of_f32(
        baton__f32_of_bits(bits + smallest) - baton__f32_of_bits(smallest));
    uint32_t result = exponent == top_exponent ? special : normal;
    result = exponent == 0 ? subnormal : result;
    return baton__f32_of_bits(result | (uint32_t)(half & 0x8000u) << 16);
}

static inline uint16_t baton__f16_of_f32(float value)
{
    const uint32_t infinity = 255u << 23;
    const uint32_t too_large = (127u + 16u) << 23; /* 65536 */
    const uint32_t smallest = 113u << 23;          /* 2^-14 */
    /* Adding this number to a value below 2^-14 rounds that value: the lowest
       bits of the sum are then the f16 subnormal. */
    const uint32_t shifter = (127u - 15u + 23u - 10u + 1u) << 23;
    uint32_t bits = baton__bits_of_f32(value);
    uint32_t sign = bits & 0x80000000u;
    uint32_t size = bits ^ sign;
    uint32_t normal =
        (size - ((127u - 15u) << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
    uint32_t subnormal = baton__bits_of_f32(baton__f32_of_bits(size) +
                                            baton__f32_of_bits(shifter)) -
                         shifter;
    uint32_t result = size < smallest ? subnormal : normal;
    result = size >= too_large ? 0x7c00u : result;
    result |= sign >> 16;
    return (uint16_t)(size > infinity ? (uint32_t)BATON__NAN(2, 11) : result);
}

static inline float baton__f32_of_bf16(uint16_t half)
{
    return baton__f32_of_bits((uint32_t)half << 16);
}

static inline uint16_t baton__bf16_of_f32(float value)
{
    uint32_t bits = baton__bits_of_f32(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (uint16_t)(is_nan ? (uint32_t)BATON__NAN(2, 8) : rounded);
}

/* What elements are computed in: f16 and bf16 in f32. */
typedef float baton__wide_f16, baton__wide_bf16, baton__wide_f32;
typedef double baton__wide_f64;
#define baton__read_f16         baton__f32_of_f16
#define baton__write_f16        baton__f16_of_f32
#define baton__read_bf16        baton__f32_of_bf16
#define baton__write_bf16       baton__bf16_of_f32
#define baton__read_f32(value)  (value)
#define baton__write_f32(value) (value)
#define baton__read_f64(value)  (value)
#define baton__write_f64(value) (value)
