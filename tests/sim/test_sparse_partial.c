/* What partial sparse all-reduces have of their own; what they share with other
   collectives is in test_properties.c. In the simulator. */
#include "support/cmocka.h"
#include "support/sim.h"

#include <baton/sparse.h>
#include <string.h>

enum { MOST_RANKS = 9, COUNT = 61 };

typedef struct world {
    baton_sim_t *sim;
    int size;
    baton_sparse_t *ranks[MOST_RANKS];
    double vector[COUNT];
    baton_sparse_result_t result; /* of the last wait */
} world_t;

static baton_sparse_options_t some_options(void)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.count = COUNT;
    options.k = 7;
    options.dtype = BATON_F64;
    options.partial = true;
    return options;
}

static void open_world(world_t *world, int size, bool cost_only,
                       const baton_sparse_options_t *options)
{
    baton_sim_options_t model = support_sim_options(size);
    model.link = (baton_sim_link_t){.alpha_us = 1, .beta_ns = 1};
    model.cost_only = cost_only;
    *world = (world_t){.sim = support_sim_open(&model), .size = size};
    for (int r = 0; r < size; r++) {
        support_ok(baton_sparse_prepare(baton_sim_group(world->sim, r), options,
                                        &world->ranks[r]));
    }
    for (int r = 0; r < size; r++) {
        support_ok(baton_sparse_connect(world->ranks[r], -1));
    }
}

static void close_world(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_sparse_destroy(world->ranks[r]));
    }
    support_ok(baton_sim_destroy(world->sim));
}

/* A gradient of ones, some of which are larger. */
static void start(world_t *world, int rank)
{
    for (int i = 0; i < COUNT; i++) {
        world->vector[i] = i % 5 == rank % 5 ? 10 + i : 1;
    }
    support_ok(baton_sparse_start(world->ranks[rank], world->vector));
}

/* Returns whether the rank was in time. */
static bool take(world_t *world, int rank)
{
    support_ok(baton_sparse_wait(world->ranks[rank], 0, &world->result));
    return world->result.included;
}

static void run(world_t *world)
{
    support_ok(baton_sim_run(world->sim, -1));
}

static void recover(world_t *world)
{
    for (int i = 0; i < 2 * world->size; i++) {
        baton_status_t status =
            baton_group_recover(baton_sim_group(world->sim, i % world->size),
                                i < world->size ? 0 : -1);
        if (i >= world->size) {
            support_ok(status);
        }
    }
}

/* What a rank has left pending and in its residual is not taken by epochs that
   begin to work before it has started again. */
static void test_sparse_partial_sends_little_for_one_rank(void **state)
{
    for (int size = 2; size <= MOST_RANKS; size++) {
        baton_sparse_options_t options = some_options();
        world_t world;
        size_t entry = baton_entry_bytes(options.dtype);
        unsigned steps = 0;
        while (1 << steps < size) {
            steps++;
        }
        open_world(&world, size, false, &options);
        for (int r = 0; r < size; r++) {
            start(&world, r); /* all: residuals are not zero */
        }
        run(&world);
        for (int r = 0; r < size; r++) {
            assert_true(take(&world, r));
        }
        uint64_t before = baton_sim_totals(world.sim).bytes;
        start(&world, 0);
        run(&world);
        uint64_t bytes = baton_sim_totals(world.sim).bytes - before;
        /* A quota is one entry at least. */
        size_t k = options.k + (size_t)size;
        assert_in_range(bytes, 1, k * entry * (steps + (unsigned)size - 1));
        for (int r = 1; r < size; r++) {
            start(&world, r); /* late: nothing more is sent */
        }
        run(&world);
        assert_int_equal(baton_sim_totals(world.sim).bytes, before + bytes);
        close_world(&world);
    }
}

/* Rank 1 is late, and asks when the group was recovered. Its gradient, which
   the recovery has left pending, is taken by rank 0's epoch before rank 1
   starts again: so the step that it starts then is late, too. */
static void test_sparse_partial_is_late_after_a_recovery(void **state)
{
    for (int asks_before = 0; asks_before < 2; asks_before++) {
        baton_sparse_options_t options = some_options();
        world_t world;
        open_world(&world, 2, false, &options);
        for (int r = 0; r < 2; r++) {
            start(&world, r);
            run(&world);
        }
        for (int r = 0; r < 2 && asks_before != 0; r++) {
            assert_int_equal(take(&world, r), r == 0);
        }
        recover(&world);
        for (int r = 0; r < 2 && asks_before == 0; r++) {
            assert_int_equal(take(&world, r), r == 0);
        }
        for (int r = 0; r < 2; r++) {
            start(&world, r);
            run(&world);
            assert_int_equal(take(&world, r), r == 0);
        }
        close_world(&world);
    }
}

/* ---- between steps, and options ---------------------------------------- */

static void test_sparse_partial_refuses_what_it_cannot_do(void **state)
{
    baton_sparse_options_t options = some_options();
    world_t world;
    open_world(&world, 2, false, &options);
    baton_sparse_t *sparse = world.ranks[0];
    support_expect(baton_sparse_flush(sparse), BATON_ERR_UNSUPPORTED);
    support_expect(baton_sparse_set_k(sparse, 1), BATON_ERR_UNSUPPORTED);
    support_expect(baton_sparse_set_density(sparse, 0.1),
                   BATON_ERR_UNSUPPORTED);
    support_expect(baton_sparse_save(sparse, "/tmp/x"), BATON_ERR_UNSUPPORTED);
    support_expect(baton_sparse_load(sparse, "/tmp/x"), BATON_ERR_UNSUPPORTED);
    support_says("it was created with options.partial");
    close_world(&world);
}

/* Scaled by 0, all of what ranks hold is gone, pending gradients too. */
static void test_sparse_partial_scales_all_of_the_residual(void **state)
{
    baton_sparse_options_t options = some_options();
    world_t world;
    open_world(&world, 3, false, &options);
    for (int r = 0; r < world.size; r++) {
        start(&world, r);
        run(&world);
        (void)take(&world, r);
        support_ok(baton_sparse_scale_residual(world.ranks[r], 0));
        support_ok(baton_sparse_residual(world.ranks[r], world.vector));
        for (int i = 0; i < COUNT; i++) {
            assert_true(world.vector[i] == 0);
        }
    }
    close_world(&world);
}

static void test_sparse_partial_clips_when_it_starts(void **state)
{
    baton_sparse_options_t options = some_options();
    options.clip = 1;
    options.k = options.count;
    world_t world;
    open_world(&world, 1, false, &options);
    start(&world, 0);
    support_ok(baton_sparse_wait(world.ranks[0], -1, &world.result));
    double norm = 0;
    for (size_t i = 0; i < world.result.count; i++) {
        double value = ((const double *)world.result.values)[i];
        norm += value * value;
    }
    assert_true(norm > 1 - 1e-12 && norm < 1 + 1e-12);
    close_world(&world);
}

typedef struct bad {
    const char *says;
    baton_sparse_options_t options;
} bad_t;

#define BAD(...)                                                               \
    {                                                                          \
        .size = sizeof(baton_sparse_options_t), .count = 10, .k = 2,           \
        __VA_ARGS__                                                            \
    }

static void test_sparse_partial_refuses_bad_options(void **state)
{
    static const bad_t all[] = {
        {"mode is 1; allowed without partial: 0", BAD(.mode = BATON_MAJORITY)},
        {"history is 2; allowed without partial: 0", BAD(.history = 2)},
        {"mode_ranks, the q of QUORUM(q), is 3, must be 1 to 2",
         BAD(.partial = true, .mode = BATON_QUORUM, .mode_ranks = 3)},
        {"algorithm is oktopk; allowed with partial: auto, spardl",
         BAD(.partial = true, .algorithm = BATON_SPARSE_OKTOPK)},
        {"momentum is 0.5; allowed with partial, unless by spardl: 0",
         BAD(.partial = true, .momentum = 0.5,
             .algorithm = BATON_SPARSE_TOPKA)},
        {"warmup is 3; allowed with partial: 0",
         BAD(.partial = true, .warmup = 3)},
        {"max_staleness is 1048577; allowed: 0 to 1048576",
         BAD(.partial = true, .max_staleness = (1 << 20) + 1)},
    };
    baton_sim_options_t model = support_sim_options(2);
    baton_sim_t *sim = support_sim_open(&model);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        baton_sparse_t *both[2];
        for (int r = 0; r < 2; r++) {
            support_ok(baton_sparse_prepare(baton_sim_group(sim, r),
                                            &all[i].options, &both[r]));
        }
        for (int r = 0; r < 2; r++) {
            support_expect(baton_sparse_connect(both[r], -1),
                           BATON_ERR_INVALID);
            support_says(all[i].says);
        }
        support_ok(baton_sparse_destroy(both[0]));
        support_ok(baton_sparse_destroy(both[1]));
    }
    support_ok(baton_sim_destroy(sim));
}

/* Without payload the same epochs run. */
static void test_sparse_partial_runs_without_payload(void **state)
{
    baton_sparse_options_t options = some_options();
    world_t world;
    open_world(&world, 5, true, &options);
    for (int r = 0; r < world.size; r++) {
        support_ok(baton_sparse_start(world.ranks[r], NULL));
        run(&world);
        assert_int_equal(take(&world, r), r == 0);
        assert_int_equal(world.result.count, 0);
    }
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparse_partial_sends_little_for_one_rank),
        cmocka_unit_test(test_sparse_partial_is_late_after_a_recovery),
        cmocka_unit_test(test_sparse_partial_refuses_what_it_cannot_do),
        cmocka_unit_test(test_sparse_partial_scales_all_of_the_residual),
        cmocka_unit_test(test_sparse_partial_clips_when_it_starts),
        cmocka_unit_test(test_sparse_partial_refuses_bad_options),
        cmocka_unit_test(test_sparse_partial_runs_without_payload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
