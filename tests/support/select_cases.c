#include "support/select_cases.h"

#include "support/cmocka.h"
#include "support/sanitized.h"

#include <math.h>

#define TYPE(NAME, ...) BATON_##NAME,
const baton_dtype_t select_types[SELECT_TYPES] = {BATON_FLOAT_LIST(TYPE)};

/* ---- vectors ----------------------------------------------------------- */

static double unit(support_random_t *random)
{
    return ((double)(support_random_next(random) >> 11) + 0.5) * 0x1p-53;
}

static double value_of(select_kind_t kind, size_t i, support_random_t *random)
{
    const double u = unit(random), v = unit(random);
    const double sign = support_random_below(random, 2) == 0 ? 1 : -1;
    const double normal = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
    switch ((int)kind) {
    case SELECT_HEAVY:
        return (u - 0.5) / (v * unit(random) + 1e-3);
    case SELECT_FEW_VALUES:
        return sign * (double)support_random_below(random, 5);
    case SELECT_STAIRS:
        return u < 0.0104 ? 5 : (double)(i % 3) + 1;
    case SELECT_EQUAL:
        return sign * 3;
    case SELECT_MOSTLY_ZERO:
        return u < 0.01 ? normal : sign * 0.0;
    case SELECT_ALL_ZERO:
    case SELECT_SMALLEST:
        return sign * 0.0;
    case SELECT_SORTED:
        return (double)i / 16;
    case SELECT_SUBNORMAL:
        return sign * u * 0x1p-130;
    case SELECT_NOT_FINITE:
        if (u < 0.02) {
            return u < 0.01 ? sign * (double)INFINITY : (double)NAN;
        }
        return normal;
    default:
        return normal;
    }
}

/* Elements are little-endian. */
static void store_bits(baton_dtype_t dtype, void *values, size_t i,
                       uint64_t bits)
{
    const size_t size = baton_dtype_size(dtype);
    memcpy((char *)values + i * size, &bits, size);
}

static uint64_t sign_of(baton_dtype_t dtype)
{
    return UINT64_C(1) << (8 * baton_dtype_size(dtype) - 1);
}

void select_store(baton_dtype_t dtype, void *values, size_t i, double value)
{
    uint64_t sign = signbit(value) ? sign_of(dtype) : 0;
    store_bits(dtype, values, i, baton_magnitude_of(dtype, value) | sign);
}

static size_t sample_size(size_t count)
{
    size_t size = count / 256;
    size = size < 1024 ? 1024 : size;
    size = size > 16384 ? 16384 : size;
    return size < count ? size : count;
}

void select_fill(select_kind_t kind, baton_dtype_t dtype, void *values,
                 size_t count, select_position_fn position,
                 support_random_t *random)
{
    for (size_t i = 0; i < count; i++) {
        if (kind == SELECT_BITS || kind == SELECT_NANS) {
            uint64_t nan = baton_magnitude_of(dtype, (double)INFINITY) | 1;
            store_bits(dtype, values, i,
                       support_random_next(random) |
                           (kind == SELECT_NANS ? nan : 0));
        } else if (kind == SELECT_SMALLEST && i % 100 == 0) {
            store_bits(dtype, values, i, 1);
        } else {
            select_store(dtype, values, i, value_of(kind, i, random));
        }
    }
    size_t size = sample_size(count);
    for (size_t i = 0; i < size && kind >= SELECT_SAMPLE_TOO_LARGE; i++) {
        double large = 100 + (double)(i % 7);
        select_store(dtype, values, position(count, size, i),
                     kind == SELECT_SAMPLE_TOO_LARGE ? large : 0);
    }
}

/* ---- the right selection ----------------------------------------------- */

/* An element that can be selected: it is not zero, and has the sign for which
   the selection asks (`side`). `key` is its magnitude. */
typedef struct ranked {
    uint64_t key;
    uint32_t index;
} ranked_t;

/* All elements that can be selected, largest first; of equal elements the lower
   index comes first. */
typedef struct ranking {
    const baton_selection_t *from;
    size_t count;
    ranked_t *at;
} ranking_t;

static int by_size(const void *left, const void *right)
{
    const ranked_t *a = left, *b = right;
    if (a->key != b->key) {
        return a->key > b->key ? -1 : 1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

static ranking_t rank(const baton_selection_t *from)
{
    ranking_t all = {from, 0, malloc((from->count + 1) * sizeof *all.at)};
    const size_t size = baton_dtype_size(from->dtype);
    const uint64_t nan = baton_magnitude_of(from->dtype, (double)NAN);
    assert_non_null(all.at);
    for (size_t i = 0; i < from->count; i++) {
        uint64_t bits = 0, sign = sign_of(from->dtype);
        memcpy(&bits, (const char *)from->values + i * size, size);
        bool negative = (bits & sign) != 0;
        uint64_t key = bits & ~sign;
        if (key != 0 && from->side != (negative ? BATON_SIDE_POSITIVE
                                                : BATON_SIDE_NEGATIVE)) {
            all.at[all.count++] =
                (ranked_t){key < nan ? key : nan, from->first + (uint32_t)i};
        }
    }
    qsort(all.at, all.count, sizeof *all.at, by_size);
    return all;
}

/* Returns the number of elements whose keys are at least the threshold, which
   is not 0. */
static size_t reach(const ranking_t *all, uint64_t threshold)
{
    size_t low = 0, high = all->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (all->at[middle].key >= threshold) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static uint64_t key_of_rank(const ranking_t *all, size_t k)
{
    return k > 0 && k <= all->count ? all->at[k - 1].key : 0;
}

/* Returns the threshold that Algorithm 3 in RedSync's paper finds. */
static uint64_t searched(const ranking_t *all, size_t k)
{
    const baton_selection_t *from = all->from;
    const baton_magnitudes_t about =
        baton_elements_measure(from->dtype, from->values, from->count);
    const double mean = about.sum / (double)from->count;
    double largest = baton_magnitude_value(from->dtype, about.largest);
    double low = 0, high = 1;
    if (from->count == 0 || !isfinite(largest)) {
        return key_of_rank(all, k);
    }
    for (bool first = true;; first = false) {
        double ratio = first || high - low <= 1e-6 ? low : (low + high) / 2;
        double value = mean + ratio * (largest - mean);
        uint64_t key = baton_magnitude_of(from->dtype, value);
        key = key > 0 ? key : 1;
        size_t found = reach(all, key);
        if (first) {
            if (found < k) {
                return key_of_rank(all, k);
            }
        } else if (found >= k && found <= 2 * k) {
            return key;
        } else if (high - low <= 1e-6) {
            return key_of_rank(all, k);
        } else {
            *(found < k ? &high : &low) = ratio;
        }
    }
}

/* Returns the number of elements, from the beginning of the ranking, that a
   selection must select. Sets *threshold to the threshold that it must
   return. */
static size_t choose(const ranking_t *all, const baton_device_selection_t *s,
                     uint64_t *threshold)
{
    const size_t most = s->k < all->count ? s->k : all->count;
    if (s->method == BATON_DEVICE_REUSED && *threshold != 0 &&
        reach(all, *threshold) <= 2 * s->k) {
        return reach(all, *threshold);
    }
    if (s->method >= BATON_DEVICE_SAMPLED) {
        *threshold = searched(all, s->k);
        if (*threshold != 0 && reach(all, *threshold) <= 2 * s->k) {
            return reach(all, *threshold);
        }
    }
    *threshold = key_of_rank(all, most);
    return most;
}

static int by_index(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static void write_indices(const ranking_t *all, size_t count, uint32_t *indices)
{
    for (size_t i = 0; i < count; i++) {
        indices[i] = all->at[i].index;
    }
    qsort(indices, count, sizeof *indices, by_index);
}

size_t select_sorted(const baton_selection_t *from, size_t k, uint32_t *indices)
{
    ranking_t all = rank(from);
    size_t count = k < all.count ? k : all.count;
    write_indices(&all, count, indices);
    free(all.at);
    return count;
}

/* ---- cases ------------------------------------------------------------- */

/* Checks a selection. Also checks that it writes nothing past the capacity. */
static void check(const select_subject_t *subject, const ranking_t *all,
                  baton_device_method_t method, size_t k, uint64_t threshold)
{
    const baton_selection_t *from = all->from;
    size_t room = method >= BATON_DEVICE_SAMPLED ? 2 * k : k;
    room = room < from->count ? room : from->count;
    uint32_t *indices = malloc((room + 1) * sizeof *indices);
    uint32_t *expected = malloc((room + 1) * sizeof *expected);
    if (indices == NULL || expected == NULL) {
        abort();
    }
    memset(indices, 0xa5, (room + 1) * sizeof *indices);
    baton_device_selected_t selected = {77, threshold};
    const baton_device_selection_t selection = {.method = method,
                                                .from = *from,
                                                .k = k,
                                                .indices = indices,
                                                .selected = &selected};
    size_t count = choose(all, &selection, &threshold);
    write_indices(all, count, expected);
    subject->select(&selection);
    if (selected.count != count || selected.threshold != threshold ||
        memcmp(indices, expected, count * sizeof *indices) != 0 ||
        indices[room] != 0xa5a5a5a5) {
        fail_msg("%s, side %d, method %d: top-%zu of %zu is wrong: %llu "
                 "elements from %llx on, not %zu from %llx on",
                 baton_dtype_name(from->dtype), (int)from->side, (int)method, k,
                 from->count, (unsigned long long)selected.count,
                 (unsigned long long)selected.threshold, count,
                 (unsigned long long)threshold);
    }
    free(indices);
    free(expected);
}

static void check_all(const select_subject_t *subject, const ranking_t *all,
                      size_t k, support_random_t *random)
{
    enum { EARLIER = 5 };
    const uint64_t threshold = key_of_rank(all, k);
    const uint64_t earlier[EARLIER] = {0, 1, threshold, threshold + 1,
                                       UINT64_MAX};
    check(subject, all, BATON_DEVICE_TOPK, k, 0);
    if (k > 0) {
        const size_t only = support_random_below(random, EARLIER);
        check(subject, all, BATON_DEVICE_SAMPLED, k, 0);
        for (size_t i = 0; i < EARLIER; i++) {
            if (!subject->brief || i == only) {
                check(subject, all, BATON_DEVICE_REUSED, k, earlier[i]);
            }
        }
    }
}

static void run(const select_subject_t *subject, baton_dtype_t dtype,
                select_kind_t kind, size_t count, const size_t *ks, size_t most,
                support_random_t *random)
{
    void *values = malloc((count + 1) * baton_dtype_size(dtype));
    assert_non_null(values);
    select_fill(kind, dtype, values, count, subject->position, random);
    const bool both = support_random_below(random, 2) == 0;
    const baton_selection_t from = {
        .dtype = dtype,
        .side = both ? BATON_SIDE_BOTH
                     : (baton_side_t)support_random_below(random, 3),
        .values = values,
        .count = count,
        .first = (uint32_t)support_random_below(random, 1000)};
    ranking_t all = rank(&from);
    const size_t only = support_random_below(random, most);
    for (size_t i = 0; i < most; i++) {
        if (!subject->brief || i == only) {
            check_all(subject, &all, ks[i], random);
        }
    }
    free(all.at);
    free(values);
}

static void run_short(const select_subject_t *subject, support_random_t *random)
{
    static const size_t counts[] = {0, 1, 2, 7, 33, 63, 64, 65, 300, 1000};
    for (int type = 0; type < SELECT_TYPES; type++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            const size_t n = counts[c], ks[] = {0, 1, n / 2, n, n + 5};
            select_kind_t kind =
                (select_kind_t)support_random_below(random, SELECT_KINDS);
            run(subject, select_types[type], kind, n, ks, 5, random);
        }
    }
    /* There are at most 9 elements, so a threshold often selects exactly k or
       2k. */
    for (unsigned i = 0; i < 80; i++) {
        const size_t n = 2 + support_random_below(random, 8);
        const size_t k = 1 + support_random_below(random, n / 2);
        run(subject, select_types[i % SELECT_TYPES], SELECT_HEAVY, n, &k, 1,
            random);
    }
}

/* Tests selections from vectors of each kind and type, with several k. A
   selection estimates its threshold from a sample of the vector. `n` is so
   large that k = n / 4 exceeds the sample's size. With SELECT_SAMPLE_TOO_LARGE
   all elements of the sample are larger than the others. Then the estimate is
   too high: fewer than k elements reach it. */
static void run_kinds(const select_subject_t *subject, support_random_t *random)
{
    for (int kind = 0; kind < SELECT_KINDS; kind++) {
        for (int type = 0; type < SELECT_TYPES; type++) {
            if (SUPPORT_SANITIZED && kind % SELECT_TYPES != type) {
                continue;
            }
            size_t n =
                4100 + support_random_below(random, subject->longest - 4100);
            const size_t ks[] = {n / 100, n / 150, n / 4,
                                 1 + support_random_below(random, n / 50)};
            run(subject, select_types[type], (select_kind_t)kind, n, ks, 4,
                random);
        }
    }
}

void select_cases_run(const select_subject_t *subject)
{
    support_random_t random = support_random(support_seed(), 1);
    run_short(subject, &random);
    run_kinds(subject, &random);
    for (unsigned i = 0; i < SUPPORT_REPEAT(subject->trials); i++) {
        double scale = unit(&random);
        size_t n = (size_t)((double)subject->longest * scale * scale);
        const size_t k = (size_t)((double)n * pow(unit(&random), 6));
        run(subject, select_types[support_random_below(&random, SELECT_TYPES)],
            (select_kind_t)support_random_below(&random, SELECT_KINDS), n, &k,
            1, &random);
    }
}
