/* What the kernels of libbaton_cuda do with one element, on the host, against
   the host's own functions: every f16 and bf16, many f32 and f64. (Keys, and
   magnitudes of keys: test_select.cpp, by whole selections.) */
#include "cuda/select_element.h"

extern "C" {
#include "support/cmocka.h"
#include "support/random.h"
}

using namespace baton_cuda;

enum { SAMPLES = 60000 };

#define BY_TYPE(check)                                                         \
    (check<BATON_F16>(), check<BATON_BF16>(), check<BATON_F32>(),              \
     check<BATON_F64>())

/* Bits of an element: the i-th of all there are, or random ones among which
   zeros, subnormals, infinities and NaNs are frequent. */
template <baton_dtype_t D>
static typename element<D>::bits_t sample(uint64_t i, support_random_t *random)
{
    typedef typename element<D>::bits_t bits_t;
    if (sizeof(bits_t) == 2) {
        return (bits_t)i;
    }
    uint64_t bits = support_random_next(random);
    const uint64_t sign = support_random_below(random, 2)
                          << (8 * sizeof(bits_t) - 1);
    const uint64_t infinity = infinity_key<D>();
    switch (support_random_below(random, 8)) {
    case 0:
        return (bits_t)(sign | bits >> 60);
    case 1:
        return (bits_t)(sign | (infinity + (bits >> 62)));
    case 2:
        return (bits_t)(sign | (infinity - 1 - (bits >> 62)));
    default:
        return (bits_t)bits;
    }
}

template <baton_dtype_t D> static uint64_t samples(void)
{
    return sizeof(typename element<D>::bits_t) == 2 ? 65536 : SAMPLES;
}

/* ---- thresholds -------------------------------------------------------- */

/* Values of an element type, half-way between two, and next to that. */
template <baton_dtype_t D> static double near_a_key(support_random_t *random)
{
    uint64_t key = support_random_next(random) % infinity_key<D>();
    if (support_random_below(random, 4) == 0) {
        key %= (uint64_t)4 << element<D>::fraction;
    }
    double low = baton_magnitude_value(D, key);
    double high = baton_magnitude_value(D, key + 1);
    double middle = low / 2 + high / 2;
    uint64_t nudge = support_random_below(random, 3);
    return nudge == 0   ? middle
           : nudge == 1 ? nextafter(middle, 0)
                        : nextafter(middle, HUGE_VAL);
}

template <baton_dtype_t D> static void check_rounding(void)
{
    support_random_t random = support_random(support_seed(), 20 + D);
    const double special[] = {0.0,     -0.0,      HUGE_VAL, -HUGE_VAL, NAN,
                              0x1p-24, 0x1p-25,   65504,    65519.9,   65520,
                              3.4e38,  0x1p-1074, 0x1p-149, 0x1p-150,  1e308};
    for (unsigned i = 0; i < sizeof special / sizeof *special; i++) {
        assert_int_equal(magnitude_of<D>(special[i]),
                         baton_magnitude_of(D, special[i]));
    }
    for (unsigned i = 0; i < SAMPLES; i++) {
        double any = same_bits<double>(support_random_next(&random));
        double near = near_a_key<D>(&random);
        assert_int_equal(magnitude_of<D>(any), baton_magnitude_of(D, any));
        assert_int_equal(magnitude_of<D>(near), baton_magnitude_of(D, near));
    }
}

static void test_thresholds_are_rounded_as_on_the_host(void **)
{
    BY_TYPE(check_rounding);
}

/* ---- sums -------------------------------------------------------------- */

/* before + factor * value, by the host's list of one entry. */
template <baton_dtype_t D>
static void check_sum(typename element<D>::bits_t before,
                      typename element<D>::bits_t value, double factor)
{
    typedef typename element<D>::bits_t bits_t;
    char entry[4 + sizeof(bits_t)] = {0};
    bits_t expected = before, actual = value;
    memcpy(entry + 4, &value, sizeof value);
    baton_entries_add(D, entry, 1, factor, &expected);
    if (factor != 1) {
        actual = arithmetic<D>::scaled(actual, factor);
    }
    const uint64_t infinity = infinity_key<D>();
    const uint64_t size = ~(uint64_t)sign_bit<D>();
    bool both_are_nans =
        (before & size) > infinity && (actual & size) > infinity;
    actual = arithmetic<D>::sum(before, actual);
    if (both_are_nans && sizeof(bits_t) > 2) {
        assert_true((actual & size) > infinity); /* either of the two */
    } else {
        assert_int_equal(actual, expected);
    }
}

template <baton_dtype_t D> static void check_sums(void)
{
    support_random_t random = support_random(support_seed(), 30 + D);
    const double factors[] = {1, -1, 0.5, 1.0 / 3, 0, 1e30, HUGE_VAL};
    for (uint64_t i = 0; i < samples<D>(); i++) {
        uint64_t other = support_random_below(&random, 65536);
        typename element<D>::bits_t before = sample<D>(i, &random),
                                    value = sample<D>(other, &random);
        for (unsigned f = 0; f < sizeof factors / sizeof *factors; f++) {
            check_sum<D>(before, value, factors[f]);
        }
    }
}

static void test_sums_are_the_hosts(void **)
{
    BY_TYPE(check_sums);
}

/* ---- decisions --------------------------------------------------------- */

static void test_sample_has_one_of_each_stratum(void **)
{
    const uint64_t counts[] = {4097, 100000, 1234567, UINT32_MAX};
    for (unsigned c = 0; c < 4; c++) {
        uint64_t count = counts[c], size = sample_of(count), begin = 0;
        for (uint64_t i = 0; i < size; i++) {
            uint64_t at = position_of(count, size, i);
            uint64_t end = begin + count / size + (i < count % size);
            assert_true(at >= begin && at < end);
            begin = end;
        }
        assert_true(begin == count);
    }
}

static void test_candidates_grow_with_count_and_need(void **)
{
    size_t before = 0;
    for (size_t count = 1; count < UINT32_MAX; count += 1 + count / 50) {
        size_t now = candidates_of(count, 1000 < count ? 1000 : count);
        assert_true(now >= before && now <= count);
        before = now;
        assert_true(candidates_of(count, count / 2) >=
                    candidates_of(count, count / 3));
        assert_true(candidates_of(count, count / 2) >= count / 2);
    }
}

/* From mean 0 to maximum 1 the i-th threshold on the way down is 2^-i. */
static void test_search_ends_after_20_steps(void **)
{
    const uint64_t last = magnitude_of<BATON_F64>(0x1p-20);
    assert_int_equal(search<BATON_F64>(0, 1, last, last - 1), last);
    assert_int_equal(search<BATON_F64>(0, 1, last - 1, last - 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thresholds_are_rounded_as_on_the_host),
        cmocka_unit_test(test_sums_are_the_hosts),
        cmocka_unit_test(test_sample_has_one_of_each_stratum),
        cmocka_unit_test(test_candidates_grow_with_count_and_need),
        cmocka_unit_test(test_search_ends_after_20_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
