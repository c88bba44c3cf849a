/* The built-in reductions: every operation, type and instruction set of this
   processor against an independent reference. */
#include "base/config.h"
#include "support/cmocka.h"
#include "support/random.h"
#include "support/reference.h"

#include <baton/baton.h>
#include <stdlib.h>
#include <string.h>

static const baton_op_t *const ops[BATON__OP_COUNT] = {
    &baton_op_sum, &baton_op_prod, &baton_op_min, &baton_op_max};

/* ---- one comparison ---------------------------------------------------- */

/* Where the operands lie. */
typedef enum alias {
    ALIAS_NONE,
    ALIAS_LEFT,     /* target is left */
    ALIAS_RIGHT,    /* target is right */
    ALIAS_OPERANDS, /* left is right */
    ALIAS_ALL,
    ALIAS_COUNT
} alias_t;

#define MOST_ELEMENTS ((size_t)4200)
#define GUARD_BYTES   ((size_t)64)
#define GUARD         0xa5

typedef struct arena {
    unsigned char target[MOST_ELEMENTS * 8 + 2 * GUARD_BYTES];
    unsigned char left[MOST_ELEMENTS * 8 + 2 * GUARD_BYTES];
    unsigned char right[MOST_ELEMENTS * 8 + 2 * GUARD_BYTES];
} arena_t;

static arena_t arena;

typedef struct trial {
    const baton__kernels_t *kernels;
    baton__op_kind_t kind;
    baton_dtype_t dtype;
    alias_t alias;
    size_t count;
    size_t shift; /* bytes that the vectors are off alignment */
} trial_t;

/* Only the payload of the sum or product of two NaNs is unspecified. */
static bool is_right(const trial_t *trial, uint64_t left, uint64_t right,
                     uint64_t actual)
{
    uint64_t expected =
        reference_reduce(trial->kind, trial->dtype, left, right);
    bool open =
        (trial->dtype == BATON_F32 || trial->dtype == BATON_F64) &&
        (trial->kind == BATON__OP_SUM || trial->kind == BATON__OP_PROD) &&
        reference_is_nan(trial->dtype, expected);
    return open ? reference_is_nan(trial->dtype, actual) : actual == expected;
}

/* Reduces copies of left and right as the trial says, and returns the target.
 */
static const unsigned char *run_kernel(const trial_t *trial, const void *left,
                                       const void *right)
{
    size_t bytes = trial->count * baton_dtype_size(trial->dtype);
    size_t offset = GUARD_BYTES + trial->shift;
    memset(&arena, GUARD, sizeof arena);
    unsigned char *l = arena.left + offset;
    bool same = trial->alias == ALIAS_OPERANDS || trial->alias == ALIAS_ALL;
    unsigned char *r = same ? l : arena.right + offset;
    memcpy(l, left, bytes);
    if (!same) {
        memcpy(r, right, bytes);
    }
    unsigned char *t = trial->alias == ALIAS_LEFT || trial->alias == ALIAS_ALL
                           ? l
                       : trial->alias == ALIAS_RIGHT ? r
                                                     : arena.target + offset;
    trial->kernels->reduce[trial->kind][trial->dtype](t, l, r, trial->count);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(t[bytes + i], GUARD);
        assert_int_equal(t[-1 - (ptrdiff_t)i], GUARD);
    }
    if (t != l) {
        assert_memory_equal(l, left, bytes);
    }
    if (t != r && !same) {
        assert_memory_equal(r, right, bytes);
    }
    return t;
}

static void check(const trial_t *trial, const void *left, const void *right)
{
    const unsigned char *target = run_kernel(trial, left, right);
    bool same = trial->alias == ALIAS_OPERANDS || trial->alias == ALIAS_ALL;
    for (size_t i = 0; i < trial->count; i++) {
        uint64_t a = reference_load(left, i, trial->dtype);
        uint64_t b = same ? a : reference_load(right, i, trial->dtype);
        uint64_t actual = reference_load(target, i, trial->dtype);
        if (!is_right(trial, a, b, actual)) {
            fail_msg("%s %s of %s, alias %d, element %zu of %zu: %llx and "
                     "%llx gave %llx",
                     trial->kernels->name, ops[trial->kind]->name,
                     baton_dtype_name(trial->dtype), (int)trial->alias, i,
                     trial->count, (unsigned long long)a, (unsigned long long)b,
                     (unsigned long long)actual);
        }
    }
}

/* ---- operands ---------------------------------------------------------- */

static void fill(void *data, size_t count, baton_dtype_t dtype,
                 support_random_t *random)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = support_random_next(random);
        if (support_random_below(random, 3) == 0) {
            bits = reference_special(dtype, bits);
        }
        reference_store(data, i, dtype, bits);
    }
}

static unsigned char left_data[MOST_ELEMENTS * 8];
static unsigned char right_data[MOST_ELEMENTS * 8];

/* Calls `visit` for every instruction set, operation and type. */
static void for_each(void (*visit)(trial_t trial))
{
    for (int isa = 0; isa < BATON__ISA_COUNT; isa++) {
        const baton__kernels_t *kernels = baton__kernels_of((baton__isa_t)isa);
        if (kernels == NULL) {
            print_message("instruction set %d: not here, skipped\n", isa);
            continue;
        }
        for (int kind = 0; kind < BATON__OP_COUNT; kind++) {
            for (int dtype = 0; dtype < BATON_DTYPE_COUNT; dtype++) {
                visit((trial_t){.kernels = kernels,
                                .kind = (baton__op_kind_t)kind,
                                .dtype = (baton_dtype_t)dtype});
            }
        }
    }
}

/* ---- tests ------------------------------------------------------------- */

static void visit_counts(trial_t trial)
{
    static const size_t counts[] = {0,  1,   2,   3,   7,   8,    9,
                                    15, 16,  17,  31,  33,  63,   64,
                                    65, 127, 129, 255, 257, 1000, 4099};
    support_random_t random = support_random(
        support_seed(), (uint64_t)trial.kind * 100 + (uint64_t)trial.dtype);
    fill(left_data, MOST_ELEMENTS, trial.dtype, &random);
    fill(right_data, MOST_ELEMENTS, trial.dtype, &random);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        trial.count = counts[i];
        for (int alias = 0; alias < ALIAS_COUNT; alias++) {
            trial.alias = (alias_t)alias;
            trial.shift = 0;
            check(&trial, left_data, right_data);
            trial.shift = 1;
            check(&trial, left_data, right_data);
        }
    }
}

static void test_reduce_matches_reference_for_all_counts(void **state)
{
    for_each(visit_counts);
}

static void visit_specials(trial_t trial)
{
    for (size_t i = 0; i < REFERENCE_SPECIALS * REFERENCE_SPECIALS; i++) {
        reference_store(left_data, i, trial.dtype,
                        reference_special(trial.dtype, i % REFERENCE_SPECIALS));
        reference_store(right_data, i, trial.dtype,
                        reference_special(trial.dtype, i / REFERENCE_SPECIALS));
    }
    trial.count = REFERENCE_SPECIALS * REFERENCE_SPECIALS;
    check(&trial, left_data, right_data);
    /* Repeats it one by one, which takes the scalar rest of the loop. */
    size_t size = baton_dtype_size(trial.dtype);
    for (size_t i = 0; i < REFERENCE_SPECIALS * REFERENCE_SPECIALS; i++) {
        trial.count = 1;
        check(&trial, left_data + i * size, right_data + i * size);
    }
}

static void test_reduce_matches_reference_for_special_values(void **state)
{
    for_each(visit_specials);
}

/* Every f16 and bf16 with itself, its neighbour, and others. */
static void visit_halves(trial_t trial)
{
    if (trial.dtype != BATON_F16 && trial.dtype != BATON_BF16) {
        return;
    }
    static const uint32_t offsets[] = {0, 1, 0x8000, 0x4321, 0x0401};
    trial.count = 4096;
    for (size_t k = 0; k < sizeof offsets / sizeof *offsets; k++) {
        for (uint32_t base = 0; base < 0x10000; base += 4096) {
            for (uint32_t i = 0; i < 4096; i++) {
                reference_store(left_data, i, trial.dtype, base + i);
                reference_store(right_data, i, trial.dtype,
                                base + i + offsets[k]);
            }
            check(&trial, left_data, right_data);
        }
    }
}

static void test_reduce_matches_reference_for_every_half(void **state)
{
    for_each(visit_halves);
}

/* Beyond the reference: all instruction sets give the same bits, unless both
   operands are NaNs. */
static void visit_same_bits(trial_t trial)
{
    support_random_t random =
        support_random(support_seed(), 7000 + (uint64_t)trial.dtype);
    fill(left_data, MOST_ELEMENTS, trial.dtype, &random);
    fill(right_data, MOST_ELEMENTS, trial.dtype, &random);
    static unsigned char baseline[MOST_ELEMENTS * 8];
    trial_t other = trial;
    other.kernels = baton__kernels_of(BATON__ISA_BASELINE);
    trial.count = other.count = MOST_ELEMENTS - 1;
    memcpy(baseline, run_kernel(&other, left_data, right_data),
           trial.count * baton_dtype_size(trial.dtype));
    const unsigned char *target = run_kernel(&trial, left_data, right_data);
    for (size_t i = 0; i < trial.count; i++) {
        uint64_t a = reference_load(left_data, i, trial.dtype);
        uint64_t b = reference_load(right_data, i, trial.dtype);
        bool open = reference_is_float(trial.dtype) &&
                    reference_is_nan(trial.dtype, a) &&
                    reference_is_nan(trial.dtype, b);
        if (!open) {
            assert_int_equal(reference_load(target, i, trial.dtype),
                             reference_load(baseline, i, trial.dtype));
        }
    }
}

static void test_reduce_gives_same_bits_on_all_isas(void **state)
{
    for_each(visit_same_bits);
}

static void test_op_reduces_by_type(void **state)
{
    const float left[3] = {1.5f, -2.0f, 4.0f}, right[3] = {2.0f, 3.0f, -1.0f};
    const float expected[BATON__OP_COUNT][3] = {{3.5f, 1.0f, 3.0f},
                                                {3.0f, -6.0f, -4.0f},
                                                {1.5f, -2.0f, -1.0f},
                                                {2.0f, 3.0f, 4.0f}};
    for (size_t kind = 0; kind < BATON__OP_COUNT; kind++) {
        float target[3] = {0};
        ops[kind]->reduce(ops[kind]->arg, target, left, right, 3, BATON_F32);
        assert_memory_equal(target, expected[kind], sizeof target);
        ops[kind]->reduce(ops[kind]->arg, NULL, NULL, NULL, 0, BATON_F32);
    }
}

static void test_op_identity_is_neutral(void **state)
{
    for (size_t kind = 0; kind < BATON__OP_COUNT; kind++) {
        for (int d = 0; d < BATON_DTYPE_COUNT; d++) {
            baton_dtype_t dtype = (baton_dtype_t)d;
            uint64_t neutral[5] = {0};
            ops[kind]->identity(ops[kind]->arg, neutral, 5, dtype);
            for (size_t i = 0; i < REFERENCE_SPECIALS; i++) {
                uint64_t bits = reference_special(dtype, i);
                uint64_t result = reference_reduce(
                    (baton__op_kind_t)kind, dtype,
                    reference_load(neutral, i % 5, dtype), bits);
                assert_true(result == bits || (reference_is_float(dtype) &&
                                               reference_is_nan(dtype, bits)));
            }
        }
    }
}

static void test_kernels_follow_baton_isa(void **state)
{
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    const char *best = NULL;
    for (int isa = 0; isa < BATON__ISA_COUNT; isa++) {
        const baton__kernels_t *kernels = baton__kernels_of((baton__isa_t)isa);
        setenv("BATON_ISA", names[isa], 1);
        baton__config_forget();
        baton__kernels_forget();
        best = kernels != NULL ? names[isa] : best;
        assert_string_equal(baton_kernels_name(), best);
    }
    unsetenv("BATON_ISA");
    baton__config_forget();
    baton__kernels_forget();
    assert_string_equal(baton_kernels_name(), best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_matches_reference_for_all_counts),
        cmocka_unit_test(test_reduce_matches_reference_for_special_values),
        cmocka_unit_test(test_reduce_matches_reference_for_every_half),
        cmocka_unit_test(test_reduce_gives_same_bits_on_all_isas),
        cmocka_unit_test(test_op_reduces_by_type),
        cmocka_unit_test(test_op_identity_is_neutral),
        cmocka_unit_test(test_kernels_follow_baton_isa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
