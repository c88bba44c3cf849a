/* Selection against a sort, for every element type and instruction set; lists
   of entries against dense arithmetic. */
#include "base/config.h"
#include "ops/half.h"
#include "ops/kernels.h"
#include "ops/select_kernels.h"
#include "support/random.h"

#include <baton/baton.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LARGEST = 40000 };

static const baton_dtype_t types[] = {BATON_F16, BATON_BF16, BATON_F32,
                                      BATON_F64};
enum { TYPES = sizeof types / sizeof types[0] };

static void store(baton_dtype_t dtype, void *values, size_t i, double value)
{
    uint16_t half = dtype == BATON_F16 ? baton__f16_of_f32((float)value)
                                       : baton__bf16_of_f32((float)value);
    float single = (float)value;
    size_t size = baton_dtype_size(dtype);
    const void *from = size == 2   ? (const void *)&half
                       : size == 4 ? (const void *)&single
                                   : (const void *)&value;
    memcpy((char *)values + i * size, from, size);
}

static double load(baton_dtype_t dtype, const void *values, size_t i)
{
    const char *at = (const char *)values + i * baton_dtype_size(dtype);
    uint16_t half;
    float single;
    double value;
    if (dtype == BATON_F64) {
        memcpy(&value, at, sizeof value);
        return value;
    }
    if (dtype == BATON_F32) {
        memcpy(&single, at, sizeof single);
        return (double)single;
    }
    memcpy(&half, at, sizeof half);
    return (double)(dtype == BATON_F16 ? baton__f32_of_f16(half)
                                       : baton__f32_of_bf16(half));
}

/* ---- what a selection must be ------------------------------------------ */

typedef struct ranked {
    double size; /* a NaN's is beyond infinity */
    uint32_t index;
    bool nan;
} ranked_t;

static int by_size(const void *left, const void *right)
{
    const ranked_t *a = left, *b = right;
    if (a->nan != b->nan) {
        return a->nan ? -1 : 1;
    }
    if (!a->nan && a->size != b->size) {
        return a->size > b->size ? -1 : 1;
    }
    return a->index < b->index ? -1 : 1;
}

static int by_index(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static bool negative(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 63 != 0;
}

static size_t sorted_topk(const baton_selection_t *from, size_t k,
                          uint32_t *indices)
{
    static ranked_t ranked[LARGEST];
    size_t count = 0;
    for (size_t i = 0; i < from->count; i++) {
        double value = load(from->dtype, from->values, i);
        bool other = (from->side == BATON_SIDE_POSITIVE && negative(value)) ||
                     (from->side == BATON_SIDE_NEGATIVE && !negative(value));
        if (value == 0 || other) {
            continue;
        }
        ranked[count++] = (ranked_t){.size = value < 0 ? -value : value,
                                     .index = from->first + (uint32_t)i,
                                     .nan = value != value};
    }
    qsort(ranked, count, sizeof *ranked, by_size);
    size_t kept = k < count ? k : count;
    for (size_t i = 0; i < kept; i++) {
        indices[i] = ranked[i].index;
    }
    qsort(indices, kept, sizeof *indices, by_index);
    return kept;
}

/* ---- vectors ----------------------------------------------------------- */

typedef enum shape {
    NORMAL,
    TIES,
    MOSTLY_ZEROS,
    CONSTANT,
    SORTED,
    BITS, /* any: NaNs, infinities, subnormals */
    NANS, /* of any payload */
    HEAVY,
    STAIRS, /* ties above which there is a little more than k at 1% */
    SHAPES
} shape_t;

static double uniform(support_random_t *random)
{
    return (double)support_random_below(random, 1u << 30) / (double)(1u << 30);
}

static double value_of(shape_t shape, size_t i, support_random_t *random)
{
    double sum = 0;
    switch (shape) {
    case TIES:
        return (double)support_random_below(random, 7) - 3;
    case MOSTLY_ZEROS:
        return support_random_below(random, 500) == 0 ? uniform(random) - 0.5
                                                      : -0.0;
    case CONSTANT:
        return -2.5;
    case SORTED:
        return (double)i / 16;
    case STAIRS:
        return support_random_below(random, 96) == 0 ? 5 : (double)(i % 3) + 1;
    case HEAVY:
        sum = uniform(random) - 0.5;
        return sum / (uniform(random) * uniform(random) + 1e-3);
    case NORMAL:
    case BITS:
    case NANS:
    case SHAPES:
        break;
    }
    for (int k = 0; k < 12; k++) {
        sum += uniform(random);
    }
    return sum - 6;
}

static void fill(baton_dtype_t dtype, void *values, size_t count, shape_t shape,
                 support_random_t *random)
{
    for (size_t i = 0; i < count; i++) {
        if (shape == BITS || shape == NANS) {
            uint64_t bits = support_random_next(random);
            bits |= shape == NANS ? UINT64_C(0x7ff17fc17fc17fc1) : 0;
            size_t size = baton_dtype_size(dtype);
            memcpy((char *)values + i * size, &bits, size);
        } else {
            store(dtype, values, i, value_of(shape, i, random));
        }
    }
}

/* ---- top-k ------------------------------------------------------------- */

static double values[LARGEST];
static uint32_t expected[LARGEST], actual[LARGEST + 1];

static void expect_topk(const baton_selection_t *from, size_t k, shape_t shape)
{
    size_t bytes = baton_select_scratch_bytes(from->count, k);
    void *scratch = malloc(bytes);
    memset(actual, 0xab, sizeof actual);
    baton_magnitude_t threshold = 1;
    size_t kept = sorted_topk(from, k, expected);
    size_t found = baton_select_topk(from, k, actual, scratch, &threshold);
    if (found != kept || memcmp(actual, expected, kept * sizeof *actual) != 0) {
        fail_msg("%s, shape %d, side %d: top-%zu of %zu is wrong (%zu, not "
                 "%zu)",
                 baton_dtype_name(from->dtype), (int)shape, (int)from->side, k,
                 from->count, found, kept);
    }
    assert_int_equal(actual[kept], 0xabababab);
    assert_int_equal(threshold == 0, kept == 0);
    if (kept > 0) {
        assert_true(baton_select_count(from, threshold) >= kept);
        size_t above = baton_select_count(from, threshold + 1);
        if (above >= kept) {
            fail_msg("%s, shape %d, side %d: top-%zu of %zu: %zu are above the "
                     "threshold, kept %zu, threshold %llx",
                     baton_dtype_name(from->dtype), (int)shape, (int)from->side,
                     k, from->count, above, kept,
                     (unsigned long long)threshold);
        }
    }
    assert_int_equal(baton_select_trimmed(from, k, actual, scratch), kept);
    assert_memory_equal(actual, expected, kept * sizeof *actual);
    free(scratch);
}

static void expect_all(baton_dtype_t dtype, size_t count,
                       support_random_t *random)
{
    const size_t ks[] = {
        0,         1,     2,        count / 1000 + 1, count / 100 + 1,
        count / 2, count, count + 5};
    for (shape_t shape = 0; shape < SHAPES; shape++) {
        fill(dtype, values, count, shape, random);
        for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) {
            baton_selection_t from = {.dtype = dtype,
                                      .side = BATON_SIDE_BOTH,
                                      .values = values,
                                      .count = count,
                                      .first = 17};
            expect_topk(&from, ks[i] < LARGEST ? ks[i] : LARGEST, shape);
            from.side = BATON_SIDE_POSITIVE + (i % 2 == 0);
            expect_topk(&from, ks[i] < LARGEST ? ks[i] : LARGEST, shape);
        }
    }
}

typedef void (*expect_fn)(baton_dtype_t dtype, size_t count,
                          support_random_t *random);

/* By the kernels of each instruction set, for every type, of many sizes. */
static void for_each_size(expect_fn expect)
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    for (size_t isa = 0; isa < 3; isa++) {
        (void)setenv("BATON_ISA", isas[isa], 1);
        baton__config_forget();
        baton__kernels_forget();
        for (size_t type = 0; type < TYPES; type++) {
            support_random_t random = support_random(support_seed(), type);
            const size_t counts[] = {0, 1, 63, 64, 65, 1000, 4097, 33333};
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
                expect(types[type], counts[i], &random);
            }
        }
    }
    (void)unsetenv("BATON_ISA");
    baton__config_forget();
    baton__kernels_forget();
}

static void test_topk_is_that_of_a_sort(void **state)
{
    (void)state;
    for_each_size(expect_all);
}

/* ---- of sums ----------------------------------------------------------- */

static double left[LARGEST], right[LARGEST], sums[LARGEST];

/* The sum goes to a third vector, or to the left or the right one. */
static baton_accumulation_t accumulation(baton_dtype_t dtype, size_t count,
                                         int form)
{
    static double copies[2][LARGEST];
    size_t bytes = count * baton_dtype_size(dtype);
    memcpy(copies[0], left, bytes);
    memcpy(copies[1], right, bytes);
    memset(values, 0, bytes);
    return (baton_accumulation_t){
        .dtype = dtype,
        .side = (baton_side_t)form,
        .sum = form == 0 ? values : copies[form - 1],
        .left = copies[0],
        .right = copies[1],
        .count = count,
        .first = 5,
    };
}

static void expect_accumulated(const baton_accumulation_t *of, size_t found,
                               size_t kept)
{
    assert_memory_equal(of->sum, sums, of->count * baton_dtype_size(of->dtype));
    assert_int_equal(found, kept);
    assert_memory_equal(actual, expected, kept * sizeof *actual);
}

/* Adding up and selecting, one after the other, and at once. */
static void expect_one_pass(baton_dtype_t dtype, size_t count, size_t k,
                            int form)
{
    baton_magnitude_t threshold, same;
    void *scratch = malloc(baton_select_scratch_bytes(count, k));
    const baton_selection_t from = {.dtype = dtype,
                                    .side = (baton_side_t)form,
                                    .values = sums,
                                    .count = count,
                                    .first = 5};
    BATON_SUM->reduce(BATON_SUM->arg, sums, left, right, count, dtype);
    size_t kept = baton_select_topk(&from, k, expected, scratch, &threshold);
    baton_accumulation_t of = accumulation(dtype, count, form);
    size_t found = baton_accumulate_topk(&of, k, actual, scratch, &same);
    expect_accumulated(&of, found, kept);
    assert_int_equal(same, threshold);
    /* Past the caches, where the sum is not at the beginning of a line. */
    of = accumulation(dtype, count, form);
    if (form == 0 && count < LARGEST) {
        of.sum = (char *)values + baton_dtype_size(dtype);
    }
    of.stream = true;
    found = baton_accumulate_topk(&of, k, actual, scratch, &same);
    expect_accumulated(&of, found, kept);
    assert_int_equal(same, threshold);
    /* All that reach the threshold fit, or half of them do. */
    const size_t rooms[] = {LARGEST, kept / 2};
    for (int i = 0; i < 2; i++) {
        size_t all =
            baton_select_at_least(&from, threshold, expected, rooms[i]);
        of = accumulation(dtype, count, form);
        found = baton_accumulate_at_least(&of, threshold, actual, rooms[i]);
        assert_int_equal(found, all);
        size_t written = all < rooms[i] ? all : rooms[i];
        expect_accumulated(&of, written, written);
    }
    free(scratch);
}

static void expect_accumulation(baton_dtype_t dtype, size_t count,
                                support_random_t *random)
{
    const size_t ks[] = {0, 1, count / 100 + 1, count / 2, count};
    for (shape_t shape = 0; shape < SHAPES; shape++) {
        fill(dtype, left, count, shape, random);
        fill(dtype, right, count, shape == BITS ? NORMAL : shape, random);
        for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) {
            expect_one_pass(dtype, count, ks[i], (int)(i % 3));
        }
    }
}

static void test_accumulation_selects_from_the_sum(void **state)
{
    (void)state;
    for_each_size(expect_accumulation);
}

static void test_search_leaves_k_to_2k(void **state)
{
    (void)state;
    support_random_t random = support_random(support_seed(), 9);
    const size_t count = 30000;
    for (size_t type = 0; type < TYPES; type++) {
        for (shape_t shape = 0; shape < SHAPES; shape++) {
            fill(types[type], values, count, shape, &random);
            baton_selection_t from = {
                .dtype = types[type], .values = values, .count = count};
            for (size_t k = 1; k <= count; k = k * 3 + 1) {
                size_t bytes = baton_select_scratch_bytes(count, k);
                void *scratch = malloc(bytes);
                baton_magnitude_t threshold =
                    baton_select_search(&from, k, actual, scratch);
                size_t found = baton_select_count(&from, threshold);
                size_t nonzero = baton_select_count(&from, 1);
                if (nonzero < k) {
                    assert_int_equal(threshold, 0);
                } else {
                    assert_true(found >= k);
                    /* Ties and the coarse values of f16 may be more. */
                    assert_true(found <= 2 * k ||
                                baton_select_count(&from, threshold + 1) < k);
                }
                size_t listed =
                    baton_select_at_least(&from, threshold, actual, 2 * k);
                assert_int_equal(listed, found);
                free(scratch);
            }
        }
    }
}

/* Few elements, all of the smallest magnitude: their mean rounds to zero. */
static void test_search_finds_the_smallest_magnitude(void **state)
{
    (void)state;
    enum { COUNT = 10000, FEW = 100, K = 60 };
    static uint64_t memory[COUNT];
    for (size_t type = 0; type < TYPES; type++) {
        const uint16_t half = 1;
        const uint32_t single = 1;
        const uint64_t one = 1;
        size_t size = baton_dtype_size(types[type]);
        memset(memory, 0, sizeof memory);
        for (size_t i = 0; i < FEW; i++) {
            memcpy((char *)memory + i * size,
                   size == 2   ? (const void *)&half
                   : size == 4 ? (const void *)&single
                               : (const void *)&one,
                   size);
        }
        baton_selection_t from = {
            .dtype = types[type], .values = memory, .count = COUNT};
        void *scratch = malloc(baton_select_scratch_bytes(COUNT, K));
        assert_int_equal(baton_select_search(&from, K, actual, scratch), 1);
        free(scratch);
    }
}

static void test_nothing_reaches_a_threshold_beyond_nans(void **state)
{
    (void)state;
    support_random_t random = support_random(support_seed(), 50);
    for (size_t type = 0; type < TYPES; type++) {
        fill(types[type], values, 1000, NANS, &random);
        baton_selection_t from = {
            .dtype = types[type], .values = values, .count = 1000};
        baton_magnitude_t nan = baton_magnitude_of(types[type], NAN);
        assert_int_equal(baton_select_at_least(&from, nan, actual, 1000),
                         baton_select_count(&from, nan));
        const baton_magnitude_t beyond[] = {
            nan + 1, UINT64_C(1) << (8 * baton_dtype_size(types[type]) - 1),
            UINT64_C(1) << 63, UINT64_MAX};
        for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
            assert_int_equal(baton_select_count(&from, beyond[i]), 0);
            assert_int_equal(
                baton_select_at_least(&from, beyond[i], actual, 1000), 0);
        }
    }
}

/* Doubles beside the middle of two neighbours, where rounding to f32 first
   would lose on which side they are. */
static void test_magnitudes_are_rounded_once(void **state)
{
    (void)state;
    for (size_t type = 0; type < TYPES - 1; type++) {
        baton_dtype_t dtype = types[type];
        baton_magnitude_t largest = baton_magnitude_of(dtype, INFINITY) - 1;
        baton_magnitude_t step = largest / 0x7000 + 1;
        for (baton_magnitude_t key = 0; key < largest; key += step) {
            double low = baton_magnitude_value(dtype, key);
            double middle = (low + baton_magnitude_value(dtype, key + 1)) / 2;
            assert_int_equal(baton_magnitude_of(dtype, -low), key);
            assert_int_equal(baton_magnitude_of(dtype, nextafter(middle, 0)),
                             key);
            assert_int_equal(baton_magnitude_of(dtype, middle), key + key % 2);
            assert_int_equal(
                baton_magnitude_of(dtype, nextafter(middle, INFINITY)),
                key + 1);
        }
        assert_int_equal(baton_magnitude_of(dtype, 1e308), largest + 1);
        assert_int_equal(baton_magnitude_of(dtype, -NAN), largest + 2);
    }
}

/* ---- lists of entries -------------------------------------------------- */

enum { LENGTH = 20000, LISTS = 5 };

static size_t random_list(baton_dtype_t dtype, char *list, double *dense,
                          support_random_t *random)
{
    static double vector[LENGTH];
    static uint32_t indices[LENGTH];
    size_t count = 0;
    uint64_t gap = 1 + support_random_below(random, 400);
    for (uint32_t i = 0; i < LENGTH; i++) {
        store(dtype, vector, i, 0);
        if (support_random_below(random, gap) == 0) {
            double value = (double)support_random_below(random, 41) - 20;
            store(dtype, vector, i, value);
            dense[i] += value;
            indices[count++] = i;
        }
    }
    baton_entries_take(dtype, list, indices, count, vector);
    for (size_t i = 0; i < LENGTH; i++) {
        assert_true(load(dtype, vector, i) == 0);
    }
    return count;
}

static void test_sum_of_lists_is_the_dense_sum(void **state)
{
    (void)state;
    static char lists[LISTS][LENGTH * 12 + 1], out[LISTS * LENGTH * 12];
    static uint32_t indices[LISTS * LENGTH];
    for (size_t type = 0; type < TYPES; type++) {
        support_random_t random = support_random(support_seed(), 20 + type);
        for (int round = 0; round < 20; round++) {
            static double dense[LENGTH], vector[LENGTH];
            baton_entries_t sets[LISTS];
            memset(dense, 0, sizeof dense);
            memset(vector, 0, sizeof vector);
            for (size_t i = 0; i < LISTS; i++) {
                sets[i].data = lists[i] + round % 2; /* not aligned */
                sets[i].count = random_list(types[type], lists[i] + round % 2,
                                            dense, &random);
            }
            size_t count = baton_entries_sum(types[type], sets, LISTS, out);
            baton_entries_split(types[type], out, count, indices, NULL);
            for (size_t i = 1; i < count; i++) {
                assert_true(indices[i - 1] < indices[i]);
            }
            baton_entries_put(types[type], out, count, vector);
            for (size_t i = 0; i < LENGTH; i++) {
                assert_true(load(types[type], vector, i) == dense[i]);
            }
        }
    }
}

static void test_put_undoes_add(void **state)
{
    (void)state;
    static char list[LENGTH * 12];
    static double dense[LENGTH], vector[LENGTH], before[LENGTH];
    for (size_t type = 0; type < TYPES; type++) {
        support_random_t random = support_random(support_seed(), 30 + type);
        memset(dense, 0, sizeof dense);
        fill(types[type], vector, LENGTH, TIES, &random);
        memcpy(before, vector, sizeof vector);
        size_t count = random_list(types[type], list, dense, &random);
        baton_entries_add(types[type], list, count, 0.5, vector);
        for (size_t i = 0; i < LENGTH; i++) {
            assert_true(load(types[type], vector, i) ==
                        load(types[type], before, i) + dense[i] / 2);
        }
        baton_entries_put(types[type], list, count, vector);
        assert_memory_equal(vector, before,
                            LENGTH * baton_dtype_size(types[type]));
    }
}

/* Entries of some indices of a vector. */
static size_t some_entries(baton_dtype_t dtype, const void *vector,
                           size_t count, support_random_t *random,
                           uint32_t *indices, void *entries)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (support_random_below(random, 9) == 0) {
            indices[found++] = (uint32_t)i;
        }
    }
    baton_entries_gather(dtype, entries, indices, found, vector);
    return found;
}

/* Candidates, and what is added to some elements: the k largest of the sums
   without another pass over the vector, or the answer that it takes one. */
static void expect_candidates(baton_dtype_t dtype, shape_t shape, size_t count,
                              size_t k, support_random_t *random)
{
    static uint32_t indices[LARGEST];
    static char memory[3][(LARGEST + 1) * (sizeof(uint32_t) + sizeof(double))];
    size_t room = baton_candidates_room(count, k);
    baton_candidates_t candidates = {.entries = memory[0], .capacity = room};
    void *scratch = malloc(baton_select_scratch_bytes(count, k) +
                           baton_entries_largest_scratch_bytes(count, k));
    fill(dtype, left, count, shape, random);
    fill(dtype, right, count, NORMAL, random);
    memcpy(values, left, count * baton_dtype_size(dtype));
    const baton_accumulation_t of = {
        .dtype = dtype, .sum = left, .count = count};
    baton_candidates_find(&of, k, &candidates, scratch);
    size_t added =
        some_entries(dtype, right, count, random, indices, memory[1]);
    baton_entries_t lists[] = {
        {memory[0], candidates.low > 0 ? candidates.count : 0},
        {memory[1], added}};
    size_t all = baton_entries_sum_onto(dtype, left, lists, 2, memory[2]);
    size_t found = baton_entries_largest(dtype, memory[2], all, k, &candidates,
                                         memory[0], scratch);
    size_t common =
        baton_entries_common(dtype, memory[2], all, indices, added, false,
                             memory[0] + sizeof memory[0] / 2);
    assert_int_equal(common, added);
    if (found != SIZE_MAX) {
        baton_entries_add(dtype, memory[1], added, 1, values);
        const baton_selection_t from = {
            .dtype = dtype, .values = values, .count = count};
        size_t kept = baton_select_topk(&from, k, expected, scratch, NULL);
        assert_int_equal(found, kept);
        baton_entries_gather(dtype, memory[1], expected, kept, values);
        assert_memory_equal(memory[0], memory[1],
                            kept * baton_entry_bytes(dtype));
    }
    free(scratch);
}

static void test_candidates_and_lists_have_the_largest_sums(void **state)
{
    (void)state;
    support_random_t random = support_random(support_seed(), 77);
    for (size_t type = 0; type < TYPES; type++) {
        for (shape_t shape = 0; shape < SHAPES; shape++) {
            expect_candidates(types[type], shape, 500, 20, &random);
            expect_candidates(types[type], shape, LARGEST / 4, 100, &random);
        }
    }
}

/* Whatever `side` is: what is added later may turn an element's sign. */
static void test_candidates_are_of_both_signs(void **state)
{
    (void)state;
    enum { COUNT = 100, MOST = 10 };
    static uint64_t scratch[1 << 13];
    float sum[COUNT];
    char entries[COUNT * 8], chosen[MOST * 8];
    for (int i = 0; i < COUNT; i++) {
        sum[i] = i % 2 == 0 ? (float)i : (float)-i;
    }
    for (int side = BATON_SIDE_BOTH; side <= BATON_SIDE_NEGATIVE; side++) {
        const baton_accumulation_t of = {.dtype = BATON_F32,
                                         .side = (baton_side_t)side,
                                         .sum = sum,
                                         .count = COUNT};
        baton_candidates_t candidates = {.entries = entries, .capacity = COUNT};
        assert_in_range(baton_select_scratch_bytes(COUNT, MOST), 0,
                        sizeof scratch);
        baton_candidates_find(&of, MOST, &candidates, scratch);
        assert_int_equal(candidates.count, COUNT - 1);
        assert_in_range(
            baton_entries_largest_scratch_bytes(candidates.count, MOST), 0,
            sizeof scratch);
        assert_int_equal(baton_entries_largest(BATON_F32, entries,
                                               candidates.count, MOST,
                                               &candidates, chosen, scratch),
                         MOST);
        for (uint32_t i = 0; i < MOST; i++) {
            assert_int_equal(baton_entry_index(BATON_F32, chosen, i),
                             COUNT - MOST + i);
        }
    }
}

/* k = 0 needs no scratch memory, as in baton_select_topk. */
static void test_none_of_the_candidates_are_selected(void **state)
{
    (void)state;
    static float sum[LARGEST];
    static char entries[LARGEST * (sizeof(uint32_t) + sizeof(float))];
    for (size_t i = 0; i < LARGEST; i++) {
        sum[i] = (float)(i % 5);
    }
    const baton_accumulation_t of = {
        .dtype = BATON_F32, .sum = sum, .count = LARGEST};
    baton_candidates_t candidates = {.entries = entries, .capacity = LARGEST};
    baton_candidates_find(&of, 0, &candidates, NULL);
    assert_true(candidates.low > 0);
    size_t count = candidates.count;
    assert_true(count > 0);
    assert_int_equal(baton_entries_largest(BATON_F32, entries, count, 0,
                                           &candidates, NULL, NULL),
                     0);
    void *scratch = malloc(baton_entries_largest_scratch_bytes(count, 0));
    assert_int_equal(baton_entries_largest(BATON_F32, entries, count, 0,
                                           &candidates, NULL, scratch),
                     0);
    free(scratch);
    candidates.capacity = 0;
    candidates.entries = NULL;
    baton_candidates_find(&of, 0, &candidates, NULL);
    assert_int_equal(candidates.low, 0);
    assert_int_equal(
        baton_entries_largest(BATON_F32, NULL, 0, 0, &candidates, NULL, NULL),
        0);
}

static void test_topk_of_a_list_splits_it(void **state)
{
    (void)state;
    static char list[LENGTH * 12], dropped[LENGTH * 12];
    static double dense[LENGTH], vector[LENGTH], copy[LENGTH];
    for (size_t type = 0; type < TYPES; type++) {
        support_random_t random = support_random(support_seed(), 40 + type);
        size_t bytes = baton_entry_bytes(types[type]);
        memset(dense, 0, sizeof dense);
        memset(vector, 0, sizeof vector);
        memset(copy, 0, sizeof copy);
        size_t count = random_list(types[type], list, dense, &random);
        baton_entries_put(types[type], list, count, copy);
        size_t k = count / 3, others;
        void *scratch = malloc(baton_entries_scratch_bytes(count, k));
        size_t kept = baton_entries_topk(types[type], list, count, k, dropped,
                                         &others, scratch);
        baton_selection_t from = {
            .dtype = types[type], .values = copy, .count = LENGTH};
        assert_int_equal(sorted_topk(&from, k, expected), kept);
        for (size_t i = 0; i < kept; i++) {
            assert_int_equal(baton_entry_index(types[type], list, i),
                             expected[i]);
        }
        assert_int_equal(kept + others, count);
        baton_entries_put(types[type], list, kept, vector);
        baton_entries_put(types[type], dropped, others, vector);
        assert_memory_equal(vector, copy,
                            LENGTH * baton_dtype_size(types[type]));
        assert_int_equal(bytes, 4 + baton_dtype_size(types[type]));
        free(scratch);
    }
}

static void test_measure_sees_what_is_not_finite(void **state)
{
    (void)state;
    for (size_t type = 0; type < TYPES; type++) {
        for (size_t i = 0; i < 100; i++) {
            store(types[type], values, i, i % 2 == 0 ? 2 : -3);
        }
        baton_magnitudes_t all =
            baton_elements_measure(types[type], values, 100);
        assert_true(all.sum == 250 && all.square_sum == 650);
        assert_true(baton_magnitude_value(types[type], all.largest) == 3);
        assert_int_equal(all.nans + all.infinities, 0);
        store(types[type], values, 50, -1.0 / 0.0);
        store(types[type], values, 51, 0.0 / 0.0);
        all = baton_elements_measure(types[type], values, 100);
        assert_int_equal(all.nans, 1);
        assert_int_equal(all.infinities, 1);
        assert_int_equal(all.largest,
                         baton_magnitude_of(types[type], 0.0 / 0.0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topk_is_that_of_a_sort),
        cmocka_unit_test(test_accumulation_selects_from_the_sum),
        cmocka_unit_test(test_search_leaves_k_to_2k),
        cmocka_unit_test(test_search_finds_the_smallest_magnitude),
        cmocka_unit_test(test_nothing_reaches_a_threshold_beyond_nans),
        cmocka_unit_test(test_magnitudes_are_rounded_once),
        cmocka_unit_test(test_sum_of_lists_is_the_dense_sum),
        cmocka_unit_test(test_put_undoes_add),
        cmocka_unit_test(test_candidates_and_lists_have_the_largest_sums),
        cmocka_unit_test(test_candidates_are_of_both_signs),
        cmocka_unit_test(test_none_of_the_candidates_are_selected),
        cmocka_unit_test(test_topk_of_a_list_splits_it),
        cmocka_unit_test(test_measure_sees_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
