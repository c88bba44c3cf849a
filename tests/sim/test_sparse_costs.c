/* Sparse all-reduces in cost-only simulations: time, messages, rounds and bytes
   are those of the formulas (written here once more, as the papers have them)
   and of baton_sparse_cost, on 1 to 33, 64, 100 and 256 ranks. */
#include "support/cluster.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define ALPHA_US 50.0
#define BETA_NS  0.8
#define BOUND    1e-9

/* EACH: entries of a block; every number of teams here divides it. */
enum { EACH = 840, ENTRY = 8, ELEMENT = 4, MOST_TEAMS = 8 };

static const int large[] = {64, 100, 256};
enum { SMALL = 33, SIZES = SMALL + sizeof large / sizeof large[0] };

static int size_of(int i)
{
    return i < SMALL ? i + 1 : large[i - SMALL];
}

static int log2_ceil(int size)
{
    int rounds = 0;
    while (1 << rounds < size) {
        rounds++;
    }
    return rounds;
}

/* ---- one step ---------------------------------------------------------- */

typedef struct step {
    double us, rounds;
    double messages, bytes; /* of the rank that sends most; -1: any */
} step_t;

static void run_step(baton_sim_t *sim, baton_sparse_t **all, int size,
                     step_t *out)
{
    double begin_us = baton_sim_now_us(sim);
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_sparse_start(all[rank], NULL));
    }
    support_ok(baton_sim_run(sim, -1));
    *out = (step_t){.us = baton_sim_now_us(sim) - begin_us};
    for (int rank = 0; rank < size; rank++) {
        baton_sparse_result_t result;
        baton_sparse_stats_t stats;
        support_ok(baton_sparse_wait(all[rank], -1, &result));
        support_ok(baton_sparse_stats(all[rank], &stats));
        assert_int_equal(result.count, 0);
        out->rounds = stats.rounds;
        out->messages = fmax(out->messages, (double)stats.messages_sent);
        out->bytes = fmax(out->bytes, (double)stats.bytes_sent);
    }
}

/* The last of so many steps. */
static step_t simulate(int size, const baton_sparse_options_t *options,
                       int steps)
{
    baton_sim_options_t sim_options = BATON_SIM_OPTIONS;
    baton_sim_t *sim;
    step_t last = {0};
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
    for (int step = 0; step < steps; step++) {
        run_step(sim, all, size, &last);
    }
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_sparse_destroy(all[rank]));
    }
    free(all);
    support_ok(baton_sim_destroy(sim));
    return last;
}

static void expect_near(double actual, double expected, const char *what,
                        int size, const baton_sparse_options_t *options)
{
    if (fabs(actual - expected) > BOUND * expected) {
        fail_msg("%s on %d ranks, %d teams: %s %.9f, not %.9f",
                 baton_sparse_algorithm_name(options->algorithm), size,
                 options->teams, what, actual, expected);
    }
}

/* A step takes rounds * alpha + path * beta; the rank that sends most sends so
   many messages and bytes. */
static void expect_step(int size, const baton_sparse_options_t *options,
                        step_t expected, double path)
{
    bool oktopk = options->algorithm == BATON_SPARSE_OKTOPK;
    bool dense = options->algorithm == BATON_SPARSE_DENSE;
    baton_sparse_cost_t cost;
    step_t actual = simulate(size, options, oktopk ? 2 : 1);
    expected.us = expected.rounds * ALPHA_US + path * BETA_NS * 1e-3;
    support_ok(baton_sparse_cost(options, size, &cost));
    expect_near(actual.us, expected.us, "time", size, options);
    expect_near(cost.us, expected.us, "cost", size, options);
    expect_near(cost.rounds, expected.rounds, "rounds", size, options);
    expect_near(cost.messages, expected.messages, "messages", size, options);
    expect_near(cost.bytes, expected.bytes, "bytes", size, options);
    if (!dense) { /* statistics do not count a dense step's */
        expect_near(actual.rounds, expected.rounds, "rounds", size, options);
        expect_near(actual.messages, expected.messages, "messages", size,
                    options);
        expect_near(actual.bytes, expected.bytes, "bytes", size, options);
    }
}

/* Every rank sends a message in each round. */
static void expect_even(int size, const baton_sparse_options_t *options,
                        double rounds, double bytes)
{
    expect_step(size, options,
                (step_t){.rounds = rounds, .messages = rounds, .bytes = bytes},
                bytes);
}

static baton_sparse_options_t some_options(baton_sparse_algorithm_t algorithm,
                                           int blocks)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.algorithm = algorithm;
    options.k = (size_t)blocks * EACH;
    options.count = 4 * options.k;
    options.link = (baton_link_cost_t){ALPHA_US, BETA_NS};
    return options;
}

/* ---- formulas ---------------------------------------------------------- */

/* d = 1: 2 ceil(log2 P) alpha + 4 k (P - 1) / P words; R-SAG adds log2 d rounds
   of L = k/m entries, B-SAG ceil(log2 d) rounds and (d - 1) h entries. */
static void expect_teams(int size, int teams)
{
    int members = size / teams;
    baton_sparse_options_t options = some_options(BATON_SPARSE_SPARDL, members);
    double rounds = 2 * log2_ceil(members) + log2_ceil(teams);
    double entries = 2.0 * (members - 1) * EACH;
    double share = (double)EACH / teams;
    options.teams = teams;
    options.exchange = BATON_TEAMS_BSAG;
    expect_even(size, &options, rounds,
                (entries + (teams - 1) * share) * ENTRY);
    if ((teams & (teams - 1)) == 0 && teams > 1) {
        options.exchange = BATON_TEAMS_RSAG;
        expect_even(size, &options, rounds,
                    (entries + log2_ceil(teams) * EACH) * ENTRY);
    }
}

static void test_spardl_costs_its_formula(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        int size = size_of(i);
        for (int teams = 1; teams <= MOST_TEAMS && teams <= size; teams++) {
            if (size % teams == 0) {
                expect_teams(size, teams);
            }
        }
    }
}

static void test_topka_costs_its_formula(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        int size = size_of(i);
        baton_sparse_options_t options = some_options(BATON_SPARSE_TOPKA, 1);
        expect_even(size, &options, log2_ceil(size),
                    (size - 1.0) * EACH * ENTRY);
    }
}

/* A word tells the length; quantised, the mean is the only value. */
static void test_redsync_costs_its_formula(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        int size = size_of(i);
        baton_sparse_options_t options = some_options(BATON_SPARSE_REDSYNC, 1);
        expect_even(size, &options, log2_ceil(size),
                    (size - 1.0) * (1 + 2 * EACH) * 4);
        options.quantise = true;
        expect_even(size, &options, log2_ceil(size),
                    (size - 1.0) * (2 + EACH) * 4);
    }
}

/* 2 ceil(log2 P) rounds, 4 ceil(log2 P) k words that rank 0 sends and
   receives. */
static void test_gtopk_costs_its_formula(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        int size = size_of(i);
        baton_sparse_options_t options = some_options(BATON_SPARSE_GTOPK, 1);
        double rounds = log2_ceil(size), bytes = rounds * EACH * ENTRY;
        expect_step(
            size, &options,
            (step_t){.rounds = 2 * rounds, .messages = rounds, .bytes = bytes},
            2 * bytes);
    }
}

/* P - 1 direct sends of k/P entries, the lengths of the sums, and the sums, as
   long as if all ranks had selected the same. */
static void test_topkdsa_costs_its_formula(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        int size = size_of(i);
        baton_sparse_options_t options =
            some_options(BATON_SPARSE_TOPKDSA, size);
        double others = size - 1, rounds = others + 2 * log2_ceil(size);
        expect_even(size, &options, rounds, others * (2 * EACH * ENTRY + 4));
        options.count = 3 * options.k; /* regions go dense */
        expect_even(size, &options, rounds,
                    others * (EACH * ENTRY + 3 * EACH * ELEMENT + 4));
    }
}

/* In a step that does not move the regions, the first all-gather is empty. */
static void test_oktopk_costs_its_formula(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        int size = size_of(i);
        baton_sparse_options_t options =
            some_options(BATON_SPARSE_OKTOPK, size);
        double others = size - 1, rounds = others + 2 * log2_ceil(size);
        expect_even(size, &options, rounds, others * 2 * EACH * ENTRY);
    }
}

/* Entries of a Bruck all-gather's longest path, where the first so many of the
   blocks have an entry more than the others. */
static double gathered(int blocks, int longer)
{
    double entries = (blocks - 1.0) * EACH;
    for (int reach = 1; reach < blocks; reach *= 2) {
        int parts = blocks - reach < reach ? blocks - reach : reach;
        entries += parts < longer ? parts : longer;
    }
    return entries;
}

/* Direct sends: a rank that has one of the longer blocks receives it from all
   others. That is the time where ranks keep step, as they do here on up to 33
   ranks; one that gets ahead can delay others (cost.c). */
static void expect_partial_regions(baton_sparse_algorithm_t algorithm, int size,
                                   int longer)
{
    baton_sparse_options_t options = some_options(algorithm, size);
    baton_sparse_cost_t cost;
    double others = size - 1, rounds = others + 2 * log2_ceil(size);
    double entries = others * (EACH + 1) + gathered(size, longer);
    double lengths = algorithm == BATON_SPARSE_TOPKDSA ? others * 4 : 0;
    double us =
        rounds * ALPHA_US + (entries * ENTRY + lengths) * BETA_NS * 1e-3;
    options.k += (size_t)longer;
    support_ok(baton_sparse_cost(&options, size, &cost));
    step_t actual =
        simulate(size, &options, algorithm == BATON_SPARSE_OKTOPK ? 2 : 1);
    expect_near(cost.us, us, "cost", size, &options);
    assert_true(actual.us >= us * (1 - BOUND));
    if (size <= SMALL) {
        expect_near(actual.us, us, "time", size, &options);
    }
}

static void expect_partial_bags(int size, int longer)
{
    baton_sparse_options_t options = some_options(BATON_SPARSE_SPARDL, size);
    baton_sparse_cost_t cost;
    double us = 2 * log2_ceil(size) * ALPHA_US +
                2 * gathered(size, longer) * ENTRY * BETA_NS * 1e-3;
    options.k += (size_t)longer;
    support_ok(baton_sparse_cost(&options, size, &cost));
    expect_near(cost.us, us, "cost", size, &options);
    expect_near(simulate(size, &options, 1).us, us, "time", size, &options);
}

static void test_longer_blocks_are_on_the_longest_path(void **state)
{
    (void)state;
    for (int i = 1; i < SIZES; i++) {
        int size = size_of(i), longer = 1 + size / 3;
        expect_partial_bags(size, longer);
        expect_partial_regions(BATON_SPARSE_TOPKDSA, size, longer);
        expect_partial_regions(BATON_SPARSE_OKTOPK, size, longer);
    }
}

static void test_dense_costs_its_formula(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        int size = size_of(i);
        baton_sparse_options_t options = some_options(BATON_SPARSE_DENSE, size);
        double rounds = log2_ceil(size);
        options.k = 1;
        options.count = 1000;
        expect_step(size, &options,
                    (step_t){.rounds = 2 * rounds,
                             .messages = rounds,
                             .bytes = rounds * 1000 * ELEMENT},
                    2 * rounds * 1000 * ELEMENT);
        options.count = (size_t)size * 1000 * 1000;
        expect_even(size, &options, 2 * rounds,
                    2 * (size - 1.0) * 1e6 * ELEMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spardl_costs_its_formula),
        cmocka_unit_test(test_topka_costs_its_formula),
        cmocka_unit_test(test_redsync_costs_its_formula),
        cmocka_unit_test(test_gtopk_costs_its_formula),
        cmocka_unit_test(test_topkdsa_costs_its_formula),
        cmocka_unit_test(test_oktopk_costs_its_formula),
        cmocka_unit_test(test_longer_blocks_are_on_the_longest_path),
        cmocka_unit_test(test_dense_costs_its_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
