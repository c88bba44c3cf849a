/* The choice of algorithm and teams by cost: over the whole table of
   docs/sparse.md, against closed forms that are written here once more. */
#include "support/cluster.h"
#include "support/sparse.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COUNT ((size_t)15 * 1024 * 1024)

enum { ENTRY = 8, ELEMENT = 4 };

static const int sizes[] = {8, 14, 64, 256, 1024};
static const double densities[] = {0.01, 0.001};
static const double gbits[] = {1, 10, 100};
static const double alphas[] = {5, 50};

typedef struct point {
    int ranks;
    double k, alpha_us, beta_us;
    baton_sparse_options_t options;
} point_t;

typedef void (*check_fn)(const point_t *point);

static void for_each_point(check_fn check)
{
    for (size_t p = 0; p < 5; p++) {
        for (size_t i = 0; i < 12; i++) {
            point_t point = {.ranks = sizes[p],
                             .alpha_us = alphas[i % 2],
                             .beta_us = 8e-3 / gbits[i / 2 % 3],
                             .options = BATON_SPARSE_OPTIONS};
            point.options.count = COUNT;
            point.options.density = densities[i / 6];
            point.options.link =
                (baton_link_cost_t){point.alpha_us, point.beta_us * 1e3};
            point.k = floor((double)COUNT * point.options.density);
            check(&point);
        }
    }
}

/* ---- closed forms ------------------------------------------------------ */

static double log2_ceil(double size)
{
    return ceil(log2(size) - 1e-9);
}

static double time_of(const point_t *at, double rounds, double bytes)
{
    return rounds * at->alpha_us + bytes * at->beta_us;
}

/* R-SAG for powers of two, else B-SAG at its first h. */
static double spardl(const point_t *at, int d)
{
    double m = (double)at->ranks / d, quota = at->k / m;
    double exchange = (d & (d - 1)) == 0 ? log2_ceil(d) * quota
                                         : (d - 1) * floor(floor(quota) / d);
    return time_of(at, 2 * log2_ceil(m) + log2_ceil(d),
                   (2 * (m - 1) * quota + exchange) * ENTRY);
}

static double rival(const point_t *at, baton_sparse_algorithm_t algorithm)
{
    double P = at->ranks, k = at->k, rounds = log2_ceil(P);
    double n = (double)COUNT;
    switch (algorithm) {
    case BATON_SPARSE_TOPKA:
        return time_of(at, rounds, (P - 1) * k * ENTRY);
    case BATON_SPARSE_REDSYNC:
        return time_of(at, rounds, (P - 1) * (4 + k * ENTRY));
    case BATON_SPARSE_TOPKDSA:
        return time_of(at, P - 1 + 2 * rounds,
                       (P - 1) * (2 * k / P * ENTRY + 4));
    case BATON_SPARSE_OKTOPK:
        return time_of(at, P - 1 + 2 * rounds, (P - 1) * 2 * k / P * ENTRY);
    case BATON_SPARSE_GTOPK:
        return time_of(at, 2 * rounds, 2 * rounds * k * ENTRY);
    case BATON_SPARSE_DENSE:
        return time_of(at, 2 * rounds, 2 * (P - 1) / P * n * ELEMENT);
    case BATON_SPARSE_AUTO:
    case BATON_SPARSE_SPARDL:
    case BATON_SPARSE_COUNT:
        break;
    }
    return INFINITY;
}

static double best_rival(const point_t *at)
{
    double best = INFINITY;
    for (int i = BATON_SPARSE_TOPKA; i < BATON_SPARSE_COUNT; i++) {
        best = fmin(best, rival(at, (baton_sparse_algorithm_t)i));
    }
    return best;
}

static double best_of_all(const point_t *at)
{
    double best = best_rival(at);
    for (int d = 1; d <= at->ranks; d++) {
        best = at->ranks % d == 0 ? fmin(best, spardl(at, d)) : best;
    }
    return best;
}

/* ---- the table --------------------------------------------------------- */

/* Where k is no multiple of the blocks the path leads through the longer ones:
   it is between the formulas of k and of the next multiple. What it is exactly
   is in tests/sim/test_sparse_costs.c. */
static point_t next_multiple(const point_t *at, int blocks)
{
    point_t next = *at;
    next.k = ceil(at->k / blocks) * blocks;
    return next;
}

static void expect_between(double us, double least, double most)
{
    assert_true(us >= least * (1 - 1e-9));
    assert_true(us <= most * (1 + 1e-9));
}

static void costs_its_formula(const point_t *at)
{
    baton_sparse_options_t options = at->options;
    baton_sparse_cost_t cost;
    for (int d = 1; d <= at->ranks; d++) {
        if (at->ranks % d == 0) {
            options.algorithm = BATON_SPARSE_SPARDL;
            options.teams = d;
            support_ok(baton_sparse_cost(&options, at->ranks, &cost));
            point_t next = next_multiple(at, at->ranks / d);
            expect_between(cost.us, spardl(at, d), spardl(&next, d));
        }
    }
    options.teams = 0;
    for (int i = BATON_SPARSE_TOPKA; i < BATON_SPARSE_COUNT; i++) {
        options.algorithm = (baton_sparse_algorithm_t)i;
        support_ok(baton_sparse_cost(&options, at->ranks, &cost));
        assert_int_equal(cost.algorithm, i);
        bool blocks = i == BATON_SPARSE_TOPKDSA || i == BATON_SPARSE_OKTOPK;
        point_t next = blocks ? next_multiple(at, at->ranks) : *at;
        expect_between(cost.us, rival(at, options.algorithm),
                       rival(&next, options.algorithm));
    }
}

static void test_costs_are_their_formulas(void **state)
{
    (void)state;
    for_each_point(costs_its_formula);
}

/* And that what is chosen costs what the choice says. */
static void is_near_the_best(const point_t *at)
{
    baton_sparse_options_t options = at->options;
    baton_sparse_cost_t cost, again;
    options.teams = BATON_SPARSE_TEAMS_AUTO;
    support_ok(baton_sparse_cost(&options, at->ranks, &cost));
    assert_true(cost.us <= 1.05 * best_of_all(at));
    options.algorithm = cost.algorithm;
    options.teams = cost.teams;
    options.exchange = cost.exchange;
    support_ok(baton_sparse_cost(&options, at->ranks, &again));
    assert_int_equal(again.algorithm, cost.algorithm);
    assert_int_equal(again.teams, cost.teams);
    assert_true(again.us == cost.us);
}

static void test_automatic_choice_is_within_five_percent(void **state)
{
    (void)state;
    for_each_point(is_near_the_best);
}

/* With one team the choice is between SparDL and the rivals. */
static void is_near_the_best_of_one_team(const point_t *at)
{
    baton_sparse_options_t options = at->options;
    baton_sparse_cost_t cost;
    support_ok(baton_sparse_cost(&options, at->ranks, &cost));
    assert_int_equal(cost.teams, 1);
    assert_true(cost.us <= 1.05 * fmin(best_rival(at), spardl(at, 1)));
}

static void test_automatic_choice_keeps_one_team_unasked(void **state)
{
    (void)state;
    for_each_point(is_near_the_best_of_one_team);
}

/* Where the bytes take longer than the latencies. */
static void spardl_wins_by_bandwidth(const point_t *at)
{
    double P = at->ranks;
    double bytes_us = 2 * (P - 1) / P * at->k * ENTRY * at->beta_us;
    if (bytes_us > 2 * log2_ceil(P) * at->alpha_us) {
        assert_true(spardl(at, 1) < best_rival(at));
    }
}

static void test_spardl_is_fastest_where_bandwidth_dominates(void **state)
{
    (void)state;
    for_each_point(spardl_wins_by_bandwidth);
}

/* ---- what else it depends on ------------------------------------------- */

static baton_sparse_cost_t chosen(int ranks, double density, double alpha_us)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    baton_sparse_cost_t cost;
    options.count = 1000000;
    options.density = density;
    options.link = (baton_link_cost_t){alpha_us, 1};
    support_ok(baton_sparse_cost(&options, ranks, &cost));
    return cost;
}

static void test_dense_is_chosen_above_half(void **state)
{
    (void)state;
    assert_int_equal(chosen(8, 0.51, 1).algorithm, BATON_SPARSE_DENSE);
    assert_int_equal(chosen(8, 0.49, 1).algorithm, BATON_SPARSE_SPARDL);
}

static void test_latency_chooses_one_exchange(void **state)
{
    (void)state;
    assert_int_equal(chosen(8, 1e-5, 1000).algorithm, BATON_SPARSE_TOPKA);
    assert_int_equal(chosen(1, 0.01, 1).algorithm, BATON_SPARSE_SPARDL);
}

/* R-SAG that is asked for leaves powers of two to choose from. */
static void test_exchange_limits_teams(void **state)
{
    (void)state;
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    baton_sparse_cost_t cost;
    options.algorithm = BATON_SPARSE_SPARDL;
    options.count = 1000;
    options.k = 14;
    options.teams = BATON_SPARSE_TEAMS_AUTO;
    options.link.alpha_us = 1000;
    support_ok(baton_sparse_cost(&options, 14, &cost));
    assert_int_equal(cost.teams, 14);
    assert_int_equal(cost.exchange, BATON_TEAMS_BSAG);
    options.exchange = BATON_TEAMS_RSAG;
    support_ok(baton_sparse_cost(&options, 14, &cost));
    assert_int_equal(cost.teams, 2);
    assert_int_equal(cost.exchange, BATON_TEAMS_RSAG);
}

static void expect_refused(const baton_sparse_options_t *options, int ranks,
                           const char *says)
{
    baton_sparse_cost_t cost;
    support_expect(baton_sparse_cost(options, ranks, &cost), BATON_ERR_INVALID);
    if (strstr(baton_error_message(), says) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", says, baton_error_message());
    }
}

static void test_bad_cases_are_refused(void **state)
{
    (void)state;
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.count = 10;
    options.k = 2;
    expect_refused(NULL, 4, "options is NULL");
    expect_refused(&options, 0, "ranks is 0; allowed: 1 or more");
    options.teams = -2;
    expect_refused(&options, 4, "teams is -2; allowed: the divisors of 4");
    options.teams = 0;
    options.link.alpha_us = NAN;
    expect_refused(&options, 4, "allowed: 0 and above, finite");
    options.link.alpha_us = 1;
    options.k = 11;
    expect_refused(&options, 4, "k is 11; allowed: 1 to count, 10");
}

/* A sparse all-reduce that is created has what was chosen. */
static void test_created_with_what_is_chosen(void **state)
{
    (void)state;
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.dtype = BATON_F32;
    options.count = 100;
    options.k = 10;
    options.teams = BATON_SPARSE_TEAMS_AUTO;
    options.link.alpha_us = 1000;
    baton_sparse_cost_t cost;
    support_ok(baton_sparse_cost(&options, 6, &cost));
    support_sparse_t *group = support_sparse_open(6, &options);
    float *gradient = support_sparse_gradient(group, 3);
    gradient[17] = 1;
    support_sparse_step(group);
    baton_sparse_stats_t stats;
    support_ok(baton_sparse_stats(group->ranks[0], &stats));
    assert_int_equal(stats.algorithm, cost.algorithm);
    assert_int_equal(stats.teams, cost.teams);
    assert_true(stats.rounds == (uint32_t)cost.rounds);
    assert_int_equal(group->results[0].count, 1);
    assert_int_equal(group->results[0].indices[0], 17);
    support_sparse_close(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costs_are_their_formulas),
        cmocka_unit_test(test_automatic_choice_is_within_five_percent),
        cmocka_unit_test(test_automatic_choice_keeps_one_team_unasked),
        cmocka_unit_test(test_spardl_is_fastest_where_bandwidth_dominates),
        cmocka_unit_test(test_dense_is_chosen_above_half),
        cmocka_unit_test(test_latency_chooses_one_exchange),
        cmocka_unit_test(test_exchange_limits_teams),
        cmocka_unit_test(test_bad_cases_are_refused),
        cmocka_unit_test(test_created_with_what_is_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
