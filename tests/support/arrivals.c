/* See arrivals.h. */
#include "support/arrivals.h"

#include "support/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

void arrivals_open(arrivals_t *world, int size,
                   const baton_partial_options_t *options)
{
    arrivals_open_on_hosts(world, size, 1, options);
}

void arrivals_open_on_hosts(arrivals_t *world, int size, int host_ranks,
                            const baton_partial_options_t *options)
{
    baton_sim_options_t model = support_sim_options(size);
    model.link = (baton_sim_link_t){.alpha_us = 1};
    model.host_ranks = host_ranks;
    model.host_link = model.link;
    *world = (arrivals_t){.sim = support_sim_open(&model),
                          .size = size,
                          .apart_us = 1000,
                          .random = support_random(support_seed(), 17)};
    for (int r = 0; r < size; r++) {
        world->ranks[r].world = world;
        support_ok(baton_partial_create(baton_sim_group(world->sim, r), options,
                                        &world->ranks[r].partial));
    }
}

void arrivals_close(arrivals_t *world)
{
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_partial_destroy(world->ranks[r].partial));
    }
    support_ok(baton_sim_destroy(world->sim));
}

static void arrive(void *arg)
{
    struct arrivals_rank *rank = arg;
    uint64_t value = support_random_next(&rank->world->random);
    rank->world->contributed += value;
    support_ok(baton_partial_contribute(rank->partial, &value));
    support_ok(baton_partial_start(rank->partial));
}

void arrivals_step(arrivals_t *world, arrivals_order_t order)
{
    int place[ARRIVALS_RANKS];
    double now_us = baton_sim_now_us(world->sim);
    world->epoch++;
    for (int r = 0; r < world->size; r++) {
        int other = (int)support_random_below(&world->random, (uint64_t)r + 1);
        place[r] = order == SHUFFLED ? place[other] : r;
        place[order == SHUFFLED ? other : r] = r;
    }
    for (int r = 0; r < world->size; r++) {
        double late_us = order == TOGETHER ? 0
                         : order == RANDOM
                             ? (double)support_random_below(&world->random, 40)
                             : (double)place[r] * world->apart_us;
        support_ok(baton_sim_at(world->sim, now_us + late_us, arrive,
                                &world->ranks[r]));
    }
    support_ok(baton_sim_run(world->sim, -1));
    world->included = 0;
    for (int r = 0; r < world->size; r++) {
        baton_partial_result_t seen;
        support_ok(baton_partial_wait(world->ranks[r].partial, -1, &seen));
        assert_int_equal(seen.epoch, world->epoch);
        world->included += seen.included;
        uint64_t result = *(const uint64_t *)seen.data;
        if (r == 0) {
            world->results += result;
            world->active = seen.active;
        }
        assert_int_equal(seen.active, world->active);
    }
}

void arrivals_expect_conserved(arrivals_t *world)
{
    uint64_t pending = 0;
    for (int r = 0; r < world->size; r++) {
        uint64_t mine = 0;
        bool any;
        support_ok(baton_partial_pending(world->ranks[r].partial, &mine, &any));
        pending += mine;
    }
    assert_true(world->results + pending == world->contributed);
}

baton_partial_options_t arrivals_options(baton_partial_mode_t mode,
                                         uint32_t ranks)
{
    return (baton_partial_options_t){.size = sizeof(baton_partial_options_t),
                                     .mode = mode,
                                     .mode_ranks = ranks,
                                     .seed = 3,
                                     .count = 1,
                                     .dtype = BATON_U64};
}

size_t arrivals_quorums(int size, uint32_t quorums[5])
{
    const uint32_t p = (uint32_t)size;
    const uint32_t wanted[] = {1, 2, p / 2, p - 1, p};
    size_t count = 0;
    for (size_t i = 0; i < 5; i++) {
        bool known = wanted[i] < 1;
        for (size_t k = 0; k < count; k++) {
            known |= quorums[k] == wanted[i];
        }
        if (!known) {
            quorums[count++] = wanted[i];
        }
    }
    return count;
}

void arrivals_run_quorum(int size, uint32_t q, uint64_t epochs)
{
    static arrivals_t world;
    const baton_partial_options_t options = arrivals_options(BATON_QUORUM, q);
    arrivals_open(&world, size, &options);
    for (uint64_t i = 1; i <= epochs; i++) {
        arrivals_order_t order = (arrivals_order_t)(i % 4);
        arrivals_step(&world, order);
        if (world.included < q || world.active < q) {
            fail_msg("%d ranks, quorum %u, epoch %d: %u active, %u included",
                     size, q, (int)i, world.active, world.included);
        }
        if ((order == IN_TURN || order == SHUFFLED) && world.included != q) {
            fail_msg("%d ranks, quorum %u, epoch %d: %u have arrived in time",
                     size, q, (int)i, world.included);
        }
    }
    arrivals_expect_conserved(&world);
    arrivals_close(&world);
}
