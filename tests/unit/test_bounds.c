/* Bounds of partial all-reduces, against a rank that sleeps long: history,
   sync_every, max_staleness. In the simulator. */
#include "support/cmocka.h"
#include "support/sim.h"

#include <baton/partial.h>

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

/* At most so many epochs run while the rank sleeps, or exactly so many; and no
   result is staler. */
static void test_bounds_hold_against_a_sleeper(void **state)
{
    static const struct bound {
        baton_partial_options_t options;
        uint64_t most;
        bool reached;
    } bounds[] = {
#define ROW(a, b, bound, is_reached, ...)                                      \
    {{.mode = (a), .mode_ranks = (b), __VA_ARGS__}, bound, is_reached}
        ROW(BATON_SOLO, 0, 0, true, .sync_every = 1),
        ROW(BATON_SOLO, 0, 7, false, .sync_every = 8),
        ROW(BATON_MAJORITY, 0, 7, false, .sync_every = 8),
        ROW(BATON_QUORUM, 3, 7, false, .sync_every = 8),
        ROW(BATON_CANDIDATES_ALL, 2, 7, false, .sync_every = 8),
        ROW(BATON_SOLO, 0, 1, true, .max_staleness = 1),
        ROW(BATON_SOLO, 0, 9, true, .max_staleness = 9),
        ROW(BATON_MAJORITY, 0, 1, false, .max_staleness = 1),
        ROW(BATON_QUORUM, 2, 5, false, .max_staleness = 5),
        ROW(BATON_QUORUM, 4, 1, false, .max_staleness = 1),
        ROW(BATON_CANDIDATES_ANY, 2, 5, false, .max_staleness = 5),
        ROW(BATON_CANDIDATES_ALL, 2, 9, false, .max_staleness = 9),
        ROW(BATON_SOLO, 0, 1, true, .keep = BATON_KEEP_ALL, .history = 1),
        ROW(BATON_SOLO, 0, 7, true, .keep = BATON_KEEP_ALL, .history = 7),
#undef ROW
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const struct bound *bound = &bounds[i];
        world_t world;
        run_world(&world, bound->options);
        uint64_t asleep = world.ranks[SLEEPER].epochs_asleep;
        assert_in_range(asleep, bound->reached ? bound->most : 0, bound->most);
        if (bound->options.sync_every != 8) { /* else it is late for longer */
            assert_in_range(most_stale(&world), 0, bound->most);
        }
        assert_int_equal(world.least_synced, RANKS);
        for (int r = 1; r < RANKS && bound->options.history > 0; r++) {
            assert_true(world.ranks[r].hash == world.ranks[0].hash);
        }
    }
}

static void test_bounds_none_lets_a_sleeper_fall_behind(void **state)
{
    world_t world;
    run_world(&world, (baton_partial_options_t){.mode = BATON_SOLO});
    assert_true(world.ranks[SLEEPER].epochs_asleep > 20);
    assert_true(most_stale(&world) > 20);
}

static void test_bounds_out_of_range(void **state)
{
    static const char *const texts[] = {
        "max_staleness is 1048577, must be 1 to 1048576",
        "max_staleness is 4, must be 1 to 3"};
    for (int i = 0; i < 2; i++) {
        const baton_sim_options_t model = support_sim_options(2);
        const baton_partial_options_t options = {
            .size = sizeof options,
            .dtype = BATON_U64,
            .keep = i == 0 ? BATON_KEEP_LATEST : BATON_KEEP_ALL,
            .history = i == 0 ? 0 : 3,
            .max_staleness = i == 0 ? (1u << 20) + 1 : 4};
        baton_sim_t *sim = support_sim_open(&model);
        baton_partial_t *partial;
        support_expect(
            baton_partial_create(baton_sim_group(sim, 0), &options, &partial),
            BATON_ERR_INVALID);
        support_says(texts[i]);
        support_ok(baton_sim_destroy(sim));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_hold_against_a_sleeper),
        cmocka_unit_test(test_bounds_none_lets_a_sleeper_fall_behind),
        cmocka_unit_test(test_bounds_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
