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

#define HALF_FUNCTIONS(name, digits)                                           \
    static inline uint16_t name##_pick(uint16_t a, uint16_t b, int16_t key)    \
    {                                                                          \
        uint16_t a_size = a & 0x7fffu, b_size = b & 0x7fffu;                   \
        uint16_t size = a_size > b_size ? a_size : b_size;                     \
        uint16_t result = (uint16_t)kernels_half_key((uint16_t)key);           \
        return size > (uint16_t)BATON__INFINITY(2, digits)                     \
                   ? (uint16_t)BATON__NAN(2, digits)                           \
                   : result;                                                   \
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

HALF_FUNCTIONS(f16, 11)
HALF_FUNCTIONS(bf16, 8)

/* Compilers do not use the processor's own instructions to convert f16. So the
   functions f16_sum_block and f16_prod_block reduce whole vectors with these
   instructions, and return the number of elements that they have reduced. */
#if defined(__AVX512F__)
typedef __m512 floats_t;
typedef __m256i halves_t;
#define WIDEN(halves) _mm512_cvtph_ps(halves)
/* The mask selects all lanes. Without optimisation gcc's _mm512_cvtps_ph is a
   macro whose own mask, -1, gives a warning about its sign. */
#define NARROW(floats)                                                         \
    _mm512_maskz_cvtps_ph((__mmask16)0xffff, floats,                           \
                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define ONE_NAN(r)                                                             \
    _mm512_mask_mov_ps(r, _mm512_cmp_ps_mask(r, r, _CMP_UNORD_Q),              \
                       _mm512_set1_ps(__builtin_nanf("")))
#elif defined(__F16C__)
typedef __m256 floats_t;
typedef __m128i halves_t;
#define WIDEN(halves)  _mm256_cvtph_ps(halves)
#define NARROW(floats) _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT)
#define ONE_NAN(r)                                                             \
    _mm256_blendv_ps(r, _mm256_set1_ps(__builtin_nanf("")),                    \
                     _mm256_cmp_ps(r, r, _CMP_UNORD_Q))
#endif

#if defined(__F16C__)
#define F16_BLOCK(name, operation)                                             \
    static size_t f16_##name##_block(unsigned char *target,                    \
                                     const unsigned char *left,                \
                                     const unsigned char *right, size_t count) \
    {                                                                          \
        enum { WIDTH = sizeof(halves_t) / 2 };                                 \
        size_t done = 0;                                                       \
        for (; done + WIDTH <= count; done += WIDTH) {                         \
            halves_t a, b, narrow;                                             \
            memcpy(&a, left + 2 * done, sizeof a);                             \
            memcpy(&b, right + 2 * done, sizeof b);                            \
            floats_t r = WIDEN(a) operation WIDEN(b);                          \
            r = ONE_NAN(r);                                                    \
            narrow = NARROW(r);                                                \
            memcpy(target + 2 * done, &narrow, sizeof narrow);                 \
        }                                                                      \
        return done;                                                           \
    }

F16_BLOCK(sum, +)
F16_BLOCK(prod, *)
#define BLOCK_f16(op) f16_##op##_block(target, left, right, count)
#else
#define BLOCK_f16(op) 0
#endif
#define BLOCK_bf16(op) 0
#define BLOCK_f32(op)  0
#define BLOCK_f64(op)  0

/* ---- the loops -------------------------------------------------------- */

#define LOOP(name, type, value) LOOP_AFTER(0, name, type, type FOREIGN, value)
#define LOOP_AFTER(done, name, type, foreign, value)                           \
    static void name(void *target, const void *left, const void *right,        \
                     size_t count) LOOP_BODY(done, type, foreign, value)
#define LOOP_BODY(done, type, foreign, value)                                  \
    {                                                                          \
        typedef foreign element_t;                                             \
        element_t *t = target;                                                 \
        const element_t *l = left, *r = right;                                 \
        INDEPENDENT                                                            \
        for (size_t i = done; i < count; i++) {                                \
            const type a = l[i], b = r[i], result = (value);                   \
            t[i] = result;                                                     \
        }                                                                      \
    }

/* Defines the reduction of elements that consist of `parts` parts each. The
   function `of_part` reduces the parts one by one. */
#define OF_PARTS(name, of_part, parts)                                         \
    static void name(void *target, const void *left, const void *right,        \
                     size_t count)                                             \
    {                                                                          \
        of_part(target, left, right, (parts)*count);                           \
    }

/* The number in a function's name is the size of an element in bytes. Sums and
   products of signed integers have the bits of unsigned ones. The factor 1u
   makes the arithmetic unsigned; without it, short types would be promoted to
   int, which could overflow. */
#define SIGNED_LOOPS(NAME, name, bytes, type, digits)                          \
    LOOP(min_##name, type, a < b ? a : b)                                      \
    LOOP(max_##name, type, a > b ? a : b)
#define UNSIGNED_LOOPS(NAME, name, bytes, type, digits)                        \
    SIGNED_LOOPS(NAME, name, bytes, type, digits)                              \
    LOOP(sum_##bytes, type, (type)(1u * a + b))                                \
    LOOP(prod_##bytes, type, (type)(1u * a * b))                               \
    OF_PARTS(band_##bytes, band, bytes)                                        \
    OF_PARTS(bor_##bytes, bor, bytes)                                          \
    OF_PARTS(bxor_##bytes, bxor, bytes)                                        \
    LOOP(land_##bytes, type, (type)(a != 0 && b != 0))                         \
    LOOP(lor_##bytes, type, (type)(a != 0 || b != 0))                          \
    LOOP(lxor_##bytes, type, (type)((a != 0) != (b != 0)))

#define FLOAT_LOOPS(NAME, name, bytes, type, digits)                           \
    LOOP_AFTER(                                                                \
        BLOCK_##name(sum), sum_##name, type, type FOREIGN,                     \
        baton__write_##name(baton__read_##name(a) + baton__read_##name(b)))    \
    LOOP_AFTER(                                                                \
        BLOCK_##name(prod), prod_##name, type, type FOREIGN,                   \
        baton__write_##name(baton__read_##name(a) * baton__read_##name(b)))    \
    LOOP(min_##name, type, name##_min(a, b))                                   \
    LOOP(max_##name, type, name##_max(a, b))                                   \
    static void average_##name(void *target, const void *left,                 \
                               const void *right, size_t count, double ranks)  \
        LOOP_BODY(0, type, type FOREIGN,                                       \
                  baton__write_##name(                                         \
                      (baton__read_##name(a) + baton__read_##name(b)) /        \
                      (baton__wide_##name)ranks))

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
    LOOP_AFTER(0, minloc_##name, name##_t, name##_t,                           \
               name##_of(a, b, FIRST(is_nan, a, <, b), FIRST(is_nan, b, <, a), \
                         least(a.value, b.value)))                             \
    LOOP_AFTER(0, maxloc_##name, name##_t, name##_t,                           \
               name##_of(a, b, FIRST(is_nan, a, >, b), FIRST(is_nan, b, >, a), \
                         greatest(a.value, b.value)))
#define FIRST(is_nan, a, precedes, b)                                          \
    ((a.value precedes b.value) | (is_nan(a.value) & !is_nan(b.value)))
#define IS_NAN(value)    ((value) != (value))
#define IS_NO_NAN(value) 0
#define LEAST(a, b)      ((a) < (b) ? (a) : (b))
#define GREATEST(a, b)   ((a) > (b) ? (a) : (b))

LOOP(band, uint8_t, a &b)
LOOP(bor, uint8_t, a | b)
LOOP(bxor, uint8_t, a ^ b)
BATON_SIGNED_LIST(SIGNED_LOOPS)
BATON_UNSIGNED_LIST(UNSIGNED_LOOPS)
BATON_FLOAT_LIST(FLOAT_LOOPS)
COMPLEX_LOOPS(c64, f32, float)
COMPLEX_LOOPS(c128, f64, double)
PAIR_LOOPS(i16_i32, int16_t, int16_t padding;, , IS_NO_NAN, LEAST, GREATEST)
PAIR_LOOPS(i32_i32, int32_t, , , IS_NO_NAN, LEAST, GREATEST)
PAIR_LOOPS(i64_i32, int64_t, , int32_t padding;, IS_NO_NAN, LEAST, GREATEST)
PAIR_LOOPS(f32_i32, float, , , IS_NAN, f32_min, f32_max)
PAIR_LOOPS(f64_i32, double, , int32_t padding;, IS_NAN, f64_min, f64_max)

/* ---- the table -------------------------------------------------------- */

#define ARITHMETIC(name)                                                       \
    [BATON__OP_SUM] = sum_##name, [BATON__OP_PROD] = prod_##name
#define ORDERED(name) [BATON__OP_MIN] = min_##name, [BATON__OP_MAX] = max_##name
#define BITWISE(bytes)                                                         \
    [BATON__OP_BAND] = band_##bytes, [BATON__OP_BOR] = bor_##bytes,            \
    [BATON__OP_BXOR] = bxor_##bytes, [BATON__OP_LAND] = land_##bytes,          \
    [BATON__OP_LOR] = lor_##bytes, [BATON__OP_LXOR] = lxor_##bytes

#define INTEGER_ROW(NAME, name, bytes, ...)                                    \
    [BATON_##NAME] = {ARITHMETIC(bytes), ORDERED(name), BITWISE(bytes)},
#define FLOAT_ROW(NAME, name, ...)                                             \
    [BATON_##NAME] = {ARITHMETIC(name), ORDERED(name)},
#define COMPLEX_ROW(NAME, name, ...) [BATON_##NAME] = {ARITHMETIC(name)},
#define PAIR_ROW(NAME, name, ...)                                              \
    [BATON_##NAME] = {[BATON__OP_MINLOC] = minloc_##name,                      \
                      [BATON__OP_MAXLOC] = maxloc_##name},
#define AVERAGE(NAME, name, ...) [BATON_##NAME] = average_##name,

#define TEXT_(a) #a
#define TEXT(a)  TEXT_(a)

const baton__kernels_t JOIN(baton__kernels_, BATON__KERNELS_ISA) = {
    .name = TEXT(BATON__KERNELS_ISA),
    .reduce = {BATON_SIGNED_LIST(INTEGER_ROW) BATON_UNSIGNED_LIST(INTEGER_ROW)
                   BATON_FLOAT_LIST(FLOAT_ROW)[BATON_BOOL] = {BITWISE(1)},
               BATON_COMPLEX_LIST(COMPLEX_ROW) BATON_PAIR_LIST(PAIR_ROW)},
    .average = {BATON_FLOAT_LIST(AVERAGE)},
};
