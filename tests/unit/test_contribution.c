/* The slots of a partial collective and their owners: which contributions an
   epoch takes, and which results stay in place. */
#include "coll/partial/contribution.h"
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/device_cluster.h"
#include "support/random.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 4

static void open_contribution(baton__contribution_t *c, uint32_t history,
                              const baton_op_t *op)
{
    const baton_partial_options_t options = {.size = sizeof(options),
                                             .name = "unit",
                                             .history = history,
                                             .count = COUNT,
                                             .dtype = BATON_I64,
                                             .op = op};
    support_ok(baton__contribution_init(c, &options, NULL, options.count, 8));
}

static void add(baton__contribution_t *c, int64_t value, uint64_t step)
{
    int64_t data[COUNT];
    for (int i = 0; i < COUNT; i++) {
        data[i] = value * (i + 1);
    }
    baton__contribution_add(c, data, step);
    memset(data, 0x77, sizeof(data)); /* the caller owns it again */
}

static void expect_vector(const void *vector, int64_t value)
{
    const int64_t *data = vector;
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(data[i], value * (i + 1));
    }
}

/* Takes the pending contribution and publishes it as the result of an epoch. */
static const void *take(baton__contribution_t *c, uint64_t epoch, bool expected)
{
    assert_int_equal(baton__contribution_take(c, epoch), expected);
    char *source = baton__contribution_memory(c, c->source);
    char *result = baton__contribution_memory(c, c->result);
    assert_ptr_not_equal(source, result);
    memcpy(result, source, COUNT * sizeof(int64_t));
    return source;
}

static void test_contribution_is_taken_whole_and_once(void **state)
{
    baton__contribution_t c;
    baton_partial_result_t result;
    int64_t data[COUNT];
    open_contribution(&c, 1, BATON_SUM);
    assert_false(baton__contribution_pending(&c, data));
    expect_vector(data, 0);
    add(&c, 10, 1);
    add(&c, 5, 2);
    assert_true(baton__contribution_pending(&c, data));
    expect_vector(data, 15);
    expect_vector(take(&c, 2, true), 15);
    assert_false(baton__contribution_pending(&c, data));
    add(&c, 100, 3); /* while the epoch works */
    baton__contribution_publish(&c, 2, 7);
    assert_true(baton__contribution_pin(&c, 0, 2, &result));
    expect_vector(result.data, 15);
    assert_int_equal(result.epoch, 2);
    assert_int_equal(result.active, 7);
    assert_int_equal(result.staleness, 1); /* step 1 in epoch 2 */
    assert_true(result.included);
    assert_true(baton__contribution_pin(&c, 2, 3, &result));
    assert_false(result.included); /* step 3's is pending */
    expect_vector(take(&c, 3, true), 100);
    baton__contribution_publish(&c, 3, 1);
    expect_vector(take(&c, 4, false), 0);
    baton__contribution_fini(&c);
}

/* One step's contributions in two epochs: neither result has all of them. */
static void test_contribution_in_parts_is_not_included(void **state)
{
    baton__contribution_t c;
    baton_partial_result_t result;
    open_contribution(&c, 3, BATON_SUM);
    add(&c, 1, 1);
    (void)take(&c, 1, true);
    baton__contribution_publish(&c, 1, 1);
    add(&c, 10, 1);
    assert_true(baton__contribution_pin(&c, 1, 1, &result));
    assert_false(result.included); /* the rest is pending */
    (void)take(&c, 2, true);
    assert_true(baton__contribution_pin(&c, 1, 1, &result));
    assert_false(result.included); /* a running epoch has it */
    baton__contribution_publish(&c, 2, 1);
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        assert_true(baton__contribution_pin(&c, epoch, 1, &result));
        assert_false(result.included); /* two results have it */
    }
    add(&c, 100, 2);
    (void)take(&c, 3, true);
    baton__contribution_publish(&c, 3, 1);
    assert_true(baton__contribution_pin(&c, 3, 2, &result));
    assert_true(result.included);
    baton__contribution_fini(&c);
}

/* The parts of a step that epochs which have failed took are pending again. */
static void test_contribution_is_whole_after_a_recovery(void **state)
{
    baton__contribution_t c;
    baton_partial_result_t result;
    open_contribution(&c, 1, BATON_SUM);
    add(&c, 1, 1);
    (void)take(&c, 1, true);
    baton__contribution_recover(&c, 0);
    add(&c, 10, 1);
    expect_vector(take(&c, 1, true), 11);
    baton__contribution_publish(&c, 1, 1);
    assert_true(baton__contribution_pin(&c, 0, 1, &result));
    assert_true(result.included);
    baton__contribution_fini(&c);
}

/* ---- null contributions ----------------------------------------------- */

typedef struct latch {
    baton__contribution_t c;
    atomic_bool inside, released;
} latch_t;

/* A reduction that blocks until it is released: the application is in the
   middle of contributing. */
static void slow_sum(void *arg, void *target, const void *left,
                     const void *right, size_t count, baton_dtype_t dtype)
{
    latch_t *latch = arg;
    atomic_store(&latch->inside, true);
    while (!atomic_load(&latch->released)) {
        sched_yield();
    }
    BATON_SUM->reduce(NULL, target, left, right, count, dtype);
}

static void zero(void *arg, void *target, size_t count, baton_dtype_t dtype)
{
    BATON_SUM->identity(NULL, target, count, dtype);
}

static void add_slowly(void *arg)
{
    latch_t *latch = arg;
    add(&latch->c, 5, 2);
}

static void test_contribution_in_the_making_is_not_taken(void **state)
{
    latch_t latch;
    atomic_init(&latch.inside, false);
    atomic_init(&latch.released, false);
    const baton_op_t op = {
        .name = "slow", .reduce = slow_sum, .identity = zero, .arg = &latch};
    baton_partial_result_t result;
    open_contribution(&latch.c, 1, &op);
    add(&latch.c, 10, 1); /* the first one is copied */
    support_thread_t *thread = support_thread_start(add_slowly, &latch);
    while (!atomic_load(&latch.inside)) {
        sched_yield();
    }
    expect_vector(take(&latch.c, 3, false), 0); /* and it did not wait */
    baton__contribution_publish(&latch.c, 3, 0);
    assert_true(baton__contribution_pin(&latch.c, 3, 2, &result));
    assert_false(result.included);
    assert_int_equal(result.staleness, 2); /* of step 1, in epoch 3 */
    atomic_store(&latch.released, true);
    support_thread_join(thread);
    expect_vector(take(&latch.c, 4, true), 15);
    baton__contribution_publish(&latch.c, 4, 1);
    assert_true(baton__contribution_pin(&latch.c, 4, 2, &result));
    assert_true(result.included);
    assert_int_equal(result.staleness, 3);
    baton__contribution_fini(&latch.c);
}

/* ---- history ---------------------------------------------------------- */

static void test_contribution_history_keeps_the_last(void **state)
{
    for (uint32_t history = 1; history <= 5; history++) {
        baton__contribution_t c;
        baton_partial_result_t result;
        open_contribution(&c, history, BATON_SUM);
        assert_false(baton__contribution_pin(&c, 0, 1, &result));
        assert_false(baton__contribution_pin(&c, 1, 1, &result));
        for (uint64_t epoch = 1; epoch <= 12; epoch++) {
            add(&c, (int64_t)epoch, epoch);
            (void)take(&c, epoch, true);
            baton__contribution_publish(&c, epoch, 1);
            for (uint64_t e = 1; e <= epoch + 2; e++) {
                bool kept = e <= epoch && e + history > epoch;
                assert_int_equal(baton__contribution_pin(&c, e, e, &result),
                                 kept);
                if (kept) {
                    assert_int_equal(result.epoch, e);
                    expect_vector(result.data, (int64_t)e);
                }
            }
        }
        baton__contribution_fini(&c);
    }
}

/* A pinned result does not change however many epochs follow, and no order of
   events runs out of slots. */
static void test_contribution_pinned_result_stays(void **state)
{
    support_random_t random = support_random(support_seed(), 3);
    for (uint32_t history = 1; history <= 4; history++) {
        baton__contribution_t c;
        baton_partial_result_t result = {0};
        open_contribution(&c, history, BATON_SUM);
        int64_t sums[2001] = {0}, pending = 0;
        uint64_t epoch = 0;
        bool any = false;
        while (epoch < 2000) {
            switch (support_random_below(&random, 4)) {
            case 0:
                pending += (int64_t)epoch + 1;
                any = true;
                add(&c, (int64_t)epoch + 1, epoch + 1);
                break;
            case 1:
                (void)baton__contribution_pin(
                    &c, support_random_below(&random, 2) == 0 ? 0 : epoch,
                    epoch, &result);
                break;
            default:
                (void)take(&c, ++epoch, any);
                sums[epoch] = pending;
                pending = 0;
                any = false;
                baton__contribution_publish(&c, epoch, 1);
                break;
            }
            if (result.epoch != 0) {
                expect_vector(result.data, sums[result.epoch]);
            }
        }
        baton__contribution_fini(&c);
    }
}

/* A rank contributes for step 1 after epochs 1 to 3 have run without it. The
   staleness in epoch 2 does not depend on when the rank asks. */
static void test_contribution_staleness_of_epochs_without_it(void **state)
{
    baton__contribution_t c;
    baton_partial_result_t result;
    open_contribution(&c, 4, BATON_SUM);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        (void)take(&c, epoch, false);
        baton__contribution_publish(&c, epoch, 1);
    }
    for (int moment = 0; moment < 4; moment++) {
        switch (moment) {
        case 0: /* pending */
            add(&c, 1, 1);
            break;
        case 1: /* taken */
            (void)take(&c, 4, true);
            break;
        case 2: /* taken, and more pending */
            add(&c, 1, 2);
            break;
        default: /* in the result of epoch 4 */
            baton__contribution_publish(&c, 4, 1);
            break;
        }
        assert_true(baton__contribution_pin(&c, 2, 2, &result));
        assert_int_equal(result.staleness, 1);
    }
    assert_true(baton__contribution_pin(&c, 4, 4, &result));
    assert_int_equal(result.staleness, 3);
    baton__contribution_fini(&c);
}

/* ---- recovery --------------------------------------------------------- */

/* An epoch that no rank has completed gives its contributions back, in the
   order of steps, before later ones. */
static void second_of(void *arg, void *target, const void *left,
                      const void *right, size_t count, baton_dtype_t dtype)
{
    int64_t *out = target;
    const int64_t *first = left;
    const int64_t *second = right;
    for (size_t i = 0; i < count; i++) {
        out[i] = 10 * first[i] + second[i];
    }
}

static void test_contribution_of_a_failed_epoch_is_pending_again(void **state)
{
    const baton_op_t op = {
        .name = "digits", .reduce = second_of, .identity = zero};
    for (int i = 0; i < 4; i++) {
        int since = i % 2; /* whether more was contributed since */
        baton__contribution_t c;
        baton_partial_result_t result;
        int64_t data[COUNT];
        open_contribution(&c, 2, &op);
        add(&c, 9, 1);
        (void)take(&c, 1, true);
        baton__contribution_publish(&c, 1, 1);
        add(&c, 3, 2);
        (void)take(&c, 2, true);
        if (i >= 2) { /* it fails behind its publish */
            baton__contribution_publish(&c, 2, 1);
        }
        if (since == 1) {
            add(&c, 4, 3);
        }
        baton__contribution_recover(&c, 1);
        assert_true(baton__contribution_pending(&c, data));
        expect_vector(data, since == 1 ? 34 : 3);
        assert_false(baton__contribution_pin(&c, 0, 1, &result));
        expect_vector(take(&c, 1, true), since == 1 ? 34 : 3);
        baton__contribution_publish(&c, 1, 1);
        assert_true(baton__contribution_pin(&c, 1, 1, &result));
        assert_int_equal(result.staleness, 0);
        baton__contribution_fini(&c);
    }
}

/* The device was adding the first contribution since when the epoch failed, and
   fails at it: the epoch after the recovery takes what was given back, and then
   nothing is pending any more. */
static void test_contribution_given_back_leaves_no_age(void **state)
{
    const emulated_options_t device = {.seed = support_seed()};
    const baton_partial_options_t options = {.size = sizeof(options),
                                             .name = "unit",
                                             .history = 2,
                                             .max_staleness = 2,
                                             .count = COUNT,
                                             .dtype = BATON_I64,
                                             .op = BATON_SUM};
    device_cluster_t *ranks =
        device_cluster_open(1, SUPPORT_OWN_MANUAL, &device);
    baton__contribution_t c;
    baton_partial_result_t result;
    char *pending, *sum;
    support_ok(baton__contribution_init(
        &c, &options, baton_group_engine(ranks->cluster->groups[0]), COUNT, 0));
    baton__contribution_begin_add(&c, &pending, &sum);
    assert_null(pending);
    baton__contribution_end_add(&c, 1);
    assert_int_equal(baton__contribution_take(&c, 1), BATON__TAKE_ALL);
    baton__contribution_begin_add(&c, &pending, &sum);
    baton__contribution_recover(&c, 0);
    baton__contribution_end_use(&c);
    assert_int_equal(baton__contribution_take(&c, 1), BATON__TAKE_ALL);
    baton__contribution_publish(&c, 1, 1);
    assert_true(baton__contribution_pin(&c, 1, 1, &result));
    assert_true(result.included);
    for (uint64_t epoch = 2; epoch < 6; epoch++) {
        assert_int_equal(baton__contribution_take(&c, epoch),
                         BATON__TAKE_NOTHING);
        baton__contribution_publish(&c, epoch, 0);
        assert_true(baton__contribution_pin(&c, epoch, epoch, &result));
        assert_int_equal(result.staleness, 0);
    }
    baton__contribution_fini(&c);
    device_cluster_close(ranks);
}

/* An epoch that failed here but completed on another rank keeps its
   contributions, so that none counts twice. */
static void test_contribution_of_a_peers_result_is_spent(void **state)
{
    baton__contribution_t c;
    int64_t data[COUNT];
    open_contribution(&c, 2, BATON_SUM);
    add(&c, 3, 1);
    (void)take(&c, 1, true);
    baton__contribution_recover(&c, 1);
    assert_false(baton__contribution_pending(&c, data));
    expect_vector(take(&c, 1, false), 0);
    baton__contribution_fini(&c);
}

/* Repeated failures lose no slot. */
static void test_contribution_recovers_without_losing_slots(void **state)
{
    support_random_t random = support_random(support_seed(), 4);
    baton__contribution_t c;
    baton_partial_result_t result;
    int64_t data[COUNT];
    int64_t added = 0;
    int64_t counted = 0;
    open_contribution(&c, 3, BATON_SUM);
    for (int round = 0; round < 2000; round++) {
        uint64_t epochs = 1 + support_random_below(&random, 5);
        for (uint64_t epoch = 1; epoch <= epochs; epoch++) {
            bool any = baton__contribution_pending(&c, data);
            if (support_random_below(&random, 2) == 0) {
                add(&c, 1, epoch);
                added++;
                any = true;
            }
            (void)take(&c, epoch, any);
            if (epoch < epochs) {
                baton__contribution_publish(&c, epoch, 1);
                assert_true(baton__contribution_pin(&c, epoch, epoch, &result));
                counted += *(const int64_t *)result.data;
            }
        }
        baton__contribution_recover(&c, epochs - 1);
    }
    counted += baton__contribution_pending(&c, data) ? data[0] : 0;
    assert_int_equal(counted, added);
    baton__contribution_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contribution_is_taken_whole_and_once),
        cmocka_unit_test(test_contribution_in_parts_is_not_included),
        cmocka_unit_test(test_contribution_is_whole_after_a_recovery),
        cmocka_unit_test(test_contribution_in_the_making_is_not_taken),
        cmocka_unit_test(test_contribution_history_keeps_the_last),
        cmocka_unit_test(test_contribution_pinned_result_stays),
        cmocka_unit_test(test_contribution_staleness_of_epochs_without_it),
        cmocka_unit_test(test_contribution_of_a_failed_epoch_is_pending_again),
        cmocka_unit_test(test_contribution_given_back_leaves_no_age),
        cmocka_unit_test(test_contribution_of_a_peers_result_is_spent),
        cmocka_unit_test(test_contribution_recovers_without_losing_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
