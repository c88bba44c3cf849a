/* Sparse all-reduces of gradients in device memory, against those of the host:
   the same selections, results and residuals, to the last bit, whether the
   device selects or the host does; and the state between steps. */
#include "support/cmocka.h"
#include "support/device_sparse.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t seed;

static const baton_dtype_t dtypes[] = {BATON_F32, BATON_F64, BATON_F16,
                                       BATON_BF16};

static baton_sparse_options_t options_of(baton_sparse_algorithm_t algorithm,
                                         size_t count, size_t k)
{
    return (baton_sparse_options_t){.size = sizeof(baton_sparse_options_t),
                                    .algorithm = algorithm,
                                    .count = count,
                                    .dtype = BATON_F32,
                                    .k = k};
}

/* ---- steps ------------------------------------------------------------- */

/* All algorithms, and options in turns. */
static void compare_all(device_sparse_t *world, int turn)
{
    for (int a = BATON_SPARSE_SPARDL; a < BATON_SPARSE_COUNT; a++, turn++) {
        baton_sparse_options_t options =
            options_of((baton_sparse_algorithm_t)a, 601, 24);
        options.dtype = dtypes[turn % 4];
        options.average = turn % 2 == 0;
        options.clip = turn % 5 == 0 ? 2 : 0;
        options.warmup = turn % 4 == 1 ? 2 : 0;
        options.momentum = turn % 3 == 2 ? 0.5 : 0;
        options.nesterov = turn % 6 == 2;
        device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
        device_sparse_compare(world, turn % 2 == 0);
        device_sparse_destroy(world);
    }
}

/* With four teams what one pair drops may be in the result, as another has kept
   it. */
static void compare_teams(device_sparse_t *world, int teams)
{
    static const baton_teams_t exchanges[] = {BATON_TEAMS_RSAG,
                                              BATON_TEAMS_BSAG};
    for (int i = 0; i < 2; i++) {
        baton_sparse_options_t options =
            options_of(BATON_SPARSE_SPARDL, 601, 80);
        options.dtype = dtypes[i];
        options.teams = teams;
        options.exchange = exchanges[i];
        device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
        device_sparse_compare(world, true);
        device_sparse_destroy(world);
    }
}

static void test_every_algorithm(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (int i = 0; i < 10; i++) {
        device_sparse_t *world = device_sparse_open(
            sizes[i / 2], SUPPORT_OWN_ENGINES, seed, i % 2 == 1);
        compare_all(world, 7 * i);
        if (world->size % 4 == 0) {
            compare_teams(world, 4);
        }
        device_sparse_close(world);
    }
}

/* RedSync's i-th way to select: how, and whether values are quantised; false
   where that is none. */
static bool redsync_options(int i, baton_sparse_options_t *out)
{
    *out = options_of(BATON_SPARSE_REDSYNC, 700, 20);
    out->redsync = (baton_redsync_t)(i % 4);
    out->quantise = i >= 4;
    out->keep_error = i >= 8;
    return i < 12 && !(out->quantise && out->redsync == BATON_REDSYNC_SAMPLED);
}

static void test_redsync(void **state)
{
    for (int size = 1; size <= 3; size += 2) {
        device_sparse_t *world =
            device_sparse_open(size, SUPPORT_OWN_ENGINES, seed, false);
        for (int i = 0; i < 12; i++) {
            baton_sparse_options_t options;
            if (!redsync_options(i, &options)) {
                continue;
            }
            options.dtype = dtypes[(i + size) % 4];
            options.momentum = i % 3 == 0 ? 0.5 : 0;
            device_sparse_create(world, &options,
                                 i % 2 == 0 ? DEVICE_SPARSE_ANY
                                            : DEVICE_SPARSE_TIES);
            device_sparse_compare(world, i % 2 == 0);
            device_sparse_destroy(world);
        }
        device_sparse_close(world);
    }
}

/* Runs some steps; what goes to the device and comes from it is a small part of
   the gradients. */
static void expect_entries_alone(device_sparse_t *world,
                                 const baton_sparse_options_t *options)
{
    emulated_t *device = world->ranks->devices[0];
    device_sparse_create(world, options, DEVICE_SPARSE_ANY);
    emulated_counters_t before = emulated_counters(device);
    for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
        device_sparse_run_step(world, step);
    }
    emulated_counters_t after = emulated_counters(device);
    uint64_t most = DEVICE_SPARSE_STEPS * world->bytes / 20;
    assert_true(after.on_entries > before.on_entries);
    for (int i = 0; i < EMULATED_DIRECTIONS; i++) {
        assert_in_range(after.copied_bytes[i] - before.copied_bytes[i], 0,
                        most);
    }
    assert_int_equal(after.unpinned, before.unpinned);
    device_sparse_destroy(world);
}

static void test_entries_alone_are_copied(void **state)
{
    baton_sparse_options_t options;
    device_sparse_t *world =
        device_sparse_open(2, SUPPORT_OWN_ENGINES, seed, false);
    for (int a = BATON_SPARSE_SPARDL; a < BATON_SPARSE_DENSE; a++) {
        options = options_of((baton_sparse_algorithm_t)a, 5000, 10);
        expect_entries_alone(world, &options);
    }
    for (int i = 0; i < 12; i++) {
        if (redsync_options(i, &options)) {
            options.count = 5000;
            options.k = 10;
            expect_entries_alone(world, &options);
        }
    }
    device_sparse_close(world);
}

/* Options that an algorithm allows, at random. */
static baton_sparse_options_t any_options(support_random_t *random, int size)
{
    static const baton_sparse_algorithm_t algorithms[] = {
        BATON_SPARSE_SPARDL, BATON_SPARSE_SPARDL,  BATON_SPARSE_TOPKA,
        BATON_SPARSE_GTOPK,  BATON_SPARSE_TOPKDSA, BATON_SPARSE_OKTOPK,
        BATON_SPARSE_OKTOPK, BATON_SPARSE_REDSYNC};
    static const size_t counts[] = {1, 2, 7, 64, 600, 5000, DEVICE_SPARSE_MOST};
    size_t count = 1 + support_random_below(
                           random, counts[support_random_below(random, 7)]);
    size_t share = 1 + support_random_below(random, 40);
    baton_sparse_options_t options =
        options_of(algorithms[support_random_below(random, 8)], count,
                   (count + share - 1) / share);
    options.dtype = dtypes[support_random_below(random, 4)];
    options.average = support_random_below(random, 2) != 0;
    options.warmup = support_random_below(random, 4) == 0 ? 1 : 0;
    options.clip = support_random_below(random, 3) == 0 ? 5 : 0;
    if (support_random_below(random, 3) == 0) {
        options.momentum = 0.9;
        options.nesterov = support_random_below(random, 2) != 0;
    }
    if (options.algorithm == BATON_SPARSE_SPARDL && size > 1) {
        options.teams = support_random_below(random, 2) == 0 ? size : 1;
        options.teams = size == 8 ? 4 : options.teams;
        options.exchange = (baton_teams_t)(support_random_below(random, 2) == 0
                                               ? BATON_TEAMS_AUTO
                                               : BATON_TEAMS_BSAG);
    }
    if (options.algorithm == BATON_SPARSE_REDSYNC) {
        options.redsync = (baton_redsync_t)support_random_below(random, 4);
        options.quantise = options.redsync != BATON_REDSYNC_SAMPLED &&
                           support_random_below(random, 2) != 0;
        options.keep_error =
            options.quantise && support_random_below(random, 2) != 0;
    }
    return options;
}

static void test_random_sizes_and_data(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    support_random_t random = support_random(seed, 31);
    for (int i = 0; i < 5; i++) {
        device_sparse_t *world =
            device_sparse_open(sizes[i], SUPPORT_OWN_ENGINES, seed, false);
        for (int trial = 0; trial < 10; trial++) {
            baton_sparse_options_t options = any_options(&random, sizes[i]);
            device_sparse_create(
                world, &options,
                (device_sparse_data_t)(trial % DEVICE_SPARSE_KINDS));
            device_sparse_compare(world, trial % 2 == 0);
            device_sparse_destroy(world);
        }
        device_sparse_close(world);
    }
}

/* ---- between steps ----------------------------------------------------- */

enum { RANKS = 3 };

static void run_both(device_sparse_t *world, int step)
{
    device_sparse_run_on_host(world, step);
    device_sparse_run_step(world, step);
    for (int rank = 0; rank < world->size; rank++) {
        device_sparse_check(world, rank, step);
    }
}

/* A dense step without a gradient: velocity stays as it is. */
static void flush_both(device_sparse_t *world)
{
    for (int i = 0; i < 2; i++) {
        baton_sparse_t *both[RANKS];
        for (int rank = 0; rank < world->size; rank++) {
            const device_sparse_rank_t *mine = &world->rank[rank];
            both[rank] = i == 0 ? mine->host : mine->device;
            support_ok(baton_sparse_flush(both[rank]));
        }
        for (int rank = 0; rank < world->size; rank++) {
            baton_sparse_result_t result = {0};
            support_ok(baton_sparse_wait(both[rank], SUPPORT_WAIT_MS, &result));
        }
    }
}

/* set_k, scale and statistics, before the first step and behind it. */
static void change_state(device_sparse_t *world, int step)
{
    for (int rank = 0; rank < world->size; rank++) {
        const device_sparse_rank_t *mine = &world->rank[rank];
        baton_sparse_t *both[] = {mine->host, mine->device};
        baton_sparse_stats_t stats[2];
        for (int i = 0; i < 2; i++) {
            support_ok(baton_sparse_set_k(both[i], (size_t)(3 + 7 * step)));
            support_ok(baton_sparse_scale_residual(both[i], 0.7));
            support_ok(baton_sparse_stats(both[i], &stats[i]));
        }
        assert_true(stats[0].residual_norm == stats[1].residual_norm);
        assert_int_equal(stats[0].messages_sent, stats[1].messages_sent);
        assert_int_equal(stats[0].bytes_sent, stats[1].bytes_sent);
        assert_int_equal(stats[0].bytes_received, stats[1].bytes_received);
        assert_int_equal(stats[0].block_selections, stats[1].block_selections);
        assert_int_equal(stats[0].rounds, stats[1].rounds);
        assert_int_equal(stats[0].nnz, stats[1].nnz);
        assert_true(stats[0].threshold == stats[1].threshold);
        assert_int_equal(stats[0].h, stats[1].h);
    }
    device_sparse_check_residuals(world);
}

static void test_state_between_steps(void **state)
{
    static const baton_sparse_algorithm_t algorithms[] = {
        BATON_SPARSE_SPARDL,  BATON_SPARSE_TOPKA,   BATON_SPARSE_GTOPK,
        BATON_SPARSE_TOPKDSA, BATON_SPARSE_REDSYNC, BATON_SPARSE_OKTOPK};
    for (int i = 0; i < 6; i++) {
        device_sparse_t *world =
            device_sparse_open(RANKS, SUPPORT_OWN_ENGINES, seed, false);
        baton_sparse_options_t options = options_of(algorithms[i], 300, 8);
        options.max_k = 60;
        options.dtype = dtypes[i % 4];
        options.momentum = i % 2 == 0 ? 0.25 : 0;
        options.warmup = i == 2 ? 2 : 0;
        device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
        for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
            change_state(world, step);
            if (step == 3) {
                flush_both(world);
            }
            run_both(world, step);
        }
        device_sparse_destroy(world);
        device_sparse_close(world);
    }
}

/* f32 elements, equal but for their signs and one in `every`, which is large:
   so a threshold is reached by all of the others, or by none. */
static void fill_with(device_sparse_t *world, int step, size_t every,
                      float value)
{
    for (int rank = 0; rank < world->size; rank++) {
        char *gradient = world->rank[rank].gradients[step];
        for (size_t i = 0; i < world->count; i++) {
            size_t at = i + (size_t)rank;
            float element = at % every == 0 ? 64 : value;
            element = at % 3 == 0 ? -element : element;
            memcpy(gradient + i * sizeof element, &element, sizeof element);
        }
    }
}

/* All that a threshold of Ok-Topk may meet: more elements than there is room
   for, fewer than k, none; raised, and searched again in step 32; and bounds
   that move in step 64. */
static void test_thresholds_over_many_steps(void **state)
{
    device_sparse_t *world =
        device_sparse_open(RANKS, SUPPORT_OWN_ENGINES, seed, false);
    baton_sparse_options_t options = options_of(BATON_SPARSE_OKTOPK, 600, 20);
    options.momentum = 0.25;
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    fill_with(world, 1, 700, 1);
    fill_with(world, 2, 18, 0.5F);
    fill_with(world, 3, 30, 0);
    fill_with(world, 4, 700, 0);
    for (int step = 0; step < 70; step++) {
        run_both(world, step < 35 ? step / 6 : step % DEVICE_SPARSE_STEPS);
        device_sparse_check_residuals(world);
    }
    device_sparse_destroy(world);
    device_sparse_close(world);
}

static void path_of(char path[64], int rank)
{
    snprintf(path, 64, "/tmp/baton-selection-%d-%d", (int)getpid(), rank);
}

/* Files of either kind are read by both. */
static void exchange_files(device_sparse_t *world, bool from_device)
{
    for (int rank = 0; rank < world->size; rank++) {
        char path[64];
        const device_sparse_rank_t *mine = &world->rank[rank];
        path_of(path, rank);
        support_ok(
            baton_sparse_save(from_device ? mine->device : mine->host, path));
        support_ok(baton_sparse_load(mine->device, path));
        support_ok(baton_sparse_load(mine->host, path));
        assert_int_equal(remove(path), 0);
    }
    device_sparse_check_residuals(world);
}

static void test_files(void **state)
{
    for (int i = 0; i < 4; i++) {
        device_sparse_t *world =
            device_sparse_open(RANKS, SUPPORT_OWN_ENGINES, seed, false);
        baton_sparse_options_t options = options_of(
            i < 2 ? BATON_SPARSE_SPARDL : BATON_SPARSE_OKTOPK, 300, 20);
        options.momentum = i % 2 == 0 ? 0.5 : 0;
        device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
        exchange_files(world, true); /* before a step */
        for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
            run_both(world, step);
            if (step % 2 == 1) {
                exchange_files(world, step == 1);
            }
        }
        device_sparse_destroy(world);
        device_sparse_close(world);
    }
}

/* What is in a file replaces what the device has: a step later it is undone;
   and what a device has that has made no step. Step 2 has a threshold of its
   own, where there are thresholds: more elements reach an earlier one than
   there is room for. */
static void go_back(const baton_sparse_options_t *options)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, false);
    static char before[DEVICE_SPARSE_BYTES], after[DEVICE_SPARSE_BYTES];
    char path[64];
    device_sparse_create(world, options, DEVICE_SPARSE_ANY);
    fill_with(world, 2, 2, 32);
    baton_sparse_t *sparse = world->rank[0].device;
    path_of(path, 0);
    device_sparse_run_step(world, 0);
    support_ok(baton_sparse_save(sparse, path));
    device_sparse_run_step(world, 1);
    support_ok(baton_sparse_residual(sparse, before));
    device_sparse_run_step(world, 2);
    support_ok(baton_sparse_load(sparse, path));
    device_sparse_run_step(world, 1);
    support_ok(baton_sparse_residual(sparse, after));
    assert_memory_equal(before, after, world->bytes);
    device_sparse_destroy(world);
    device_sparse_create(world, options, DEVICE_SPARSE_ANY);
    sparse = world->rank[0].device;
    support_ok(baton_sparse_load(sparse, path));
    device_sparse_run_step(world, 1);
    support_ok(baton_sparse_residual(sparse, after));
    assert_memory_equal(before, after, world->bytes);
    assert_int_equal(remove(path), 0);
    device_sparse_destroy(world);
    device_sparse_close(world);
}

static void test_load_goes_back(void **state)
{
    static const baton_sparse_algorithm_t algorithms[] = {
        BATON_SPARSE_SPARDL, BATON_SPARSE_OKTOPK, BATON_SPARSE_REDSYNC};
    for (int i = 0; i < 3; i++) {
        baton_sparse_options_t options = options_of(algorithms[i], 300, 20);
        options.momentum = 0.5;
        options.redsync = BATON_REDSYNC_SAMPLED;
        go_back(&options);
    }
}

/* A copy that fails leaves the state as it was, and the next one works. */
static void test_failed_copy(void **state)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, false);
    baton_sparse_options_t options = options_of(BATON_SPARSE_TOPKA, 300, 20);
    static char before[DEVICE_SPARSE_BYTES], after[DEVICE_SPARSE_BYTES];
    char path[64];
    options.momentum = 0.5;
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    baton_sparse_t *sparse = world->rank[0].device;
    emulated_t *device = world->ranks->devices[0];
    path_of(path, 0);
    device_sparse_run_step(world, 0);
    support_ok(baton_sparse_save(sparse, path));
    device_sparse_run_step(world, 1);
    support_ok(baton_sparse_residual(sparse, before));
    for (int k = 1; k <= 4; k++) {
        emulated_fail_work(device, k < 3 ? k : 1);
        if (k < 3) {
            support_expect(baton_sparse_load(sparse, path), BATON_ERR_SYSTEM);
        } else if (k == 3) {
            support_expect(baton_sparse_scale_residual(sparse, 2),
                           BATON_ERR_SYSTEM);
        } else {
            support_expect(baton_sparse_residual(sparse, after),
                           BATON_ERR_SYSTEM);
        }
        support_says("a vector of the device");
        emulated_fail_work(device, 0);
        emulated_repair(device);
        support_ok(baton_sparse_residual(sparse, after));
        assert_memory_equal(before, after, world->bytes);
    }
    assert_int_equal(remove(path), 0);
    device_sparse_destroy(world);
    device_sparse_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_algorithm),
        cmocka_unit_test(test_redsync),
        cmocka_unit_test(test_entries_alone_are_copied),
        cmocka_unit_test(test_random_sizes_and_data),
        cmocka_unit_test(test_state_between_steps),
        cmocka_unit_test(test_thresholds_over_many_steps),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_load_goes_back),
        cmocka_unit_test(test_failed_copy),
    };
    seed = support_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
