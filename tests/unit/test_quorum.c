/* QUORUM in the simulator: an epoch begins when enough ranks have arrived, not
   earlier and not later; no contribution is lost; what it takes to count them;
   and numbers of ranks that are refused. */
#include "support/arrivals.h"

#include <baton/partial.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 16};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* ---- quorum ----------------------------------------------------------- */

/* Every quorum at every size, and at sizes where the last group is short. */
static void test_quorum_of_any_number(void **state)
{
    (void)state;
    for (int size = 1; size <= 17; size++) {
        for (int q = 1; q <= size; q++) {
            arrivals_run_quorum(size, (uint32_t)q, 4 * (uint64_t)size);
        }
    }
    for (uint32_t q = 1; q <= 31; q++) {
        arrivals_run_quorum(31, q, 62);
    }
}

/* 170 = 12 * 14 + 2: the last group is short. 196 = 14 * 14: a rank may be the
   root and a leader of the same peer. */
static void test_quorum_of_many_is_exact(void **state)
{
    (void)state;
    static const int many[] = {144, 145, 170, 196};
    for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
        uint32_t quorums[5];
        size_t count = arrivals_quorums(many[i], quorums);
        for (size_t k = 0; k < count; k++) {
            arrivals_run_quorum(many[i], quorums[k], 4);
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

static uint64_t messages_of_epoch(int size, uint32_t q, arrivals_order_t order)
{
    static arrivals_t world;
    const baton_partial_options_t options = arrivals_options(BATON_QUORUM, q);
    arrivals_open(&world, size, &options);
    arrivals_step(&world, order); /* introductions come before it */
    uint64_t before = baton_sim_totals(world.sim).messages;
    uint64_t most = 0;
    for (int i = 0; i < size; i++) { /* every rank is the root once */
        arrivals_step(&world, order);
        uint64_t after = baton_sim_totals(world.sim).messages;
        most = after - before > most ? after - before : most;
        before = after;
    }
    arrivals_close(&world);
    return most;
}

/* Counting, activating, and the inner all-reduce's. */
static void test_quorum_takes_few_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        uint64_t p = (uint64_t)sizes[i];
        for (uint32_t q = 2; q < (uint32_t)p; q++) {
            uint64_t limit = 2 * (p - 1) + (p - 1) + 2 * (p - 1);
            assert_in_range(messages_of_epoch(sizes[i], q, IN_TURN), 0, limit);
            assert_in_range(messages_of_epoch(sizes[i], q, SHUFFLED), 0, limit);
            assert_in_range(messages_of_epoch(sizes[i], q, TOGETHER), 0, limit);
        }
        /* A member's arrival, and one or two reports of each other group. */
        uint64_t p1 = p - 1;
        uint64_t limit = p1 + 2 * p1 / 2 + p1 + 2 * p1;
        if (p >= 16) {
            assert_in_range(
                messages_of_epoch(sizes[i], (uint32_t)p - 1, SHUFFLED), 0,
                limit);
        }
    }
}

/* ---- what is wrong ---------------------------------------------------- */

static void refuse(baton_sim_t *sim, baton_partial_mode_t mode, uint32_t ranks,
                   const char *value, const char *range)
{
    baton_partial_t *partial = NULL;
    const baton_partial_options_t options = arrivals_options(mode, ranks);
    support_expect(
        baton_partial_create(baton_sim_group(sim, 0), &options, &partial),
        BATON_ERR_INVALID);
    assert_null(partial);
    assert_non_null(strstr(baton_error_message(), value));
    assert_non_null(strstr(baton_error_message(), range));
}

static void test_mode_ranks_out_of_range(void **state)
{
    (void)state;
    const baton_sim_options_t model = support_sim_options(4);
    baton_sim_t *sim = support_sim_open(&model);
    refuse(sim, BATON_QUORUM, 0, "is 0", "1 to 4");
    refuse(sim, BATON_QUORUM, 5, "is 5", "1 to 4");
    refuse(sim, BATON_CANDIDATES_ANY, 0, "is 0", "1 to 4");
    refuse(sim, BATON_CANDIDATES_ALL, 7, "is 7", "1 to 4");
    refuse(sim, BATON_SOLO, 2, "is 2", "must be 0");
    refuse(sim, (baton_partial_mode_t)6, 0, "is 6", "0 to 5");
    support_ok(baton_sim_destroy(sim));
}

/* Two ranks that were given different options: both are named. */
static void expect_mismatch(const baton_partial_options_t *first,
                            const baton_partial_options_t *others,
                            const char *mine, const char *theirs)
{
    enum { RANKS = 4 };
    const baton_sim_options_t model = support_sim_options(RANKS);
    baton_sim_t *sim = support_sim_open(&model);
    baton_partial_t *partials[RANKS];
    for (int r = 0; r < RANKS; r++) {
        support_ok(baton_partial_create(baton_sim_group(sim, r),
                                        r == 0 ? first : others, &partials[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        (void)!baton_partial_start(partials[r]);
    }
    baton_partial_result_t seen;
    support_expect(baton_partial_wait(partials[0], -1, &seen),
                   BATON_ERR_MISMATCH);
    const char *message = baton_error_message();
    if (strstr(message, mine) == NULL || strstr(message, theirs) == NULL ||
        strstr(message, "rank 0") == NULL) {
        fail_msg("%s and %s of rank 0 are not in: %s", mine, theirs, message);
    }
    for (int r = 0; r < RANKS; r++) {
        support_ok(baton_partial_destroy(partials[r]));
    }
    support_ok(baton_sim_destroy(sim));
}

static void test_ranks_that_ask_for_different_modes(void **state)
{
    (void)state;
    const baton_partial_options_t two = arrivals_options(BATON_QUORUM, 2);
    const baton_partial_options_t three = arrivals_options(BATON_QUORUM, 3);
    expect_mismatch(&two, &three, "QUORUM(2)", "QUORUM(3)");
    const baton_partial_options_t any =
        arrivals_options(BATON_CANDIDATES_ANY, 2);
    const baton_partial_options_t one = arrivals_options(BATON_MAJORITY, 0);
    expect_mismatch(&any, &one, "CANDIDATES_ANY(2)", "MAJORITY");
    baton_partial_options_t other = arrivals_options(BATON_SOLO, 0);
    const baton_partial_options_t solo = other;
    other.dtype = BATON_F64;
    expect_mismatch(&solo, &other, "SOLO", "dtype");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quorum_of_any_number),
        cmocka_unit_test(test_quorum_of_many_is_exact),
        cmocka_unit_test(test_quorum_of_a_burst),
        cmocka_unit_test(test_quorum_takes_few_messages),
        cmocka_unit_test(test_mode_ranks_out_of_range),
        cmocka_unit_test(test_ranks_that_ask_for_different_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
