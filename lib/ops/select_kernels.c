/* The selection kernels of ONE instruction set; this file is compiled like
   kernels.c. The kernels read elements as integers, in blocks whose inner loops
   compilers vectorise.

   A pass goes over a vector once, block by block: it computes a block, writes
   it, and searches it for large elements before it reads the next one. So the
   processor overlaps computation with memory accesses. It would not do so if
   one loop computed many elements and another loop then wrote them. */
#include "ops/kernels.h"

#include "base/half.h"
#include "ops/bits.h"
#include "ops/select.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

enum {
    /* Number of elements that are computed and compared at a time. */
    BLOCK = 64,
    LINE = 64, /* bytes of a cache line */
    /* Distance in bytes from an element that is read to the element that is
       prefetched at the same time. */
    AHEAD_BYTES = 2048,
    /* Number of partial sums. It is the same on all machines, so that all of
       them add in the same order. */
    LANES = 16,
    MEASURE_TILE = 4096, /* elements of a tile */
    TILE_LANES = 256     /* number of partial sums over all tiles */
};

/* ---- elements that are computed ---------------------------------------- */

/* Stores a whole line past the caches. After a streaming store of half a line
   the processor would read the other half. */
#if defined(__AVX512F__)
static inline void stream_line(char *to, const char *from)
{
    _mm512_stream_si512((void *)to, _mm512_loadu_si512(from));
}
#elif defined(__AVX__)
static inline void stream_line(char *to, const char *from)
{
    for (size_t i = 0; i < LINE; i += sizeof(__m256i)) {
        _mm256_stream_si256((void *)(to + i),
                            _mm256_loadu_si256((const void *)(from + i)));
    }
}
#elif defined(__SSE2__)
static inline void stream_line(char *to, const char *from)
{
    for (size_t i = 0; i < LINE; i += sizeof(__m128i)) {
        _mm_stream_si128((void *)(to + i),
                         _mm_loadu_si128((const void *)(from + i)));
    }
}
#else
static inline void stream_line(char *to, const char *from)
{
    memcpy(to, from, LINE);
}
#endif

/* Orders streaming stores before later stores. A release does not do that. */
static void stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

static inline void select_kernels_put(char *to, const void *from, size_t bytes,
                                      bool stream)
{
    if (!stream || bytes % LINE != 0 || (uintptr_t)to % LINE != 0) {
        memcpy(to, from, bytes);
        return;
    }
    for (size_t done = 0; done < bytes; done += LINE) {
        stream_line(to + done, (const char *)from + done);
    }
}

static inline void fetch(const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes; done += LINE) {
        PREFETCH((const char *)from + AHEAD_BYTES + done);
    }
}

/* Two ways to add the elements of a block, by their size in bytes: a loop in
   this file, or a kernel of kernels.c, where sums of f16 and bf16 are
   vectorised. Both round each step, as separate loops over the whole vector
   would do. */
#define ADD_4(dtype, to, l, r, count)                                          \
    for (size_t j = 0; j < (count); j++) {                                     \
        (to)[j] = (l)[j] + (r)[j];                                             \
    }
#define ADD_8 ADD_4
#define ADD_2(dtype, to, l, r, count)                                          \
    JOIN(baton__kernels_, BATON__KERNELS_ISA)                                  \
        .reduce[dtype][BATON__OP_SUM](to, l, r, count)

/* Computes momentum with velocities that are stored as bf16. Writes the new
   velocities, and returns `g`, which has the values to accumulate. */
static inline const float *momentum_short(const baton_accumulation_t *of,
                                          size_t at, size_t count,
                                          const void *right, float *g)
{
    typedef uint16_t FOREIGN half_t;
    typedef float FOREIGN element_t;
    const element_t *from = right;
    const half_t *old = (const half_t *)of->velocity + at;
    const float m = (float)of->momentum, later = m / (1 - m);
    uint16_t halves[BLOCK];
    fetch(old, count * sizeof *old);
    for (size_t j = 0; j < count; j++) {
        float last = baton__f32_of_bf16(old[j]), next = from[j];
        float u = of->nesterov ? (last + next) * m : last * m + next;
        halves[j] = baton__bf16_of_f32(u);
        float lost = u - baton__f32_of_bf16(halves[j]);
        /* The velocity loses `lost` by its rounding. In later steps this part
           would have contributed lost * m / (1 - m) in all, so this is added
           now. An infinite or NaN `lost` (then lost - lost is not 0) adds
           nothing. */
        lost = lost - lost == 0 ? lost * later : 0;
        g[j] = (of->nesterov ? u + next : u) + lost;
    }
    select_kernels_put((char *)of->new_velocity + at * sizeof *old, halves,
                       count * sizeof *old, of->stream && count == BLOCK);
    return g;
}
#define SHORT_2(of, at, count, right, g) (right)
#define SHORT_4                          momentum_short
#define SHORT_8                          SHORT_2

#define COMPUTE(NAME, name, bytes, type, digits)                               \
    typedef type FOREIGN name##_t;                                             \
    static inline void scale_block_##name(name##_t *to, const name##_t *from,  \
                                          size_t count, double factor)         \
    {                                                                          \
        for (size_t j = 0; j < count; j++) {                                   \
            to[j] = baton__write_##name((baton__wide_##name)(                  \
                (double)baton__read_##name(from[j]) * factor));                \
        }                                                                      \
    }                                                                          \
    static void scale_##name(void *values, size_t count, double factor)        \
    {                                                                          \
        scale_block_##name(values, values, count, factor);                     \
    }                                                                          \
    static inline void compute_##name(const baton_accumulation_t *of,          \
                                      size_t at, size_t count, type *sums)     \
    {                                                                          \
        static const type zeros[BLOCK];                                        \
        type scaled[BLOCK], velocity[BLOCK];                                   \
        const size_t length = count * sizeof(type);                            \
        const name##_t *left = of->left, *right = of->right;                   \
        left = left != NULL ? left + at : zeros;                               \
        right += at;                                                           \
        fetch(left, of->left != NULL ? length : 0);                            \
        fetch(right, length);                                                  \
        if (of->scale) {                                                       \
            scale_block_##name(scaled, right, count, of->factor);              \
            right = scaled;                                                    \
        }                                                                      \
        if (of->short_velocity) {                                              \
            right = SHORT_##bytes(of, at, count, right, velocity);             \
        } else if (of->velocity != NULL) {                                     \
            const name##_t *old = (const name##_t *)of->velocity + at;         \
            fetch(old, length);                                                \
            if (of->nesterov) {                                                \
                ADD_##bytes(BATON_##NAME, velocity, old, right, count);        \
                scale_block_##name(velocity, velocity, count, of->momentum);   \
                ADD_##bytes(BATON_##NAME, sums, velocity, right, count);       \
                right = sums;                                                  \
            } else {                                                           \
                scale_block_##name(velocity, old, count, of->momentum);        \
                ADD_##bytes(BATON_##NAME, velocity, velocity, right, count);   \
                right = velocity;                                              \
            }                                                                  \
        }                                                                      \
        ADD_##bytes(BATON_##NAME, sums, left, right, count);                   \
        select_kernels_put((char *)of->sum + at * sizeof(type), sums, length,  \
                           of->stream);                                        \
        if (of->velocity != NULL && !of->short_velocity) {                     \
            select_kernels_put((char *)of->new_velocity + at * sizeof(type),   \
                               velocity, length, of->stream);                  \
        }                                                                      \
    }

BATON_FLOAT_LIST(COMPUTE)

/* ---- search for large elements ----------------------------------------- */

/* Packs BLOCK flags into bits. The first flag becomes the lowest bit. */
static inline uint64_t bits_of_flags(const uint8_t *flags)
{
    uint64_t bits = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    /* The multiplication gathers the lowest bits of 8 bytes in the product's
       highest byte. */
    for (size_t i = 0; i < BLOCK / 8; i++) {
        uint64_t word;
        memcpy(&word, flags + 8 * i, sizeof word);
        bits |= (word * UINT64_C(0x0102040810204080)) >> 56 << (8 * i);
    }
#else
    for (size_t i = 0; i < BLOCK; i++) {
        bits |= (uint64_t)flags[i] << i;
    }
#endif
    return bits;
}

#define KEY(bits, signed_type)                                                 \
    (signed_type)((signed_type)((bits) ^ flip) & mask)

/* Defines a function that goes over the elements of a block, and writes the
   index and the bits of each element that reaches the threshold. */
#define FIND(name, signed_type)                                                \
    static inline size_t name(                                                 \
        const void *block, size_t length, const baton__filter_t *filter,       \
        uint64_t threshold, uint32_t first, uint32_t *indices, void *values)   \
    {                                                                          \
        typedef signed_type FOREIGN element_t;                                 \
        const element_t *v = block;                                            \
        element_t *to = values;                                                \
        const signed_type flip = (signed_type)filter->flip;                    \
        const signed_type mask = (signed_type)filter->mask;                    \
        const signed_type least = (signed_type)threshold;                      \
        uint8_t flags[BLOCK] = {0};                                            \
        uint64_t any = 0;                                                      \
        size_t found = 0;                                                      \
        for (size_t j = 0; j < length; j++) {                                  \
            flags[j] = KEY(v[j], signed_type) >= least;                        \
        }                                                                      \
        for (size_t j = 0; j < BLOCK / 8; j++) {                               \
            uint64_t word;                                                     \
            memcpy(&word, flags + 8 * j, sizeof word);                         \
            any |= word;                                                       \
        }                                                                      \
        for (uint64_t bits = any != 0 ? bits_of_flags(flags) : 0; bits != 0;   \
             bits &= bits - 1) {                                               \
            size_t at = baton__lowest_bit(bits);                               \
            indices[found] = first + (uint32_t)at;                             \
            to[found++] = v[at];                                               \
        }                                                                      \
        return found;                                                          \
    }

FIND(find_2, int16_t)
FIND(find_4_plain, int32_t)
FIND(find_8, int64_t)

#if defined(__AVX512F__)
/* Compresses vectors by masks instead of branching on each element, since
   branches would be mispredicted at elements that reach the threshold. Each
   store writes a whole vector. */
static inline size_t find_4(const void *block, size_t length,
                            const baton__filter_t *filter, uint64_t threshold,
                            uint32_t first, uint32_t *indices, void *values)
{
    if (length < BLOCK) {
        return find_4_plain(block, length, filter, threshold, first, indices,
                            values);
    }
    const __m512i flip = _mm512_set1_epi32((int32_t)(uint32_t)filter->flip);
    const __m512i mask = _mm512_set1_epi32((int32_t)(uint32_t)filter->mask);
    const __m512i least = _mm512_set1_epi32((int32_t)threshold);
    const __m512i lanes =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i bits[BLOCK / 16];
    __mmask16 hit[BLOCK / 16];
    uint32_t any = 0;
    for (size_t j = 0; j < BLOCK / 16; j++) {
        bits[j] = _mm512_loadu_si512((const uint32_t *)block + 16 * j);
        hit[j] = _mm512_cmpge_epi32_mask(
            _mm512_and_epi32(_mm512_xor_epi32(bits[j], flip), mask), least);
        any |= hit[j];
    }
    size_t found = 0;
    for (size_t j = 0; any != 0 && j < BLOCK / 16; j++) {
        __m512i index = _mm512_add_epi32(
            lanes, _mm512_set1_epi32((int32_t)(first + 16 * j)));
        _mm512_storeu_si512(indices + found,
                            _mm512_maskz_compress_epi32(hit[j], index));
        _mm512_storeu_si512((uint32_t *)values + found,
                            _mm512_maskz_compress_epi32(hit[j], bits[j]));
        found += (size_t)__builtin_popcount(hit[j]);
    }
    return found;
}
#else
#define find_4 find_4_plain
#endif

/* ---- passes ------------------------------------------------------------ */

#define PASS(NAME, name, bytes, type, digits)                                  \
    static inline size_t block_##name(                                         \
        const baton_accumulation_t *of, size_t at, size_t length,              \
        const baton__filter_t *filter, uint64_t threshold, uint32_t *indices,  \
        void *values)                                                          \
    {                                                                          \
        _Alignas(LINE) type sums[BLOCK];                                       \
        const void *block = (const type *)of->sum + at;                        \
        if (of->right != NULL) {                                               \
            compute_##name(of, at, length, sums);                              \
            block = sums;                                                      \
        } else {                                                               \
            fetch(block, length * sizeof(type));                               \
        }                                                                      \
        return threshold == 0                                                  \
                   ? 0                                                         \
                   : find_##bytes(block, length, filter, threshold,            \
                                  of->first + (uint32_t)at, indices, values);  \
    }                                                                          \
    static size_t pass_##name(const baton_accumulation_t *of, size_t at,       \
                              size_t count, const baton__filter_t *filter,     \
                              uint64_t threshold, uint32_t *indices,           \
                              void *values)                                    \
    {                                                                          \
        size_t found = 0;                                                      \
        for (; count >= BLOCK; count -= BLOCK, at += BLOCK) {                  \
            found += block_##name(of, at, BLOCK, filter, threshold,            \
                                  indices + found, (type *)values + found);    \
        }                                                                      \
        return found + block_##name(of, at, count, filter, threshold,          \
                                    indices + found, (type *)values + found);  \
    }

BATON_FLOAT_LIST(PASS)

/* The inner loop counts in `here`, which is as wide as an element, so that the
   loop vectorises well. The loop reads at most 16384 elements, so `here` can't
   overflow. */
#define COUNT(name, signed_type)                                               \
    static size_t name(const void *values, size_t count,                       \
                       const baton__filter_t *filter, uint64_t threshold)      \
    {                                                                          \
        typedef signed_type FOREIGN element_t;                                 \
        const element_t *v = values;                                           \
        const signed_type flip = (signed_type)filter->flip;                    \
        const signed_type mask = (signed_type)filter->mask;                    \
        const signed_type least = (signed_type)threshold;                      \
        const size_t most = 16384;                                             \
        size_t found = 0;                                                      \
        for (size_t i = 0; i < count;) {                                       \
            size_t end = count - i < most ? count : i + most;                  \
            signed_type here = 0;                                              \
            for (; i < end; i++) {                                             \
                here =                                                         \
                    (signed_type)(here + (KEY(v[i], signed_type) >= least));   \
            }                                                                  \
            found += (size_t)here;                                             \
        }                                                                      \
        return found;                                                          \
    }

COUNT(count_2, int16_t)
COUNT(count_4, int32_t)
COUNT(count_8, int64_t)

/* ---- sums of magnitudes ------------------------------------------------ */

/* The partial sums (lanes) are vector variables of the instruction set, because
   compilers would keep an array of LANES sums in memory instead of
   registers. */
#if defined(__AVX512F__)
#define WIDTH 8
#elif defined(__AVX__)
#define WIDTH 4
#else
#define WIDTH 2
#endif
#define VECTOR(type) __attribute__((vector_size(WIDTH * sizeof(type)))) type

typedef VECTOR(double) doubles_t;
typedef VECTOR(float) floats_t;
typedef VECTOR(int32_t) keys_32_t;
typedef VECTOR(int64_t) keys_64_t;

/* The order of additions: element i of a tile is added to lane i % LANES, which
   suits vectors of any width; then the tile's lanes are added up. Tile t is
   added to lane t % TILE_LANES of the whole, whose halves are added until one
   lane is left. A GPU adds in the same order, many tiles at a time
   (cuda/select_kernels.cuh). */
static double sum_of_lanes(const doubles_t *lanes)
{
    double sum = 0;
    for (size_t j = 0; j < LANES; j++) {
        sum += lanes[j / WIDTH][j % WIDTH];
    }
    return sum;
}

static double sum_of_tiles(double *lanes)
{
    for (size_t half = TILE_LANES / 2; half > 0; half /= 2) {
        for (size_t j = 0; j < half; j++) {
            lanes[j] += lanes[j + half];
        }
    }
    return lanes[0];
}

static inline doubles_t value_32(keys_32_t keys)
{
#if defined(__AVX512F__) /* gcc 12 would convert only four floats at a time */
    return (doubles_t)_mm512_cvtps_pd((__m256)keys);
#else
    return __builtin_convertvector((floats_t)keys, doubles_t);
#endif
}

static inline doubles_t value_64(keys_64_t keys)
{
    return (doubles_t)keys;
}

/* Converts f16 to f32 by the processor's own instruction, which compilers do
   not use. Returns the number of converted elements: 0 if there is no such
   instruction. */
static inline size_t widen_f16(const char *at, size_t count, float *widened)
{
    size_t done = 0;
#if defined(__F16C__)
    for (; done + 8 <= count; done += 8) {
        __m128i halves = _mm_loadu_si128((const void *)(at + 2 * done));
        _mm256_storeu_ps(widened + done, _mm256_cvtph_ps(halves));
    }
#endif
    return done;
}

/* Defines two functions for halves. tile_NAME returns a tile's elements,
   converted to f32 in `widened`. key_NAME returns the key of a half, given the
   key of its f32. */
#define HALVES(name, done)                                                     \
    static inline const char *tile_##name(const char *at, size_t count,        \
                                          float *restrict widened)             \
    {                                                                          \
        typedef uint16_t FOREIGN element_t;                                    \
        const element_t *v = (const void *)at;                                 \
        for (size_t i = done; i < count; i++) {                                \
            widened[i] = baton__f32_of_##name(v[i]);                           \
        }                                                                      \
        return (const char *)widened;                                          \
    }                                                                          \
    static inline uint64_t key_##name(uint64_t key)                            \
    {                                                                          \
        return baton__##name##_of_f32(baton__f32_of_bits((uint32_t)key));      \
    }

HALVES(f16, widen_f16(at, count, widened))
HALVES(bf16, 0)
#define AS_THEY_ARE(at, count, widened) at
#define AS_IT_IS(key)                   key

/* Defines the function that sums the magnitudes of elements of `bytes` bytes,
   which it reads as floats of `bits` bits. The last block is padded with zeros,
   which change no sum. */
#define MEASURE(name, bytes, bits, tile_of, key_of)                            \
    static inline void name##_block(const char *at, doubles_t *sums,           \
                                    doubles_t *squares,                        \
                                    keys_##bits##_t *largest)                  \
    {                                                                          \
        keys_##bits##_t keys[LANES / WIDTH];                                   \
        memcpy(keys, at, sizeof keys);                                         \
        for (size_t j = 0; j < LANES / WIDTH; j++) {                           \
            keys_##bits##_t key = keys[j] & INT##bits##_MAX;                   \
            keys_##bits##_t more = key > largest[j];                           \
            doubles_t x = value_##bits(key);                                   \
            sums[j] += x;                                                      \
            squares[j] += x * x;                                               \
            largest[j] = (key & more) | (largest[j] & ~more);                  \
        }                                                                      \
    }                                                                          \
    static void name(const void *values, size_t count,                         \
                     baton_magnitudes_t *out)                                  \
    {                                                                          \
        enum { BLOCK_BYTES = LANES * (bits) / 8 };                             \
        const char *from = values;                                             \
        double all_sums[TILE_LANES] = {0}, all_squares[TILE_LANES] = {0};      \
        keys_##bits##_t largest[LANES / WIDTH] = {0};                          \
        float widened[MEASURE_TILE];                                           \
        (void)widened;                                                         \
        for (size_t tile = 0; count > 0; tile++) {                             \
            size_t left = count < MEASURE_TILE ? count : MEASURE_TILE;         \
            doubles_t sums[LANES / WIDTH] = {0}, squares[LANES / WIDTH] = {0}; \
            const char *at = tile_of(from, left, widened);                     \
            from += left * (bytes);                                            \
            count -= left;                                                     \
            for (; left >= LANES; left -= LANES, at += BLOCK_BYTES) {          \
                PREFETCH(at + AHEAD_BYTES);                                    \
                name##_block(at, sums, squares, largest);                      \
            }                                                                  \
            if (left > 0) {                                                    \
                char rest[BLOCK_BYTES] = {0};                                  \
                memcpy(rest, at, left *(bits) / 8);                            \
                name##_block(rest, sums, squares, largest);                    \
            }                                                                  \
            all_sums[tile % TILE_LANES] += sum_of_lanes(sums);                 \
            all_squares[tile % TILE_LANES] += sum_of_lanes(squares);           \
        }                                                                      \
        *out = (baton_magnitudes_t){.sum = sum_of_tiles(all_sums),             \
                                    .square_sum = sum_of_tiles(all_squares)};  \
        for (size_t j = 0; j < LANES; j++) {                                   \
            uint64_t key = (uint64_t)largest[j / WIDTH][j % WIDTH];            \
            out->largest = key > out->largest ? key : out->largest;            \
        }                                                                      \
        out->largest = key_of(out->largest);                                   \
    }

MEASURE(measure_f16, 2, 32, tile_f16, key_f16)
MEASURE(measure_bf16, 2, 32, tile_bf16, key_bf16)
MEASURE(measure_f32, 4, 32, AS_THEY_ARE, AS_IT_IS)
MEASURE(measure_f64, 8, 64, AS_THEY_ARE, AS_IT_IS)

/* ---- the table --------------------------------------------------------- */

#define ROW(NAME, name, bytes, ...)                                            \
    [BATON_##NAME] = {.pass = pass_##name,                                     \
                      .scale = scale_##name,                                   \
                      .count = count_##bytes,                                  \
                      .measure = measure_##name},

const baton__select_kernels_t JOIN(baton__select_kernels_,
                                   BATON__KERNELS_ISA) = {
    .of = {BATON_FLOAT_LIST(ROW)},
    .stream_end = stream_end,
};
