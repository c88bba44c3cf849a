/* Partial broadcast, reduce, all-gather and reduce-scatter, in every mode: an
   inner collective from `count` elements to `result_count`. */
#include "support/random.h"
#include "support/sim.h"

#include <baton/coll.h>
#include <baton/partial.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LARGEST = 9, WIDTH = 3, STEPS = 30 };

/* Of each rank, what the result must be: the sums of what was taken. */
typedef struct world {
    baton_sim_t *sim;
    int size;
    size_t count, result_count;
    uint64_t step;
    support_random_t random;
    bool only_root;
    uint64_t sum[LARGEST][LARGEST * WIDTH]; /* contributed, by rank */
    uint64_t results[LARGEST * WIDTH];
    struct rank {
        struct world *world;
        baton_partial_t *partial;
        uint64_t seen[LARGEST * WIDTH]; /* sum of its results */
    } ranks[LARGEST];
} world_t;

static int root = 1;

static void arrive(void *arg)
{
    struct rank *rank = arg;
    world_t *world = rank->world;
    int r = (int)(rank - world->ranks);
    uint64_t data[LARGEST * WIDTH];
    for (size_t i = 0; i < world->count; i++) {
        data[i] = support_random_next(&world->random);
    }
    if (!world->only_root || r == root) {
        for (size_t i = 0; i < world->count; i++) {
            world->sum[r][i] += data[i];
        }
        support_ok(baton_partial_contribute(rank->partial, data));
    }
    support_ok(baton_partial_start(rank->partial));
}

/* The last step is full, so that nothing stays pending: ranks contribute
   nothing new in it. */
static void run_steps(world_t *world)
{
    for (int s = 1; s <= STEPS; s++) {
        double now_us = baton_sim_now_us(world->sim);
        for (int r = 0; r < world->size; r++) {
            support_ok(baton_sim_at(
                world->sim,
                now_us + (double)support_random_below(&world->random, 500),
                arrive, &world->ranks[r]));
        }
        support_ok(baton_sim_run(world->sim, -1));
        for (int r = 0; r < world->size; r++) {
            struct rank *rank = &world->ranks[r];
            baton_partial_result_t seen;
            support_ok(baton_partial_wait(rank->partial, -1, &seen));
            assert_int_equal(seen.epoch, s);
            for (size_t i = 0; i < world->result_count; i++) {
                rank->seen[i] += ((const uint64_t *)seen.data)[i];
            }
        }
    }
}

static void open_world(world_t *world, int size, baton_partial_choice_t mode,
                       size_t count, size_t result_count,
                       baton_allreduce_fn inner)
{
    baton_sim_options_t model = support_sim_options(size);
    model.link = (baton_sim_link_t){.alpha_us = 3};
    *world = (world_t){.sim = support_sim_open(&model),
                       .size = size,
                       .count = count,
                       .result_count = result_count,
                       .random = support_random(support_seed(), 9)};
    root = size > 1 ? 1 : 0;
    const baton_partial_options_t options = {.size = sizeof options,
                                             .mode = mode.mode,
                                             .mode_ranks = mode.mode_ranks,
                                             .sync_every = STEPS,
                                             .count = count,
                                             .result_count = result_count,
                                             .dtype = BATON_U64,
                                             .inner = inner,
                                             .inner_arg = &root};
    for (int r = 0; r < size; r++) {
        world->ranks[r].world = world;
        support_ok(baton_partial_create(baton_sim_group(world->sim, r),
                                        &options, &world->ranks[r].partial));
    }
}

static void close_world(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_partial_destroy(world->ranks[r].partial));
    }
    support_ok(baton_sim_destroy(world->sim));
}

static void expect_sum(const world_t *world, int rank, size_t at,
                       uint64_t expected)
{
    if (world->ranks[rank].seen[at] != expected) {
        fail_msg("rank %d of %d, element %d: results don't add up", rank,
                 world->size, (int)at);
    }
}

static uint64_t sum_of(const world_t *world, size_t at)
{
    uint64_t sum = 0;
    for (int r = 0; r < world->size; r++) {
        sum += world->sum[r][at];
    }
    return sum;
}

typedef void (*case_fn)(int size, baton_partial_choice_t mode);

static void run_modes(case_fn run)
{
    for (int size = 1; size <= LARGEST; size++) {
        run(size, (baton_partial_choice_t){BATON_SOLO, 0});
        run(size, (baton_partial_choice_t){BATON_MAJORITY, 0});
        run(size, (baton_partial_choice_t){BATON_FULL, 0});
        run(size,
            (baton_partial_choice_t){BATON_QUORUM, ((uint32_t)size + 1) / 2});
        run(size, (baton_partial_choice_t){BATON_CANDIDATES_ALL, 1});
    }
}

static void run_broadcast(int size, baton_partial_choice_t mode)
{
    world_t world;
    open_world(&world, size, mode, WIDTH, WIDTH, baton_partial_broadcast);
    world.only_root = true;
    run_steps(&world);
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < WIDTH; i++) {
            expect_sum(&world, r, i, world.sum[root][i]);
        }
    }
    close_world(&world);
}

static void test_partial_broadcast(void **state)
{
    (void)state;
    run_modes(run_broadcast);
}

/* Each rank sends its block to all others. */
static void gather(baton_schedule_t *s, const baton_allreduce_t *args)
{
    int rank = baton_schedule_rank(s);
    for (int r = 0; r < baton_schedule_size(s); r++) {
        baton_view_t block = args->target;
        block.offset += (size_t)r * args->source.bytes;
        block.bytes = args->source.bytes;
        if (r == rank) {
            (void)baton_add_copy(s, block, args->source);
        } else {
            (void)baton_add_send(s, r, args->source);
            (void)baton_add_recv(s, r, block);
        }
    }
}

static void run_gather(int size, baton_partial_choice_t mode)
{
    world_t world;
    open_world(&world, size, mode, WIDTH, (size_t)size * WIDTH, gather);
    run_steps(&world);
    for (int r = 0; r < size; r++) {
        for (int from = 0; from < size; from++) {
            for (size_t i = 0; i < WIDTH; i++) {
                expect_sum(&world, r, (size_t)from * WIDTH + i,
                           world.sum[from][i]);
            }
        }
    }
    close_world(&world);
}

static void test_partial_allgather(void **state)
{
    (void)state;
    run_modes(run_gather);
}

/* All of the sum in scratch, then `part` of it, if any, to the target. */
static void reduce_part(baton_schedule_t *s, const baton_allreduce_t *args,
                        size_t offset, size_t bytes)
{
    baton_allreduce_t all = *args;
    all.target = baton_view(baton_buffer_scratch(s, args->source.bytes), 0,
                            args->source.bytes);
    baton_node_t entry = baton_add_nop(s);
    baton_node_t exit = baton_add_nop(s);
    baton_enclosure_t inside = baton_enclose_begin(s);
    baton_allreduce_recursive_doubling(s, &all);
    baton_enclose_end(s, inside, entry, exit);
    if (bytes > 0) {
        baton_view_t part = baton_view(all.target.buffer, offset, bytes);
        baton_before(s, exit, baton_add_copy(s, args->target, part));
    }
}

static void reduce(baton_schedule_t *s, const baton_allreduce_t *args)
{
    bool here = baton_schedule_rank(s) == *(const int *)args->arg;
    reduce_part(s, args, 0, here ? args->target.bytes : 0);
}

static void run_reduce(int size, baton_partial_choice_t mode)
{
    world_t world;
    open_world(&world, size, mode, WIDTH, WIDTH, reduce);
    run_steps(&world);
    for (size_t i = 0; i < WIDTH; i++) {
        expect_sum(&world, root, i, sum_of(&world, i));
    }
    close_world(&world);
}

static void test_partial_reduce(void **state)
{
    (void)state;
    run_modes(run_reduce);
}

static void scatter(baton_schedule_t *s, const baton_allreduce_t *args)
{
    reduce_part(s, args, (size_t)baton_schedule_rank(s) * args->target.bytes,
                args->target.bytes);
}

static void run_scatter(int size, baton_partial_choice_t mode)
{
    world_t world;
    open_world(&world, size, mode, (size_t)size * WIDTH, WIDTH, scatter);
    run_steps(&world);
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < WIDTH; i++) {
            expect_sum(&world, r, i, sum_of(&world, (size_t)r * WIDTH + i));
        }
    }
    close_world(&world);
}

static void test_partial_reduce_scatter(void **state)
{
    (void)state;
    run_modes(run_scatter);
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

static void test_partial_collectives_wrong_options(void **state)
{
    (void)state;
    int nobody = 7;
    baton_partial_options_t options = {.size = sizeof options,
                                       .count = 2,
                                       .result_count = 2,
                                       .dtype = BATON_U64};
    expect_refused(&options, "result_count is 2");
    options.inner = baton_partial_broadcast;
    expect_refused(&options, "inner_arg is NULL");
    options.inner_arg = &nobody;
    expect_refused(&options, "root is 7");
    options.result_count = 3;
    expect_refused(&options, "result_count must be count");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partial_broadcast),
        cmocka_unit_test(test_partial_allgather),
        cmocka_unit_test(test_partial_reduce),
        cmocka_unit_test(test_partial_reduce_scatter),
        cmocka_unit_test(test_partial_collectives_wrong_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
