/* Steps of partial all-reduces: slow ranks, what is kept for them, how stale a
   contribution gets, wrong use. */
#include "support_pair.h"
#include "support_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WAIT_MS 60000

static void open_partials(support_ranks_t *ranks, baton_partial_t **partials,
                          const baton_partial_options_t *options)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_partial_create(ranks->groups[rank], options,
                                        &partials[rank]));
    }
}

static void close_partials(support_ranks_t *ranks, baton_partial_t **partials)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_partial_destroy(partials[rank]));
    }
}

static baton_partial_options_t solo_of_one(baton_keep_t keep, uint32_t history)
{
    return (baton_partial_options_t){.size = sizeof(baton_partial_options_t),
                                     .name = "slow",
                                     .mode = BATON_SOLO,
                                     .keep = keep,
                                     .history = history,
                                     .count = 1,
                                     .dtype = BATON_I64};
}

static int64_t value_of(const baton_partial_result_t *result)
{
    return *(const int64_t *)result->data;
}

static void contribute_and_start(baton_partial_t *partial, int64_t value)
{
    support_ok(baton_partial_contribute(partial, &value));
    support_ok(baton_partial_start(partial));
}

/* ---- slow ranks ------------------------------------------------------- */

/* Rank 2 does nothing: the others come W epochs ahead and no further, and it
   sees every epoch in order when it comes. */
static void test_keep_all_holds_the_others(void **state)
{
    (void)state;
    for (uint32_t history = 0; history <= 6; history++) {
        support_ranks_t *ranks = support_group(3);
        baton_partial_t *p[3];
        baton_partial_options_t options = solo_of_one(BATON_KEEP_ALL, history);
        baton_partial_result_t seen;
        uint64_t ahead = history == 0 ? 4 : history;
        open_partials(ranks, p, &options);
        for (uint64_t epoch = 1; epoch <= ahead + 1; epoch++) {
            for (int rank = 0; rank < 2; rank++) {
                contribute_and_start(p[rank], (int64_t)epoch);
            }
            support_settle(ranks);
            for (int rank = 0; rank < 2; rank++) {
                support_expect(baton_partial_wait(p[rank], 0, &seen),
                               epoch <= ahead ? BATON_OK : BATON_ERR_TIMEOUT);
                if (epoch <= ahead) {
                    assert_int_equal(seen.epoch, epoch);
                }
            }
        }
        for (uint64_t epoch = 1; epoch <= ahead + 1; epoch++) {
            contribute_and_start(p[2], 1000);
            support_ok(baton_partial_wait(p[2], WAIT_MS, &seen));
            assert_int_equal(seen.epoch, epoch);
            /* Its first wait lets the epoch run that the others wait for. */
            assert_false(seen.included);
            assert_true(epoch <= ahead || seen.active == 3);
            support_settle(ranks);
        }
        for (int rank = 0; rank < 2; rank++) {
            support_ok(baton_partial_wait(p[rank], WAIT_MS, &seen));
            assert_int_equal(seen.epoch, ahead + 1);
        }
        close_partials(ranks, p);
    }
}

static void test_keep_latest_gives_the_latest(void **state)
{
    (void)state;
    support_ranks_t *ranks = support_group(3);
    baton_partial_t *p[3];
    baton_partial_options_t options = solo_of_one(BATON_KEEP_LATEST, 0);
    baton_partial_result_t seen;
    open_partials(ranks, p, &options);
    for (int64_t epoch = 1; epoch <= 7; epoch++) {
        contribute_and_start(p[0], epoch);
        support_ok(baton_partial_wait(p[0], WAIT_MS, &seen));
        assert_int_equal(seen.epoch, epoch);
        assert_int_equal(value_of(&seen), epoch);
        support_settle(ranks);
    }
    for (uint64_t step = 1; step <= 7; step++) {
        contribute_and_start(p[2], 100);
        support_ok(baton_partial_wait(p[2], 0, &seen));
        assert_int_equal(seen.epoch, 7);
        assert_int_equal(value_of(&seen), 7);
        assert_false(seen.included);
        assert_int_equal(seen.staleness, 6); /* step 1's, in epoch 7 */
    }
    contribute_and_start(p[2], 100); /* the 8th is its own */
    support_ok(baton_partial_wait(p[2], WAIT_MS, &seen));
    assert_int_equal(seen.epoch, 8);
    assert_int_equal(value_of(&seen), 800);
    assert_int_equal(seen.active, 1);
    assert_true(seen.included);
    assert_int_equal(seen.staleness, 7);
    close_partials(ranks, p);
}

/* A result stays what and where it is until the rank's next wait. */
static void test_result_stays_until_the_next_wait(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        support_ranks_t *ranks = support_group(2);
        baton_partial_t *p[2] = {NULL, NULL};
        baton_partial_options_t options =
            solo_of_one((baton_keep_t)keep, keep == 0 ? 1 : 8);
        baton_partial_result_t held, seen;
        open_partials(ranks, p, &options);
        contribute_and_start(p[1], 42);
        support_ok(baton_partial_wait(p[1], WAIT_MS, &held));
        assert_int_equal(value_of(&held), 42);
        support_settle(ranks);
        for (int64_t epoch = 1; epoch <= 8; epoch++) {
            contribute_and_start(p[0], 1000 + epoch);
            support_ok(baton_partial_wait(p[0], WAIT_MS, &seen));
            support_settle(ranks);
            assert_int_equal(value_of(&held), 42);
        }
        close_partials(ranks, p);
    }
}

/* ---- staleness -------------------------------------------------------- */

/* Everybody is late, except who is drawn: yet no contribution gets as old as
   two blocks. */
static void test_majority_bounds_the_staleness(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < 5; i++) {
        support_ranks_t *ranks = support_group(sizes[i]);
        int size = sizes[i];
        baton_partial_t *p[8];
        baton_partial_options_t options = solo_of_one(BATON_KEEP_LATEST, 0);
        options.mode = BATON_MAJORITY;
        options.seed = 5;
        uint64_t oldest = 0;
        open_partials(ranks, p, &options);
        for (uint64_t epoch = 1; epoch <= 40 * (uint64_t)size; epoch++) {
            int drawn = baton_partial_draw(options.seed, epoch, size);
            contribute_and_start(p[drawn], 1);
            support_settle(ranks);
            for (int rank = 0; rank < size; rank++) {
                baton_partial_result_t seen;
                if (rank != drawn) {
                    contribute_and_start(p[rank], 1);
                }
                support_ok(baton_partial_wait(p[rank], 0, &seen));
                assert_int_equal(seen.epoch, epoch);
                assert_true(seen.staleness < 2 * (uint64_t)size);
                oldest = seen.staleness > oldest ? seen.staleness : oldest;
            }
        }
        assert_int_equal(oldest > 0, size > 1);
        close_partials(ranks, p);
    }
}

/* ---- wrong use -------------------------------------------------------- */

static void expect_refused(const baton_partial_options_t *options,
                           const char *text)
{
    baton_partial_t *untouched = (baton_partial_t *)&untouched;
    baton_partial_t *partial = untouched;
    support_expect(
        baton_partial_create(support_group(2)->groups[0], options, &partial),
        BATON_ERR_INVALID);
    support_says(text);
    assert_ptr_equal(partial, untouched);
}

static void test_partial_wrong_options_are_refused(void **state)
{
    (void)state;
    const baton_partial_options_t right = solo_of_one(BATON_KEEP_ALL, 0);
    const baton_op_t nameless = {.name = "half", .reduce = BATON_SUM->reduce};
    const baton_op_t empty = {.name = "empty", .identity = BATON_SUM->identity};
    baton_partial_options_t options = right;
    expect_refused(NULL, "size");
    options.size = 0;
    expect_refused(&options, "size is 0");
    options = right;
    options.mode = (baton_partial_mode_t)6;
    expect_refused(&options, "mode is 6");
    options = right;
    options.keep = (baton_keep_t)-1;
    expect_refused(&options, "keep is -1");
    options = right;
    options.dtype = BATON_DTYPE_COUNT;
    expect_refused(&options, "dtype is 12");
    options = right;
    options.history = UINT32_MAX;
    expect_refused(&options, "history is 4294967295");
    options = right;
    options.count = SIZE_MAX / 4;
    expect_refused(&options, "count is");
    options = right;
    options.op = &nameless;
    expect_refused(&options, "\"half\" lacks its identity");
    options.op = &empty;
    expect_refused(&options, "\"empty\" lacks its function");
    options = right;
    baton_partial_t *partial = NULL;
    support_expect(baton_partial_create(NULL, &options, &partial),
                   BATON_ERR_INVALID);
}

static void test_partial_wrong_use_is_refused(void **state)
{
    (void)state;
    support_ranks_t *ranks = support_group(1);
    for (int keep = 0; keep < 2; keep++) {
        baton_partial_options_t options = solo_of_one((baton_keep_t)keep, 0);
        baton_partial_t *p = NULL;
        baton_partial_result_t seen;
        bool flag;
        support_ok(baton_partial_create(ranks->groups[0], &options, &p));
        support_expect(baton_partial_contribute(p, NULL), BATON_ERR_INVALID);
        support_expect(baton_partial_pending(p, NULL, &flag),
                       BATON_ERR_INVALID);
        support_expect(baton_partial_wait(p, -1, &seen), BATON_ERR_STATE);
        support_says("\"slow\": no step was started");
        support_ok(baton_partial_test(p, &flag));
        assert_true(flag);
        contribute_and_start(p, 3);
        support_ok(baton_partial_wait(p, WAIT_MS, &seen));
        /* Once a step with KEEP_ALL; with LATEST it looks again. */
        support_expect(baton_partial_wait(p, WAIT_MS, &seen),
                       keep == BATON_KEEP_ALL ? BATON_ERR_STATE : BATON_OK);
        assert_int_equal(value_of(&seen), 3);
        support_ok(baton_partial_destroy(p));
    }
    support_ok(baton_partial_destroy(NULL));
}

static void test_partial_start_while_one_runs_is_busy(void **state)
{
    (void)state;
    support_ranks_t *ranks = support_group(2);
    baton_partial_t *p[2] = {NULL, NULL};
    baton_partial_options_t options = solo_of_one(BATON_KEEP_ALL, 0);
    baton_partial_result_t seen;
    options.mode = BATON_FULL;
    open_partials(ranks, p, &options);
    contribute_and_start(p[0], 1);
    support_expect(baton_partial_start(p[0]), BATON_ERR_BUSY);
    support_expect(baton_partial_wait(p[0], 1, &seen), BATON_ERR_TIMEOUT);
    support_says("\"slow\" epoch 1");
    contribute_and_start(p[1], 2);
    for (int rank = 0; rank < 2; rank++) {
        support_ok(baton_partial_wait(p[rank], WAIT_MS, &seen));
        assert_int_equal(value_of(&seen), 3);
        assert_int_equal(seen.active, 2);
    }
    close_partials(ranks, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keep_all_holds_the_others),
        cmocka_unit_test(test_keep_latest_gives_the_latest),
        cmocka_unit_test(test_result_stays_until_the_next_wait),
        cmocka_unit_test(test_majority_bounds_the_staleness),
        cmocka_unit_test(test_partial_wrong_options_are_refused),
        cmocka_unit_test(test_partial_wrong_use_is_refused),
        cmocka_unit_test(test_partial_start_while_one_runs_is_busy),
    };
    return cmocka_run_group_tests(tests, support_groups_open,
                                  support_groups_close);
}
