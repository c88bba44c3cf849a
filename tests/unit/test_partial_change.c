/* The mode of a partial all-reduce changes between epochs: by the user, by
   policies. All ranks switch at the same epoch. In the simulator. */
#include "support/random.h"
#include "support/sim.h"

#include <baton/partial.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LARGEST = 9, STEPS = 400 };

typedef struct rank {
    struct world *world;
    baton_partial_t *partial;
    baton_partial_choice_t
        modes[STEPS + 1]; /* by epoch; as the policy saw it */
    bool included[STEPS + 1];
} rank_t;

typedef struct world {
    baton_sim_t *sim;
    int size;
    int wishes; /* a policy wishes once in so many steps; 0: never */
    uint64_t epoch;
    uint64_t contributed, results;
    support_random_t random;
    rank_t ranks[LARGEST];
} world_t;

static baton_partial_choice_t random_mode(world_t *world)
{
    baton_partial_choice_t choice = {
        (baton_partial_mode_t)support_random_below(&world->random, 6), 0};
    if (choice.mode >= BATON_QUORUM) {
        choice.mode_ranks = 1 + (uint32_t)support_random_below(
                                    &world->random, (uint64_t)world->size);
    }
    return choice;
}

static bool watch(void *arg, const baton_partial_observation_t *seen,
                  baton_partial_choice_t *choice)
{
    rank_t *rank = arg;
    world_t *world = rank->world;
    rank->modes[seen->epoch] = seen->choice;
    if (world->wishes == 0 ||
        support_random_below(&world->random, (uint64_t)world->wishes) != 0) {
        return false;
    }
    *choice = random_mode(world);
    return true;
}

static void open_world(world_t *world, int size, int wishes)
{
    baton_sim_options_t model = support_sim_options(size);
    model.link = (baton_sim_link_t){.alpha_us = 1};
    *world = (world_t){.sim = support_sim_open(&model),
                       .size = size,
                       .wishes = wishes,
                       .random = support_random(support_seed(), 23)};
    for (int r = 0; r < size; r++) {
        rank_t *rank = &world->ranks[r];
        rank->world = world;
        const baton_partial_options_t options = {.size = sizeof options,
                                                 .mode = BATON_SOLO,
                                                 .policy = watch,
                                                 .policy_arg = rank,
                                                 .changes = true,
                                                 .count = 1,
                                                 .dtype = BATON_U64};
        support_ok(baton_partial_create(baton_sim_group(world->sim, r),
                                        &options, &rank->partial));
    }
}

static void close_world(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_partial_destroy(world->ranks[r].partial));
    }
    support_ok(baton_sim_destroy(world->sim));
}

static void arrive(void *arg)
{
    rank_t *rank = arg;
    uint64_t value = support_random_next(&rank->world->random);
    rank->world->contributed += value;
    support_ok(baton_partial_contribute(rank->partial, &value));
    support_ok(baton_partial_start(rank->partial));
}

static void run_step(world_t *world)
{
    double now_us = baton_sim_now_us(world->sim);
    bool apart = support_random_below(&world->random, 2) == 0;
    world->epoch++;
    for (int r = 0; r < world->size; r++) {
        double late_us =
            (double)support_random_below(&world->random, apart ? 5000 : 30);
        support_ok(baton_sim_at(world->sim, now_us + late_us, arrive,
                                &world->ranks[r]));
    }
    support_ok(baton_sim_run(world->sim, -1));
    for (int r = 0; r < world->size; r++) {
        baton_partial_result_t seen;
        support_ok(baton_partial_wait(world->ranks[r].partial, -1, &seen));
        assert_int_equal(seen.epoch, world->epoch);
        world->ranks[r].included[seen.epoch] = seen.included;
        world->results += r == 0 ? *(const uint64_t *)seen.data : 0;
    }
}

static uint32_t least_included(const world_t *world,
                               baton_partial_choice_t choice)
{
    return choice.mode == BATON_FULL             ? (uint32_t)world->size
           : choice.mode == BATON_QUORUM         ? choice.mode_ranks
           : choice.mode == BATON_CANDIDATES_ALL ? choice.mode_ranks
                                                 : 1;
}

/* The same on all ranks, and kept. Returns how often the mode changed. */
static int check_modes(const world_t *world)
{
    int changes = 0;
    for (uint64_t e = 1; e <= world->epoch; e++) {
        const baton_partial_choice_t mode = world->ranks[0].modes[e];
        uint32_t included = 0;
        for (int r = 0; r < world->size; r++) {
            const baton_partial_choice_t here = world->ranks[r].modes[e];
            assert_int_equal(here.mode, mode.mode);
            assert_int_equal(here.mode_ranks, mode.mode_ranks);
            included += world->ranks[r].included[e];
        }
        if (included < least_included(world, mode)) {
            fail_msg("epoch %d, mode %d of %u: %u included", (int)e,
                     (int)mode.mode, mode.mode_ranks, included);
        }
        const baton_partial_choice_t before = world->ranks[0].modes[e - 1];
        changes += e > 1 && (mode.mode != before.mode ||
                             mode.mode_ranks != before.mode_ranks);
    }
    return changes;
}

static void expect_conserved(world_t *world)
{
    uint64_t pending = 0;
    for (int r = 0; r < world->size; r++) {
        uint64_t mine;
        bool any;
        support_ok(baton_partial_pending(world->ranks[r].partial, &mine, &any));
        pending += mine;
    }
    assert_true(world->results + pending == world->contributed);
}

static void test_change_by_policies(void **state)
{
    (void)state;
    for (int size = 1; size <= LARGEST; size++) {
        world_t world;
        open_world(&world, size, 7);
        for (int i = 0; i < STEPS; i++) {
            run_step(&world);
        }
        assert_true(check_modes(&world) > 10);
        expect_conserved(&world);
        close_world(&world);
    }
}

/* Ranks ask up to three steps apart; the first that does decides when. */
static void test_change_by_the_user(void **state)
{
    (void)state;
    for (int size = 2; size <= LARGEST; size += 3) {
        world_t world;
        open_world(&world, size, 0);
        for (int i = 0; i < 20; i++) {
            baton_partial_choice_t mode = random_mode(&world);
            uint64_t at[LARGEST];
            for (int r = 0; r < size; r++) {
                at[r] = support_random_below(&world.random, 4);
            }
            for (uint64_t s = 0; s < 5; s++) {
                for (int r = 0; r < size; r++) {
                    if (at[r] == s) {
                        support_ok(baton_partial_set_mode(
                            world.ranks[r].partial, mode));
                    }
                }
                run_step(&world);
            }
            /* It went out in the fourth of these at the latest. */
            for (int r = 0; r < size; r++) {
                assert_int_equal(world.ranks[r].modes[world.epoch].mode,
                                 mode.mode);
            }
        }
        (void)check_modes(&world);
        expect_conserved(&world);
        close_world(&world);
    }
}

static void expect_said(const char *first, const char *second)
{
    const char *message = baton_error_message();
    if (strstr(message, first) == NULL || strstr(message, second) == NULL) {
        fail_msg("\"%s\" and \"%s\" are not in: %s", first, second, message);
    }
}

static void test_change_to_different_modes_in_one_epoch(void **state)
{
    (void)state;
    world_t world;
    open_world(&world, 4, 0);
    support_ok(baton_partial_set_mode(world.ranks[1].partial,
                                      (baton_partial_choice_t){BATON_FULL, 0}));
    support_ok(baton_partial_set_mode(
        world.ranks[2].partial, (baton_partial_choice_t){BATON_QUORUM, 3}));
    for (int r = 0; r < 4; r++) {
        arrive(&world.ranks[r]);
    }
    for (int r = 0; r < 4; r++) {
        baton_partial_result_t seen;
        support_expect(baton_partial_wait(world.ranks[r].partial, -1, &seen),
                       BATON_ERR_MISMATCH);
        expect_said("rank 1 asks for FULL", "rank 2 for QUORUM(3)");
    }
    close_world(&world);
}

static void test_change_to_another_mode_later(void **state)
{
    (void)state;
    world_t world;
    open_world(&world, 3, 0);
    support_ok(baton_partial_set_mode(
        world.ranks[2].partial, (baton_partial_choice_t){BATON_QUORUM, 2}));
    for (int i = 0; i < 3; i++) {
        run_step(&world);
    }
    support_expect(
        baton_partial_set_mode(world.ranks[0].partial,
                               (baton_partial_choice_t){BATON_QUORUM, 3}),
        BATON_ERR_MISMATCH);
    expect_said("rank 2 asks for QUORUM(2)", "rank 0 for QUORUM(3)");
    /* What was refused has not counted: each rank asks for the same two
     * changes. */
    for (int r = 0; r < 2; r++) {
        support_ok(baton_partial_set_mode(
            world.ranks[r].partial, (baton_partial_choice_t){BATON_QUORUM, 2}));
    }
    for (int r = 0; r < 3; r++) {
        support_ok(baton_partial_set_mode(
            world.ranks[r].partial, (baton_partial_choice_t){BATON_FULL, 0}));
    }
    for (int i = 0; i < 2; i++) {
        run_step(&world);
    }
    assert_int_equal(world.ranks[0].modes[world.epoch].mode, BATON_FULL);
    expect_conserved(&world);
    close_world(&world);
}

static void test_change_wrong_use(void **state)
{
    (void)state;
    const baton_partial_choice_t solo = {BATON_SOLO, 0};
    world_t world;
    open_world(&world, 3, 0);
    support_expect(
        baton_partial_set_mode(world.ranks[0].partial,
                               (baton_partial_choice_t){BATON_QUORUM, 4}),
        BATON_ERR_INVALID);
    expect_said("is 4", "1 to 3");
    for (int i = 0; i < 8; i++) {
        support_ok(baton_partial_set_mode(world.ranks[0].partial, solo));
    }
    support_expect(baton_partial_set_mode(world.ranks[0].partial, solo),
                   BATON_ERR_BUSY);
    support_expect(baton_partial_set_mode(NULL, solo), BATON_ERR_INVALID);
    const baton_partial_options_t fixed = {
        .size = sizeof fixed, .name = "fixed", .dtype = BATON_U64};
    baton_partial_t *partial;
    support_ok(
        baton_partial_create(baton_sim_group(world.sim, 0), &fixed, &partial));
    support_expect(baton_partial_set_mode(partial, solo), BATON_ERR_INVALID);
    expect_said("fixed", "changes");
    support_ok(baton_partial_destroy(partial));
    close_world(&world);
}

/* Not a change, but found out in the same way: the options differ. */
static void test_options_that_differ_are_named(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++) {
        const baton_sim_options_t model = support_sim_options(2);
        baton_sim_t *sim = support_sim_open(&model);
        baton_partial_options_t options = {
            .size = sizeof options, .count = 1, .dtype = BATON_U64};
        baton_partial_t *partials[2];
        for (int r = 0; r < 2; r++) {
            options.history = 4;
            options.keep = r == 1 && what == 0 ? BATON_KEEP_ALL : options.keep;
            options.history = r == 1 && what == 1 ? 5 : options.history;
            support_ok(baton_partial_create(baton_sim_group(sim, r), &options,
                                            &partials[r]));
        }
        support_ok(baton_partial_start(partials[0]));
        baton_partial_result_t seen;
        support_expect(baton_partial_wait(partials[0], -1, &seen),
                       BATON_ERR_MISMATCH);
        expect_said("history or memory", "rank 0 for SOLO");
        for (int r = 0; r < 2; r++) {
            support_ok(baton_partial_destroy(partials[r]));
        }
        support_ok(baton_sim_destroy(sim));
    }
}

static void test_change_needs_payload(void **state)
{
    (void)state;
    baton_sim_options_t model = support_sim_options(2);
    model.cost_only = true;
    baton_sim_t *sim = support_sim_open(&model);
    const baton_partial_options_t options = {
        .size = sizeof options, .changes = true, .dtype = BATON_U64};
    baton_partial_t *partial;
    support_expect(
        baton_partial_create(baton_sim_group(sim, 0), &options, &partial),
        BATON_ERR_UNSUPPORTED);
    support_ok(baton_sim_destroy(sim));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_change_by_policies),
        cmocka_unit_test(test_change_by_the_user),
        cmocka_unit_test(test_change_to_different_modes_in_one_epoch),
        cmocka_unit_test(test_change_to_another_mode_later),
        cmocka_unit_test(test_change_wrong_use),
        cmocka_unit_test(test_change_needs_payload),
        cmocka_unit_test(test_options_that_differ_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
