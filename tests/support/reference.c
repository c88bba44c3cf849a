#include "support/reference.h"

#include <math.h>
#include <string.h>

/* An IEEE format: a sign bit, an exponent, and a fraction without its leading
   one. */
typedef struct format {
    int fraction_bits;
    int exponent_bits;
} format_t;

static const format_t formats[BATON_DTYPE_COUNT] = {
#define FORMAT(NAME, name, bytes, type, digits)                                \
    [BATON_##NAME] = {(digits)-1, 8 * (bytes) - (digits)},
    BATON_FLOAT_LIST(FORMAT)};

bool reference_is_float(baton_dtype_t dtype)
{
    return formats[dtype].fraction_bits > 0;
}

static uint64_t all_ones(int bits)
{
    return (UINT64_C(1) << bits) - 1;
}

bool reference_is_nan(baton_dtype_t dtype, uint64_t bits)
{
    format_t format = formats[dtype];
    uint64_t exponent =
        bits >> format.fraction_bits & all_ones(format.exponent_bits);
    return exponent == all_ones(format.exponent_bits) &&
           (bits & all_ones(format.fraction_bits)) != 0;
}

double reference_value(baton_dtype_t dtype, uint64_t bits)
{
    format_t format = formats[dtype];
    int bias = (int)all_ones(format.exponent_bits - 1);
    int exponent =
        (int)(bits >> format.fraction_bits & all_ones(format.exponent_bits));
    uint64_t fraction = bits & all_ones(format.fraction_bits);
    double value;
    if (exponent == (int)all_ones(format.exponent_bits)) {
        value = fraction != 0 ? (double)NAN : (double)INFINITY;
    } else if (exponent == 0) {
        value = ldexp((double)fraction, 1 - bias - format.fraction_bits);
    } else {
        fraction |= UINT64_C(1) << format.fraction_bits;
        value = ldexp((double)fraction, exponent - bias - format.fraction_bits);
    }
    bool negative = bits >> (format.fraction_bits + format.exponent_bits) & 1;
    return negative ? -value : value;
}

uint64_t reference_half(baton_dtype_t dtype, double value)
{
    format_t format = formats[dtype];
    int bias = (int)all_ones(format.exponent_bits - 1);
    uint64_t infinity = all_ones(format.exponent_bits) << format.fraction_bits;
    if (isnan(value)) {
        return infinity | UINT64_C(1) << (format.fraction_bits - 1);
    }
    uint64_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    if (isinf(size) || size >= ldexp(1.0, bias + 1)) {
        return sign | infinity;
    }
    int exponent = size == 0 ? 1 - bias : ilogb(size);
    exponent = exponent < 1 - bias ? 1 - bias : exponent;
    /* `units` is the magnitude as a number of units in the last place. If
       rounding makes the fraction overflow, the carry increments the
       exponent. */
    uint64_t units =
        (uint64_t)nearbyint(ldexp(size, format.fraction_bits - exponent));
    uint64_t above = (uint64_t)(exponent + bias - 1) << format.fraction_bits;
    return sign | (above + units);
}

static uint64_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t double_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Returns the bits of a value as an element of this type of floats. */
static uint64_t bits_as(baton_dtype_t dtype, double value)
{
    if (dtype == BATON_F64) {
        return double_bits(value);
    }
    return dtype == BATON_F32 ? float_bits((float)value)
                              : reference_half(dtype, value);
}

/* f16 and bf16 are computed as f32. */
static uint64_t arithmetic(baton__op_kind_t kind, baton_dtype_t dtype, double a,
                           double b)
{
    if (dtype == BATON_F64) {
        return double_bits(kind == BATON__OP_SUM ? a + b : a * b);
    }
    float x = (float)a, y = (float)b;
    float result = kind == BATON__OP_SUM ? x + y : x * y;
    return bits_as(dtype, (double)result);
}

static uint64_t reduce_float(baton__op_kind_t kind, baton_dtype_t dtype,
                             uint64_t left, uint64_t right)
{
    double a = reference_value(dtype, left);
    double b = reference_value(dtype, right);
    if (kind == BATON__OP_SUM || kind == BATON__OP_PROD) {
        return arithmetic(kind, dtype, a, b);
    }
    if (isnan(a) || isnan(b)) {
        return bits_as(dtype, (double)NAN);
    }
    bool left_is_smaller = a != b ? a < b : signbit(a) != 0;
    return left_is_smaller == (kind == BATON__OP_MIN) ? left : right;
}

#define IS(NAME, ...) || dtype == BATON_##NAME

static bool is_signed(baton_dtype_t dtype)
{
    return false BATON_SIGNED_LIST(IS);
}

static uint64_t reduce_bits(baton__op_kind_t kind, uint64_t left,
                            uint64_t right)
{
    bool both = left != 0 && right != 0, any = left != 0 || right != 0;
    const uint64_t results[] = {
        [BATON__OP_BAND] = left & right, [BATON__OP_BOR] = left | right,
        [BATON__OP_BXOR] = left ^ right, [BATON__OP_LAND] = both,
        [BATON__OP_LOR] = any,           [BATON__OP_LXOR] = any && !both};
    return results[kind];
}

uint64_t reference_reduce(baton__op_kind_t kind, baton_dtype_t dtype,
                          uint64_t left, uint64_t right)
{
    if (reference_is_float(dtype)) {
        return reduce_float(kind, dtype, left, right);
    }
    int bits = 8 * (int)baton_dtype_size(dtype);
    uint64_t mask = bits == 64 ? UINT64_MAX : all_ones(bits);
    if (kind == BATON__OP_SUM) {
        return (left + right) & mask;
    }
    if (kind == BATON__OP_PROD) {
        return (left * right) & mask;
    }
    if (kind >= BATON__OP_BAND) {
        return reduce_bits(kind, left, right);
    }
    /* With their sign bits flipped, signed numbers have the order of unsigned
       ones. */
    uint64_t flip = is_signed(dtype) ? UINT64_C(1) << (bits - 1) : 0;
    bool left_is_smaller = (left ^ flip) < (right ^ flip);
    return left_is_smaller == (kind == BATON__OP_MIN) ? left : right;
}

bool reference_is_complex(baton_dtype_t dtype)
{
    return false BATON_COMPLEX_LIST(IS);
}

size_t reference_index_at(baton_dtype_t dtype)
{
    return baton_dtype_size(dtype) == 16 ? 8 : 4;
}

static void combine_complex(baton__op_kind_t kind, baton_dtype_t part,
                            void *target, const void *left, const void *right)
{
    uint64_t a = reference_load(left, 0, part),
             b = reference_load(left, 1, part);
    uint64_t c = reference_load(right, 0, part),
             d = reference_load(right, 1, part);
    uint64_t sign = UINT64_C(1) << (8 * baton_dtype_size(part) - 1);
    uint64_t real = reduce_float(BATON__OP_SUM, part, a, c);
    uint64_t imaginary = reduce_float(BATON__OP_SUM, part, b, d);
    if (kind == BATON__OP_PROD) {
        real = reduce_float(BATON__OP_SUM, part, reduce_float(kind, part, a, c),
                            reduce_float(kind, part, b, d) ^ sign);
        imaginary =
            reduce_float(BATON__OP_SUM, part, reduce_float(kind, part, a, d),
                         reduce_float(kind, part, b, c));
    }
    reference_store(target, 0, part, real);
    reference_store(target, 1, part, imaginary);
}

/* Compares the values of two pairs. Returns a negative number if a MINLOC or
   MAXLOC prefers `left`, a positive one if it prefers `right`, and 0 if the
   values are equal. */
static int order_of(baton__op_kind_t kind, baton_dtype_t part, uint64_t left,
                    uint64_t right)
{
    bool less = left != right &&
                reference_reduce(BATON__OP_MIN, part, left, right) == left;
    bool equal = left == right;
    if (reference_is_float(part)) {
        double a = reference_value(part, left),
               b = reference_value(part, right);
        if (isnan(a) || isnan(b)) {
            return (isnan(b) ? 1 : 0) - (isnan(a) ? 1 : 0);
        }
        equal = a == b;
    }
    if (equal) {
        return 0;
    }
    return less == (kind == BATON__OP_MINLOC) ? -1 : 1;
}

static void combine_pairs(baton__op_kind_t kind, baton_dtype_t dtype,
                          unsigned char *target, const unsigned char *left,
                          const unsigned char *right)
{
    baton_dtype_t part = baton__part_of(dtype);
    size_t at = reference_index_at(dtype);
    uint64_t a = reference_load(left, 0, part);
    uint64_t b = reference_load(right, 0, part);
    int order = order_of(kind, part, a, b);
    int32_t i, j;
    memcpy(&i, left + at, sizeof i);
    memcpy(&j, right + at, sizeof j);
    i = order < 0 || (order == 0 && i < j) ? i : j;
    memset(target, 0, baton_dtype_size(dtype));
    memcpy(target + at, &i, sizeof i);
    reference_store(target, 0, part,
                    reference_reduce(kind == BATON__OP_MINLOC ? BATON__OP_MIN
                                                              : BATON__OP_MAX,
                                     part, a, b));
}

void reference_combine(baton__op_kind_t kind, baton_dtype_t dtype, void *target,
                       const void *left, const void *right)
{
    if (reference_is_complex(dtype)) {
        combine_complex(kind, baton__part_of(dtype), target, left, right);
    } else if (kind == BATON__OP_MINLOC || kind == BATON__OP_MAXLOC) {
        combine_pairs(kind, dtype, target, left, right);
    } else {
        reference_store(target, 0, dtype,
                        reference_reduce(kind, dtype,
                                         reference_load(left, 0, dtype),
                                         reference_load(right, 0, dtype)));
    }
}

void reference_average(baton_dtype_t dtype, void *target, const void *left,
                       const void *right, int ranks)
{
    baton_dtype_t part = baton__part_of(dtype);
    for (size_t i = 0; i < (part != dtype ? 2 : 1); i++) {
        double a = reference_value(part, reference_load(left, i, part));
        double b = reference_value(part, reference_load(right, i, part));
        float narrow = ((float)a + (float)b) / (float)ranks;
        double mean = part == BATON_F64 ? (a + b) / ranks : (double)narrow;
        reference_store(target, i, part, bits_as(part, mean));
    }
}

/* The elements are stored in little-endian order. */
uint64_t reference_load(const void *data, size_t index, baton_dtype_t dtype)
{
    size_t size = baton_dtype_size(dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const unsigned char *)data + index * size,
           size < sizeof bits ? size : sizeof bits);
    return bits;
}

void reference_store(void *data, size_t index, baton_dtype_t dtype,
                     uint64_t bits)
{
    size_t size = baton_dtype_size(dtype);
    memcpy((unsigned char *)data + index * size, &bits, size);
}

uint64_t reference_special(baton_dtype_t dtype, uint64_t which)
{
    unsigned bits = 8 * (unsigned)baton_dtype_size(dtype);
    uint64_t sign = UINT64_C(1) << (bits - 1);
    unsigned fraction =
        reference_is_float(dtype) ? (unsigned)formats[dtype].fraction_bits : 52;
    uint64_t infinity = fraction < bits ? sign - (UINT64_C(1) << fraction) : 3;
    const uint64_t list[] = {0,
                             1,
                             2,
                             sign - 1,
                             infinity,
                             infinity - 1,
                             infinity + 1,
                             infinity | (infinity >> 1),
                             sign >> 1,
                             UINT64_C(1) << (fraction % bits)};
    uint64_t value = list[(which >> 1) % (sizeof list / sizeof *list)];
    return which & 1 ? value ^ sign : value;
}
