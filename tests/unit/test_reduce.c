/* The built-in reductions: every operation and type, with every instruction set
   of this processor, compared with an independent reference. Also the types
   themselves. */
#include "base/clock.h"
#include "base/half.h"
#include "support/cluster.h"
#include "support/reduce_cases.h"
#include "support/reference.h"
#include "support/values.h"

#include <math.h>

/* The clock of copies: each reading takes copy_ns. */
static uint64_t copy_now_ns, copy_ns;

static uint64_t copy_clock(void)
{
    return copy_now_ns += copy_ns;
}

#define baton__clock_ns copy_clock
#include "ops/copy.c"
#undef baton__clock_ns

#define OP_ADDRESS(NAME, name) BATON_##NAME,
static const baton_op_t *const ops[] = {BATON_OP_LIST(OP_ADDRESS)};

static void reduce_by_table(const reduce_subject_t *self, baton__op_kind_t kind,
                            baton_dtype_t dtype, void *target, const void *left,
                            const void *right, size_t count)
{
    bool complex = reference_is_complex(dtype);
    if (kind == BATON__OP_COUNT) {
        self->kernels->average[baton__part_of(dtype)](
            target, left, right, complex ? 2 * count : count, REDUCE_RANKS);
    } else {
        self->kernels->reduce[dtype][kind](target, left, right, count);
    }
}

TEST(test_reduce_matches_reference_on_all_isas)
{
    static _Alignas(16) unsigned char memory[REDUCE_BYTES];
    for (int isa = 0; isa < BATON__ISA_COUNT; isa++) {
        const baton__kernels_t *kernels = baton__kernels_of((baton__isa_t)isa);
        if (kernels == NULL) {
            print_message("instruction set %d: not here, skipped\n", isa);
            continue;
        }
        reduce_cases_run(&(reduce_subject_t){.name = kernels->name,
                                             .reduce = reduce_by_table,
                                             .kernels = kernels,
                                             .memory = memory});
    }
}

/* The vectors begin and end anywhere in a cache line. Nothing beside them is
   changed. */
TEST(test_copies_past_cache_are_exact)
{
    enum { MOST = 200, GUARD = 0xee };
    static unsigned char from[LINE + MOST], to[LINE + MOST + 1], all[sizeof to];
    for (size_t i = 0; i < sizeof from; i++) {
        from[i] = (unsigned char)(i * 7);
    }
    for (size_t at = 0; at < LINE; at++) {
        for (size_t bytes = 0; bytes <= MOST; bytes++) {
            memset(to, GUARD, sizeof to);
            memset(all, GUARD, sizeof all);
            memcpy(all + at, from + bytes % LINE, bytes);
            baton__copy_past_cache((char *)to + at, (char *)from + bytes % LINE,
                                   bytes);
            assert_memory_equal(to, all, sizeof to);
        }
    }
}

/* Copies 1 KiB in the given time. Returns whether the copy was timed, which no
   copy past the cache is. */
static bool is_timed(uint64_t ns)
{
    static char from[1024], to[1024];
    uint64_t before = copy_now_ns;
    copy_ns = ns;
    from[0]++;
    baton__copy_shared(to, from, sizeof to);
    assert_memory_equal(to, from, sizeof to);
    return copy_now_ns != before;
}

TEST(test_slow_copies_go_past_the_cache_for_a_while)
{
    for (int i = 0; i < 2; i++) {
        assert_true(is_timed(SLOW_NS + 1));
        /* not slow, so slow copies before it do not count */
        assert_true(is_timed(SLOW_NS));
        assert_true(is_timed(SLOW_NS + 1));
        assert_true(is_timed(SLOW_NS + 1));
        for (int past = 0; past < PAST_COPIES; past++) {
            assert_false(is_timed(SLOW_NS + 1));
        }
        assert_true(is_timed(SLOW_NS));
    }
}

TEST(test_op_reduces_by_type)
{
    const float left[3] = {1.5f, -2.0f, 4.0f}, right[3] = {2.0f, 3.0f, -1.0f};
    const float expected[4][3] = {{3.5f, 1.0f, 3.0f},
                                  {3.0f, -6.0f, -4.0f},
                                  {1.5f, -2.0f, -1.0f},
                                  {2.0f, 3.0f, 4.0f}};
    for (size_t kind = 0; kind < 4; kind++) {
        float target[3] = {0};
        ops[kind]->reduce(ops[kind]->arg, target, left, right, 3, BATON_F32);
        assert_memory_equal(target, expected[kind], sizeof target);
        ops[kind]->reduce(ops[kind]->arg, NULL, NULL, NULL, 0, BATON_F32);
    }
}

TEST(test_op_identity_is_neutral)
{
    for (int kind = 0; kind < BATON__OP_COUNT; kind++) {
        for (int d = 1; d < BATON_DTYPE_COUNT; d++) {
            baton_dtype_t dtype = (baton_dtype_t)d;
            size_t size = baton_dtype_size(dtype);
            unsigned char neutral[5 * 16] = {0}, bits[16], result[16];
            if (!baton_op_takes(ops[kind], dtype)) {
                continue;
            }
            support_random_t random = support_random(support_seed(), 1);
            ops[kind]->identity(ops[kind]->arg, neutral, 5, dtype);
            for (size_t i = 0; i < REFERENCE_SPECIALS; i++) {
                support_fill_exact(bits, 1, dtype, (support_op_t)kind, 9,
                                   &random);
                if (dtype < BATON_BOOL && kind < BATON__OP_LAND) {
                    reference_store(bits, 0, dtype,
                                    reference_special(dtype, i));
                }
                reference_combine((baton__op_kind_t)kind, dtype, result,
                                  neutral + i % 5 * size, bits);
                assert_true(
                    memcmp(result, bits, size) == 0 ||
                    (reference_is_float(dtype) &&
                     reference_is_nan(dtype, reference_load(bits, 0, dtype))));
            }
        }
    }
}

/* There are kernels for just those types that an operation takes. The error for
   any other type names both, and the operations that reduce that type. */
TEST(test_op_says_what_it_takes)
{
    for (int kind = 0; kind < BATON__OP_COUNT; kind++) {
        for (int d = 1; d < BATON_DTYPE_COUNT; d++) {
            baton_dtype_t dtype = (baton_dtype_t)d;
            bool takes = baton_op_takes(ops[kind], dtype);
            assert_int_equal(baton__kernels()->reduce[d][kind] != NULL, takes);
            support_expect(baton_op_check(ops[kind], dtype),
                           takes ? BATON_OK : BATON_ERR_INVALID);
        }
    }
    support_fails(baton_op_check(BATON_SUM, BATON_F64_I32), BATON_ERR_INVALID,
                  "op is sum, which does not reduce f64_i32; allowed: minloc, "
                  "maxloc");
    support_fails(baton_op_check(BATON_LXOR, BATON_C64), BATON_ERR_INVALID,
                  "op is lxor, which does not reduce c64; allowed: sum, prod");
    support_fails(baton_op_check(BATON_MAX, BATON_BOOL), BATON_ERR_INVALID,
                  "allowed: band, bor, bxor, land, lor, lxor");
}

TEST(test_kernels_follow_baton_isa)
{
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    const char *best = NULL;
    for (int isa = 0; isa < BATON__ISA_COUNT; isa++) {
        const baton__kernels_t *kernels = baton__kernels_of((baton__isa_t)isa);
        support_set_variable("BATON_ISA", names[isa]);
        baton__kernels_forget();
        best = kernels != NULL ? names[isa] : best;
        assert_string_equal(baton_kernels_name(), best);
    }
    support_set_variable("BATON_ISA", NULL);
    baton__kernels_forget();
    assert_string_equal(baton_kernels_name(), best);
}

TEST(test_half_conversions_are_exact)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t half = (uint16_t)bits;
        double f16 = reference_value(BATON_F16, bits);
        double bf16 = reference_value(BATON_BF16, bits);
        if (!isnan(f16)) {
            assert_true((double)baton__f32_of_f16(half) == f16);
            assert_int_equal(baton__f16_of_f32(baton__f32_of_f16(half)), bits);
        }
        if (!isnan(bf16)) {
            assert_true((double)baton__f32_of_bf16(half) == bf16);
            assert_int_equal(baton__bf16_of_f32(baton__f32_of_bf16(half)),
                             bits);
        }
    }
}

static void check_rounding(float value)
{
    assert_int_equal(baton__f16_of_f32(value),
                     reference_half(BATON_F16, (double)value));
    assert_int_equal(baton__bf16_of_f32(value),
                     reference_half(BATON_BF16, (double)value));
}

/* Values just below, at and just above the middle between two neighbours, and
   random ones. */
TEST(test_half_conversions_round_to_even)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint32_t bf16 = bits << 16;
        uint32_t f16 = baton__bits_of_f32(baton__f32_of_f16((uint16_t)bits));
        for (uint32_t i = 0; i < 3; i++) {
            check_rounding(baton__f32_of_bits(bf16 + 0x7fff + i));
            check_rounding(baton__f32_of_bits(f16 + 0xfff + i));
        }
    }
    support_random_t random = support_random(support_seed(), 1);
    for (int i = 0; i < 1000000; i++) {
        check_rounding(
            baton__f32_of_bits((uint32_t)support_random_next(&random)));
    }
}

TEST(test_dtype_has_size_and_name)
{
#define CHECK_DTYPE(NAME, name, bytes, ...)                                    \
    assert_int_equal(baton_dtype_size(BATON_##NAME), bytes);                   \
    assert_string_equal(baton_dtype_name(BATON_##NAME), #name);
    BATON_DTYPE_LIST(CHECK_DTYPE)
#undef CHECK_DTYPE
    assert_int_equal(baton_dtype_size(BATON_DTYPE_NONE), 0);
    assert_string_equal(baton_dtype_name(BATON_DTYPE_NONE), "none");
    assert_int_equal(baton_dtype_size(BATON_DTYPE_COUNT), 0);
    assert_string_equal(baton_dtype_name((baton_dtype_t)99), "?");
}

/* The error for an unknown name lists all names, and the nearest one. */
TEST(test_names_are_found)
{
    baton_dtype_t dtype = BATON_DTYPE_NONE;
    const baton_op_t *op = NULL;
    support_expect(baton_dtype_find("float16", &dtype), BATON_ERR_INVALID);
#define FIND_DTYPE(NAME, name, ...) support_says(" " #name);
    BATON_DTYPE_LIST(FIND_DTYPE)
#undef FIND_DTYPE
    support_says("no element type is called \"float16\"");
    support_says("the nearest is f16");
    support_expect(baton_dtype_find("none", &dtype), BATON_ERR_INVALID);
    assert_int_equal(dtype, BATON_DTYPE_NONE);
    for (int i = 1; i < BATON_DTYPE_COUNT; i++) {
        support_ok(
            baton_dtype_find(baton_dtype_name((baton_dtype_t)i), &dtype));
        assert_int_equal(dtype, i);
    }

    support_expect(baton_op_find("SUM", &op), BATON_ERR_INVALID);
    support_says("no reduction is called \"SUM\"; there are: sum prod min max "
                 "band bor bxor land lor lxor minloc maxloc avg; ");
    assert_null(op);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        support_ok(baton_op_find(ops[i]->name, &op));
        assert_ptr_equal(op, ops[i]);
    }
    support_ok(baton_op_find("avg", &op));
    assert_ptr_equal(op, BATON_AVG);
}
