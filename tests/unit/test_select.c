/* Selection, compared with a sort, for every element type and instruction set.
   Also lists of entries, compared with dense arithmetic. */
#include "base/half.h"
#include "base/random.h"
#include "ops/kernels.h"
#include "support/cmocka.h"
#include "support/select_cases.h"

#include <math.h>

enum { LARGEST = 40000, TYPES = SELECT_TYPES };

static const baton_dtype_t *const types = select_types;

static double load(baton_dtype_t dtype, const void *data, size_t i)
{
    size_t size = baton_dtype_size(dtype);
    uint64_t bits = 0, sign = UINT64_C(1) << (8 * size - 1);
    memcpy(&bits, (const char *)data + i * size, size);
    double value = baton_magnitude_value(dtype, bits & ~sign);
    return (bits & sign) != 0 ? -value : value;
}

/* Runs a test with the kernels of each instruction set. */
static void for_each_isa(void (*run)(void))
{
    static const char *const isas[] = {"baseline", "avx2", "avx512"};
    for (size_t isa = 0; isa < 3; isa++) {
        support_set_variable("BATON_ISA", isas[isa]);
        baton__kernels_forget();
        run();
    }
    support_set_variable("BATON_ISA", NULL);
    baton__kernels_forget();
}

/* ---- selections -------------------------------------------------------- */

static double values[LARGEST];
static uint32_t expected[LARGEST], actual[LARGEST + 1];

/* Returns an element of a sample, chosen as the library chooses it: one in each
   stratum. */
static size_t position(size_t count, size_t size, size_t i)
{
    double stride = (double)count / (double)size;
    size_t begin = (size_t)(stride * (double)i);
    size_t end = (size_t)(stride * (double)(i + 1));
    return begin +
           (size_t)((baton__random(1, count, i) >> 32) * (end - begin) >> 32);
}

static void fill(baton_dtype_t dtype, void *data, size_t count,
                 select_kind_t kind, support_random_t *random)
{
    select_fill(kind, dtype, data, count, position, random);
}

/* Selects by the threshold of a sample, as lib/coll/sparse/algorithms/topka.c
   does. */
static size_t sampled(const baton_device_selection_t *s, void *scratch)
{
    const size_t most = 2 * s->k < s->from.count ? 2 * s->k : s->from.count;
    baton_magnitude_t *threshold = &s->selected->threshold;
    if (s->method != BATON_DEVICE_REUSED || *threshold == 0 ||
        baton_select_count(&s->from, *threshold) > most) {
        *threshold = baton_select_search(&s->from, s->k, s->indices, scratch);
    }
    size_t found =
        baton_select_at_least(&s->from, *threshold, s->indices, most);
    return *threshold != 0 && found <= most
               ? found
               : baton_select_topk(&s->from, s->k, s->indices, scratch,
                                   threshold);
}

static void select_here(const baton_device_selection_t *s)
{
    void *scratch =
        support_alloc(1, baton_select_scratch_bytes(s->from.count, s->k));
    if (s->method >= BATON_DEVICE_SAMPLED) {
        s->selected->count = sampled(s, scratch);
    } else {
        s->selected->count = baton_select_topk(
            &s->from, s->k, s->indices, scratch, &s->selected->threshold);
    }
    if (s->method == BATON_DEVICE_TOPK) {
        memset(s->indices, 0xa5, s->selected->count * sizeof *s->indices);
        s->selected->count =
            baton_select_trimmed(&s->from, s->k, s->indices, scratch);
    }
    free(scratch);
}

static void run_cases(void)
{
    const select_subject_t subject = {select_here, position, 34000, 40, false};
    select_cases_run(&subject);
}

TEST(test_selections_are_those_of_a_sort)
{
    for_each_isa(run_cases);
}

/* ---- sums -------------------------------------------------------------- */

static double left[LARGEST], right[LARGEST], sums[LARGEST];

/* The sum is stored in a third vector, in the left one, or in the right one. */
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

/* Compares an addition that is followed by a selection with both in one
   pass. */
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
    /* The sum is written past the caches, and does not begin at the beginning
       of a cache line. */
    of = accumulation(dtype, count, form);
    if (form == 0 && count < LARGEST) {
        of.sum = (char *)values + baton_dtype_size(dtype);
    }
    of.stream = true;
    found = baton_accumulate_topk(&of, k, actual, scratch, &same);
    expect_accumulated(&of, found, kept);
    assert_int_equal(same, threshold);
    /* There is room for all elements that reach the threshold, or for half of
       them. */
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
    for (int kind = 0; kind < SELECT_KINDS; kind++) {
        fill(dtype, left, count, (select_kind_t)kind, random);
        /* The sum of two NaNs may have the payload of either. */
        bool nans = kind == SELECT_BITS || kind == SELECT_NANS;
        fill(dtype, right, count, nans ? SELECT_NORMAL : (select_kind_t)kind,
             random);
        for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) {
            expect_one_pass(dtype, count, ks[i], (int)(i % 3));
        }
    }
}

static void expect_accumulations(void)
{
    static const size_t counts[] = {0, 1, 63, 64, 65, 1000, 4097, 33333};
    for (size_t type = 0; type < TYPES; type++) {
        support_random_t random = support_random(support_seed(), type);
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            expect_accumulation(types[type], counts[i], &random);
        }
    }
}

TEST(test_accumulation_selects_from_the_sum)
{
    for_each_isa(expect_accumulations);
}

static void add(const baton_accumulation_t *of, void *to, const void *other)
{
    BATON_SUM->reduce(BATON_SUM->arg, to, to, other, of->count, of->dtype);
}

/* Adds momentum to one element with a bf16 velocity. Returns the value to
   accumulate. */
static float add_short(const baton_accumulation_t *of, float g, uint16_t *u)
{
    const float m = (float)of->momentum;
    float last = baton__f32_of_bf16(*u);
    float next = of->nesterov ? m * (last + g) : m * last + g;
    *u = baton__bf16_of_f32(next);
    float lost = next - baton__f32_of_bf16(*u);
    return (of->nesterov ? next + g : next) + lost * (m / (1 - m));
}

/* The reference: computes the accumulation by loops over the whole vector. */
static void compute(const baton_accumulation_t *of, void *g, void *velocity,
                    void *sum)
{
    size_t bytes = of->count * baton_dtype_size(of->dtype);
    memcpy(g, of->right, bytes);
    if (of->scale) {
        baton_elements_scale(of->dtype, g, of->count, of->factor);
    }
    if (of->velocity != NULL) {
        memcpy(velocity, of->velocity, bytes);
    }
    for (size_t i = 0; i < of->count && of->short_velocity; i++) {
        ((float *)g)[i] =
            add_short(of, ((float *)g)[i], (uint16_t *)velocity + i);
    }
    if (of->velocity != NULL && !of->short_velocity) {
        if (of->nesterov) {
            add(of, velocity, g);
        }
        baton_elements_scale(of->dtype, velocity, of->count, of->momentum);
        add(of, of->nesterov ? g : velocity, of->nesterov ? velocity : g);
        g = of->nesterov ? g : velocity;
    }
    memset(sum, 0, bytes);
    if (of->left != NULL) {
        memcpy(sum, of->left, bytes);
    }
    add(of, sum, g);
}

/* Accumulates with different guesses of the threshold, at which the selection
   begins. */
static void expect_terms(const baton_accumulation_t *given, size_t k)
{
    static double g[LARGEST], velocity[LARGEST];
    static char room[LARGEST * 12];
    const size_t bytes = given->count * baton_dtype_size(given->dtype);
    const size_t short_bytes = given->count * sizeof(uint16_t);
    void *scratch = malloc(baton_select_scratch_bytes(given->count, k));
    baton_accumulation_t of = *given;
    baton_magnitude_t threshold, same;
    compute(&of, g, velocity, sums);
    const baton_selection_t from = {
        .dtype = of.dtype, .values = sums, .count = of.count};
    size_t kept = baton_select_topk(&from, k, expected, scratch, &threshold);
    const baton_magnitude_t guesses[] = {0, 1, threshold, threshold + 1};
    for (size_t i = 0; i < 4; i++) {
        baton_magnitude_t guess[] = {guesses[i], guesses[i]};
        baton_candidates_t candidates = {
            .entries = room, .capacity = baton_candidates_room(of.count, k)};
        of.guess = &guess[0];
        size_t found = baton_accumulate_topk(&of, k, actual, scratch, &same);
        expect_accumulated(&of, found, kept);
        assert_int_equal(same, threshold);
        assert_true(of.velocity == NULL ||
                    memcmp(of.new_velocity, velocity,
                           of.short_velocity ? short_bytes : bytes) == 0);
        of.guess = &guess[1];
        memset(of.sum, 0, bytes);
        baton_candidates_find(&of, k, &candidates, scratch);
        expect_accumulated(&of, 0, 0);
        /* A sample may mislead. The count of candidates shows that. */
        bool enough = candidates.count >= k;
        assert_true(candidates.low <= threshold || !enough);
        assert_int_equal(candidates.count,
                         baton_select_count(&from, candidates.low));
        assert_true(
            of.count < 5000 ||
            (guess[0] > 0 && (guess[1] > 0) == (enough && candidates.low > 0)));
    }
    free(scratch);
}

static void expect_all_terms(void)
{
    static double old[LARGEST], next[LARGEST];
    for (size_t type = 0; type < TYPES; type++) {
        support_random_t random = support_random(support_seed(), 60 + type);
        for (int form = 0; form < (types[type] == BATON_F32 ? 64 : 32);
             form++) {
            size_t count = form % 3 == 0 ? 65 : 20000;
            fill(types[type], left, count, SELECT_NORMAL, &random);
            fill(types[type], right, count, SELECT_NORMAL, &random);
            bool halves = form >= 36 && (form & 4) != 0;
            fill(halves ? BATON_BF16 : types[type], old, count, SELECT_NORMAL,
                 &random);
            const baton_accumulation_t of = {
                .dtype = types[type],
                .sum = values,
                .left = (form & 1) != 0 ? left : NULL,
                .right = right,
                .count = count,
                .scale = (form & 2) != 0,
                .factor = 0.37,
                .velocity = (form & 4) != 0 ? old : NULL,
                .new_velocity = next,
                .momentum = 0.9,
                .nesterov = (form & 8) != 0,
                .short_velocity = halves,
                .stream = (form & 16) != 0};
            expect_terms(&of, count / 50);
        }
    }
}

TEST(test_accumulation_scales_and_has_momentum)
{
    for_each_isa(expect_all_terms);
}

/* If no threshold between mean and maximum selects k to 2k elements, the search
   returns the key of the k-th largest. */
TEST(test_search_among_ties)
{
    float ties[64];
    uint32_t at[4];
    const baton_selection_t from = {
        .dtype = BATON_F32, .values = ties, .count = 64};
    for (int i = 0; i < 64; i++) {
        ties[i] = i % 2 == 0 ? 1 : 2;
    }
    void *scratch = support_alloc(1, baton_select_scratch_bytes(64, 4));
    assert_int_equal(baton_select_search(&from, 4, at, scratch),
                     baton_magnitude_of(BATON_F32, 2));
    free(scratch);
}

TEST(test_nothing_reaches_a_threshold_beyond_nans)
{
    support_random_t random = support_random(support_seed(), 50);
    for (size_t type = 0; type < TYPES; type++) {
        fill(types[type], values, 1000, SELECT_NANS, &random);
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

/* Doubles beside the middle between two neighbours. Rounding to f32 first would
   lose on which side of the middle they are. */
TEST(test_magnitudes_are_rounded_once)
{
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
        select_store(dtype, vector, i, 0);
        if (support_random_below(random, gap) == 0) {
            double value = (double)support_random_below(random, 41) - 20;
            select_store(dtype, vector, i, value);
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

TEST(test_sum_of_lists_is_the_dense_sum)
{
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

TEST(test_put_undoes_add)
{
    static char list[LENGTH * 12];
    static double dense[LENGTH], vector[LENGTH], before[LENGTH];
    for (size_t type = 0; type < TYPES; type++) {
        support_random_t random = support_random(support_seed(), 30 + type);
        memset(dense, 0, sizeof dense);
        fill(types[type], vector, LENGTH, SELECT_FEW_VALUES, &random);
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

/* Returns entries of some elements of a vector. */
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

/* Finds the k largest elements after other values were added to some, from
   candidates alone, without another pass over the vector. Returns false if that
   takes another pass. The candidates have both signs whatever `side` is, as an
   added value may change a sign. */
static bool finds_candidates(baton_dtype_t dtype, select_kind_t kind,
                             size_t count, size_t k, support_random_t *random)
{
    static uint32_t indices[LARGEST];
    static char memory[3][(LARGEST + 1) * (sizeof(uint32_t) + sizeof(double))];
    size_t room = baton_candidates_room(count, k);
    baton_candidates_t candidates = {.entries = memory[0], .capacity = room};
    void *scratch = k == 0
                        ? NULL
                        : malloc(baton_select_scratch_bytes(count, k) +
                                 baton_entries_largest_scratch_bytes(count, k));
    fill(dtype, left, count, kind, random);
    fill(dtype, right, count, SELECT_NORMAL, random);
    memcpy(values, left, count * baton_dtype_size(dtype));
    const baton_accumulation_t of = {
        .dtype = dtype,
        .side = (baton_side_t)support_random_below(random, 3),
        .sum = left,
        .count = count};
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
    return found != SIZE_MAX;
}

TEST(test_candidates_and_lists_have_the_largest_sums)
{
    static const size_t sizes[][2] = {
        {500, 0}, {500, 20}, {LARGEST / 4, 0}, {LARGEST / 4, 100}};
    support_random_t random = support_random(support_seed(), 77);
    for (size_t type = 0; type < TYPES; type++) {
        for (size_t i = 0; i < 4; i++) {
            for (int kind = 0; kind < SELECT_KINDS; kind++) {
                bool found =
                    finds_candidates(types[type], (select_kind_t)kind,
                                     sizes[i][0], sizes[i][1], &random);
                assert_true(found || kind != SELECT_NORMAL);
            }
        }
    }
}

/* Without a type, or with an unknown one, nothing is selected, read or
   written. */
TEST(test_what_has_no_type_is_refused)
{
    const float given[] = {1, 2};
    uint32_t indices[2] = {0, 1};
    float memory[8] = {7};
    uint64_t scratch[64];
    size_t dropped = 0;
    const baton_selection_t from = {.values = given, .count = 2};
    const baton_accumulation_t of = {
        .sum = memory, .left = given, .right = given, .count = 2};
    baton_entries_t list = {memory, 1};
    assert_int_equal(baton_select_topk(&from, 1, indices, scratch, NULL), 0);
    assert_non_null(strstr(baton_error_message(),
                           "dtype is none; allowed: f32, f64, f16, bf16"));
    assert_int_equal(baton_select_count(&from, 1), 0);
    assert_int_equal(baton_accumulate_topk(&of, 1, indices, scratch, NULL), 0);
    for (int type = BATON_DTYPE_NONE; type <= BATON_I32; type++) {
        baton_dtype_t dtype = (baton_dtype_t)type;
        baton_entries_gather(dtype, memory, indices, 1, given);
        baton_entries_put(dtype, given, 1, memory);
        baton_elements_scale(dtype, memory, 1, 2);
        assert_int_equal(baton_entries_sum(dtype, &list, 1, memory), 0);
        assert_int_equal(
            baton_entries_topk(dtype, memory, 1, 1, NULL, &dropped, scratch),
            0);
        assert_non_null(strstr(baton_error_message(), baton_dtype_name(dtype)));
        assert_true(baton_elements_measure(dtype, given, 2).sum == 0);
        assert_true(memory[0] == 7);
    }
}

TEST(test_topk_of_a_list_splits_it)
{
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
        assert_int_equal(select_sorted(&from, k, expected), kept);
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

/* Adds one element after the other, in the order that select_kernels.c
   states. */
static baton_magnitudes_t measured(baton_dtype_t dtype, const void *data,
                                   size_t count)
{
    enum { LANES = 16, TILE = 4096, TILE_LANES = 256 };
    double tiles[TILE_LANES] = {0}, squares[TILE_LANES] = {0};
    baton_magnitudes_t all = {.sum = 0};
    for (size_t tile = 0; tile * TILE < count; tile++) {
        double sum = 0, square = 0;
        for (size_t lane = 0; lane < LANES; lane++) {
            double lane_sum = 0, lane_square = 0;
            for (size_t i = lane; i < TILE && tile * TILE + i < count;
                 i += LANES) {
                double x = fabs(load(dtype, data, tile * TILE + i));
                baton_magnitude_t key = baton_magnitude_of(dtype, x);
                lane_sum += x;
                lane_square += x * x;
                all.largest = key > all.largest ? key : all.largest;
            }
            sum += lane_sum;
            square += lane_square;
        }
        tiles[tile % TILE_LANES] += sum;
        squares[tile % TILE_LANES] += square;
    }
    for (size_t half = TILE_LANES / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; i++) {
            tiles[i] += tiles[i + half];
            squares[i] += squares[i + half];
        }
    }
    all.sum = tiles[0];
    all.square_sum = squares[0];
    return all;
}

static void measure_all(void)
{
    enum { MOST = 257 * 4096 + 21 };
    static const size_t counts[] = {0,  1,    7,    8,    15,   16,
                                    33, 4095, 4096, 4097, 8211, MOST};
    static char data[(MOST + 1) * sizeof(double)];
    for (size_t type = 0; type < TYPES; type++) {
        support_random_t random = support_random(support_seed(), 60 + type);
        size_t size = baton_dtype_size(types[type]);
        char *at = data + size / 2; /* the functions need no alignment */
        for (size_t i = 0; i < MOST; i++) {
            /* Small values are subnormal in f16. */
            double limit = i % 5 == 0 ? 4e-5 : 1;
            select_store(types[type], at, i,
                         support_random_real(&random, limit));
        }
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            baton_magnitudes_t known = measured(types[type], at, counts[i]);
            baton_magnitudes_t all =
                baton_elements_measure(types[type], at, counts[i]);
            assert_memory_equal(&all, &known, sizeof all);
        }
    }
}

TEST(test_measure_adds_in_one_order)
{
    for_each_isa(measure_all);
}

TEST(test_measure_sees_what_is_not_finite)
{
    for (size_t type = 0; type < TYPES; type++) {
        for (size_t i = 0; i < 100; i++) {
            select_store(types[type], values, i, i % 2 == 0 ? 2 : -3);
        }
        baton_magnitudes_t all =
            baton_elements_measure(types[type], values, 100);
        assert_true(all.sum == 250 && all.square_sum == 650);
        assert_true(baton_magnitude_value(types[type], all.largest) == 3);
        select_store(types[type], values, 50, -1.0 / 0.0);
        all = baton_elements_measure(types[type], values, 100);
        assert_true(isinf(all.sum) && isinf(all.square_sum));
        assert_true(isinf(baton_magnitude_value(types[type], all.largest)));
        select_store(types[type], values, 51, 0.0 / 0.0);
        all = baton_elements_measure(types[type], values, 100);
        assert_true(isnan(all.sum) && isnan(all.square_sum));
        assert_int_equal(all.largest,
                         baton_magnitude_of(types[type], 0.0 / 0.0));
    }
}
