/* Exact selection. The k-th magnitude of a vector is estimated from a sample,
   on the low side; one pass writes down the candidates, i.e. the elements from
   there on; the exact threshold is found among these.

       sample --> estimate --> filter --> exact k-th of the candidates
                     ^           |  |
                     |           |  +-- too few: half of the estimate
                     |           v
                     |       too many: the estimate is the threshold, if it is
                     |           |     tied
                     |           v
                     +--- more than the estimate; then the exact k-th of all

   Positions of the sample are random, one from each stratum, so the
   estimate's error does not depend on the values' distribution, nor on their
   order. Ties alone can make candidates too many; then the threshold is most
   likely the value that is tied, and one more pass for the larger ones tells.

   Where the vector is a sum that is still to be computed, the sample is one of
   sums, and the first pass computes them: a tile of the vector is added up and
   then filtered, while it is in the first-level cache. The tile of a vector
   that no cache will hold is added up elsewhere, and then stored past the
   caches, which spares reading what it overwrites. */
#include "ops/select.h"
#include "base/error.h"

#include "base/random.h"
#include "ops/bits.h"

#include <math.h>
#include <string.h>

enum {
    SMALL_COUNT = 4096, /* every element is a candidate */
    SAMPLE_LEAST = 1024,
    SAMPLE_MOST = 16384,
    SAMPLE_SHARE = 256, /* of a vector in between: one in so many */
    DEVIATIONS = 4,     /* by which the estimate is on the safe side */
    CANDIDATE_BYTES = sizeof(uint64_t) + sizeof(uint32_t),
    DIGIT_BITS = 11,
    FEW = 2048,  /* keys that are collected on the stack */
    SHORT = 512, /* the same, within a search for the k-th */
    DIGITS = 1 << DIGIT_BITS,
    TILE_BYTES = 8192, /* of a vector that is computed; three are in use */
    GATHERED = 256,    /* elements of a sample that are read at a time */
    CACHED_BYTES = 512 << 10, /* of a vector up to which two passes are cheaper
                                 than a sample of sums */
    STREAM_BYTES = 8 << 20    /* from which on a vector is not in caches */
};

/* What the elements are the sums of. */
typedef struct addends {
    const char *left, *right;
    bool stream; /* the sums are not read again soon */
} addends_t;

/* ---- scratch ----------------------------------------------------------- */

static size_t sample_of(size_t count)
{
    size_t size = count / SAMPLE_SHARE;
    size = size < SAMPLE_LEAST ? SAMPLE_LEAST : size;
    return size > SAMPLE_MOST ? SAMPLE_MOST : size;
}

/* As many as nearly every sample's estimate leaves. It grows with both, so that
   memory for a long vector does for a short one. */
size_t baton_candidates_room(size_t count, size_t k)
{
    if (count <= SMALL_COUNT) {
        return count;
    }
    k = k < count ? k : count;
    double per_sample = (double)count / SAMPLE_LEAST;
    per_sample = per_sample > SAMPLE_SHARE + 1 ? SAMPLE_SHARE + 1 : per_sample;
    double share = (double)count / SAMPLE_MOST;
    per_sample = per_sample > share ? per_sample : share;
    double most = SMALL_COUNT + (double)k +
                  3 * DEVIATIONS * sqrt((double)k * per_sample) +
                  3 * DEVIATIONS * DEVIATIONS * per_sample;
    return most < (double)count ? (size_t)most : count;
}

size_t baton_select_scratch_bytes(size_t count, size_t k)
{
    size_t candidates = baton_candidates_room(count, k);
    size_t sample = count > SMALL_COUNT ? sample_of(count) : 0;
    size_t entries = candidates > sample ? candidates : sample;
    return entries * CANDIDATE_BYTES + sizeof(uint64_t);
}

/* ---- the k-th of a list of keys ---------------------------------------- */

static unsigned width_of(uint64_t value)
{
    unsigned bits = 0;
    for (; value != 0; value >>= 1) {
        bits++;
    }
    return bits;
}

/* The digit in which the k-th largest of the histogram lies; *k becomes its
   rank among those of this digit. */
static size_t digit_of(const uint32_t *histogram, size_t *k)
{
    size_t digit = DIGITS;
    size_t above = 0;
    while (digit > 0 && above < *k) {
        above += histogram[--digit];
    }
    *k -= above - histogram[digit];
    return digit;
}

/* The keys that begin with a prefix, which are at most SHORT. `out` has room
   for one more, since each key is written before it is compared. */
static size_t collect(const uint64_t *keys, size_t count, unsigned shift,
                      uint64_t prefix, uint64_t *out)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        out[found] = keys[i];
        found += keys[i] >> shift == prefix;
    }
    return found;
}

/* The k-th largest, k from 1 to count: digit by digit from the highest one in
   which keys differ. *k becomes its rank among those that equal it. */
static uint64_t kth_of_keys(const uint64_t *keys, size_t count, size_t *k)
{
    uint64_t few[SHORT + 1];
    uint64_t every = keys[0], any = keys[0];
    for (size_t i = 1; i < count; i++) {
        every &= keys[i];
        any |= keys[i];
    }
    unsigned bits = width_of(every ^ any);
    uint64_t prefix = bits < 64 ? keys[0] >> bits : 0;
    while (bits > 0) {
        uint32_t histogram[DIGITS] = {0};
        unsigned shift = bits > DIGIT_BITS ? bits - DIGIT_BITS : 0;
        uint64_t mask = (UINT64_C(1) << (bits - shift)) - 1;
        for (size_t i = 0; i < count; i++) {
            if (bits >= 64 || keys[i] >> bits == prefix) {
                histogram[(keys[i] >> shift) & mask]++;
            }
        }
        size_t digit = digit_of(histogram, k);
        prefix = (prefix << (bits - shift)) | digit;
        bits = shift;
        if (bits > 0 && histogram[digit] <= SHORT && keys != few) {
            count = collect(keys, count, bits, prefix, few);
            keys = few;
        }
    }
    return prefix;
}

/* The same, where it is known to lie between two keys, the higher one of which
   is a guess: one pass puts keys into bins, one collects those of a bin, which
   are few. False: the guess was wrong, or they are not few. */
static bool kth_between(const uint64_t *keys, size_t count, uint64_t low,
                        uint64_t high, size_t *k, uint64_t *out)
{
    uint64_t few[FEW];
    uint32_t histogram[DIGITS] = {0};
    unsigned bits = width_of(high - low);
    unsigned shift = bits >= DIGIT_BITS ? bits - DIGIT_BITS + 1 : 0;
    size_t rank = *k, found = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bin = (keys[i] - low) >> shift;
        histogram[bin < DIGITS ? bin : DIGITS - 1]++;
    }
    size_t bin = digit_of(histogram, &rank);
    if (bin == DIGITS - 1 || histogram[bin] > FEW) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if ((keys[i] - low) >> shift == bin) {
            few[found++] = keys[i];
        }
    }
    *out = kth_of_keys(few, found, &rank);
    *k = rank;
    return true;
}

/* ---- estimate ---------------------------------------------------------- */

/* Keys between which the k-th largest lies, most likely; the lower one is at
   least 1. */
typedef struct estimate {
    uint64_t low;
    uint64_t high; /* 0: unknown */
} estimate_t;

/* Positions of a sample, one from each of `size` strata. */
typedef struct strata {
    size_t count; /* of elements */
    size_t size;
    double stride;
} strata_t;

static strata_t strata_of(size_t count)
{
    size_t size = sample_of(count);
    return (strata_t){count, size, (double)count / (double)size};
}

static size_t position_of(const strata_t *strata, size_t i)
{
    size_t begin = (size_t)(strata->stride * (double)i);
    size_t end = (size_t)(strata->stride * (double)(i + 1));
    uint64_t random = baton__random(1, strata->count, i) >> 32;
    return begin + (size_t)(random * (end - begin) >> 32);
}

static void add(baton_dtype_t dtype, void *sum, const void *left,
                const void *right, size_t count)
{
    BATON_SUM->reduce(BATON_SUM->arg, sum, left, right, count, dtype);
}

/* Of elements, or with `of` of sums that are not there yet. */
static void draw_sample(const baton_selection_t *from, const addends_t *of,
                        const baton__filter_t *filter, const strata_t *strata,
                        uint64_t *sample)
{
    _Alignas(64) char left[GATHERED * sizeof(double)], right[sizeof left];
    size_t at[GATHERED];
    const size_t bytes = baton_dtype_size(from->dtype);
    const baton_selection_t sums = {.dtype = from->dtype, .values = left};
    for (size_t done = 0; done < strata->size; done += GATHERED) {
        size_t rest = strata->size - done;
        size_t count = rest < GATHERED ? rest : GATHERED;
        for (size_t i = 0; i < count; i++) {
            at[i] = position_of(strata, done + i);
            if (of != NULL) {
                PREFETCH(of->left + at[i] * bytes);
                PREFETCH(of->right + at[i] * bytes);
            } else {
                PREFETCH((const char *)from->values + at[i] * bytes);
            }
        }
        for (size_t i = 0; i < count && of != NULL; i++) {
            memcpy(left + i * bytes, of->left + at[i] * bytes, bytes);
            memcpy(right + i * bytes, of->right + at[i] * bytes, bytes);
            at[i] = i;
        }
        if (of != NULL) {
            add(from->dtype, left, left, right, count);
        }
        for (size_t i = 0; i < count; i++) {
            sample[done + i] =
                baton__key_at(of != NULL ? &sums : from, filter, at[i]);
        }
    }
}

static estimate_t estimate(const baton_selection_t *from, const addends_t *of,
                           const baton__filter_t *filter, size_t k,
                           uint64_t *sample)
{
    strata_t strata = strata_of(from->count);
    size_t size = strata.size;
    draw_sample(from, of, filter, &strata, sample);
    double expected = (double)size * (double)k / (double)from->count;
    double margin = DEVIATIONS * sqrt(expected) + DEVIATIONS;
    estimate_t result = {.low = 1};
    if (expected + margin < (double)size) {
        size_t rank = (size_t)(expected + margin) + 1;
        uint64_t key = kth_of_keys(sample, size, &rank);
        result.low = key > 0 ? key : 1;
    }
    /* The largest of the sample where it should have few of the k. */
    size_t rank = expected - margin >= 1 ? (size_t)(expected - margin) : 1;
    result.high = kth_of_keys(sample, size, &rank);
    return result;
}

/* ---- exact, without memory --------------------------------------------- */

/* The k-th largest of all elements, where at least k are not zero: as
   kth_of_keys, which reads the elements themselves in each round. */
static uint64_t kth_of_elements(const baton_selection_t *from,
                                const baton__filter_t *filter, size_t k)
{
    unsigned bits = width_of(filter->nan);
    uint64_t prefix = 0;
    while (bits > 0) {
        uint32_t histogram[DIGITS] = {0};
        unsigned shift = bits > DIGIT_BITS ? bits - DIGIT_BITS : 0;
        uint64_t mask = (UINT64_C(1) << (bits - shift)) - 1;
        for (size_t i = 0; i < from->count; i++) {
            uint64_t key = baton__key_at(from, filter, i);
            if (key >> bits == prefix) {
                histogram[(key >> shift) & mask]++;
            }
        }
        prefix = (prefix << (bits - shift)) | digit_of(histogram, &k);
        bits = shift;
    }
    return prefix;
}

/* `candidates` are the first elements that reach `key`, at least k of them, and
   are more than there is room for. Where fewer than k are above it, the result
   is these and the first that equal it; else SIZE_MAX. */
static size_t take_ties(const baton_selection_t *from,
                        const baton__filter_t *filter, size_t k, uint64_t key,
                        const uint32_t *candidates, const uint64_t *keys,
                        uint32_t *indices)
{
    size_t above = 0;
    if (key < filter->nan) {
        above = baton__select_kernels()->filter[from->dtype](
            from->values, from->count, filter, key + 1, from->first, indices,
            NULL, k);
    }
    if (above >= k) { /* the threshold lies above the key */
        return SIZE_MAX;
    }
    size_t next = 0; /* behind the last candidate that is needed */
    for (size_t equal = above; equal < k; next++) {
        equal += keys[next] == key;
    }
    /* Both are ascending: merged from the end, in place. */
    for (size_t to = k; to > above; to--) {
        while (next > 0 && keys[next - 1] != key) {
            next--;
        }
        bool tie = above == 0 || candidates[next - 1] > indices[above - 1];
        indices[to - 1] = tie ? candidates[--next] : indices[--above];
    }
    return k;
}

/* ---- top-k ------------------------------------------------------------- */

/* The k largest of the candidates, which are all elements from `low` on. */
static size_t choose(const uint32_t *candidates, const uint64_t *keys,
                     size_t count, size_t k, estimate_t where,
                     uint32_t *indices, uint64_t *threshold)
{
    size_t equal = k; /* how many of those that equal the threshold */
    if (where.high <= where.low ||
        !kth_between(keys, count, where.low, where.high, &equal, threshold)) {
        *threshold = kth_of_keys(keys, count, &equal);
    }
    size_t written = 0;
    /* Without branches: half of the comparisons would be mispredicted. */
    for (size_t i = 0; i < count && written < k; i++) {
        bool tie = (keys[i] == *threshold) & (equal > 0);
        indices[written] = candidates[i];
        written += (keys[i] > *threshold) | tie;
        equal -= tie;
    }
    return written;
}

static uint64_t lowest_key(const uint64_t *keys, size_t count)
{
    uint64_t lowest = count > 0 ? keys[0] : 0;
    for (size_t i = 1; i < count; i++) {
        lowest = keys[i] < lowest ? keys[i] : lowest;
    }
    return lowest;
}

/* Walks over a vector in tiles, each of which is added up first where the
   vector is a sum to be computed. One of `of->stream` is then in the buffer,
   and stored past the caches when the next one is asked for, whose addends are
   fetched meanwhile. */
typedef struct tiles {
    const baton_selection_t *from;
    const addends_t *of; /* NULL: nothing is to be computed */
    char *buffer;        /* of TILE_BYTES */
    size_t first, count; /* of the present tile's elements */
    const char *at;      /* where these are */
} tiles_t;

static bool next_tile(tiles_t *t)
{
    if (t->from->count == 0) {
        return false; /* there may be no vector */
    }
    const addends_t *of = t->of;
    const size_t bytes = baton_dtype_size(t->from->dtype);
    const size_t tile = TILE_BYTES / bytes;
    char *sums = (char *)(uintptr_t)t->from->values + t->first * bytes;
    bool stream = of != NULL && of->stream;
    if (stream && t->count > 0) {
        size_t offset = t->first * bytes;
        offset +=
            t->from->count - t->first >= 2 * t->count ? t->count * bytes : 0;
        baton__select_kernels()->stream(sums, t->buffer, t->count * bytes,
                                        of->left + offset, of->right + offset);
    }
    sums += t->count * bytes;
    t->first += t->count;
    size_t rest = t->from->count - t->first;
    t->count = rest < tile ? rest : tile;
    if (stream && rest == 0) {
        baton__select_kernels()->stream_end();
    } else if (of != NULL && rest > 0) {
        add(t->from->dtype, stream ? t->buffer : sums,
            of->left + t->first * bytes, of->right + t->first * bytes,
            t->count);
    }
    t->at = stream ? t->buffer : sums;
    return rest > 0;
}

/* Computes the sums, and writes down those from a key on, as the filter does.
 */
static size_t add_and_filter(const baton_selection_t *from, const addends_t *of,
                             const baton__filter_t *filter, uint64_t least,
                             uint32_t *indices, uint64_t *keys, size_t capacity)
{
    _Alignas(64) char buffer[TILE_BYTES];
    baton__filter_fn pass = baton__select_kernels()->filter[from->dtype];
    tiles_t tiles = {.from = from, .of = of, .buffer = buffer};
    size_t found = 0;
    while (next_tile(&tiles)) {
        if (found <= capacity) {
            found += pass(tiles.at, tiles.count, filter, least,
                          from->first + (uint32_t)tiles.first, indices + found,
                          keys != NULL ? keys + found : NULL, capacity - found);
        }
    }
    return found;
}

static uint64_t halved(baton_dtype_t dtype, uint64_t key)
{
    uint64_t half =
        baton_magnitude_of(dtype, baton_magnitude_value(dtype, key) / 2);
    return half > 0 ? half : 1;
}

static size_t copy_all(const uint32_t *candidates, const uint64_t *keys,
                       size_t count, uint32_t *indices, uint64_t *threshold)
{
    if (count > 0) {
        memcpy(indices, candidates, count * sizeof *indices);
    }
    *threshold = lowest_key(keys, count);
    return count;
}

/* Where fewer than k elements reach the lower estimate, half of its magnitude
   is tried, then everything that is not zero; where too many reach it, and it
   is not the threshold, the next key, then the exact one. */
static size_t select_from(const baton_selection_t *from, const addends_t *of,
                          const baton__filter_t *filter, size_t k,
                          estimate_t where, uint32_t *indices, void *scratch,
                          uint64_t *threshold)
{
    size_t capacity = baton_candidates_room(from->count, k);
    uint64_t *keys = scratch;
    uint32_t *candidates = (uint32_t *)(keys + capacity);
    baton__filter_fn pass = baton__select_kernels()->filter[from->dtype];
    int raised = 0, lowered = 0;
    for (;;) {
        size_t found = of != NULL
                           ? add_and_filter(from, of, filter, where.low,
                                            candidates, keys, capacity)
                           : pass(from->values, from->count, filter, where.low,
                                  from->first, candidates, keys, capacity);
        of = NULL; /* the sums are there */
        if (found > capacity) {
            *threshold = where.low;
            if (take_ties(from, filter, k, where.low, candidates, keys,
                          indices) == k) {
                return k;
            }
            where = (estimate_t){.low = raised++ == 0
                                            ? where.low + 1
                                            : kth_of_elements(from, filter, k)};
        } else if (found > k) {
            return choose(candidates, keys, found, k, where, indices,
                          threshold);
        } else if (found == k || where.low == 1) {
            return copy_all(candidates, keys, found, indices, threshold);
        } else {
            uint64_t half = halved(from->dtype, where.low);
            where = (estimate_t){.low = lowered++ == 0 ? half : 1};
        }
    }
}

static size_t select_topk(const baton_selection_t *from, const addends_t *of,
                          size_t k, uint32_t *indices, void *scratch,
                          baton_magnitude_t *threshold_out)
{
    baton__filter_t filter = baton__filter_of(from->dtype, from->side);
    uint64_t threshold = 0;
    estimate_t where = {.low = 1};
    k = k < from->count ? k : from->count;
    if (from->count > SMALL_COUNT) {
        where = estimate(from, of, &filter, k, scratch);
    }
    size_t found =
        select_from(from, of, &filter, k, where, indices, scratch, &threshold);
    if (threshold_out != NULL) {
        *threshold_out = threshold;
    }
    return found;
}

size_t baton_select_topk(const baton_selection_t *from, size_t k,
                         uint32_t *indices, void *scratch,
                         baton_magnitude_t *threshold_out)
{
    if (!baton__topk_given(from, k, indices, scratch, __func__)) {
        return 0;
    }
    if (k > 0 && from->count > 0) {
        return select_topk(from, NULL, k, indices, scratch, threshold_out);
    }
    if (threshold_out != NULL) {
        *threshold_out = 0;
    }
    return 0;
}

/* ---- of sums ----------------------------------------------------------- */

/* optional: without `left`, the sums are there. */
static bool accumulation_given(const baton_accumulation_t *of, bool optional,
                               const char *function)
{
    return baton__is_given(of, true, function, "of") &&
           baton__is_selectable(of->dtype, function) &&
           baton__is_given(of->sum, of->count > 0, function, "of->sum") &&
           baton__is_given(of->left, of->count > 0 && !optional, function,
                           "of->left") &&
           baton__is_given(of->right,
                           of->count > 0 && (of->left != NULL || !optional),
                           function, "of->right");
}

static baton_selection_t selection_of(const baton_accumulation_t *of)
{
    return (baton_selection_t){.dtype = of->dtype,
                               .side = of->side,
                               .values = of->sum,
                               .count = of->count,
                               .first = of->first};
}

static void add_all(const baton_accumulation_t *of)
{
    add(of->dtype, of->sum, of->left, of->right, of->count);
}

static bool is_streamed(const baton_accumulation_t *of)
{
    return of->stream ||
           of->count * baton_dtype_size(of->dtype) >= STREAM_BYTES;
}

size_t baton_accumulate_topk(const baton_accumulation_t *of, size_t k,
                             uint32_t *indices, void *scratch,
                             baton_magnitude_t *threshold_out)
{
    if (!accumulation_given(of, false, __func__)) {
        return 0;
    }
    const baton_selection_t from = selection_of(of);
    const addends_t addends = {of->left, of->right, is_streamed(of)};
    size_t bytes = of->count * baton_dtype_size(of->dtype);
    if (!baton__topk_given(&from, k, indices, scratch, __func__)) {
        return 0;
    }
    if (k > 0 && of->count > 0 && (addends.stream || bytes > CACHED_BYTES)) {
        return select_topk(&from, &addends, k, indices, scratch, threshold_out);
    }
    add_all(of);
    return baton_select_topk(&from, k, indices, scratch, threshold_out);
}

size_t baton_accumulate_at_least(const baton_accumulation_t *of,
                                 baton_magnitude_t threshold, uint32_t *indices,
                                 size_t capacity)
{
    if (!accumulation_given(of, false, __func__) ||
        !baton__is_given(indices, capacity > 0, __func__, "indices")) {
        return 0;
    }
    baton_selection_t from = selection_of(of);
    const addends_t addends = {of->left, of->right, is_streamed(of)};
    baton__filter_t filter = baton__filter_of(of->dtype, of->side);
    uint64_t least = threshold > 0 ? threshold : 1;
    if (least > filter.nan) {
        add_all(of);
        return 0; /* it may have more bits than an element */
    }
    size_t found = add_and_filter(&from, &addends, &filter, least, indices,
                                  NULL, capacity);
    return found <= capacity ? found : baton_select_count(&from, threshold);
}

/* ---- candidates -------------------------------------------------------- */

/* Entries of elements of a tile; indices begin with `first` there. */
static void put_candidates(baton_dtype_t dtype, const char *tile,
                           uint32_t first, const uint32_t *indices,
                           size_t count, char *to)
{
    size_t bytes = baton_dtype_size(dtype);
    for (size_t i = 0; i < count; i++, to += sizeof(uint32_t) + bytes) {
        const char *element = tile + (size_t)(indices[i] - first) * bytes;
        memcpy(to, &indices[i], sizeof(uint32_t));
        if (bytes == sizeof(uint32_t)) {
            memcpy(to + sizeof(uint32_t), element, sizeof(uint32_t));
        } else {
            memcpy(to + sizeof(uint32_t), element, bytes);
        }
    }
}

/* The candidates of a tile, while it is in a cache. */
static void add_candidates(const tiles_t *tile, const baton__filter_t *filter,
                           baton_candidates_t *candidates)
{
    uint32_t indices[TILE_BYTES / sizeof(uint16_t)];
    const baton_dtype_t dtype = tile->from->dtype;
    const uint32_t first = tile->from->first + (uint32_t)tile->first;
    size_t found = baton__select_kernels()->filter[dtype](
        tile->at, tile->count, filter, candidates->low, first, indices, NULL,
        tile->count);
    if (found > candidates->capacity - candidates->count) {
        candidates->low = 0;
        return;
    }
    put_candidates(dtype, tile->at, first, indices, found,
                   (char *)candidates->entries +
                       candidates->count * baton_entry_bytes(dtype));
    candidates->count += found;
}

void baton_candidates_find(const baton_accumulation_t *of, size_t k,
                           baton_candidates_t *candidates, void *scratch)
{
    if (!accumulation_given(of, true, __func__) ||
        !baton__is_given(candidates, true, __func__, "candidates") ||
        !baton__is_given(candidates->entries, candidates->capacity > 0,
                         __func__, "candidates->entries") ||
        !baton__is_given(scratch, k > 0 && of->count > 0, __func__,
                         "scratch")) {
        return;
    }
    _Alignas(64) char buffer[TILE_BYTES];
    const baton_selection_t from = selection_of(of);
    const addends_t both = {of->left, of->right, is_streamed(of)};
    const addends_t *addends = of->left != NULL ? &both : NULL;
    baton__filter_t filter = baton__filter_of(of->dtype, BATON_SIDE_BOTH);
    estimate_t where = {.low = 1};
    if (k > 0 && of->count > SMALL_COUNT) {
        where = estimate(&from, addends, &filter, k, scratch);
    }
    candidates->count = 0;
    candidates->low = where.low;
    candidates->high = where.high;
    tiles_t tiles = {.from = &from, .of = addends, .buffer = buffer};
    while (next_tile(&tiles)) {
        if (candidates->low > 0) {
            add_candidates(&tiles, &filter, candidates);
        }
    }
}

#define LIST_KEYS(name, type)                                                  \
    static size_t name(const char *at, size_t count,                           \
                       const baton__filter_t *filter, uint64_t low,            \
                       uint32_t *positions, uint64_t *keys)                    \
    {                                                                          \
        const size_t step = sizeof(uint32_t) + sizeof(type);                   \
        size_t found = 0;                                                      \
        for (size_t i = 0; i < count; i++, at += step) {                       \
            type bits;                                                         \
            memcpy(&bits, at + sizeof(uint32_t), sizeof bits);                 \
            uint64_t key = bits & filter->mask;                                \
            positions[found] = (uint32_t)i;                                    \
            keys[found] = key < filter->nan ? key : filter->nan;               \
            found += key >= low;                                               \
        }                                                                      \
        return found;                                                          \
    }

LIST_KEYS(list_keys_16, uint16_t)
LIST_KEYS(list_keys_32, uint32_t)
LIST_KEYS(list_keys_64, uint64_t)

static size_t list_keys(baton_dtype_t dtype, const char *entries, size_t count,
                        uint64_t low, uint32_t *positions, uint64_t *keys)
{
    baton__filter_t filter = baton__filter_of(dtype, BATON_SIDE_BOTH);
    size_t bytes = baton_dtype_size(dtype);
    return (bytes == sizeof(uint16_t) ? list_keys_16
            : bytes == sizeof(uint32_t)
                ? list_keys_32
                : list_keys_64)(entries, count, &filter, low, positions, keys);
}

size_t baton_entries_largest_scratch_bytes(size_t count, size_t k)
{
    return count * CANDIDATE_BYTES + (k + 2) * sizeof(uint32_t);
}

size_t baton_entries_largest(baton_dtype_t dtype, const void *entries,
                             size_t count, size_t k,
                             const baton_candidates_t *candidates, void *out,
                             void *scratch)
{
    bool any = count > 0 && k > 0;
    if (!baton__is_selectable(dtype, __func__) ||
        !baton__is_given(candidates, true, __func__, "candidates") ||
        !baton__is_given(entries, any, __func__, "entries") ||
        !baton__is_given(out, any, __func__, "out") ||
        !baton__is_given(scratch, any, __func__, "scratch")) {
        return 0;
    }
    if (k == 0) {
        return 0;
    }
    if (candidates->low == 0) {
        return SIZE_MAX;
    }
    const uint64_t low = candidates->low;
    uint64_t *keys = scratch, threshold;
    uint32_t *positions = (uint32_t *)(keys + count);
    uint32_t *chosen = positions + count;
    const size_t bytes = baton_entry_bytes(dtype);
    const char *list = entries;
    char *to = out;
    size_t found = list_keys(dtype, list, count, low, positions, keys);
    if (found < k && low > 1) {
        return SIZE_MAX;
    }
    if (found > k) {
        estimate_t where = {low, candidates->high};
        found = choose(positions, keys, found, k, where, chosen, &threshold);
        positions = chosen;
    }
    for (size_t i = 0; i < found; i++) {
        memcpy(to + i * bytes, list + positions[i] * bytes, bytes);
    }
    return found;
}

/* ---- by threshold ------------------------------------------------------ */

size_t baton_select_at_least(const baton_selection_t *from,
                             baton_magnitude_t threshold, uint32_t *indices,
                             size_t capacity)
{
    if (!baton__selection_given(from, __func__) ||
        !baton__is_given(indices, capacity > 0, __func__, "indices")) {
        return 0;
    }
    baton__filter_t filter = baton__filter_of(from->dtype, from->side);
    const baton__select_kernels_t *kernels = baton__select_kernels();
    uint64_t least = threshold > 0 ? threshold : 1;
    if (least > filter.nan) {
        return 0; /* it may have more bits than an element */
    }
    size_t found =
        kernels->filter[from->dtype](from->values, from->count, &filter, least,
                                     from->first, indices, NULL, capacity);
    return found <= capacity ? found : baton_select_count(from, threshold);
}

size_t baton_select_count(const baton_selection_t *from,
                          baton_magnitude_t threshold)
{
    if (!baton__selection_given(from, __func__)) {
        return 0;
    }
    baton__filter_t filter = baton__filter_of(from->dtype, from->side);
    uint64_t least = threshold > 0 ? threshold : 1;
    if (least > filter.nan) {
        return 0;
    }
    return baton__select_kernels()->count[from->dtype](
        from->values, from->count, &filter, least);
}

size_t baton__select_from(const baton_selection_t *from, size_t k,
                          baton_magnitude_t least, uint32_t *indices,
                          void *scratch)
{
    baton__filter_t filter = baton__filter_of(from->dtype, from->side);
    uint64_t threshold;
    estimate_t where = {.low = least > 0 ? least : 1};
    return k > 0 ? select_from(from, NULL, &filter, k, where, indices, scratch,
                               &threshold)
                 : 0;
}

/* ---- top-k of a list --------------------------------------------------- */

/* Room for positions, values, and the selection among these. */
size_t baton_entries_scratch_bytes(size_t count, size_t k)
{
    size_t kept = k < count ? k : count;
    return count * sizeof(double) + (kept + 2) / 2 * 2 * sizeof(uint32_t) +
           baton_select_scratch_bytes(count, k);
}

size_t baton_entries_topk(baton_dtype_t dtype, void *entries, size_t count,
                          size_t k, void *dropped, size_t *dropped_out,
                          void *scratch)
{
    size_t bytes = baton_entry_bytes(dtype);
    if (!baton__is_selectable(dtype, __func__) ||
        !baton__is_given(entries, count > 0, __func__, "entries") ||
        !baton__is_given(dropped_out, true, __func__, "dropped_out") ||
        !baton__is_given(scratch, count > 0, __func__, "scratch")) {
        return 0;
    }
    k = k < count ? k : count;
    char *values = scratch;
    uint32_t *positions = (uint32_t *)(void *)(values + count * sizeof(double));
    baton_entries_split(dtype, entries, count, NULL, values);
    baton_selection_t from = {.dtype = dtype, .values = values, .count = count};
    size_t kept = baton_select_topk(&from, k, positions,
                                    positions + (k + 2) / 2 * 2, NULL);
    char *list = entries, *others = dropped;
    size_t next = 0;
    for (size_t i = 0; i < count; i++) {
        if (next < kept && positions[next] == i) {
            memmove(list + next * bytes, list + i * bytes, bytes);
            next++;
        } else if (others != NULL) {
            memcpy(others + (i - next) * bytes, list + i * bytes, bytes);
        }
    }
    *dropped_out = count - kept;
    return kept;
}
