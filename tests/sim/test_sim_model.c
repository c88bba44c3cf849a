/* The simulator's input: distributions as text and as samples, options, links.
 */
#include "base/random.h"
#include "sim/model.h"
#include "support/sim.h"

#include <math.h>

enum { SEED = 1, SAMPLES = 100000 };

/* ---- distributions as text --------------------------------------------- */

#define FORM(text, kind, first, second, zero, ...)                             \
    {                                                                          \
        text, {BATON_DISTRIBUTION_##kind, first, second}, zero,                \
        {                                                                      \
            __VA_ARGS__                                                        \
        }                                                                      \
    }
static const struct {
    const char *text;
    baton_distribution_t expected;
    bool zero; /* every sample is 0 */
    /* The first samples, whose bits are the same on every machine. */
    double samples[2];
} forms[] = {
    FORM("3", CONSTANT, 3, 0, false, 3, 3),
    FORM("1e-3", CONSTANT, 1e-3, 0, false, 1e-3, 1e-3),
    FORM("constant:0", CONSTANT, 0, 0, true, 0, 0),
    FORM("uniform:0:0", UNIFORM, 0, 0, true, 0, 0),
    FORM("uniform:2:5", UNIFORM, 2, 5, false, 0x1.d70c88f309043p+1,
         0x1.8a88b6ce8ca9ep+1),
    FORM("exponential:0", EXPONENTIAL, 0, 0, true, 0, 0),
    FORM("exponential:20", EXPONENTIAL, 20, 0, false, 0x1.730ea1d5f8e24p+3,
         0x1.463f9c13600bcp+4),
    FORM("normal:-1:0", NORMAL, -1, 0, true, 0, 0),
    FORM("normal:-1:1", NORMAL, -1, 1, false, 0, 0),
    FORM("normal:100:+.3e1", NORMAL, 100, 3, false, 0x1.8411eef11350dp+6,
         0x1.7fdbb23f95576p+6),
    FORM("lognormal:8:0.25", LOGNORMAL, 8, 0.25, false, 0x1.8f540fab66e8cp+2,
         0x1.6dc821cff9b36p+2),
    FORM("pareto:0:1", PARETO, 0, 1, true, 0, 0),
    FORM("pareto:9:10", PARETO, 9, 10, false, 0x1.3130ec6462679p+3,
         0x1.3ee94d7c29a91p+3),
};

TEST(test_every_form_is_read_and_sampled)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        baton_distribution_t result;
        support_ok(baton_distribution_parse(forms[i].text, &result));
        assert_int_equal(result.kind, forms[i].expected.kind);
        assert_true(result.a == forms[i].expected.a);
        assert_true(result.b == forms[i].expected.b);
        assert_int_equal(baton__distribution_is_zero(&result), forms[i].zero);
        for (uint64_t k = 0; k < 2; k++) {
            double value = baton_distribution_sample(&result, SEED, 0, k);
            if (value != forms[i].samples[k]) {
                fail_msg("%s: %a", forms[i].text, value);
            }
        }
    }
}

TEST(test_a_wrong_text_is_refused)
{
    static const char all[] =
        "; allowed: a number, constant:value, uniform:low:high, "
        "exponential:mean, normal:mean:deviation, lognormal:median:sigma, "
        "pareto:minimum:shape";
    static const char *const texts[] = {
        "unifrom:0:5", "",          ":5",          "5:6",
        "uni:0:5",     "Uniform:0", "inf",         "0x10",
        " 3",          "3us",       "constant",    "uniform:5",
        "uniform::5",  "uniform:0", "uniform:0:",  "uniform:1:2:3",
        "uniform:0 5", "normal:1-", "normal:1e:1", "exponential:1:"};
    static const struct {
        const char *text, *says;
    } ranges[] = {
        {"-1", "\"-1\": value is -1; allowed: from 0 up to 1e+15"},
        {"1e999", "value is inf; allowed: from 0 up to 1e+15"},
        {"uniform:5:3", "\"uniform:5:3\": high is 3; allowed: from 5 up to"},
        {"normal:-2e15:1", "mean is -2e+15; allowed: from -1e+15 up to"},
        {"normal:1:-1", "deviation is -1; allowed: from 0"},
        {"pareto:1:0", "shape is 0; allowed: above 0 up to"},
    };
    baton_distribution_t result = {BATON_DISTRIBUTION_PARETO, 7, 8};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        support_fails(baton_distribution_parse(texts[i], &result),
                      BATON_ERR_INVALID, texts[i]);
        support_says(all);
    }
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        support_fails(baton_distribution_parse(ranges[i].text, &result),
                      BATON_ERR_INVALID, ranges[i].says);
    }
    assert_true(result.kind == BATON_DISTRIBUTION_PARETO && result.a == 7);
}

/* ---- samples ----------------------------------------------------------- */

static double of(baton_distribution_kind_t kind, double a, double b,
                 uint64_t random)
{
    const baton_distribution_t distribution = {kind, a, b};
    return baton__distribution_sample(&distribution, random);
}

/* The mean of this many samples lies within 5 standard errors. So does the
   share of samples below the median. */
TEST(test_the_normal_distribution_has_its_moments)
{
    double sum = 0, squares = 0, below = 0;
    for (uint64_t k = 0; k < SAMPLES; k++) {
        uint64_t random = baton__random(SEED, 0, k);
        double value = of(BATON_DISTRIBUTION_NORMAL, 100, 3, random);
        sum += value;
        squares += (value - 100) * (value - 100);
        below += value < 100;
    }
    assert_true(fabs(sum / SAMPLES - 100) < 5 * 3 / sqrt(SAMPLES));
    assert_true(fabs(below / SAMPLES - 0.5) < 5 * 0.5 / sqrt(SAMPLES));
    assert_true(fabs(sqrt(squares / SAMPLES) / 3 - 1) < 0.03);
}

/* The C library's functions may differ from the formulas only in the last
   bits. */
TEST(test_samples_agree_with_the_formulas)
{
    for (uint64_t k = 0; k < SAMPLES; k++) {
        /* Some of the numbers have few bits set, or few bits not set. */
        uint64_t random = baton__random(SEED, 0, k) >> (k % 4 * 15);
        random = k % 8 < 4 ? random : ~random;
        double u = of(BATON_DISTRIBUTION_UNIFORM, 0, 1, random);
        double e = of(BATON_DISTRIBUTION_EXPONENTIAL, 3, 0, random);
        double p = of(BATON_DISTRIBUTION_PARETO, 3, 2.5, random);
        double z = of(BATON_DISTRIBUTION_NORMAL, 1000, 1, random) - 1000;
        double l = of(BATON_DISTRIBUTION_LOGNORMAL, 3, 3, random);
        double far = of(BATON_DISTRIBUTION_LOGNORMAL, 3, 1e6, random);
        assert_true(u > 0 && u < 1);
        assert_true(fabs(e / (-3 * log(u)) - 1) <= 1e-13);
        assert_true(fabs(p / (3 * pow(u, -1 / 2.5)) - 1) <= 1e-13);
        /* Subtracting 1000 has lost the last bits of z. */
        assert_true(fabs(log(l / 3) - 3 * z) < 1e-11);
        assert_true(fabs(z) < 1e-3 || (far > 0) == (z > 0));
    }
}

TEST(test_samples_are_never_out_of_range)
{
    static const baton_distribution_t all[] = {
        {BATON_DISTRIBUTION_UNIFORM, 0, 1e15},
        {BATON_DISTRIBUTION_EXPONENTIAL, 1e15, 0},
        {BATON_DISTRIBUTION_NORMAL, -1e15, 1e15},
        {BATON_DISTRIBUTION_NORMAL, 1, 0.1},
        {BATON_DISTRIBUTION_LOGNORMAL, 1e15, 1e15},
        {BATON_DISTRIBUTION_PARETO, 1e15, 1e-300},
        {BATON_DISTRIBUTION_PARETO, 0, 1e-300}};
    static const uint64_t extremes[] = {0, 1, UINT64_MAX, UINT64_MAX / 2};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (uint64_t k = 0; k < 10000; k++) {
            uint64_t random = k < 4 ? extremes[k] : baton__random(SEED, 0, k);
            double value = baton__distribution_sample(&all[i], random);
            assert_true(value >= 0 && value <= BATON__SIM_MOST);
        }
    }
}

/* ---- options ----------------------------------------------------------- */

TEST(test_options_in_range_are_taken)
{
    baton_sim_options_t options = support_sim_options(BATON__SIM_RANKS_MOST);
    options.link = options.host_link = (baton_sim_link_t){1e15, 1e15};
    options.gamma_ns = options.overhead_us = 1e15;
    options.sync_bytes = SIZE_MAX;
    options.host_ranks = INT32_MAX;
    options.lag =
        (baton_distribution_t){BATON_DISTRIBUTION_EXPONENTIAL, 1, NAN};
    support_ok(baton__sim_check_options(&options));
}

TEST(test_options_out_of_range_are_named)
{
    baton_sim_options_t options;
    baton_sim_t *sim;
#define REFUSED(option, value, text)                                           \
    options = support_sim_options(4);                                          \
    options.option = value;                                                    \
    support_expect(baton_sim_create(&options, &sim), BATON_ERR_INVALID);       \
    support_says("simulator options: " text)
#define DISTRIBUTION(kind, a, b) ((baton_distribution_t){kind, a, b})

    REFUSED(ranks, 0, "ranks is 0; allowed: 1 to 16777216");
    REFUSED(ranks, 16777217, "ranks is 16777217; allowed: 1 to 16777216");
    REFUSED(host_ranks, -1, "host_ranks is -1; allowed: 0 or more");
    REFUSED(link.alpha_us, -1, "link.alpha_us is -1; allowed: from 0 up to");
    REFUSED(link.beta_ns, -1, "link.beta_ns is -1; allowed: from 0 up to");
    REFUSED(host_link.alpha_us, INFINITY, "host_link.alpha_us is inf; allowed");
    REFUSED(host_link.beta_ns, 2e15, "host_link.beta_ns is 2e+15; allowed: ");
    REFUSED(eager_bytes, (options.sync_bytes = 100) + 1,
            "eager_bytes is 101; allowed: up to sync_bytes, which is 100");
    REFUSED(gamma_ns, -0.5, "gamma_ns is -0.5; allowed: from 0 up to 1e+15");
    REFUSED(overhead_us, NAN, "overhead_us is nan; allowed: from 0");
    REFUSED(skew, DISTRIBUTION((baton_distribution_kind_t)6, 0, 0),
            "skew: kind is 6; allowed: 0 to 5");
    REFUSED(lag, DISTRIBUTION(BATON_DISTRIBUTION_UNIFORM, 2, 1),
            "lag: high is 1; allowed: from 2 up to");
    REFUSED(speed, DISTRIBUTION(BATON_DISTRIBUTION_CONSTANT, NAN, 0),
            "speed: value is nan; allowed: from 0 up to");
}

/* ---- links ------------------------------------------------------------- */

static baton_sim_link_t line(void *arg, int from, int to)
{
    return (baton_sim_link_t){*(double *)arg * (to - from), from};
}

static baton_sim_link_t broken(void *arg, int from, int to)
{
    return (baton_sim_link_t){from == 0 ? NAN : INFINITY, to};
}

TEST(test_link_is_what_the_topology_says)
{
    double hop_us = 0.5;
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.host_ranks = 4; /* host_ranks has no effect here */
    options.topology = line;
    options.topology_arg = &hop_us;
    baton_sim_link_t link = baton__sim_link(&options, 1, 3);
    assert_true(link.alpha_us == 1 && link.beta_ns == 1);
    link = baton__sim_link(&options, 3, 1);
    assert_true(link.alpha_us == 0 && link.beta_ns == 3);
    options.topology = broken;
    link = baton__sim_link(&options, 0, 1);
    assert_true(link.alpha_us == 0 && link.beta_ns == 1);
    link = baton__sim_link(&options, 1, 0);
    assert_true(link.alpha_us == BATON__SIM_MOST && link.beta_ns == 0);
}
