/* Bounds of partial all-reduces, against a rank that sleeps long: history,
   sync_every, max_staleness. In the simulator. */
#include "support/sim.h"

#include <baton/partial.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 5, SLEEPER = 3, STEPS = 60, LATE_STEP = 20 };
#define STEP_US  100.0
#define SLEEP_US 3000.0 /* 30 steps of the others */

typedef struct rank {
    struct world *world;
    baton_partial_t *partial;
    uint64_t step;
    uint64_t results; /* seen, by KEEP_ALL */
    uint64_t most_stale;
    uint64_t epochs_asleep; /* that ran here while the rank slept */
    bool waiting;
    uint64_t hash; /* of the results */
} rank_t;

typedef struct world {
    baton_sim_t *sim;
    baton_partial_options_t options;
    rank_t ranks[RANKS];
    uint32_t
        least_synced; /* active ranks of the epochs that sync_every names */
} world_t;

/* A training step that the application polls, as it may not block here. */
static void poll(void *arg);

static void again(rank_t *rank, double after_us, void (*fn)(void *))
{
    support_ok(baton_sim_at(rank->world->sim,
                            baton_sim_now_us(rank->world->sim) + after_us, fn,
                            rank));
}

static void begin_step(void *arg)
{
    rank_t *rank = arg;
    const uint64_t value =
        (uint64_t)(rank - rank->world->ranks) * 1000 + ++rank->step;
    if (rank->step == LATE_STEP && rank == &rank->world->ranks[SLEEPER]) {
        rank->epochs_asleep =
            baton_schedule_epoch(baton_partial_schedule(rank->partial)) -
            (rank->step - 1);
    }
    support_ok(baton_partial_contribute(rank->partial, &value));
    support_ok(baton_partial_start(rank->partial));
    poll(rank);
}

static void note(rank_t *rank, const baton_partial_result_t *seen)
{
    world_t *world = rank->world;
    if (world->options.keep == BATON_KEEP_ALL) {
        assert_int_equal(seen->epoch, rank->step);
    }
    rank->results++;
    rank->hash = rank->hash * 31 + *(const uint64_t *)seen->data;
    if (seen->staleness > rank->most_stale) {
        rank->most_stale = seen->staleness;
    }
    if (world->options.sync_every != 0 &&
        seen->epoch % world->options.sync_every == 0 &&
        seen->active < world->least_synced) {
        world->least_synced = seen->active;
    }
}

static void poll(void *arg)
{
    rank_t *rank = arg;
    bool done = false;
    support_ok(baton_partial_test(rank->partial, &done));
    if (!done) {
        again(rank, 1, poll);
        return;
    }
    baton_partial_result_t seen;
    support_ok(baton_partial_wait(rank->partial, 0, &seen));
    note(rank, &seen);
    if (rank->step < STEPS) {
        bool sleeps =
            rank == &rank->world->ranks[SLEEPER] && rank->step + 1 == LATE_STEP;
        again(rank, sleeps ? SLEEP_US : STEP_US, begin_step);
    }
}

static void run_world(world_t *world, baton_partial_options_t options)
{
    baton_sim_options_t model = support_sim_options(RANKS);
    model.link = (baton_sim_link_t){.alpha_us = 1};
    options.size = sizeof options;
    options.count = 1;
    options.dtype = BATON_U64;
    *world = (world_t){.sim = support_sim_open(&model),
                       .options = options,
                       .least_synced = RANKS};
    for (int r = 0; r < RANKS; r++) {
        rank_t *rank = &world->ranks[r];
        rank->world = world;
        support_ok(baton_partial_create(baton_sim_group(world->sim, r),
                                        &options, &rank->partial));
        support_ok(baton_sim_at(world->sim, r, begin_step, rank));
    }
    support_ok(baton_sim_run(world->sim, -1));
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(world->ranks[r].results, STEPS);
        support_ok(baton_partial_destroy(world->ranks[r].partial));
    }
    support_ok(baton_sim_destroy(world->sim));
}

static uint64_t most_stale(const world_t *world)
{
    uint64_t most = 0;
    for (int r = 0; r < RANKS; r++) {
        most = world->ranks[r].most_stale > most ? world->ranks[r].most_stale
                                                 : most;
    }
    return most;
}

static void test_bounds_none_lets_a_sleeper_fall_behind(void **state)
{
    (void)state;
    world_t world;
    run_world(&world, (baton_partial_options_t){.mode = BATON_SOLO});
    assert_true(world.ranks[SLEEPER].epochs_asleep > 20);
    assert_true(most_stale(&world) > 20);
}

static void test_bounds_history_holds_the_others(void **state)
{
    (void)state;
    for (uint32_t history = 1; history <= 7; history += 2) {
        world_t world;
        run_world(&world, (baton_partial_options_t){.mode = BATON_SOLO,
                                                    .keep = BATON_KEEP_ALL,
                                                    .history = history});
        /* W epochs, and not one more; each rank has seen every result. */
        assert_int_equal(world.ranks[SLEEPER].epochs_asleep, history);
        assert_in_range(most_stale(&world), 1, history);
        for (int r = 1; r < RANKS; r++) {
            assert_true(world.ranks[r].hash == world.ranks[0].hash);
        }
    }
}

static void test_bounds_staleness_waits_for_the_rank(void **state)
{
    (void)state;
    static const baton_partial_choice_t modes[] = {
        {BATON_SOLO, 0},           {BATON_MAJORITY, 0},
        {BATON_QUORUM, 2},         {BATON_QUORUM, 4},
        {BATON_CANDIDATES_ANY, 2}, {BATON_CANDIDATES_ALL, 2}};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        for (uint32_t bound = 1; bound <= 9; bound += 4) {
            world_t world;
            run_world(&world, (baton_partial_options_t){
                                  .mode = modes[i].mode,
                                  .mode_ranks = modes[i].mode_ranks,
                                  .max_staleness = bound});
            assert_in_range(most_stale(&world), 0, bound);
            assert_in_range(world.ranks[SLEEPER].epochs_asleep, 0, bound);
            if (modes[i].mode == BATON_SOLO) {
                assert_int_equal(world.ranks[SLEEPER].epochs_asleep, bound);
            }
        }
    }
}

static void test_bounds_every_nth_epoch_is_full(void **state)
{
    (void)state;
    static const baton_partial_choice_t modes[] = {{BATON_SOLO, 0},
                                                   {BATON_MAJORITY, 0},
                                                   {BATON_QUORUM, 3},
                                                   {BATON_CANDIDATES_ALL, 2}};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        world_t world;
        run_world(&world,
                  (baton_partial_options_t){.mode = modes[i].mode,
                                            .mode_ranks = modes[i].mode_ranks,
                                            .sync_every = 8});
        assert_int_equal(world.least_synced, RANKS);
        assert_in_range(world.ranks[SLEEPER].epochs_asleep, 0, 7);
    }
}

static void test_bounds_sync_every_one_is_synchronous(void **state)
{
    (void)state;
    world_t world;
    run_world(&world,
              (baton_partial_options_t){.mode = BATON_SOLO, .sync_every = 1});
    assert_int_equal(most_stale(&world), 0);
    assert_int_equal(world.ranks[SLEEPER].epochs_asleep, 0);
}

static void expect_refused(const baton_partial_options_t *options,
                           const char *text)
{
    const baton_sim_options_t model = support_sim_options(2);
    baton_sim_t *sim = support_sim_open(&model);
    baton_partial_t *partial;
    support_expect(
        baton_partial_create(baton_sim_group(sim, 0), options, &partial),
        BATON_ERR_INVALID);
    assert_non_null(strstr(baton_error_message(), text));
    support_ok(baton_sim_destroy(sim));
}

static void test_bounds_out_of_range(void **state)
{
    (void)state;
    baton_partial_options_t options = {.size = sizeof options,
                                       .dtype = BATON_U64,
                                       .max_staleness = (1u << 20) + 1};
    expect_refused(&options, "max_staleness is 1048577, must be 1 to 1048576");
    options.keep = BATON_KEEP_ALL;
    options.history = 3;
    options.max_staleness = 4;
    expect_refused(&options, "max_staleness is 4, must be 1 to 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_none_lets_a_sleeper_fall_behind),
        cmocka_unit_test(test_bounds_history_holds_the_others),
        cmocka_unit_test(test_bounds_staleness_waits_for_the_rank),
        cmocka_unit_test(test_bounds_every_nth_epoch_is_full),
        cmocka_unit_test(test_bounds_sync_every_one_is_synchronous),
        cmocka_unit_test(test_bounds_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
