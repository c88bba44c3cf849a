/* The simulator's input: distributions as text, options, links. */
#include "sim/distribution.h"
#include "sim/model.h"
#include "support/cmocka.h"

#include <math.h>
#include <string.h>

static void says(const char *text)
{
    if (strstr(baton_error_message(), text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", baton_error_message(), text);
    }
}

/* ---- distributions as text --------------------------------------------- */

static void test_parse_reads_every_form(void **state)
{
    static const struct {
        const char *text;
        baton_distribution_t expected;
    } cases[] = {
        {"3", {BATON_DISTRIBUTION_CONSTANT, 3, 0}},
        {"0.25", {BATON_DISTRIBUTION_CONSTANT, 0.25, 0}},
        {"1e3", {BATON_DISTRIBUTION_CONSTANT, 1000, 0}},
        {"constant:3", {BATON_DISTRIBUTION_CONSTANT, 3, 0}},
        {"uniform:0:5", {BATON_DISTRIBUTION_UNIFORM, 0, 5}},
        {"uniform:5:5", {BATON_DISTRIBUTION_UNIFORM, 5, 5}},
        {"exponential:20", {BATON_DISTRIBUTION_EXPONENTIAL, 20, 0}},
        {"normal:-1:+2.5e-1", {BATON_DISTRIBUTION_NORMAL, -1, 0.25}},
        {"lognormal:2:.5", {BATON_DISTRIBUTION_LOGNORMAL, 2, 0.5}},
        {"pareto:1:1.5", {BATON_DISTRIBUTION_PARETO, 1, 1.5}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        baton_distribution_t result;
        assert_int_equal(baton_distribution_parse(cases[i].text, &result),
                         BATON_OK);
        assert_int_equal(result.kind, cases[i].expected.kind);
        assert_true(result.a == cases[i].expected.a);
        assert_true(result.b == cases[i].expected.b);
    }
}

static void test_parse_names_what_is_wrong(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"unifrom:0:5",
         "distribution \"unifrom:0:5\": its name is none of constant:value, "
         "uniform:low:high, exponential:mean, normal:mean:deviation, "
         "lognormal:median:sigma, pareto:minimum:shape, nor is it a number"},
        {"", "distribution \"\": its name is none of"},
        {":5", "its name is none of"},
        {"5:6", "its name is none of"},
        {"uni:0:5", "its name is none of"},
        {"uniforms:0:5", "its name is none of"},
        {"Uniform:0:5", "its name is none of"},
        {"inf", "its name is none of"},
        {"nan", "its name is none of"},
        {"0x10", "its name is none of"},
        {" 3", "its name is none of"},
        {"3 ", "its name is none of"},
        {"3us", "its name is none of"},
        {"constant", "value is missing; allowed: constant:value"},
        {"uniform:5", "high is missing; allowed: uniform:low:high"},
        {"uniform:1:2:3", "too many parameters; allowed: uniform:low:high"},
        {"exponential:1:", "too many parameters; allowed: exponential:mean"},
        {"uniform:a:5", "low is not a number; allowed: uniform:low:high"},
        {"uniform::5", "low is not a number"},
        {"uniform:0:", "high is not a number"},
        {"uniform:0:5x", "high is not a number"},
        {"uniform:0:inf", "high is not a number"},
        {"normal:nan:1", "mean is not a number"},
        {"normal: 1:1", "mean is not a number"},
        {"normal:1e:1", "mean is not a number"},
        {"normal:1-1:1", "mean is not a number"},
        {"-1", "value is -1; allowed: from 0 up to 1e+15"},
        {"1e999", "value is inf; allowed: from 0 up to 1e+15"},
        {"2e15", "value is 2e+15; allowed: from 0 up to 1e+15"},
        {"uniform:-1:5", "low is -1; allowed: from 0"},
        {"uniform:5:3", "\"uniform:5:3\": high is 3; allowed: from 5 up to"},
        {"exponential:-1", "mean is -1; allowed: from 0"},
        {"normal:-2e15:1", "mean is -2e+15; allowed: from -1e+15 up to"},
        {"normal:1:-1", "deviation is -1; allowed: from 0"},
        {"lognormal:-1:1", "median is -1; allowed: from 0"},
        {"lognormal:1:-1", "sigma is -1; allowed: from 0"},
        {"pareto:-1:1", "minimum is -1; allowed: from 0"},
        {"pareto:1:0", "shape is 0; allowed: above 0 up to"},
        {"pareto:1:-1", "shape is -1; allowed: above 0 up to"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        baton_distribution_t result = {BATON_DISTRIBUTION_PARETO, 7, 8};
        assert_int_equal(baton_distribution_parse(cases[i].text, &result),
                         BATON_ERR_INVALID);
        says(cases[i].message);
        assert_true(result.kind == BATON_DISTRIBUTION_PARETO && result.a == 7 &&
                    result.b == 8);
    }
}

static void test_parse_cuts_a_long_text(void **state)
{
    char text[5000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    baton_distribution_t result;
    assert_int_equal(baton_distribution_parse(text, &result),
                     BATON_ERR_INVALID);
    says("xxx...: its name is none of constant:value");
    says("nor is it a number");
}

/* ---- options ----------------------------------------------------------- */

static baton_sim_options_t valid_options(void)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = 4;
    return options;
}

static void test_options_in_range_are_taken(void **state)
{
    baton_sim_options_t options = valid_options();
    assert_int_equal(baton__sim_check_options(&options), BATON_OK);
    options.ranks = BATON__SIM_RANKS_MOST;
    options.cost_only = options.multi_ported = true;
    options.link = options.host_link = (baton_sim_link_t){1e15, 1e15};
    options.gamma_ns = options.overhead_us = 1e15;
    options.sync_bytes = SIZE_MAX;
    options.host_ranks = INT32_MAX;
    options.speed = (baton_distribution_t){BATON_DISTRIBUTION_NORMAL, 1, 0.1};
    options.skew = (baton_distribution_t){BATON_DISTRIBUTION_PARETO, 1, 1};
    options.lag =
        (baton_distribution_t){BATON_DISTRIBUTION_EXPONENTIAL, 1, NAN};
    assert_int_equal(baton__sim_check_options(&options), BATON_OK);
}

static void test_options_out_of_range_are_named(void **state)
{
    baton_sim_options_t options;
#define REFUSED(option, value, text)                                           \
    options = valid_options();                                                 \
    options.option = value;                                                    \
    assert_int_equal(baton__sim_check_options(&options), BATON_ERR_INVALID);   \
    says("simulator options: " text)
#define DISTRIBUTION(kind, a, b) ((baton_distribution_t){kind, a, b})

    REFUSED(ranks, 0, "ranks is 0; allowed: 1 to 16777216");
    REFUSED(ranks, -1, "ranks is -1; allowed: 1 to 16777216");
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
    REFUSED(lag, DISTRIBUTION(BATON_DISTRIBUTION_PARETO, 2, 0),
            "lag: shape is 0; allowed: above 0 up to");
    REFUSED(skew, DISTRIBUTION(BATON_DISTRIBUTION_CONSTANT, NAN, 0),
            "skew: value is nan; allowed: from 0 up to");
    REFUSED(speed, DISTRIBUTION(BATON_DISTRIBUTION_CONSTANT, -1, 0),
            "speed: value is -1; allowed: from 0 up to");
    REFUSED(speed, DISTRIBUTION(BATON_DISTRIBUTION_UNIFORM, 0, 2),
            "speed: uniform:0:2 may be as low as 0; allowed: from 1e-09 up");
    REFUSED(speed, DISTRIBUTION(BATON_DISTRIBUTION_EXPONENTIAL, 1, 0),
            "speed: exponential:1 may be as low as 1.11022e-16; allowed");
    REFUSED(speed, DISTRIBUTION(BATON_DISTRIBUTION_NORMAL, 1, 0.5),
            "speed: normal:1:0.5 may be as low as 0; allowed");
    REFUSED(speed, DISTRIBUTION(BATON_DISTRIBUTION_CONSTANT, 1e-10, 0),
            "speed: constant:1e-10 may be as low as 1e-10; allowed");
#undef DISTRIBUTION
#undef REFUSED
}

/* ---- links ------------------------------------------------------------- */

static void test_link_is_by_host(void **state)
{
    baton_sim_options_t options = valid_options();
    options.link = (baton_sim_link_t){10, 2};
    options.host_link = (baton_sim_link_t){1, 0.5};
    for (int host_ranks = 0; host_ranks <= 3; host_ranks++) {
        options.host_ranks = host_ranks;
        for (int i = 0; i < 49; i++) {
            int from = i / 7, to = i % 7;
            bool same = host_ranks > 1 && from / host_ranks == to / host_ranks;
            baton_sim_link_t link = baton__sim_link(&options, from, to);
            assert_true(link.alpha_us == (same ? 1 : 10));
            assert_true(link.beta_ns == (same ? 0.5 : 2));
        }
    }
}

static baton_sim_link_t line(void *arg, int from, int to)
{
    return (baton_sim_link_t){*(double *)arg * (to - from), from};
}

static baton_sim_link_t broken(void *arg, int from, int to)
{
    return (baton_sim_link_t){from == 0 ? NAN : INFINITY, to};
}

static void test_link_is_what_the_topology_says(void **state)
{
    double hop_us = 0.5;
    baton_sim_options_t options = valid_options();
    options.host_ranks = 4; /* without effect */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_reads_every_form),
        cmocka_unit_test(test_parse_names_what_is_wrong),
        cmocka_unit_test(test_parse_cuts_a_long_text),
        cmocka_unit_test(test_options_in_range_are_taken),
        cmocka_unit_test(test_options_out_of_range_are_named),
        cmocka_unit_test(test_link_is_by_host),
        cmocka_unit_test(test_link_is_what_the_topology_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
