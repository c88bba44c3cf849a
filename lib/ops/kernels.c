/* The reduction kernels of ONE instruction set. kernels.cmake compiles this
   file once for each instruction set, with the compiler's flags for the set and
   BATON__KERNELS_ISA set to its name; everything but the table is static.

   Results have the same bits with all instruction sets, in the vector body and
   in the scalar tail of a loop: a compiler flag forbids fused multiply-adds,
   f16 and bf16 round by the same rule everywhere, and NaNs made here are
   canonical. There is one exception: the f32 or f64 sum or product of TWO NaNs
   is a NaN with the payload of one of them, and it is not defined which. To
   define it would take a compare and a select for each vector, which costs 9%
   of a sum out of the L2 cache. */
#include "ops/kernels.h"

#include "base/half.h"
#include "ops/bits.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

/* An element of one operand is either the same element as one of another
   operand, or does not overlap it. So no iteration depends on another, and one
   loop serves all cases, whether target is left, right, both or neither,
   without tests for aliases. */
#if defined(__clang__)
/* clang warns about loops that stay scalar; without optimisation all loops
   do. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* ---- f32, f64 --------------------------------------------------------- */

/* MIN and MAX always return one of the operands or the canonical NaN, even if
   the processor treats subnormals as zeros. If two operands compare equal, they
   may still differ in bits (zeros, or subnormals treated as zeros), so the sign
   decides between them. Combining their bits instead could give another
   number. */
#define FLOAT_FUNCTIONS(name, type, bits_type, nan)                            \
    static inline int name##_is_negative(type value)                           \
    {                                                                          \
        bits_type bits;                                                        \
        memcpy(&bits, &value, sizeof bits);                                    \
        return bits < 0;                                                       \
    }                                                                          \
    static inline type name##_min(type a, type b)                              \
    {                                                                          \
        int take_a = (a < b) | ((a == b) & name##_is_negative(a));             \
        type result = take_a ? a : b;                                          \
        return ((a != a) | (b != b)) ? (type)nan : result;                     \
    }                                                                          \
    static inline type name##_max(type a, type b)                              \
    {                                                                          \
        int take_b = (a < b) | ((a == b) & name##_is_negative(a));             \
        type result = take_b ? b : a;                                          \
        return ((a != a) | (b != b)) ? (type)nan : result;                     \
    }

FLOAT_FUNCTIONS(f32, float, int32_t, __builtin_nanf(""))
FLOAT_FUNCTIONS(f64, double, int64_t, __builtin_nan(""))

/* ---- f16, bf16 -------------------------------------------------------- */

/* Maps the bits of a half to an integer in the order of values, -0 before +0;
   the function is its own inverse. So MIN and MAX need no conversion to f32. */
static inline int16_t kernels_half_key(uint16_t half)
{
    int16_t bits = (int16_t)half;
    return (int16_t)(bits ^ (bits < 0 ? 0x7fff : 0));
}

#define HALF_FUNCTIONS(name, infinity, nan)                                    \
    static inline uint16_t name##_sum(uint16_t a, uint16_t b)                  \
    {                                                                          \
        return baton__##name##_of_f32(baton__f32_of_##name(a) +                \
                                      baton__f32_of_##name(b));                \
    }                                                                          \
    static inline uint16_t name##_prod(uint16_t a, uint16_t b)                 \
    {                                                                          \
        return baton__##name##_of_f32(baton__f32_of_##name(a) *                \
                                      baton__f32_of_##name(b));                \
    }                                                                          \
    static inline uint16_t name##_pick(uint16_t a, uint16_t b, int16_t key)    \
    {                                                                          \
        uint16_t a_size = a & 0x7fffu, b_size = b & 0x7fffu;                   \
        uint16_t size = a_size > b_size ? a_size : b_size;                     \
        uint16_t result = (uint16_t)kernels_half_key((uint16_t)key);           \
        return size > (infinity) ? (uint16_t)(nan) : result;                   \
    }                                                                          \
    static inline uint16_t name##_min(uint16_t a, uint16_t b)                  \
    {                                                                          \
        int16_t a_key = kernels_half_key(a), b_key = kernels_half_key(b);      \
        return name##_pick(a, b, a_key < b_key ? a_key : b_key);               \
    }                                                                          \
    static inline uint16_t name##_max(uint16_t a, uint16_t b)                  \
    {                                                                          \
        int16_t a_key = kernels_half_key(a), b_key = kernels_half_key(b);      \
        return name##_pick(a, b, a_key > b_key ? a_key : b_key);               \
    }

HALF_FUNCTIONS(f16, 0x7c00, BATON__F16_NAN)
HALF_FUNCTIONS(bf16, 0x7f80, BATON__BF16_NAN)

/* Compilers do not use the processor's own instructions to convert f16. So the
   functions f16_sum_block and f16_prod_block reduce whole vectors with these
   instructions, and return the number of elements that they have reduced. */
#if defined(__AVX512F__)
#define F16_BLOCK(name, operation)                                             \
    static size_t f16_##name##_block(unsigned char *target,                    \
                                     const unsigned char *left,                \
                                     const unsigned char *right, size_t count) \
    {                                                                          \
        const __m512 nan = _mm512_set1_ps(__builtin_nanf(""));                 \
        size_t done = 0;                                                       \
        for (; done + 16 <= count; done += 16) {                               \
            __m512 a = _mm512_cvtph_ps(                                        \
                _mm256_loadu_si256((const void *)(left + 2 * done)));          \
            __m512 b = _mm512_cvtph_ps(                                        \
                _mm256_loadu_si256((const void *)(right + 2 * done)));         \
            __m512 r = _mm512_##operation##_ps(a, b);                          \
            __mmask16 bad = _mm512_cmp_ps_mask(r, r, _CMP_UNORD_Q);            \
            r = _mm512_mask_mov_ps(r, bad, nan);                               \
            _mm256_storeu_si256((void *)(target + 2 * done),                   \
                                _mm512_cvtps_ph(r, _MM_FROUND_TO_NEAREST_INT | \
                                                       _MM_FROUND_NO_EXC));    \
        }                                                                      \
        return done;                                                           \
    }
#elif defined(__F16C__)
#define F16_BLOCK(name, operation)                                             \
    static size_t f16_##name##_block(unsigned char *target,                    \
                                     const unsigned char *left,                \
                                     const unsigned char *right, size_t count) \
    {                                                                          \
        const __m256 nan = _mm256_set1_ps(__builtin_nanf(""));                 \
        size_t done = 0;                                                       \
        for (; done + 8 <= count; done += 8) {                                 \
            __m256 a = _mm256_cvtph_ps(                                        \
                _mm_loadu_si128((const void *)(left + 2 * done)));             \
            __m256 b = _mm256_cvtph_ps(                                        \
                _mm_loadu_si128((const void *)(right + 2 * done)));            \
            __m256 r = _mm256_##operation##_ps(a, b);                          \
            r = _mm256_blendv_ps(r, nan, _mm256_cmp_ps(r, r, _CMP_UNORD_Q));   \
            _mm_storeu_si128((void *)(target + 2 * done),                      \
                             _mm256_cvtps_ph(r, _MM_FROUND_TO_NEAREST_INT));   \
        }                                                                      \
        return done;                                                           \
    }
#else
#define F16_BLOCK(name, operation)                                             \
    static size_t f16_##name##_block(unsigned char *target,                    \
                                     const unsigned char *left,                \
                                     const unsigned char *right, size_t count) \
    {                                                                          \
        return 0;                                                              \
    }
#endif

F16_BLOCK(sum, add)
F16_BLOCK(prod, mul)

/* ---- the loops -------------------------------------------------------- */

#define LOOP(name, type, value) LOOP_OF(name, type, type FOREIGN, value)
#define LOOP_OF(name, type, foreign, value)                                    \
    static void name(void *target, const void *left, const void *right,        \
                     size_t count) LOOP_BODY(type, foreign, value)
#define AVERAGE(name, type, value)                                             \
    static void average_##name(void *target, const void *left,                 \
                               const void *right, size_t count, double ranks)  \
        LOOP_BODY(type, type FOREIGN, value)
#define LOOP_BODY(type, foreign, value)                                        \
    {                                                                          \
        typedef foreign element_t;                                             \
        element_t *t = target;                                                 \
        const element_t *l = left, *r = right;                                 \
        INDEPENDENT                                                            \
        for (size_t i = 0; i < count; i++) {                                   \
            const type a = l[i], b = r[i], result = (value);                   \
            t[i] = result;                                                     \
        }                                                                      \
    }

/* The factor 1u makes the arithmetic unsigned. Without it, short types would be
   promoted to int, which could overflow. */
#define UNSIGNED_LOOPS(name, type)                                             \
    LOOP(sum_##name, type, (type)(1u * a + b))                                 \
    LOOP(prod_##name, type, (type)(1u * a * b))
#define ORDERED_LOOPS(name, type)                                              \
    LOOP(min_##name, type, a < b ? a : b)                                      \
    LOOP(max_##name, type, a > b ? a : b)
#define FLOAT_LOOPS(name, type, sum, prod)                                     \
    LOOP(sum_##name, type, sum)                                                \
    LOOP(prod_##name, type, prod)                                              \
    LOOP(min_##name, type, name##_min(a, b))                                   \
    LOOP(max_##name, type, name##_max(a, b))

/* Defines the reduction of elements that consist of `parts` parts each. The
   function `of_part` reduces the parts one by one. */
#define OF_PARTS(name, of_part, parts)                                         \
    static void name(void *target, const void *left, const void *right,        \
                     size_t count)                                             \
    {                                                                          \
        of_part(target, left, right, (parts)*count);                           \
    }

#define HALF_AVERAGE(name)                                                     \
    baton__##name##_of_f32(                                                    \
        (baton__f32_of_##name(a) + baton__f32_of_##name(b)) / (float)ranks)

/* The number in a function's name is the size of an element in bytes. */
#define BITWISE_LOOPS(size)                                                    \
    OF_PARTS(band_##size, band_1, size)                                        \
    OF_PARTS(bor_##size, bor_1, size)                                          \
    OF_PARTS(bxor_##size, bxor_1, size)
#define LOGICAL_LOOPS(size, type)                                              \
    LOOP(land_##size, type, (type)(a != 0 && b != 0))                          \
    LOOP(lor_##size, type, (type)(a != 0 || b != 0))                           \
    LOOP(lxor_##size, type, (type)((a != 0) != (b != 0)))

#define STRUCT __attribute__((may_alias, packed))

/* The product of complex numbers takes two loops. In a single loop gcc 12 would
   fuse the difference and the sum, which alternate, with the multiplications,
   despite the flag that forbids it. */
#define COMPLEX_BLOCK ((size_t)64)
#define COMPLEX_LOOPS(name, part, type)                                        \
    typedef struct STRUCT name {                                               \
        type real, imaginary;                                                  \
    } name##_t;                                                                \
    OF_PARTS(sum_##name, sum_##part, 2)                                        \
    static void prod_##name(void *target, const void *left, const void *right, \
                            size_t count)                                      \
    {                                                                          \
        name##_t *t = target;                                                  \
        const name##_t *l = left, *r = right;                                  \
        type ac[COMPLEX_BLOCK], bd[COMPLEX_BLOCK], ad[COMPLEX_BLOCK],          \
            bc[COMPLEX_BLOCK];                                                 \
        for (size_t block; count > 0; count -= block) {                        \
            block = count < COMPLEX_BLOCK ? count : COMPLEX_BLOCK;             \
            for (size_t i = 0; i < block; i++) {                               \
                ac[i] = l[i].real * r[i].real;                                 \
                bd[i] = l[i].imaginary * r[i].imaginary;                       \
                ad[i] = l[i].real * r[i].imaginary;                            \
                bc[i] = l[i].imaginary * r[i].real;                            \
            }                                                                  \
            for (size_t i = 0; i < block; i++) {                               \
                t[i] = (name##_t){ac[i] - bd[i], ad[i] + bc[i]};               \
            }                                                                  \
            t += block, l += block, r += block;                                \
        }                                                                      \
    }

/* Loops over pairs of a value and an index. `between` declares the padding
   between the value and the index, and `after` declares the padding after the
   index. */
#define PAIR_LOOPS(name, type, between, after, is_nan, least, greatest)        \
    typedef struct STRUCT name {                                               \
        type value;                                                            \
        between int32_t index;                                                 \
        after                                                                  \
    } name##_t;                                                                \
    static inline name##_t name##_of(name##_t a, name##_t b, int a_first,      \
                                     int b_first, type value)                  \
    {                                                                          \
        int32_t lower = a.index < b.index ? a.index : b.index;                 \
        int32_t index = b_first ? b.index : lower;                             \
        index = a_first ? a.index : index;                                     \
        return (name##_t){.value = value, .index = index};                     \
    }                                                                          \
    LOOP_OF(minloc_##name, name##_t, name##_t,                                 \
            name##_of(a, b, FIRST(is_nan, a, <, b), FIRST(is_nan, b, <, a),    \
                      least(a.value, b.value)))                                \
    LOOP_OF(maxloc_##name, name##_t, name##_t,                                 \
            name##_of(a, b, FIRST(is_nan, a, >, b), FIRST(is_nan, b, >, a),    \
                      greatest(a.value, b.value)))
#define FIRST(is_nan, a, precedes, b)                                          \
    ((a.value precedes b.value) | (is_nan(a.value) & !is_nan(b.value)))
#define IS_NAN(value)    ((value) != (value))
#define IS_NO_NAN(value) 0
#define LEAST(a, b)      ((a) < (b) ? (a) : (b))
#define GREATEST(a, b)   ((a) > (b) ? (a) : (b))

/* Reduces whole vectors by f16_NAME_block, and the remaining elements one by
   one. */
#define F16_LOOP(name)                                                         \
    LOOP(name##_f16_rest, uint16_t, f16_##name(a, b))                          \
    static void name##_f16(void *target, const void *left, const void *right,  \
                           size_t count)                                       \
    {                                                                          \
        size_t done = f16_##name##_block(target, left, right, count);          \
        name##_f16_rest((unsigned char *)target + 2 * done,                    \
                        (const unsigned char *)left + 2 * done,                \
                        (const unsigned char *)right + 2 * done,               \
                        count - done);                                         \
    }

UNSIGNED_LOOPS(u8, uint8_t)
UNSIGNED_LOOPS(u16, uint16_t)
UNSIGNED_LOOPS(u32, uint32_t)
UNSIGNED_LOOPS(u64, uint64_t)
ORDERED_LOOPS(i8, int8_t)
ORDERED_LOOPS(i16, int16_t)
ORDERED_LOOPS(i32, int32_t)
ORDERED_LOOPS(i64, int64_t)
ORDERED_LOOPS(u8, uint8_t)
ORDERED_LOOPS(u16, uint16_t)
ORDERED_LOOPS(u32, uint32_t)
ORDERED_LOOPS(u64, uint64_t)
F16_LOOP(sum)
F16_LOOP(prod)
LOOP(min_f16, uint16_t, f16_min(a, b))
LOOP(max_f16, uint16_t, f16_max(a, b))
FLOAT_LOOPS(bf16, uint16_t, bf16_sum(a, b), bf16_prod(a, b))
FLOAT_LOOPS(f32, float, a + b, a *b)
FLOAT_LOOPS(f64, double, a + b, a *b)
AVERAGE(f16, uint16_t, HALF_AVERAGE(f16))
AVERAGE(bf16, uint16_t, HALF_AVERAGE(bf16))
AVERAGE(f32, float, (a + b) / (float)ranks)
AVERAGE(f64, double, (a + b) / ranks)
LOOP(band_1, uint8_t, a &b)
LOOP(bor_1, uint8_t, a | b)
LOOP(bxor_1, uint8_t, a ^ b)
BITWISE_LOOPS(2)
BITWISE_LOOPS(4)
BITWISE_LOOPS(8)
LOGICAL_LOOPS(1, uint8_t)
LOGICAL_LOOPS(2, uint16_t)
LOGICAL_LOOPS(4, uint32_t)
LOGICAL_LOOPS(8, uint64_t)
COMPLEX_LOOPS(c64, f32, float)
COMPLEX_LOOPS(c128, f64, double)
PAIR_LOOPS(i16_i32, int16_t, int16_t padding;, , IS_NO_NAN, LEAST, GREATEST)
PAIR_LOOPS(i32_i32, int32_t, , , IS_NO_NAN, LEAST, GREATEST)
PAIR_LOOPS(i64_i32, int64_t, , int32_t padding;, IS_NO_NAN, LEAST, GREATEST)
PAIR_LOOPS(f32_i32, float, , , IS_NAN, f32_min, f32_max)
PAIR_LOOPS(f64_i32, double, , int32_t padding;, IS_NAN, f64_min, f64_max)

/* ---- the table -------------------------------------------------------- */

#define FLOATS(op)                                                             \
    [BATON_F16] = op##_f16, [BATON_BF16] = op##_bf16, [BATON_F32] = op##_f32,  \
    [BATON_F64] = op##_f64
#define UNSIGNED(op)                                                           \
    [BATON_U8] = op##_u8, [BATON_U16] = op##_u16, [BATON_U32] = op##_u32,      \
    [BATON_U64] = op##_u64

/* Signed integers use the unsigned loops for sums and products: the bits of the
   results are the same. */
#define ARITHMETIC(op)                                                         \
    {                                                                          \
        UNSIGNED(op), [BATON_I8] = op##_u8, [BATON_I16] = op##_u16,            \
                      [BATON_I32] = op##_u32, [BATON_I64] = op##_u64,          \
                      [BATON_C64] = op##_c64, [BATON_C128] = op##_c128,        \
                      FLOATS(op)                                               \
    }
#define ORDERED(op)                                                            \
    {                                                                          \
        UNSIGNED(op), [BATON_I8] = op##_i8, [BATON_I16] = op##_i16,            \
                      [BATON_I32] = op##_i32, [BATON_I64] = op##_i64,          \
                      FLOATS(op)                                               \
    }
#define BY_SIZE(op)                                                            \
    {                                                                          \
        [BATON_I8] = op##_1, [BATON_I16] = op##_2, [BATON_I32] = op##_4,       \
        [BATON_I64] = op##_8, [BATON_U8] = op##_1, [BATON_U16] = op##_2,       \
        [BATON_U32] = op##_4, [BATON_U64] = op##_8, [BATON_BOOL] = op##_1      \
    }
#define PAIRS(op)                                                              \
    {                                                                          \
        [BATON_I16_I32] = op##_i16_i32, [BATON_I32_I32] = op##_i32_i32,        \
        [BATON_I64_I32] = op##_i64_i32, [BATON_F32_I32] = op##_f32_i32,        \
        [BATON_F64_I32] = op##_f64_i32                                         \
    }

#define TEXT_(a) #a
#define TEXT(a)  TEXT_(a)

extern const baton__kernels_t JOIN(baton__kernels_, BATON__KERNELS_ISA);
const baton__kernels_t JOIN(baton__kernels_, BATON__KERNELS_ISA) = {
    .name = TEXT(BATON__KERNELS_ISA),
    .reduce = {[BATON__OP_SUM] = ARITHMETIC(sum),
               [BATON__OP_PROD] = ARITHMETIC(prod),
               [BATON__OP_MIN] = ORDERED(min),
               [BATON__OP_MAX] = ORDERED(max),
               [BATON__OP_BAND] = BY_SIZE(band),
               [BATON__OP_BOR] = BY_SIZE(bor),
               [BATON__OP_BXOR] = BY_SIZE(bxor),
               [BATON__OP_LAND] = BY_SIZE(land),
               [BATON__OP_LOR] = BY_SIZE(lor),
               [BATON__OP_LXOR] = BY_SIZE(lxor),
               [BATON__OP_MINLOC] = PAIRS(minloc),
               [BATON__OP_MAXLOC] = PAIRS(maxloc)},
    .average = {FLOATS(average)},
};
