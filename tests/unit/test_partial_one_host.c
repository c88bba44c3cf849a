/* Partial all-reduces whose ranks share a host, where other activation trees
   and another inner all-reduce are taken: the modes are the same. */
#include "sched/schedule.h"
#include "support/arrivals.h"
#include "support/cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const int sizes[] = {1, 2, 3, 5, 6, 7, 8, 9, 12, 16, 32, 64, 65};
#define SIZES (sizeof sizes / sizeof sizes[0])

typedef struct mode_case {
    baton_partial_mode_t mode;
    uint32_t ranks;
    uint32_t least; /* active where ranks arrive far apart */
    uint32_t most;
} mode_case_t;

static void run_mode(int size, int host_ranks, mode_case_t of)
{
    static arrivals_t world;
    const baton_partial_options_t options = arrivals_options(of.mode, of.ranks);
    arrivals_open_on_hosts(&world, size, host_ranks, &options);
    for (int i = 0; i < 12; i++) {
        arrivals_order_t order = (arrivals_order_t)(i % 4);
        arrivals_step(&world, order);
        bool apart = order == IN_TURN || order == SHUFFLED;
        assert_in_range(world.included, of.least,
                        apart ? of.most : (uint32_t)size);
    }
    arrivals_expect_conserved(&world);
    arrivals_close(&world);
}

static void run_modes(int size, int host_ranks)
{
    uint32_t p = (uint32_t)size;
    uint32_t half = (p + 1) / 2;
    const mode_case_t cases[] = {
        {BATON_SOLO, 0, 1, 1},
        {BATON_MAJORITY, 0, 1, p},
        {BATON_FULL, 0, p, p},
        {BATON_QUORUM, half, half, half},
        {BATON_CANDIDATES_ANY, half, 1, p},
        {BATON_CANDIDATES_ALL, half, half, p},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_mode(size, host_ranks, cases[i]);
    }
}

static void test_modes_on_one_host(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        run_modes(sizes[i], sizes[i]);
    }
}

static void test_modes_on_two_hosts(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        run_modes(sizes[i], (sizes[i] + 1) / 2);
    }
}

static uint64_t messages_of(const arrivals_t *world)
{
    uint64_t messages = 0;
    for (int r = 0; r < world->size; r++) {
        baton_partial_stats_t stats;
        support_ok(baton_partial_stats(world->ranks[r].partial, &stats));
        messages += stats.messages;
    }
    return messages;
}

/* Ranks one after another: P - 1 activations, P - 1 contributions or null ones,
   and P - 1 results, whoever comes first. A rank that comes when a peer has
   begun the epoch activates nobody. */
static void test_solo_takes_three_messages_a_rank(void **state)
{
    (void)state;
    static arrivals_t world;
    const baton_partial_options_t options = arrivals_options(BATON_SOLO, 0);
    for (size_t i = 0; i < SIZES; i++) {
        arrivals_open_on_hosts(&world, sizes[i], sizes[i], &options);
        uint64_t others = (uint64_t)sizes[i] - 1;
        for (uint64_t epoch = 1; epoch <= 6; epoch++) {
            arrivals_step(&world, SHUFFLED);
            assert_int_equal(messages_of(&world), epoch * 3 * others);
        }
        world.apart_us = 2; /* they come while the epoch runs */
        uint64_t before = messages_of(&world);
        arrivals_step(&world, IN_TURN);
        assert_in_range(messages_of(&world) - before, 3 * others,
                        3 * others + others / 2 * others);
        arrivals_close(&world);
    }
}

/* What a rank sends up the tree is read where it lies: each of its parent's
   receives is a loan. (Simulated messages are not lent.) */
static void test_contributions_are_lent(void **state)
{
    (void)state;
    static const int children[] = {3, 0, 1, 0, 0}; /* of 5 ranks */
    enum { SIZE = sizeof children / sizeof children[0] };
    support_cluster_t *cluster = support_cluster_manual(SIZE);
    baton_partial_options_t options = arrivals_options(BATON_FULL, 0);
    options.inner = baton_allreduce_binomial;
    baton_partial_t *partials[SIZE];
    for (int rank = 0; rank < SIZE; rank++) {
        support_ok(baton_partial_create(cluster->groups[rank], &options,
                                        &partials[rank]));
        int loans =
            (int)baton_partial_schedule(partials[rank])->plan.loan_count;
        assert_int_equal(loans, children[rank]);
    }
    for (int rank = 0; rank < SIZE; rank++) {
        support_ok(baton_partial_destroy(partials[rank]));
    }
    support_cluster_close(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes_on_one_host),
        cmocka_unit_test(test_modes_on_two_hosts),
        cmocka_unit_test(test_solo_takes_three_messages_a_rank),
        cmocka_unit_test(test_contributions_are_lent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
