/* Exact selection. A sample gives a low estimate of the vector's k-th
   magnitude; one pass collects the candidates, i.e. the elements that reach the
   estimate; the exact threshold is found among the candidates.

       sample --> estimate --> filter --> exact k-th of the candidates
                     ^           |  |
                     |           |  +-- too few: again, with half the estimate
                     |           v
                     |       too many: the estimate is the threshold, if ties
                     |           |     at it fill the selection
                     |           v
                     +--- otherwise again, with the next key above it; after
                          that, the exact k-th of all elements

   Positions of the sample are random, one from each stratum, so the estimate's
   error does not depend on the distribution of values, nor on their order. Only
   ties can make too many candidates; then the tied value is most likely the
   threshold, which one more pass over the larger elements confirms.

   If the vector is not computed yet, only the sample is computed first, and the
   first pass computes the vector (select_kernels.c). A guess, from a similar
   vector, replaces the sample. If the guess was wrong, the vector is computed
   by then, and a sample of it is taken. */
#include "ops/select.h"
#include "base/error.h"

#include "base/random.h"
#include "ops/bits.h"

#include <math.h>
#include <string.h>

enum {
    /* Up to this length of the vector every element is a candidate. */
    SMALL_COUNT = 4096,
    SAMPLE_LEAST = 1024,
    SAMPLE_MOST = 16384,
    /* Between SAMPLE_LEAST and SAMPLE_MOST a sample has one of 256 elements. */
    SAMPLE_SHARE = 256,
    DEVIATIONS = 4, /* margin of the estimate, in standard deviations */
    CANDIDATE_BYTES = sizeof(uint64_t) + sizeof(uint32_t),
    DIGIT_BITS = 11,
    /* The most keys that kth_between collects, in an array on the stack. */
    FEW = 2048,
    /* The most keys that kth_of_keys collects, in an array on the stack. */
    SHORT = 512,
    DIGITS = 1 << DIGIT_BITS,
    /* Number of elements that a pass gives its kernel in one call. */
    PIECE = 2048,
    /* Number of elements of a sample that are read at a time. */
    GATHERED = 256,
    /* The longest vector that is first computed and then read again for the
       selection. For a longer vector a sample costs less, although its elements
       have to be computed as sums. */
    CACHED_BYTES = 512 << 10,
    /* Vectors of this size or more are too long for caches. */
    STREAM_BYTES = 8 << 20
};

/* A guess is chosen so that about GUESS_SURPLUS times k elements reach it. The
   k-th magnitude is probably below GUESS_SPREAD times the guess. */
#define GUESS_SURPLUS 1.5
#define GUESS_SPREAD  1.25

/* ---- scratch ----------------------------------------------------------- */

static size_t select_sample_of(size_t count)
{
    size_t size = count / SAMPLE_SHARE;
    size = size < SAMPLE_LEAST ? SAMPLE_LEAST : size;
    return size > SAMPLE_MOST ? SAMPLE_MOST : size;
}

/* Returns a number of candidates that suffices for nearly any estimate. The
   number grows with both arguments, so memory for a long vector also suffices
   for a shorter one. */
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
    size_t sample = count > SMALL_COUNT ? select_sample_of(count) : 0;
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

/* Returns the digit of the k-th largest key, from the histogram of the keys'
   digits. *k becomes the rank of this key among the keys with the same
   digit. */
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

/* Collects the keys that begin with a prefix, at most SHORT of them. `out` has
   space for one more key, since each key is written before it is compared. */
static size_t select_collect(const uint64_t *keys, size_t count, unsigned shift,
                             uint64_t prefix, uint64_t *out)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        out[found] = keys[i];
        found += keys[i] >> shift == prefix;
    }
    return found;
}

/* Returns the k-th largest key, for k from 1 to count. Finds the key digit by
   digit, from the highest digit in which keys differ. *k becomes the rank of
   this key among equal keys. */
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
            count = select_collect(keys, count, bits, prefix, few);
            keys = few;
        }
    }
    return prefix;
}

/* Finds the k-th largest key like kth_of_keys, but faster, if the key is at
   least `low` and probably below `high`. One pass puts the keys into bins, and
   another collects the keys of the bin that has the key. Returns false if the
   key is not below `high`, or if the bin has more than FEW keys. */
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

/* Two keys between which the k-th largest key probably is; `low` is at least
   1. */
typedef struct estimate {
    uint64_t low;
    uint64_t high; /* 0: unknown */
} estimate_t;

/* Positions of a sample, one from each of `size` strata. */
typedef struct strata {
    size_t count; /* number of elements of the vector */
    size_t size;
    double stride;
} strata_t;

static strata_t strata_of(size_t count)
{
    size_t size = select_sample_of(count);
    return (strata_t){count, size, (double)count / (double)size};
}

static size_t select_position_of(const strata_t *strata, size_t i)
{
    size_t begin = (size_t)(strata->stride * (double)i);
    size_t end = (size_t)(strata->stride * (double)(i + 1));
    uint64_t random = baton__random(1, strata->count, i) >> 32;
    return begin + (size_t)(random * (end - begin) >> 32);
}

static void copy_elements(void *to, const void *from, const size_t *at,
                          size_t count, size_t bytes)
{
    for (size_t i = 0; i < count && from != NULL; i++) {
        memcpy((char *)to + i * bytes, (const char *)from + at[i] * bytes,
               bytes);
    }
}

/* Reads the elements of a sample of the vector. If the vector is not computed
   yet, computes these elements. */
static void draw_sample(const baton_accumulation_t *of,
                        const baton__filter_t *filter, const strata_t *strata,
                        uint64_t *sample)
{
    double sums[GATHERED], left[GATHERED], right[GATHERED], velocity[GATHERED];
    uint32_t indices[GATHERED + BATON__PASS_MORE];
    double values[GATHERED + BATON__PASS_MORE];
    size_t at[GATHERED];
    const size_t bytes = baton_dtype_size(of->dtype);
    const baton_selection_t from = {.dtype = of->dtype, .values = sums};
    baton_accumulation_t some = *of;
    some.sum = sums;
    some.left = of->left != NULL ? left : NULL;
    some.right = right;
    some.velocity = of->velocity != NULL ? velocity : NULL;
    some.new_velocity = velocity;
    some.stream = false;
    for (size_t done = 0; done < strata->size; done += GATHERED) {
        size_t rest = strata->size - done;
        size_t count = rest < GATHERED ? rest : GATHERED;
        for (size_t i = 0; i < count; i++) {
            at[i] = select_position_of(strata, done + i);
            PREFETCH((const char *)of->left + at[i] * bytes);
            PREFETCH((const char *)of->right + at[i] * bytes);
        }
        if (of->right == NULL) {
            copy_elements(sums, of->sum, at, count, bytes);
        } else {
            copy_elements(left, of->left, at, count, bytes);
            copy_elements(right, of->right, at, count, bytes);
            copy_elements(velocity, of->velocity, at, count,
                          of->short_velocity ? sizeof(uint16_t) : bytes);
            (void)baton__select_kernels()->of[of->dtype].pass(
                &some, 0, count, filter, 0, indices, values);
        }
        for (size_t i = 0; i < count; i++) {
            sample[done + i] = baton__key_at(&from, filter, i);
        }
    }
}

static estimate_t select_estimate(const baton_accumulation_t *of,
                                  const baton__filter_t *filter, size_t k,
                                  uint64_t *sample)
{
    if (of->count <= SMALL_COUNT) {
        return (estimate_t){.low = 1};
    }
    strata_t strata = strata_of(of->count);
    size_t size = strata.size;
    draw_sample(of, filter, &strata, sample);
    double expected = (double)size * (double)k / (double)of->count;
    double margin = DEVIATIONS * sqrt(expected) + DEVIATIONS;
    estimate_t result = {.low = 1};
    if (expected + margin < (double)size) {
        size_t rank = (size_t)(expected + margin) + 1;
        uint64_t key = kth_of_keys(sample, size, &rank);
        result.low = key > 0 ? key : 1;
    }
    /* `rank` counts the sample's keys from the largest on. It is so small that
       the key at this place is probably above the threshold. If the sample
       probably has only few of the k largest elements, `rank` is 1, and `high`
       is the largest key of the sample. */
    size_t rank = expected - margin >= 1 ? (size_t)(expected - margin) : 1;
    result.high = kth_of_keys(sample, size, &rank);
    return result;
}

static estimate_t guess_of(const baton_accumulation_t *of)
{
    estimate_t where = {.low = of->guess != NULL ? *of->guess : 0};
    double value = baton_magnitude_value(of->dtype, where.low);
    where.high = baton_magnitude_of(of->dtype, value * GUESS_SPREAD);
    return where;
}

/* Sets the guess for the next vector, from the number of elements of this
   vector that reach `low`. The new guess is `low` times the eighth root of the
   ratio between that number and the wanted one. This is right for a
   distribution with tails like a normal one's; for other distributions the
   guess converges in a few steps. */
static void set_guess(const baton_accumulation_t *of, uint64_t low,
                      size_t found, size_t k)
{
    double surplus = (double)found / (GUESS_SURPLUS * (double)k);
    double value = baton_magnitude_value(of->dtype, low);
    if (of->guess != NULL && k > 0) {
        *of->guess = low > 1 && found >= k
                         ? baton_magnitude_of(of->dtype,
                                              value * sqrt(sqrt(sqrt(surplus))))
                         : 0;
    }
}

/* ---- passes ------------------------------------------------------------ */

/* The elements that a pass has found. `count` is their number. Only the first
   `capacity` of them are in the lists. Each list may be NULL. */
typedef struct found {
    uint32_t *indices;
    uint64_t *keys;
    char *entries;
    size_t capacity, count;
} found_t;

static uint64_t select_key_of(const baton__filter_t *filter, uint64_t bits)
{
    uint64_t key = (bits ^ filter->flip) & filter->mask;
    return key < filter->nan ? key : filter->nan;
}

#define TAKE(name, type)                                                       \
    static void name(found_t *found, const baton__filter_t *filter,            \
                     const uint32_t *indices, const type *values,              \
                     size_t count)                                             \
    {                                                                          \
        const size_t step = sizeof(uint32_t) + sizeof(type);                   \
        char *entry = found->entries != NULL                                   \
                          ? found->entries + found->count * step               \
                          : NULL;                                              \
        for (size_t i = 0; i < count && found->keys != NULL; i++) {            \
            found->keys[found->count + i] = select_key_of(filter, values[i]);  \
        }                                                                      \
        for (size_t i = 0; i < count && entry != NULL; i++, entry += step) {   \
            memcpy(entry, &indices[i], sizeof *indices);                       \
            memcpy(entry + sizeof *indices, &values[i], sizeof(type));         \
        }                                                                      \
    }

TAKE(take_16, uint16_t)
TAKE(take_32, uint32_t)
TAKE(take_64, uint64_t)

static void select_take(baton_dtype_t dtype, found_t *found,
                        const baton__filter_t *filter, const uint32_t *indices,
                        const uint64_t *values, size_t count)
{
    size_t room = found->capacity - found->count;
    size_t taken = count < room ? count : room;
    switch (baton_dtype_size(dtype)) {
    case sizeof(uint16_t):
        take_16(found, filter, indices, (const void *)values, taken);
        break;
    case sizeof(uint32_t):
        take_32(found, filter, indices, (const void *)values, taken);
        break;
    default:
        take_64(found, filter, indices, values, taken);
    }
    if (found->indices != NULL && taken > 0) {
        memcpy(found->indices + found->count, indices, taken * sizeof *indices);
    }
    found->count += count;
}

/* Computes the whole vector if it is not computed yet, and finds the elements
   that reach the key `least`; a key above that of NaNs is reached by no
   element. Stops searching after it has found more elements than
   found->capacity. */
static void select_pass(const baton_accumulation_t *of,
                        const baton__filter_t *filter, uint64_t least,
                        found_t *found)
{
    uint32_t indices[PIECE + BATON__PASS_MORE];
    uint64_t values[PIECE + BATON__PASS_MORE];
    const baton__select_kernels_t *kernels = baton__select_kernels();
    /* The first piece is shorter than the others, so that the others begin at a
       cache line: of the new velocities if velocities are stored as bf16, else
       of `sum`. */
    const bool halves = of->short_velocity;
    size_t lines = -(uintptr_t)(halves ? of->new_velocity : of->sum) % 64;
    size_t head =
        lines / (halves ? sizeof(uint16_t) : baton_dtype_size(of->dtype));
    for (size_t at = 0, count; at < of->count; at += count) {
        bool full = found->count > found->capacity;
        if (full && of->right == NULL) {
            return;
        }
        size_t rest = of->count - at,
               piece = at == 0 && head > 0 ? head : PIECE;
        count = rest < piece ? rest : piece;
        size_t here = kernels->of[of->dtype].pass(
            of, at, count, filter, full || least > filter->nan ? 0 : least,
            indices, values);
        if (!full) {
            select_take(of->dtype, found, filter, indices, values, here);
        }
    }
    if (of->stream && of->right != NULL) {
        kernels->stream_end();
    }
}

/* Returns a selection's elements in the form of an accumulation whose vector is
   already computed. */
static baton_accumulation_t select_vector_of(const baton_selection_t *from)
{
    return (baton_accumulation_t){.dtype = from->dtype,
                                  .side = from->side,
                                  .sum = (void *)(uintptr_t)from->values,
                                  .count = from->count,
                                  .first = from->first};
}

static baton_selection_t select_of(const baton_accumulation_t *of)
{
    return (baton_selection_t){.dtype = of->dtype,
                               .side = of->side,
                               .values = of->sum,
                               .count = of->count,
                               .first = of->first};
}

static size_t select_find(const baton_selection_t *from,
                          const baton__filter_t *filter, uint64_t least,
                          uint32_t *indices, size_t capacity)
{
    const baton_accumulation_t of = select_vector_of(from);
    found_t found = {.indices = indices, .capacity = capacity};
    select_pass(&of, filter, least, &found);
    return found.count;
}

/* ---- exact, without memory --------------------------------------------- */

/* Returns the key of the k-th largest of all elements, at least k of which must
   not be zero. Works like kth_of_keys, but without a list of keys: it reads all
   elements in each round. */
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

/* Called when more elements reach `key` than the lists of candidates can hold.
   `candidates` are the first of these elements, k or more. If fewer than k
   elements are above `key`, then `key` is the threshold: selects these
   elements, and as many of the first ones that equal `key` as are missing, and
   returns k. Otherwise returns SIZE_MAX. */
static size_t take_ties(const baton_selection_t *from,
                        const baton__filter_t *filter, size_t k, uint64_t key,
                        const uint32_t *candidates, const uint64_t *keys,
                        uint32_t *indices)
{
    size_t above = 0;
    if (key < filter->nan) {
        above = select_find(from, filter, key + 1, indices, k);
    }
    if (above >= k) { /* then the threshold is higher than `key` */
        return SIZE_MAX;
    }
    size_t next = 0; /* the position after the last candidate that is needed */
    for (size_t equal = above; equal < k; next++) {
        equal += keys[next] == key;
    }
    /* Both lists are ascending. So they are merged in place, from the end. */
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

/* Selects the k largest of the candidates. The candidates are all elements
   whose keys are at least where.low. */
static size_t select_choose(const uint32_t *candidates, const uint64_t *keys,
                            size_t count, size_t k, estimate_t where,
                            uint32_t *indices, uint64_t *threshold)
{
    /* How many of the elements that equal the threshold are selected. */
    size_t equal = k;
    if (where.high <= where.low ||
        !kth_between(keys, count, where.low, where.high, &equal, threshold)) {
        *threshold = kth_of_keys(keys, count, &equal);
    }
    size_t written = 0;
    /* This loop has no branches on keys, since half of them would be
       mispredicted. */
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

static uint64_t halved(baton_dtype_t dtype, uint64_t key)
{
    uint64_t half =
        baton_magnitude_of(dtype, baton_magnitude_value(dtype, key) / 2);
    return half > 0 ? half : 1;
}

static size_t select_copy_all(const uint32_t *candidates, const uint64_t *keys,
                              size_t count, uint32_t *indices,
                              uint64_t *threshold)
{
    if (count > 0) {
        memcpy(indices, candidates, count * sizeof *indices);
    }
    *threshold = lowest_key(keys, count);
    return count;
}

/* Selects the k largest elements. First collects the elements that reach
   where.low, which is a guess or the estimate. If a guess was wrong, a sample
   gives an estimate instead. If fewer than k elements reach the estimate, tries
   half of its magnitude, and then all elements that are not zero. If too many
   elements reach it, tests whether it is the threshold, tries the next key, and
   then finds the exact threshold without memory. */
static size_t select_filtered(const baton_accumulation_t *first,
                              const baton__filter_t *filter, size_t k,
                              estimate_t where, bool guessed, uint32_t *indices,
                              void *scratch, uint64_t *threshold)
{
    const baton_selection_t from = select_of(first);
    const baton_accumulation_t computed = select_vector_of(&from);
    const baton_accumulation_t *of = first;
    size_t capacity = baton_candidates_room(of->count, k);
    uint64_t *keys = scratch;
    uint32_t *candidates = (uint32_t *)(keys + capacity);
    int raised = 0, lowered = 0;
    for (;;) {
        found_t list = {candidates, keys, NULL, capacity, 0};
        select_pass(of, filter, where.low, &list);
        of = &computed;
        size_t found = list.count;
        bool fits = found >= k && found <= capacity;
        if (guessed && !fits && where.low > 1) {
            where = select_estimate(of, filter, k, scratch);
            guessed = false;
            continue;
        }
        set_guess(first, fits ? where.low : 0, found, k);
        if (found > capacity) {
            *threshold = where.low;
            if (take_ties(&from, filter, k, where.low, candidates, keys,
                          indices) == k) {
                return k;
            }
            where = (estimate_t){
                .low = raised++ == 0 ? where.low + 1
                                     : kth_of_elements(&from, filter, k)};
        } else if (found > k) {
            return select_choose(candidates, keys, found, k, where, indices,
                                 threshold);
        } else if (found == k || where.low == 1) {
            return select_copy_all(candidates, keys, found, indices, threshold);
        } else {
            uint64_t half = halved(of->dtype, where.low);
            where = (estimate_t){.low = lowered++ == 0 ? half : 1};
        }
    }
}

static size_t select_topk(const baton_accumulation_t *of, size_t k,
                          uint32_t *indices, void *scratch,
                          baton_magnitude_t *threshold_out)
{
    baton__filter_t filter = baton__filter_of(of->dtype, of->side);
    uint64_t threshold = 0;
    estimate_t where = guess_of(of);
    bool guessed = where.low > 0;
    k = k < of->count ? k : of->count;
    if (!guessed) {
        where = select_estimate(of, &filter, k, scratch);
    }
    size_t found = select_filtered(of, &filter, k, where, guessed, indices,
                                   scratch, &threshold);
    if (threshold_out != NULL) {
        *threshold_out = threshold;
    }
    return found;
}

size_t baton_select_topk(const baton_selection_t *from, size_t k,
                         uint32_t *indices, void *scratch,
                         baton_magnitude_t *threshold_out)
{
    if (!baton__topk_is_valid(from, k, indices, scratch, __func__)) {
        return 0;
    }
    if (k > 0 && from->count > 0) {
        const baton_accumulation_t of = select_vector_of(from);
        return select_topk(&of, k, indices, scratch, threshold_out);
    }
    if (threshold_out != NULL) {
        *threshold_out = 0;
    }
    return 0;
}

/* ---- selection from vectors that are computed on the way ---------------- */

static bool accumulation_is_valid(const baton_accumulation_t *of,
                                  const char *function)
{
    return baton__is_given(of, true, function, "of") &&
           baton__is_selectable(of->dtype, function) &&
           baton__is_given(of->sum, of->count > 0, function, "of->sum") &&
           baton__is_given(of->new_velocity,
                           of->count > 0 && of->velocity != NULL, function,
                           "of->new_velocity");
}

/* Returns a copy of `of` in which `stream` is also set if the vector is too
   long for caches. */
static baton_accumulation_t completed(const baton_accumulation_t *of)
{
    baton_accumulation_t all = *of;
    all.stream =
        of->stream || of->count * baton_dtype_size(of->dtype) >= STREAM_BYTES;
    return all;
}

static void compute_all(const baton_accumulation_t *of)
{
    baton__filter_t filter = baton__filter_of(of->dtype, of->side);
    found_t none = {.capacity = 0};
    if (of->right != NULL) {
        select_pass(of, &filter, UINT64_MAX, &none);
    }
}

size_t baton_accumulate_topk(const baton_accumulation_t *of, size_t k,
                             uint32_t *indices, void *scratch,
                             baton_magnitude_t *threshold_out)
{
    if (!accumulation_is_valid(of, __func__)) {
        return 0;
    }
    baton_accumulation_t all = completed(of);
    const baton_selection_t from = select_of(of);
    if (!baton__topk_is_valid(&from, k, indices, scratch, __func__)) {
        return 0;
    }
    bool cached =
        !all.stream && of->count * baton_dtype_size(of->dtype) <= CACHED_BYTES;
    bool selects = k > 0 && of->count > 0;
    if (!selects || (cached && guess_of(of).low == 0)) {
        compute_all(&all);
        all.right = NULL;
    }
    return selects
               ? select_topk(&all, k, indices, scratch, threshold_out)
               : baton_select_topk(&from, k, indices, scratch, threshold_out);
}

size_t baton_accumulate_at_least(const baton_accumulation_t *of,
                                 baton_magnitude_t threshold, uint32_t *indices,
                                 size_t capacity)
{
    if (!accumulation_is_valid(of, __func__) ||
        !baton__is_given(indices, capacity > 0, __func__, "indices")) {
        return 0;
    }
    const baton_accumulation_t all = completed(of);
    const baton_selection_t from = select_of(of);
    const baton__filter_t filter = baton__filter_of(of->dtype, of->side);
    found_t found = {.indices = indices, .capacity = capacity};
    select_pass(&all, &filter, threshold > 0 ? threshold : 1, &found);
    return found.count <= capacity ? found.count
                                   : baton_select_count(&from, threshold);
}

/* ---- candidates -------------------------------------------------------- */

void baton_candidates_find(const baton_accumulation_t *of, size_t k,
                           baton_candidates_t *candidates, void *scratch)
{
    if (!accumulation_is_valid(of, __func__) ||
        !baton__is_given(candidates, true, __func__, "candidates") ||
        !baton__is_given(candidates->entries, candidates->capacity > 0,
                         __func__, "candidates->entries") ||
        !baton__is_given(scratch, k > 0 && of->count > 0, __func__,
                         "scratch")) {
        return;
    }
    const baton__filter_t filter = baton__filter_of(of->dtype, BATON_SIDE_BOTH);
    baton_accumulation_t all = completed(of);
    estimate_t where = guess_of(of);
    bool guessed = where.low > 0 && k > 0, fits = false;
    while (!fits) {
        if (!guessed) {
            where = k > 0 ? select_estimate(&all, &filter, k, scratch)
                          : (estimate_t){.low = 1};
        }
        found_t found = {.entries = candidates->entries,
                         .capacity = candidates->capacity};
        select_pass(&all, &filter, where.low, &found);
        fits = found.count <= found.capacity;
        candidates->count = fits ? found.count : found.capacity;
        candidates->low = fits ? where.low : 0;
        candidates->high = where.high;
        set_guess(of, candidates->low, found.count, k);
        fits = !guessed || (fits && found.count >= k);
        guessed = false;
        all.right = NULL;
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
        found =
            select_choose(positions, keys, found, k, where, chosen, &threshold);
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
    if (!baton__selection_is_valid(from, __func__) ||
        !baton__is_given(indices, capacity > 0, __func__, "indices")) {
        return 0;
    }
    baton__filter_t filter = baton__filter_of(from->dtype, from->side);
    size_t found = select_find(from, &filter, threshold > 0 ? threshold : 1,
                               indices, capacity);
    return found <= capacity ? found : baton_select_count(from, threshold);
}

size_t baton_select_count(const baton_selection_t *from,
                          baton_magnitude_t threshold)
{
    if (!baton__selection_is_valid(from, __func__)) {
        return 0;
    }
    baton__filter_t filter = baton__filter_of(from->dtype, from->side);
    uint64_t least = threshold > 0 ? threshold : 1;
    if (least > filter.nan) {
        return 0;
    }
    return baton__select_kernels()->of[from->dtype].count(
        from->values, from->count, &filter, least);
}

size_t baton__select_from(const baton_selection_t *from, size_t k,
                          baton_magnitude_t least, uint32_t *indices,
                          void *scratch)
{
    baton__filter_t filter = baton__filter_of(from->dtype, from->side);
    uint64_t threshold;
    estimate_t where = {.low = least > 0 ? least : 1};
    const baton_accumulation_t of = select_vector_of(from);
    return k > 0 ? select_filtered(&of, &filter, k, where, false, indices,
                                   scratch, &threshold)
                 : 0;
}

/* ---- top-k of a list --------------------------------------------------- */

/* The scratch memory holds the values, their positions, and the scratch of the
   selection among the values. */
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
