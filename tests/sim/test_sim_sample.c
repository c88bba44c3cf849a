/* The simulator's samples. */
#include "base/random.h"
#include "sim/distribution.h"
#include "support/cmocka.h"

#include <math.h>

enum { SEED = 1, SAMPLES = 100000 };

static baton_distribution_t parsed(const char *text)
{
    baton_distribution_t result;
    assert_int_equal(baton_distribution_parse(text, &result), BATON_OK);
    return result;
}

static double sample(const baton_distribution_t *distribution, uint64_t k)
{
    return baton__distribution_sample(distribution, baton__random(SEED, 0, k));
}

/* The mean of this many samples lies within 5 standard errors, and so does the
   share below the median. The deviation lies within 3 %, which is 5 standard
   errors of the Pareto distribution, the one with the heaviest tail. */
static void test_draw_has_its_moments(void **state)
{
    static const struct {
        const char *text;
        double mean, deviation, median;
    } cases[] = {
        {"uniform:2:5", 3.5, 0.86602540, 3.5},
        {"exponential:20", 20, 20, 13.8629436},
        {"normal:100:3", 100, 3, 100},
        {"lognormal:8:0.25", 8.2539485, 2.0960885, 8},
        {"pareto:9:10", 10, 1.1180340, 9.6459613},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        baton_distribution_t distribution = parsed(cases[i].text);
        double sum = 0, squares = 0, below = 0;
        for (uint64_t k = 0; k < SAMPLES; k++) {
            double value = sample(&distribution, k);
            sum += value;
            squares += (value - cases[i].mean) * (value - cases[i].mean);
            below += value < cases[i].median;
        }
        double error = cases[i].deviation / sqrt(SAMPLES);
        assert_true(fabs(sum / SAMPLES - cases[i].mean) < 5 * error);
        assert_true(fabs(below / SAMPLES - 0.5) < 5 * 0.5 / sqrt(SAMPLES));
        double deviation = sqrt(squares / SAMPLES);
        assert_true(fabs(deviation / cases[i].deviation - 1) < 0.03);
    }
}

/* Relative difference. */
static void assert_near(double actual, double expected)
{
    assert_true(fabs(actual - expected) <= 1e-13 * fabs(expected));
}

/* The C library's functions, which differ in the last bits alone. */
static void test_draw_agrees_with_the_formulas(void **state)
{
    const baton_distribution_t uniform = {BATON_DISTRIBUTION_UNIFORM, 0, 1};
    const baton_distribution_t exponential = {BATON_DISTRIBUTION_EXPONENTIAL, 3,
                                              0};
    const baton_distribution_t pareto = {BATON_DISTRIBUTION_PARETO, 3, 2.5};
    const baton_distribution_t normal = {BATON_DISTRIBUTION_NORMAL, 1000, 1};
    const baton_distribution_t lognormal = {BATON_DISTRIBUTION_LOGNORMAL, 3, 3};
    for (uint64_t k = 0; k < SAMPLES; k++) {
        /* Also numbers with few bits set, or few bits not set. */
        uint64_t random = baton__random(SEED, 0, k) >> (k % 4 * 15);
        random = k % 8 < 4 ? random : ~random;
        double u = baton__distribution_sample(&uniform, random);
        assert_true(u > 0 && u < 1);
        assert_near(baton__distribution_sample(&exponential, random),
                    -3 * log(u));
        assert_near(baton__distribution_sample(&pareto, random),
                    3 * pow(u, -1 / 2.5));
        double z = baton__distribution_sample(&normal, random) - 1000;
        double logarithm =
            log(baton__distribution_sample(&lognormal, random) / 3);
        assert_true(fabs(logarithm - 3 * z) < 1e-11); /* 1000's last bits */
    }
}

/* These are the bits on any machine. */
static void test_draw_is_the_same_everywhere(void **state)
{
    static const struct {
        const char *text;
        double samples[2];
    } cases[] = {
        {"3", {0x1.8p+1, 0x1.8p+1}},
        {"uniform:2:5", {0x1.d70c88f309043p+1, 0x1.8a88b6ce8ca9ep+1}},
        {"exponential:20", {0x1.730ea1d5f8e24p+3, 0x1.463f9c13600bcp+4}},
        {"normal:100:3", {0x1.8411eef11350dp+6, 0x1.7fdbb23f95576p+6}},
        {"lognormal:8:0.25", {0x1.8f540fab66e8cp+2, 0x1.6dc821cff9b36p+2}},
        {"pareto:9:10", {0x1.3130ec6462679p+3, 0x1.3ee94d7c29a91p+3}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        baton_distribution_t distribution = parsed(cases[i].text);
        for (uint64_t k = 0; k < 2; k++) {
            double value = sample(&distribution, k);
            if (value != cases[i].samples[k]) {
                fail_msg("%s: %a, not %a", cases[i].text, value,
                         cases[i].samples[k]);
            }
        }
    }
}

static void test_draw_is_never_out_of_range(void **state)
{
    static const char *const texts[] = {"0",
                                        "1e15",
                                        "uniform:0:0",
                                        "uniform:0:1e15",
                                        "exponential:1e15",
                                        "normal:-1e15:1e15",
                                        "normal:1:0.1",
                                        "lognormal:1e15:1e15",
                                        "lognormal:1:0.5",
                                        "pareto:1e15:1e-300",
                                        "pareto:0:1e-300",
                                        "pareto:1:2"};
    static const uint64_t extremes[] = {0, 1, UINT64_MAX, UINT64_MAX / 2};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        baton_distribution_t distribution = parsed(texts[i]);
        double least = baton__distribution_least(&distribution);
        assert_true(least >= 0);
        for (uint64_t k = 0; k < 10000; k++) {
            uint64_t random = k < 4 ? extremes[k] : baton__random(SEED, 0, k);
            double value = baton__distribution_sample(&distribution, random);
            assert_true(value >= least && value <= BATON__SIM_MOST);
        }
    }
}

static void test_draw_is_zero(void **state)
{
    static const char *const zero[] = {"0",           "-0",
                                       "uniform:0:0", "exponential:0",
                                       "normal:-1:0", "lognormal:0:2",
                                       "pareto:0:1"};
    static const char *const other[] = {
        "1e-9",       "uniform:0:1",   "exponential:1", "normal:-1:1",
        "normal:1:0", "lognormal:1:0", "pareto:1:1"};
    for (size_t i = 0; i < sizeof zero / sizeof zero[0]; i++) {
        baton_distribution_t distribution = parsed(zero[i]);
        assert_true(baton__distribution_is_zero(&distribution));
        assert_true(sample(&distribution, i) == 0);
    }
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        baton_distribution_t distribution = parsed(other[i]);
        assert_false(baton__distribution_is_zero(&distribution));
    }
    assert_true(baton__distribution_is_zero(&(baton_distribution_t){0}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draw_has_its_moments),
        cmocka_unit_test(test_draw_agrees_with_the_formulas),
        cmocka_unit_test(test_draw_is_the_same_everywhere),
        cmocka_unit_test(test_draw_is_never_out_of_range),
        cmocka_unit_test(test_draw_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
