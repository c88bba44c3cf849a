/* Sparse all-reduces in cost-only simulations: their time is that of the closed
   form, and messages are as many as it says, on up to 256 ranks. */
#include "support/cluster.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define ALPHA_US 50.0
#define BETA_NS  0.8

enum { EACH = 1000, ENTRY = 8 };

static double log2_ceil(int size)
{
    double rounds = 0;
    while (1 << (int)rounds < size) {
        rounds++;
    }
    return rounds;
}

/* The time of one step, and that every rank sends so many messages. */
static double time_of(int size, const baton_sparse_options_t *options,
                      double messages)
{
    baton_sim_options_t sim_options = BATON_SIM_OPTIONS;
    baton_sim_t *sim;
    sim_options.ranks = size;
    sim_options.cost_only = true;
    sim_options.link = (baton_sim_link_t){ALPHA_US, BETA_NS};
    support_ok(baton_sim_create(&sim_options, &sim));
    baton_sparse_t **all = calloc((size_t)size, sizeof(baton_sparse_t *));
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_sparse_prepare(baton_sim_group(sim, rank), options,
                                        &all[rank]));
    }
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_sparse_connect(all[rank], -1));
    }
    support_ok(baton_sim_run(sim, -1));
    double begin_us = baton_sim_now_us(sim);
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_sparse_start(all[rank], NULL));
    }
    support_ok(baton_sim_run(sim, -1));
    double time_us = baton_sim_now_us(sim) - begin_us;
    for (int rank = 0; rank < size; rank++) {
        baton_sparse_result_t result;
        baton_sparse_stats_t stats;
        support_ok(baton_sparse_wait(all[rank], -1, &result));
        assert_int_equal(result.count, 0);
        support_ok(baton_sparse_stats(all[rank], &stats));
        if (messages >= 0) {
            assert_int_equal(stats.messages_sent, messages);
        }
        support_ok(baton_sparse_destroy(all[rank]));
    }
    free(all);
    support_ok(baton_sim_destroy(sim));
    return time_us;
}

static void expect_time(int size, const baton_sparse_options_t *options,
                        double messages, double rounds, double entries)
{
    double expected = rounds * ALPHA_US + entries * ENTRY * BETA_NS * 1e-3;
    double actual = time_of(size, options, messages);
    if (fabs(actual - expected) > 1e-9 * expected) {
        fail_msg("%s on %d ranks, %d teams: %.9f us, not %.9f",
                 baton_sparse_algorithm_name(options->algorithm), size,
                 options->teams, actual, expected);
    }
}

static baton_sparse_options_t some_options(baton_sparse_algorithm_t algorithm,
                                           int blocks)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.algorithm = algorithm;
    options.k = (size_t)blocks * EACH;
    options.count = 100 * options.k;
    return options;
}

static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 12, 14, 16, 33, 64, 100, 256};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* d = 1: 2 ceil(log2 P) alpha + 4 k (P - 1) / P words; R-SAG adds log2 d rounds
   of L = k/m entries, B-SAG ceil(log2 d) rounds and (d - 1) h entries. */
static void test_spardl_takes_the_time_of_its_formula(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        for (int teams = 1; teams <= 8 && teams <= sizes[i]; teams++) {
            if (sizes[i] % teams != 0) {
                continue;
            }
            int members = sizes[i] / teams;
            baton_sparse_options_t options =
                some_options(BATON_SPARSE_SPARDL, members);
            double rounds = 2 * log2_ceil(members) + log2_ceil(teams);
            double entries = 2.0 * (members - 1) * EACH;
            options.teams = teams;
            options.exchange = BATON_TEAMS_BSAG;
            double share = teams > 1 ? EACH / teams : 0;
            expect_time(sizes[i], &options, rounds, rounds,
                        entries + (teams - 1) * share);
            if ((teams & (teams - 1)) == 0) {
                options.exchange = BATON_TEAMS_RSAG;
                expect_time(sizes[i], &options, rounds, rounds,
                            entries + log2_ceil(teams) * EACH);
            }
        }
    }
}

static void test_topka_takes_the_time_of_its_formula(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        baton_sparse_options_t options = some_options(BATON_SPARSE_TOPKA, 1);
        double rounds = log2_ceil(sizes[i]);
        expect_time(sizes[i], &options, rounds, rounds,
                    (sizes[i] - 1.0) * EACH);
    }
}

static void test_gtopk_takes_the_time_of_its_formula(void **state)
{
    (void)state;
    for (int size = 1; size <= 256; size *= 2) {
        baton_sparse_options_t options = some_options(BATON_SPARSE_GTOPK, 1);
        double rounds = 2 * log2_ceil(size);
        expect_time(size, &options, -1, rounds, rounds * EACH);
    }
}

/* P - 1 direct sends of k/P entries, the lengths of the sums, and the sums. */
static void test_topkdsa_takes_the_time_of_its_formula(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        baton_sparse_options_t options =
            some_options(BATON_SPARSE_TOPKDSA, sizes[i]);
        double others = sizes[i] - 1, log = log2_ceil(sizes[i]);
        expect_time(sizes[i], &options, others + 2 * log, others + 2 * log,
                    2 * others * EACH + others / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spardl_takes_the_time_of_its_formula),
        cmocka_unit_test(test_topka_takes_the_time_of_its_formula),
        cmocka_unit_test(test_gtopk_takes_the_time_of_its_formula),
        cmocka_unit_test(test_topkdsa_takes_the_time_of_its_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
