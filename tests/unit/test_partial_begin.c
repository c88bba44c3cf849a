/* When a rank takes part in an epoch: as soon as it has started it, or when a
   peer activates it. */
#include "support/sim.h"

#include <baton/partial.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { RANKS = 4 };

typedef struct world {
    baton_sim_t *sim;
    baton_partial_t *partials[RANKS];
} world_t;

static void do_nothing(void *arg)
{
    (void)arg;
}

static void open_world(world_t *world, baton_partial_mode_t mode, uint32_t m)
{
    const baton_sim_options_t model = support_sim_options(RANKS);
    const baton_partial_options_t options = {.size = sizeof options,
                                             .mode = mode,
                                             .mode_ranks = m,
                                             .seed = 3,
                                             .count = 1,
                                             .dtype = BATON_U64};
    world->sim = support_sim_open(&model);
    for (int r = 0; r < RANKS; r++) {
        support_ok(baton_partial_create(baton_sim_group(world->sim, r),
                                        &options, &world->partials[r]));
    }
    /* Until then the simulator does not wonder for whom ranks wait. */
    support_ok(baton_sim_at(world->sim, 1e6, do_nothing, NULL));
}

static void close_world(world_t *world)
{
    for (int r = 0; r < RANKS; r++) {
        support_ok(baton_partial_destroy(world->partials[r]));
    }
    support_ok(baton_sim_destroy(world->sim));
}

/* Contributes and starts, and lets all that can happen before others do. */
static void arrive(world_t *world, int rank)
{
    const uint64_t value = UINT64_C(1) << rank;
    support_ok(baton_partial_contribute(world->partials[rank], &value));
    support_ok(baton_partial_start(world->partials[rank]));
    support_expect(
        baton_sim_run(world->sim, baton_sim_now_us(world->sim) + 1000),
        BATON_ERR_TIMEOUT);
}

static baton_partial_stats_t stats_of(const world_t *world, int rank)
{
    baton_partial_stats_t stats;
    support_ok(baton_partial_stats(world->partials[rank], &stats));
    return stats;
}

static bool is_done(const world_t *world, int rank)
{
    return stats_of(world, rank).epochs == 1;
}

static void expect_result(const world_t *world, int rank, uint64_t expected)
{
    baton_partial_result_t seen;
    support_ok(baton_partial_wait(world->partials[rank], -1, &seen));
    assert_int_equal(seen.epoch, 1);
    assert_int_equal(*(const uint64_t *)seen.data, expected);
}

/* Ranks 3 and 1 of a quorum of three have sent what they give, and nothing has
   ended, when rank 2 comes: rank 0 alone has nothing in the epoch. */
static void test_a_started_rank_contributes_at_once(void **state)
{
    (void)state;
    world_t world;
    open_world(&world, BATON_QUORUM, 3);
    const int early[] = {3, 1};
    for (int i = 0; i < 2; i++) {
        arrive(&world, early[i]);
        const baton_partial_stats_t stats = stats_of(&world, early[i]);
        assert_int_equal(stats.taken, 1);
        assert_true(stats.bytes > 0);
        assert_false(is_done(&world, early[i]));
    }
    arrive(&world, 2);
    for (int r = 1; r < RANKS; r++) {
        expect_result(&world, r, 8 + 4 + 2);
        assert_int_equal(stats_of(&world, r).internal, 1);
    }
    assert_int_equal(stats_of(&world, 0).external, 1);
    assert_int_equal(stats_of(&world, 0).null, 1);
    close_world(&world);
}

/* The elected rank comes last: the others have contributed before. */
static void test_all_have_contributed_before_the_elected(void **state)
{
    (void)state;
    world_t world;
    open_world(&world, BATON_MAJORITY, 0);
    int elected = baton_partial_elect(3, 1, RANKS);
    for (int i = 1; i < RANKS; i++) {
        int rank = (elected + i) % RANKS;
        arrive(&world, rank);
        assert_int_equal(stats_of(&world, rank).taken, 1);
        assert_false(is_done(&world, rank));
    }
    arrive(&world, elected);
    for (int r = 0; r < RANKS; r++) {
        expect_result(&world, r, 15);
    }
    close_world(&world);
}

/* Where two of four ranks may activate the epoch, another one that has started
   waits for them. */
static void test_candidates_begin_when_activated(void **state)
{
    (void)state;
    world_t world;
    open_world(&world, BATON_CANDIDATES_ANY, 2);
    int arrived = 0;
    bool done = false;
    while (!done) {
        assert_true(arrived < RANKS - 1);
        arrive(&world, arrived);
        done = is_done(&world, arrived++);
        for (int r = 0; r < arrived; r++) {
            assert_int_equal(stats_of(&world, r).taken, done);
        }
    }
    for (int r = 0; r < arrived; r++) {
        expect_result(&world, r, (UINT64_C(1) << arrived) - 1);
    }
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_started_rank_contributes_at_once),
        cmocka_unit_test(test_all_have_contributed_before_the_elected),
        cmocka_unit_test(test_candidates_begin_when_activated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
