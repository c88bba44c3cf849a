/* The costs of a step of each sparse all-reduce. baton_sparse_cost has closed
   forms for them. In a cost-only simulation the step must have the same time,
   rounds, messages and bytes, on 1 to 33, 64, 100 and 256 ranks. The algorithm
   that is chosen is the cheapest by these forms, over the whole table of
   docs/sparse.md. */
#include "base/random.h"
#include "coll/sparse/algorithms/algorithms.h"
#include "support/sim.h"
#include "support/sparse.h"

#include <baton/coll.h>
#include <baton/sparse.h>
#include <math.h>

#define ALPHA_US 50.0
#define BETA_NS  0.8
#define BOUND    1e-9

/* EACH is the number of entries of a block. It is a multiple of every number of
   teams here. */
enum { EACH = 840, MOST_TEAMS = 8 };

static const int large[] = {64, 100, 256};
enum { SMALL = 33, SIZES = SMALL + sizeof large / sizeof large[0] };

static int size_of(int i)
{
    return i < SMALL ? i + 1 : large[i - SMALL];
}

/* ---- one step ---------------------------------------------------------- */

/* Runs a step, and returns its cost in the simulator: its time and rounds, and
   the messages and bytes of the rank that sends most. */
static baton_sparse_cost_t simulate_in(const baton_sim_options_t *sim,
                                       const baton_sparse_options_t *options)
{
    baton_sparse_cost_t cost = {0};
    const int size = sim->ranks;
    support_sparse_t *group = support_sparse_open_in(sim, options);
    support_ok(baton_sim_run(group->sim, -1));
    /* In its first step Ok-Topk chooses its regions. */
    int steps = options->algorithm == BATON_SPARSE_OKTOPK ? 2 : 1;
    for (int step = 0; step < steps; step++) {
        double begin_us = baton_sim_now_us(group->sim);
        for (int rank = 0; rank < size; rank++) {
            support_ok(baton_sparse_start(group->ranks[rank], NULL));
        }
        support_ok(baton_sim_run(group->sim, -1));
        cost = (baton_sparse_cost_t){.us = baton_sim_now_us(group->sim) -
                                           begin_us};
        for (int rank = 0; rank < size; rank++) {
            baton_sparse_result_t result;
            baton_sparse_stats_t stats;
            support_ok(baton_sparse_wait(group->ranks[rank], -1, &result));
            support_ok(baton_sparse_stats(group->ranks[rank], &stats));
            assert_int_equal(result.count, 0);
            cost.rounds = stats.rounds;
            cost.messages = fmax(cost.messages, (double)stats.messages_sent);
            cost.bytes = fmax(cost.bytes, (double)stats.bytes_sent);
        }
    }
    support_sparse_close(group);
    return cost;
}

static baton_sparse_cost_t simulate(int size,
                                    const baton_sparse_options_t *options)
{
    baton_sim_options_t sim = BATON_SIM_OPTIONS;
    sim.ranks = size;
    sim.cost_only = true;
    sim.link = (baton_sim_link_t){ALPHA_US, BETA_NS};
    return simulate_in(&sim, options);
}

static void expect_near(double actual, double expected, const char *what,
                        int size, const baton_sparse_options_t *options)
{
    if (!(fabs(actual - expected) <= BOUND * expected)) {
        fail_msg("%s on %d ranks, %d teams: %s %.9f, not %.9f",
                 baton_sparse_algorithm_name(options->algorithm), size,
                 options->teams, what, actual, expected);
    }
}

/* Statistics do not count the messages of a dense step. */
static void expect_cost(int size, const baton_sparse_options_t *options)
{
    baton_sparse_cost_t cost, actual = simulate(size, options);
    support_ok(baton_sparse_cost(options, size, &cost));
    expect_near(actual.us, cost.us, "time", size, options);
    if (options->algorithm != BATON_SPARSE_DENSE) {
        expect_near(actual.rounds, cost.rounds, "rounds", size, options);
        expect_near(actual.messages, cost.messages, "messages", size, options);
        expect_near(actual.bytes, cost.bytes, "bytes", size, options);
    }
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

TEST(test_spardl_costs_its_formula)
{
    for (int i = 0; i < SIZES; i++) {
        int size = size_of(i);
        for (int teams = 1; teams <= MOST_TEAMS && teams <= size; teams++) {
            if (size % teams != 0) {
                continue;
            }
            baton_sparse_options_t options =
                some_options(BATON_SPARSE_SPARDL, size / teams);
            options.teams = teams;
            options.exchange = BATON_EXCHANGE_BSAG;
            expect_cost(size, &options);
            if ((teams & (teams - 1)) == 0 && teams > 1) {
                options.exchange = BATON_EXCHANGE_RSAG;
                expect_cost(size, &options);
            }
        }
    }
}

typedef struct other {
    baton_sparse_algorithm_t algorithm;
    bool blocks; /* there is a block for each rank */
    bool quantise;
    size_t count; /* elements of a block; 0: 4 times k */
} other_t;

TEST(test_others_cost_their_formula)
{
    static const other_t all[] = {
        {BATON_SPARSE_TOPKA, false, false, 0},
        {BATON_SPARSE_REDSYNC, false, false, 0},
        {BATON_SPARSE_REDSYNC, false, true, 0},
        {BATON_SPARSE_GTOPK, false, false, 0},
        {BATON_SPARSE_TOPKDSA, true, false, 0},
        /* The result has dense regions. */
        {BATON_SPARSE_TOPKDSA, true, false, 3 * EACH},
        {BATON_SPARSE_OKTOPK, true, false, 0},
        {BATON_SPARSE_DENSE, false, false, 1000}, /* the algorithm is a tree */
        {BATON_SPARSE_DENSE, true, false, 1000000},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (int j = 0; j < SIZES; j++) {
            int blocks = all[i].blocks ? size_of(j) : 1;
            baton_sparse_options_t options =
                some_options(all[i].algorithm, blocks);
            options.quantise = all[i].quantise;
            if (all[i].count > 0) {
                options.count = (size_t)blocks * all[i].count;
            }
            expect_cost(size_of(j), &options);
        }
    }
}

typedef struct vector {
    float *data;
    size_t bytes;
} vector_t;

static void build_allreduce(void *arg, baton_schedule_t *schedule)
{
    const vector_t *vector = arg;
    baton_view_t view =
        baton_view(baton_buffer_bind(schedule, vector->data, vector->bytes), 0,
                   vector->bytes);
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = view,
                                   .target = view,
                                   .dtype = BATON_F32,
                                   .op = BATON_SUM};
    baton_add_allreduce(schedule, &args);
}

/* Ranks that share hosts sum a dense vector as they would without sparse all-
   reduces. */
TEST(test_dense_is_as_chosen)
{
    static const size_t counts[] = {1000, 30000, 1000000};
    for (int i = 0; i < 3; i++) {
        baton_sim_options_t sim = BATON_SIM_OPTIONS;
        sim.ranks = 8;
        sim.cost_only = true;
        sim.host_ranks = 4;
        sim.link = (baton_sim_link_t){ALPHA_US, BETA_NS};
        sim.host_link = (baton_sim_link_t){1, 0.1};
        baton_sparse_options_t options = some_options(BATON_SPARSE_DENSE, 1);
        options.count = counts[i];
        vector_t vector = {NULL, counts[i] * sizeof(float)};
        baton_sim_t *other = support_sim_open(&sim);
        double us;
        support_ok(baton_sim_build(other, "sum", build_allreduce, &vector));
        support_ok(baton_sim_epoch(other, &us));
        support_ok(baton_sim_destroy(other));
        expect_near(simulate_in(&sim, &options).us, us, "time", sim.ranks,
                    &options);
    }
}

/* The formulas of the papers, written out for 8 ranks. If schedules and closed
   forms become more expensive together, only this test notices. */
TEST(test_formulas_are_the_papers)
{
    enum { ENTRY = 8, ELEMENT = 4, WORD = 4, RANKS = 8 };
    static const struct {
        baton_sparse_algorithm_t algorithm;
        int teams, blocks;
        double rounds, bytes;
        baton_exchange_t exchange;
    } all[] = {
        {BATON_SPARSE_SPARDL, 1, 8, 2 * 3, 2 * 7 * EACH * ENTRY, 0},
        {BATON_SPARSE_SPARDL, 2, 4, 2 * 2 + 1, (2 * 3 + 1) * EACH * ENTRY,
         BATON_EXCHANGE_RSAG},
        {BATON_SPARSE_SPARDL, 4, 2, 2 * 1 + 2,
         (2 * EACH + 3.0 * EACH / 4) * ENTRY, BATON_EXCHANGE_BSAG},
        {BATON_SPARSE_TOPKA, 0, 1, 3, 7 * EACH * ENTRY, 0},
        {BATON_SPARSE_REDSYNC, 0, 1, 3, 7 * (WORD + EACH * ENTRY), 0},
        {BATON_SPARSE_GTOPK, 0, 1, 2 * 3, 3 * EACH * ENTRY, 0},
        {BATON_SPARSE_TOPKDSA, 0, 8, 7 + 2 * 3, 7 * (2 * EACH * ENTRY + WORD),
         0},
        {BATON_SPARSE_OKTOPK, 0, 8, 7 + 2 * 3, 7 * 2 * EACH * ENTRY, 0},
        {BATON_SPARSE_DENSE, 0, 1, 2 * 3, 3 * 4 * EACH * ELEMENT, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        baton_sparse_options_t options =
            some_options(all[i].algorithm, all[i].blocks);
        baton_sparse_cost_t cost;
        options.teams = all[i].teams;
        options.exchange = all[i].exchange;
        support_ok(baton_sparse_cost(&options, RANKS, &cost));
        expect_near(cost.rounds, all[i].rounds, "rounds", RANKS, &options);
        expect_near(cost.bytes, all[i].bytes, "bytes", RANKS, &options);
    }
}

/* If k is not a multiple of the number of blocks, the longest path leads
   through the longer blocks. Direct sends take that time if ranks keep in step,
   as they do here on up to 33 ranks. A rank that gets ahead can delay others
   (docs/sparse.md). */
TEST(test_longer_blocks_are_on_the_longest_path)
{
    static const baton_sparse_algorithm_t all[] = {
        BATON_SPARSE_SPARDL, BATON_SPARSE_TOPKDSA, BATON_SPARSE_OKTOPK};
    for (int i = 1; i < SIZES; i++) {
        for (int j = 0; j < 3; j++) {
            int size = size_of(i);
            baton_sparse_options_t options = some_options(all[j], size);
            baton_sparse_cost_t cost;
            options.k += 1 + (size_t)size / 3;
            support_ok(baton_sparse_cost(&options, size, &cost));
            double us = simulate(size, &options).us;
            if (all[j] == BATON_SPARSE_SPARDL || size <= SMALL) {
                expect_near(us, cost.us, "time", size, &options);
            }
            assert_true(us >= cost.us * (1 - BOUND));
        }
    }
}

/* ---- the choice -------------------------------------------------------- */

static double cost_of(int ranks, baton_sparse_options_t options,
                      baton_sparse_algorithm_t algorithm, int teams)
{
    baton_sparse_cost_t cost;
    options.algorithm = algorithm;
    options.teams = teams;
    support_ok(baton_sparse_cost(&options, ranks, &cost));
    assert_int_equal(cost.algorithm, algorithm);
    return cost.us;
}

/* Expects that the choice costs no more than `best`, the least cost of any
   algorithm, and that the algorithm costs as much if it is named. */
static void expect_best(int ranks, baton_sparse_options_t options, double best)
{
    baton_sparse_cost_t cost, again;
    support_ok(baton_sparse_cost(&options, ranks, &cost));
    assert_true(cost.us <= best * (1 + BOUND));
    assert_true(options.teams != 0 || cost.teams == 1);
    options.algorithm = cost.algorithm;
    options.teams = cost.teams;
    options.exchange = cost.exchange;
    support_ok(baton_sparse_cost(&options, ranks, &again));
    assert_int_equal(again.algorithm, cost.algorithm);
    assert_int_equal(again.teams, cost.teams);
    assert_true(again.us == cost.us);
}

/* Compares with SparDL for every number of teams if the number is automatic,
   and for one team otherwise. */
static void expect_best_of_all(int ranks, baton_sparse_options_t options)
{
    double best = INFINITY;
    for (int i = BATON_SPARSE_TOPKA; i < BATON_SPARSE_COUNT; i++) {
        best =
            fmin(best, cost_of(ranks, options, (baton_sparse_algorithm_t)i, 0));
    }
    best = fmin(best, cost_of(ranks, options, BATON_SPARSE_SPARDL, 1));
    expect_best(ranks, options, best);
    for (int teams = 2; teams <= ranks; teams++) {
        if (ranks % teams == 0) {
            best =
                fmin(best, cost_of(ranks, options, BATON_SPARSE_SPARDL, teams));
        }
    }
    options.teams = BATON_SPARSE_TEAMS_AUTO;
    expect_best(ranks, options, best);
}

TEST(test_choice_is_the_cheapest)
{
    static const int sizes[] = {8, 14, 64, 256, 1024};
    static const double densities[] = {0.01, 0.001}, gbits[] = {1, 10, 100},
                        alphas[] = {5, 50};
    for (size_t i = 0; i < 5 * 12; i++) {
        baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
        options.count = (size_t)15 << 20;
        options.density = densities[i % 12 / 6];
        options.link = (baton_link_cost_t){alphas[i % 2], 8 / gbits[i / 2 % 3]};
        expect_best_of_all(sizes[i / 12], options);
    }
}

TEST(test_choice_depends_on_more_than_costs)
{
#define GIVEN(...)                                                             \
    {                                                                          \
        .size = sizeof(baton_sparse_options_t), .link.beta_ns = 1, __VA_ARGS__ \
    }
    static const struct {
        int ranks;
        baton_sparse_algorithm_t algorithm;
        int teams;
        baton_exchange_t exchange;
        baton_sparse_options_t options;
    } all[] = {
        {8, BATON_SPARSE_DENSE, 1, BATON_EXCHANGE_AUTO,
         GIVEN(.count = 1000000, .density = 0.51, .link.alpha_us = 1)},
        {8, BATON_SPARSE_SPARDL, 1, BATON_EXCHANGE_RSAG,
         GIVEN(.count = 1000000, .density = 0.49, .link.alpha_us = 1)},
        {8, BATON_SPARSE_TOPKA, 1, BATON_EXCHANGE_AUTO,
         GIVEN(.count = 1000000, .density = 1e-5, .link.alpha_us = 1000)},
        {1, BATON_SPARSE_SPARDL, 1, BATON_EXCHANGE_RSAG,
         GIVEN(.count = 1000000, .density = 0.01, .link.alpha_us = 1)},
        {14, BATON_SPARSE_SPARDL, 14, BATON_EXCHANGE_BSAG,
         GIVEN(.count = 1000, .k = 14, .teams = BATON_SPARSE_TEAMS_AUTO,
               .algorithm = BATON_SPARSE_SPARDL, .link.alpha_us = 1000)},
        /* If R-SAG is requested, only powers of two remain as numbers of
           teams. */
        {14, BATON_SPARSE_SPARDL, 2, BATON_EXCHANGE_RSAG,
         GIVEN(.count = 1000, .k = 14, .teams = BATON_SPARSE_TEAMS_AUTO,
               .exchange = BATON_EXCHANGE_RSAG,
               .algorithm = BATON_SPARSE_SPARDL, .link.alpha_us = 1000)},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        baton_sparse_cost_t cost;
        support_ok(baton_sparse_cost(&all[i].options, all[i].ranks, &cost));
        assert_int_equal(cost.algorithm, all[i].algorithm);
        assert_int_equal(cost.teams, all[i].teams);
        assert_int_equal(cost.exchange, all[i].exchange);
    }
}

/* A change of what the choice counts changes the number. */
TEST(test_choices_of_machines)
{
    static const int hosts_of[] = {1, 2, 16}, processors[] = {0, 1, 4};
    uint64_t hash = 0;
    for (int i = 0; i < 6 * 3 * 3 * 3 * 5; i++) {
        const int ranks = 2 << i % 6, hosts = hosts_of[i / 6 % 3];
        const baton__sparse_place_t place = {
            .ranks = ranks,
            .hosts = hosts < ranks ? hosts : ranks,
            .processors = processors[i / 18 % 3],
            .measured = true};
        baton_sparse_options_t options = BATON_SPARSE_OPTIONS, resolved;
        options.teams = BATON_SPARSE_TEAMS_AUTO;
        options.count = (size_t)2000 << i / 54 % 3 * 7;
        options.density = ldexp(0.3, -2 * (i / 162));
        options.link = (baton_link_cost_t){2, 0.3};
        (void)baton__sparse_resolve(&options, ranks, place.hosts, &resolved);
        baton__sparse_take_choice(&resolved, &place);
        hash = baton__mix(hash + (uint64_t)resolved.algorithm +
                          16 * (uint64_t)resolved.teams);
    }
    assert_int_equal(hash, UINT64_C(0xcd636a877ae75634));
}

TEST(test_bad_cases_are_refused)
{
    static const struct {
        int ranks;
        const char *says;
        baton_sparse_options_t options;
    } all[] = {
        {0, "ranks is 0; allowed: 1 or more", GIVEN(.count = 10, .k = 2)},
        {4, "teams is -2; allowed: the divisors of 4",
         GIVEN(.count = 10, .k = 2, .teams = -2)},
        {4, "allowed: 0 and above, finite",
         GIVEN(.count = 10, .k = 2, .link.alpha_us = NAN)},
    };
    baton_sparse_cost_t cost;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        support_fails(baton_sparse_cost(&all[i].options, all[i].ranks, &cost),
                      BATON_ERR_INVALID, all[i].says);
    }
    support_fails(baton_sparse_cost(NULL, 4, &cost), BATON_ERR_INVALID,
                  "options is NULL");
}

/* A sparse all-reduce is created with the algorithm that baton_sparse_cost
   chooses. */
TEST(test_created_with_what_is_chosen)
{
    baton_sparse_options_t options =
        GIVEN(.dtype = BATON_F32, .count = 100, .k = 10,
              .teams = BATON_SPARSE_TEAMS_AUTO, .link.alpha_us = 1000);
    baton_sparse_cost_t cost;
    baton_sparse_stats_t stats;
    support_ok(baton_sparse_cost(&options, 6, &cost));
    support_sparse_t *group = support_sparse_open(6, &options);
    support_sparse_step(group);
    support_ok(baton_sparse_stats(group->ranks[0], &stats));
    assert_int_equal(stats.algorithm, cost.algorithm);
    assert_int_equal(stats.teams, cost.teams);
    assert_true(stats.rounds == (uint32_t)cost.rounds);
    support_sparse_close(group);
}
