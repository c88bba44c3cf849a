/* Element types, and the conversions of f16 and bf16. */
#include "ops/half.h"
#include "support/cmocka.h"
#include "support/random.h"
#include "support/reference.h"

#include <math.h>
#include <stddef.h>

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

/* Just below, at and just above the middle between two neighbours, and any. */
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
#define CHECK_DTYPE(NAME, name, bytes)                                         \
    assert_int_equal(baton_dtype_size(BATON_##NAME), bytes);                   \
    assert_string_equal(baton_dtype_name(BATON_##NAME), #name);
    BATON_DTYPE_LIST(CHECK_DTYPE)
#undef CHECK_DTYPE
    assert_int_equal(baton_dtype_size(BATON_DTYPE_NONE), 0);
    assert_string_equal(baton_dtype_name(BATON_DTYPE_NONE), "none");
    assert_int_equal(baton_dtype_size(BATON_DTYPE_COUNT), 0);
    assert_string_equal(baton_dtype_name((baton_dtype_t)99), "?");
}

RUN_TESTS()
