/* Sums, products and other operations on one element. The GPU's results have
   the same bits as lib/ops. The functions also compile for the CPU, so that
   tests on a machine without a GPU can compare the two. */
#pragma once

#include "cuda/kernels.h"
#include "cuda/select_element.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#if !defined(BATON_CUDA_ON_CPU)
#include <cuda_fp16.h>
#endif

namespace baton_element
{

/* f16 and bf16. They are only stored; arithmetic converts them to f32. */
template <baton_dtype_t D> struct half_of {
    static constexpr baton_dtype_t dtype = D;
    uint16_t bits;
};
typedef half_of<BATON_F16> f16;
typedef half_of<BATON_BF16> bf16;

/* The C++ type of the elements of a float dtype. */
template <baton_dtype_t> struct value_of;
#define BATON__VALUE(NAME, name, bytes, type, digits)                          \
    template <> struct value_of<BATON_##NAME> {                                \
        typedef std::conditional_t<bytes == 2, half_of<BATON_##NAME>, type> t; \
    };
BATON_FLOAT_LIST(BATON__VALUE)
template <baton_dtype_t D> using value = typename value_of<D>::t;

#define BATON_ELEMENT static __host__ __device__ __forceinline__

using baton_cuda::same_bits;

/* ---- memory of any alignment -------------------------------------------- */

/* Loads an element from an address that is a multiple of a word's size, word by
   word. After unrolling the words are in registers. */
template <typename T, typename Word>
static __device__ __forceinline__ T load_words(const void *at)
{
    T value;
    Word words[sizeof(T) / sizeof(Word)];
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) / sizeof(Word); i++) {
        words[i] = static_cast<const Word *>(at)[i];
    }
    memcpy(&value, words, sizeof value);
    return value;
}

template <typename Word, typename T>
static __device__ __forceinline__ void store_words(void *at, T value)
{
    Word words[sizeof(T) / sizeof(Word)];
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (unsigned i = 0; i < sizeof(T) / sizeof(Word); i++) {
        static_cast<Word *>(at)[i] = words[i];
    }
}

/* ---- NaNs -------------------------------------------------------------- */

/* For float and double: an integer type of the same size, and masks of its
   bits. `nan` is the NaN without sign and payload. */
template <typename Float> struct float_traits;
template <> struct float_traits<float> {
    typedef uint32_t bits;
    static constexpr bits sign = UINT32_C(0x80000000);
    static constexpr bits nan = UINT32_C(0x7fc00000);
};
template <> struct float_traits<double> {
    typedef uint64_t bits;
    static constexpr bits sign = UINT64_C(0x8000000000000000);
    static constexpr bits nan = UINT64_C(0x7ff8000000000000);
};

/* Returns the NaN that a CPU makes of two operands whose sum or product is NaN:
   the first operand that is a NaN, made quiet, or for inf - inf the processor's
   default NaN. A GPU has a single NaN instead. */
template <typename Float> BATON_ELEMENT Float nan_of(Float a, Float b)
{
    typedef float_traits<Float> traits;
    typedef typename traits::bits bits;
#if defined(__x86_64__) || defined(__i386__)
    const bits none = traits::nan | traits::sign;
#else
    const bits none = traits::nan;
#endif
    const bits first = a != a ? same_bits<bits>(a) : same_bits<bits>(b);
    return same_bits<Float>(a != a || b != b ? first | traits::nan : none);
}

/* ---- f16, bf16: to f32 and back --------------------------------------- */

BATON_ELEMENT float widen(f16 value)
{
    __half_raw raw;
    raw.x = value.bits;
    return __half2float(__half(raw));
}

BATON_ELEMENT float widen(bf16 value)
{
    return same_bits<float>((uint32_t)value.bits << 16);
}

/* Rounds to nearest, ties to even. All NaNs become the same one. */
BATON_ELEMENT f16 narrow(float value, f16)
{
    __half_raw raw = __float2half_rn(value);
    return f16{value != value ? (uint16_t)0x7e00 : (uint16_t)raw.x};
}

BATON_ELEMENT bf16 narrow(float value, bf16)
{
    uint32_t bits = same_bits<uint32_t>(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return bf16{value != value ? (uint16_t)0x7fc0 : (uint16_t)rounded};
}

/* ---- the least and the largest ----------------------------------------- */

template <typename T> constexpr bool is_half = std::is_class<T>::value;

/* Returns the bits as an integer that has the order of the values, with -0
   before +0. The function is its own inverse. */
BATON_ELEMENT int16_t half_key(uint16_t bits)
{
    return (int16_t)((int16_t)bits ^ ((bits & 0x8000u) != 0 ? 0x7fff : 0));
}

/* Returns the least or the largest operand, or NaN if one of them is NaN. */
template <bool LEAST, typename T> BATON_ELEMENT T extreme(T a, T b)
{
    if constexpr (is_half<T>) {
        typedef baton_cuda::element<T::dtype> format;
        constexpr uint16_t infinity = (2 * format::bias + 1)
                                      << format::fraction;
        constexpr uint16_t nan = infinity | 1 << (format::fraction - 1);
        int16_t a_key = half_key(a.bits), b_key = half_key(b.bits);
        bool take_a = LEAST ? a_key < b_key : a_key > b_key;
        uint16_t a_size = a.bits & 0x7fffu, b_size = b.bits & 0x7fffu;
        bool is_nan = a_size > infinity || b_size > infinity;
        uint16_t chosen = take_a ? a.bits : b.bits;
        return T{is_nan ? nan : chosen};
    } else if constexpr (std::is_floating_point<T>::value) {
        typedef float_traits<T> traits;
        typedef typename traits::bits bits;
        bool a_negative = (same_bits<bits>(a) & traits::sign) != 0;
        bool a_before_b = a < b || (a == b && a_negative);
        T result = a_before_b == LEAST ? a : b;
        return a != a || b != b ? same_bits<T>((bits)traits::nan) : result;
    } else {
        return (a < b) == LEAST ? a : b;
    }
}

/* ---- all -------------------------------------------------------------- */

/* Sums, averages or multiplies two numbers. */
template <baton__cuda_op OP, typename Float>
BATON_ELEMENT Float combine_floats(Float a, Float b, double ranks)
{
    if constexpr (OP == BATON__CUDA_SUM) {
        return a + b;
    } else if constexpr (OP == BATON__CUDA_AVG) {
        return (a + b) / (Float)ranks;
    } else {
        return a * b;
    }
}

template <baton__cuda_op OP, typename T>
BATON_ELEMENT T combine_integers(T a, T b)
{
    static_assert(std::is_unsigned<T>::value, "signed overflow");
    /* 1u: the product of two short integers would be a signed int, which may
       overflow. */
    switch (OP) {
    case BATON__CUDA_SUM:
        return (T)(1u * a + b);
    case BATON__CUDA_PROD:
        return (T)(1u * a * b);
    case BATON__CUDA_BAND:
        return (T)(a & b);
    case BATON__CUDA_BOR:
        return (T)(a | b);
    default:
        return (T)(a ^ b);
    }
}

/* Combines two elements. Signed integers are summed and multiplied as unsigned
   ones, so that overflow wraps around. */
template <baton__cuda_op OP, typename T>
BATON_ELEMENT T combine(T a, T b, double ranks = 1)
{
    if constexpr (OP == BATON__CUDA_MIN) {
        return extreme<true>(a, b);
    } else if constexpr (OP == BATON__CUDA_MAX) {
        return extreme<false>(a, b);
    } else if constexpr (is_half<T>) {
        return narrow(combine_floats<OP>(widen(a), widen(b), ranks), T{});
    } else if constexpr (std::is_floating_point<T>::value) {
        T result = combine_floats<OP>(a, b, ranks);
        return result != result ? nan_of(a, b) : result;
    } else {
        return combine_integers<OP>(a, b);
    }
}

/* ---- elements times a factor ------------------------------------------- */

/* Returns the product in double. The caller rounds it to the operand's type. If
   `a` is a NaN, returns that NaN, made quiet; otherwise, if `factor` is a NaN,
   returns that one, made quiet. A CPU does the same. */
BATON_ELEMENT double product_of(double a, double factor)
{
    double product = a * factor;
    return product == product ? product : nan_of(a, factor);
}

BATON_ELEMENT float narrowed(double wide)
{
    if (wide == wide) {
        return (float)wide;
    }
    uint64_t bits = same_bits<uint64_t>(wide);
    uint32_t sign = (uint32_t)(bits >> 63) << 31;
    return same_bits<float>(sign | 0x7fc00000u |
                            ((uint32_t)(bits >> 29) & 0x3fffffu));
}

BATON_ELEMENT double widened(float narrow)
{
    if (narrow == narrow) {
        return (double)narrow;
    }
    uint32_t bits = same_bits<uint32_t>(narrow);
    uint64_t sign = (uint64_t)(bits >> 31) << 63;
    return same_bits<double>(sign | UINT64_C(0x7ff8) << 48 |
                             (uint64_t)(bits & 0x3fffffu) << 29);
}

template <typename T> BATON_ELEMENT T scaled(T value, double factor)
{
    if constexpr (is_half<T>) { /* half types have a single NaN */
        return narrow((float)product_of(widen(value), factor), T{});
    } else if constexpr (std::is_same<T, float>::value) {
        return narrowed(product_of(widened(value), factor));
    } else {
        return product_of(value, factor);
    }
}

} // namespace baton_element
