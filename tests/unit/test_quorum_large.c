/* QUORUM of 32 ranks over 10,000 epochs, and of so many that the root answers
   its leaders: exact, and with few more ranks when they arrive in a burst. */
#include "support/arrivals.h"
#include "support/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_quorum_of_32_in_every_epoch(void **state)
{
    (void)state;
    uint32_t quorums[5];
    size_t count = arrivals_quorums(32, quorums);
    for (size_t i = 0; i < count; i++) {
        arrivals_run_quorum(32, quorums[i], SUPPORT_REPEAT(10000));
    }
}

/* 170 = 12 * 14 + 2: the last group is short. 196 = 14 * 14: a rank may be the
   root and a leader of the same peer. */
static void test_quorum_of_many_is_exact(void **state)
{
    (void)state;
    static const int sizes[] = {144, 145, 170, 196};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t quorums[5];
        size_t count = arrivals_quorums(sizes[i], quorums);
        for (size_t k = 0; k < count; k++) {
            arrivals_run_quorum(sizes[i], quorums[k], 4);
        }
    }
}

/* Two of 400 ranks arrive in each microsecond, and the root takes one message
   a microsecond. */
static void test_quorum_of_a_burst(void **state)
{
    (void)state;
    enum { RANKS = 400, QUORUM = 200, EPOCHS = 2 };
    static arrivals_t world;
    const baton_partial_options_t options =
        arrivals_options(BATON_QUORUM, QUORUM);
    arrivals_open(&world, RANKS, &options);
    arrivals_step(&world, IN_TURN); /* introductions come before it */
    uint64_t before = baton_sim_totals(world.sim).messages;
    world.apart_us = 0.5;
    for (int i = 0; i < EPOCHS; i++) {
        arrivals_step(&world, SHUFFLED);
        uint64_t after = baton_sim_totals(world.sim).messages;
        /* All 400 are, where each arrival is a message. */
        assert_in_range(world.included, QUORUM, 3 * QUORUM / 2);
        /* 3 P for the inner all-reduce and the activation; less than 2 P, and
           here less than 3 P / 2, for counting. */
        assert_in_range(after - before, 0, 9 * RANKS / 2);
        before = after;
    }
    arrivals_expect_conserved(&world);
    arrivals_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quorum_of_32_in_every_epoch),
        cmocka_unit_test(test_quorum_of_many_is_exact),
        cmocka_unit_test(test_quorum_of_a_burst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
