/* The arithmetic of the selection kernels on one element or one number: keys of
   magnitudes, samples, thresholds, and the decisions between two passes over a
   vector. */
#pragma once

#include <baton/select.h>

#include <math.h>
#include <string.h>
#include <type_traits>

#if defined(__CUDACC__)
#define BATON__BOTH __host__ __device__ __forceinline__
#else
#define BATON__BOTH inline
#endif

namespace baton_cuda
{

/* ---- element types ----------------------------------------------------- */

/* For each type: bits_t, an integer with the bits of an element; key_t, an
   integer that holds any key; and the format, as the number of bits of the
   fraction and the bias of the exponent. */
template <baton_dtype_t> struct element;
#define BATON__ELEMENT(NAME, name, bytes, type, digits)                        \
    template <> struct element<BATON_##NAME> {                                 \
        typedef std::conditional_t<bytes == 8, uint64_t, uint32_t> key_t;      \
        typedef std::conditional_t<bytes == 2, uint16_t, key_t> bits_t;        \
        enum {                                                                 \
            fraction = digits - 1,                                             \
            bias = (1 << (8 * bytes - digits - 1)) - 1                         \
        };                                                                     \
    };
BATON_FLOAT_LIST(BATON__ELEMENT)

/* Returns the key of infinity. The next larger key is that of all NaNs. */
template <baton_dtype_t D> BATON__BOTH typename element<D>::key_t infinity_key()
{
    typedef typename element<D>::key_t key_t;
    return (key_t)(2 * element<D>::bias + 1) << element<D>::fraction;
}

template <baton_dtype_t D> BATON__BOTH typename element<D>::key_t nan_key()
{
    return infinity_key<D>() + 1;
}

template <baton_dtype_t D> BATON__BOTH typename element<D>::key_t sign_bit()
{
    typedef typename element<D>::key_t key_t;
    return (key_t)1 << (8 * sizeof(typename element<D>::bits_t) - 1);
}

/* Returns the number of bits that hold any key. */
template <baton_dtype_t D> BATON__BOTH unsigned key_bits()
{
    return 8 * sizeof(typename element<D>::bits_t) - 1;
}

/* ---- keys -------------------------------------------------------------- */

/* Converts elements to keys. An element whose value is not on the selected side
   (baton_side_t) gets the key 0: the key is (bits ^ flip) & mask, or 0 if that
   has the sign bit set (lib/ops/select.h). */
template <baton_dtype_t D> struct filter {
    typename element<D>::key_t flip, mask;
};

template <baton_dtype_t D> BATON__BOTH filter<D> filter_of(baton_side_t side)
{
    typedef typename element<D>::key_t key_t;
    filter<D> result;
    result.flip = side == BATON_SIDE_NEGATIVE ? sign_bit<D>() : 0;
    result.mask = side == BATON_SIDE_BOTH ? sign_bit<D>() - 1 : ~(key_t)0;
    return result;
}

template <baton_dtype_t D>
BATON__BOTH typename element<D>::key_t key_of(typename element<D>::bits_t bits,
                                              const filter<D> &by)
{
    typename element<D>::key_t key = (bits ^ by.flip) & by.mask;
    key = (key & sign_bit<D>()) != 0 ? 0 : key;
    return key < nan_key<D>() ? key : nan_key<D>();
}

/* ---- conversions ------------------------------------------------------- */

template <class to_t, class from_t> BATON__BOTH to_t same_bits(from_t from)
{
    static_assert(sizeof(to_t) == sizeof(from_t), "the sizes differ");
    to_t to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/* Shifts right by `shift` bits, and rounds to nearest, ties to even. */
BATON__BOTH uint64_t shift_to_nearest(uint64_t bits, unsigned shift)
{
    if (shift == 0 || shift > 54) {
        return shift == 0 ? bits : 0;
    }
    uint64_t odd = bits >> shift & 1;
    return (bits + ((UINT64_C(1) << (shift - 1)) - 1) + odd) >> shift;
}

/* Returns the key of |value|, rounded once (baton_magnitude_of). */
template <baton_dtype_t D>
BATON__BOTH typename element<D>::key_t magnitude_of(double value)
{
    typedef typename element<D>::key_t key_t;
    uint64_t bits = same_bits<uint64_t>(value) & ~(UINT64_C(1) << 63);
    if (bits > UINT64_C(0x7ff) << 52) {
        return nan_key<D>();
    }
    const int exponent = (int)(bits >> 52) - 1023 + element<D>::bias;
    const unsigned shift = 52 - element<D>::fraction;
    uint64_t key;
    if (shift == 0) {
        key = bits;
    } else if (exponent > 0) {
        uint64_t rebias = (uint64_t)(1023 - element<D>::bias) << 52;
        key = shift_to_nearest(bits - rebias, shift);
    } else { /* subnormal: the leading one is explicit and farther right */
        uint64_t one = UINT64_C(1) << 52;
        uint64_t full = bits < one ? 0 : (bits & (one - 1)) | one;
        key = shift_to_nearest(full, shift + (unsigned)(1 - exponent));
    }
    return key < infinity_key<D>() ? (key_t)key : infinity_key<D>();
}

/* Returns the exact magnitude of a finite key. */
template <baton_dtype_t D>
BATON__BOTH double magnitude_value(typename element<D>::key_t key)
{
    if (D == BATON_F64) {
        return same_bits<double>((uint64_t)key);
    }
    /* The bias of the exponent is that of f32 or, for f16, lower by 112.
       Multiplying by 2^112 is also right for subnormals. */
    const unsigned shift = D == BATON_F64 ? 0 : 23 - element<D>::fraction;
    const float value = same_bits<float>((uint32_t)key << shift);
    return (double)(element<D>::bias == 127
                        ? value
                        : value * same_bits<float>((254u - element<D>::bias)
                                                   << 23));
}

/* ---- samples ----------------------------------------------------------- */

enum {
    /* In vectors up to this length all elements are candidates. */
    SMALL_COUNT = 4096,
    SAMPLE_LEAST = 1024,
    SAMPLE_MOST = 16384,
    SAMPLE_SHARE = 256, /* of larger vectors one element in 256 is sampled */
    /* The number of standard deviations (of the number of sampled elements
       above the threshold) by which the estimated threshold is chosen too
       low. */
    DEVIATIONS = 4
};

BATON__BOTH size_t sample_of(size_t count)
{
    size_t size = count / SAMPLE_SHARE;
    size = size < SAMPLE_LEAST ? (size_t)SAMPLE_LEAST : size;
    return size > SAMPLE_MOST ? (size_t)SAMPLE_MOST : size;
}

/* Returns the rank, within the sample, of an element that estimates the
   threshold: very probably at least `need` elements of the vector are as large
   as it. Returns 0 if all elements should be candidates. */
BATON__BOTH uint32_t sample_rank(size_t count, size_t need)
{
    size_t size = sample_of(count);
    double expected = (double)size * (double)need / (double)count;
    double rank = expected + DEVIATIONS * sqrt(expected) + DEVIATIONS;
    return rank < (double)size ? (uint32_t)rank + 1 : 0;
}

/* Returns the i-th position of a sample of `size`. The vector is divided into
   `size` strata, whose lengths differ by at most one, and a hash (splitmix64's
   finaliser) picks one element of each stratum. So no regular pattern of the
   elements misleads the sample. `count` must fit into 32 bits: then the product
   below fits into 64. The only division has the same operands for all i, so
   compilers can do it once. */
BATON__BOTH uint64_t position_of(uint64_t count, uint64_t size, uint64_t i)
{
    const uint64_t least = count / size, longer = count - least * size;
    uint64_t begin = i * least + (i < longer ? i : longer);
    uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + count;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return begin + ((x >> 32) * (least + (i < longer)) >> 32);
}

/* ---- RedSync's search -------------------------------------------------- */

/* Returns the key of a threshold, at least 1. `ratio` goes from 0, the mean, to
   1, the maximum. */
template <baton_dtype_t D>
BATON__BOTH typename element<D>::key_t between(double mean, double largest,
                                               double ratio)
{
    double value = mean + ratio * (largest - mean);
    typename element<D>::key_t key = magnitude_of<D>(value);
    return key > 0 ? key : 1;
}

/* Searches a threshold by Algorithm 3 of RedSync's paper: halves an interval of
   ratios at most 20 times (until the interval is below 1e-6), or until a
   threshold leaves k to 2k elements. A threshold does that if its key is at
   most `kth`, the k-th key, and above `beyond`, the (2k+1)-th key (0 if there
   is none). Returns 0 if no threshold is found. */
template <baton_dtype_t D>
BATON__BOTH typename element<D>::key_t search(double mean, double largest,
                                              typename element<D>::key_t kth,
                                              typename element<D>::key_t beyond)
{
    typedef typename element<D>::key_t key_t;
    double low = 0, high = 1;
    if (between<D>(mean, largest, low) > kth) {
        return 0; /* the threshold lies below the mean */
    }
    for (unsigned steps = 20; steps > 0; steps--) {
        const double middle = (low + high) / 2;
        const key_t key = between<D>(mean, largest, middle);
        if (key <= kth && key > beyond) {
            return key;
        }
        high = key > kth ? middle : high;
        low = key > kth ? low : middle;
    }
    /* `low` leaves at least k elements. It leaves more than 2k only if many
       values are tied. */
    const key_t key = between<D>(mean, largest, low);
    return key > beyond ? key : 0;
}

} // namespace baton_cuda
