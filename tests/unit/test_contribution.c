/* The contributions that a failed epoch has taken from a partial collective are
   pending again. Only cases that tests through partial.h do not meet are here;
   sim/test_properties.c has the others. The application lends a contribution if
   the library may use the application's memory instead of a copy, until the
   wait for the step returns. */
#include "coll/partial/contribution.h"
#include "support/cluster.h"

static const baton__contribution_t unit = {
    .history = 2,
    .max_staleness = 2,
    .count = 1,
    .slot_bytes = sizeof(int64_t),
    .dtype = BATON_I64,
};

/* Appends a digit, so that a sum shows the order of its operands. */
static void append(void *arg, void *target, const void *left, const void *right,
                   size_t count, baton_dtype_t dtype)
{
    *(int64_t *)target = 10 * *(const int64_t *)left + *(const int64_t *)right;
}

static void add(baton__contribution_t *c, int64_t value, uint64_t step)
{
    baton__contribution_add(c, &value, step, false);
}

static void expect_taken(baton__contribution_t *c, uint64_t epoch,
                         int64_t value)
{
    assert_int_equal(baton__contribution_take(c, epoch), BATON__TAKE_ALL);
    assert_int_equal(
        *(const int64_t *)(const void *)baton__contribution_source(c, 0),
        value);
}

/* A contribution that is pending again comes before contributions that were
   made since, whether the epoch had published its result or not. */
TEST(test_contribution_of_a_failed_epoch_is_pending_again)
{
    const baton_op_t op = {
        .name = "digits", .reduce = append, .identity = BATON_SUM->identity};
    for (int i = 0; i < 4; i++) {
        const bool since = i % 2 == 1, published = i >= 2;
        baton__contribution_t c = unit;
        int64_t pending;
        c.op = &op;
        support_ok(baton__contribution_init(&c));
        add(&c, 9, 1);
        expect_taken(&c, 1, 9);
        baton__contribution_publish(&c, 1, 1);
        add(&c, 3, 2);
        expect_taken(&c, 2, 3);
        if (published) {
            baton__contribution_publish(&c, 2, 1);
        }
        if (since) {
            add(&c, 4, 3);
        }
        baton__contribution_recover(&c, 1, i == 3 ? 0 : 1);
        assert_int_equal(baton__contribution_newest(&c, NULL), i == 3);
        assert_true(baton__contribution_pending(&c, &pending));
        assert_int_equal(pending, since ? 34 : 3);
        expect_taken(&c, 1, since ? 34 : 3);
        baton__contribution_fini(&c);
    }
}

/* A lent vector is read where it is, but only as long as its step lasts. */
TEST(test_contribution_that_is_lent_is_not_read_behind_its_step)
{
    for (int i = 0; i < 5; i++) {
        baton__contribution_t c = unit;
        int64_t lent = 5, pending;
        bool failed = i >= 3;
        c.op = BATON_SUM;
        support_ok(baton__contribution_init(&c));
        baton__contribution_add(&c, &lent, 2, true);
        if (i == 0) { /* the loan ends before any epoch has taken the vector */
            baton__contribution_end_loan(&c, false);
            lent = -1;
            /* The epoch of the step takes the vector, and then ends or fails.
             */
        } else if (i > 1) {
            expect_taken(&c, 2, 5);
            assert_ptr_equal(baton__contribution_source(&c, 0), &lent);
            if (i == 2) {
                baton__contribution_publish(&c, 2, 1);
            }
            baton__contribution_end_loan(&c, failed);
            lent = -1;
        }
        if (i == 4) {
            add(&c, 70, 3);
        }
        if (failed) {
            baton__contribution_recover(&c, 1, 1);
        }
        assert_int_equal(baton__contribution_pending(&c, &pending), i != 2);
        if (i != 2) { /* a later epoch takes a copy of the vector */
            assert_int_equal(pending, i == 4 ? 75 : 5);
            expect_taken(&c, 3, pending);
            assert_ptr_not_equal(baton__contribution_source(&c, 0), &lent);
        }
        baton__contribution_fini(&c);
    }
}

/* A lent contribution is added to the pending one, whichever of them was made
   first. This is also true if the loan is given back, or if a recovery has
   given the steps other numbers. */
TEST(test_contribution_that_is_lent_is_added)
{
    const baton_op_t op = {
        .name = "digits", .reduce = append, .identity = BATON_SUM->identity};
    for (int i = 0; i < 4; i++) {
        baton__contribution_t c = unit;
        int64_t first = 1, second = 2, pending;
        c.op = &op;
        support_ok(baton__contribution_init(&c));
        baton__contribution_add(&c, &first, 1, true);
        if (i >= 2) {
            expect_taken(&c, 1, 1);
        }
        if (i != 3) {
            baton__contribution_add(&c, &second, 1, true);
        }
        if (i >= 1) {
            baton__contribution_recover(&c, 0, i == 2 ? 0 : 1);
        }
        if (i != 2) {
            first = second = -1;
        }
        assert_int_equal(first, i == 2 ? 1 : -1);
        if (i == 0) {
            baton__contribution_end_loan(&c, false);
        }
        assert_true(baton__contribution_pending(&c, &pending));
        assert_int_equal(pending, i == 3 ? 1 : 12);
        baton__contribution_fini(&c);
    }
}

/* The epoch failed while the device was adding the first contribution that was
   made after the epoch took its own. That addition fails, too. The epoch after
   the recovery takes the contributions that were given back. Then nothing is
   pending any more. */
TEST_WITH(test_contribution_given_back_leaves_no_age, 1, SUPPORT_DEVICES_MANUAL)
{
    baton__contribution_t c = unit;
    baton_partial_result_t result;
    char *carried, *pending;
    c.op = BATON_SUM;
    c.engine = cluster->engines[0];
    support_ok(baton__contribution_init(&c));
    baton__contribution_begin_use(&c, &carried, &pending);
    assert_null(pending);
    baton__contribution_end_add(&c, 1);
    assert_int_equal(baton__contribution_take(&c, 1), BATON__TAKE_ALL);
    baton__contribution_begin_use(&c, &carried, &pending);
    baton__contribution_recover(&c, 0, 1);
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
}

/* The application reads a result, and the device copies it for a stream. The
   memory of the result is used again only when neither needs it any more. */
TEST_WITH(test_contribution_slot_is_kept_for_each_reader, 1,
          SUPPORT_DEVICES_MANUAL)
{
    for (int reader = 0; reader < 2; reader++) {
        baton__contribution_t c = unit;
        baton_partial_result_t result;
        c.op = BATON_SUM;
        c.engine = cluster->engines[0];
        support_ok(baton__contribution_init(&c));
        (void)baton__contribution_take(&c, 1);
        baton__contribution_publish(&c, 1, 0);
        assert_true(baton__contribution_pin(&c, 1, 1, &result));
        const void *read = result.data;
        assert_ptr_equal(baton__contribution_lend(&c, 1, false), read);
        for (uint64_t epoch = 2; epoch < 9; epoch++) {
            /* A recovery also forgets results that are being read. */
            if (epoch == 7) {
                read = baton__contribution_result(&c, reader == 0 ? c.lent
                                                                  : c.pinned);
                baton__contribution_recover(&c, 6, 1);
            }
            (void)baton__contribution_take(&c, epoch);
            assert_ptr_not_equal(baton__contribution_result(&c, c.result),
                                 read);
            baton__contribution_publish(&c, epoch, 0);
            if (reader == 0 && epoch >= 4 && epoch < 7) {
                (void)baton__contribution_lend(&c, epoch, false);
            } else if (epoch >= 4 && epoch < 7) {
                (void)baton__contribution_pin(&c, epoch, epoch, &result);
            }
        }
        baton__contribution_fini(&c);
    }
}
