/* Partial all-reduces in one thread, so that the test decides when each rank
   starts: every mode, inner builder, element type and reduction against an
   oracle; slow ranks, the results that are kept for them, staleness, and wrong
   use. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/random.h"
#include "support/values.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST 8
#define EPOCHS  6
#define BYTES   64 /* of the longest vector */

typedef struct model {
    support_cluster_t *ranks;
    baton_partial_options_t options;
    support_op_t op;
    baton_partial_t *partials[LARGEST];
    /* What no epoch has taken, by rank. */
    char pending[LARGEST][BYTES];
    uint64_t first_step[LARGEST]; /* 0: nothing */
    uint64_t last_step[LARGEST];
    int late[LARGEST]; /* steps in a row that came too late */
    support_random_t random;
} model_t;

static void describe(const model_t *model, uint64_t epoch, const char *what)
{
    fail_msg("%d ranks, mode %d, keep %d, %s of %d %s, epoch %d: %s",
             model->ranks->size, (int)model->options.mode,
             (int)model->options.keep, model->options.op->name,
             (int)model->options.count, baton_dtype_name(model->options.dtype),
             (int)epoch, what);
}

static void contribute(model_t *model, int rank, uint64_t step)
{
    char data[BYTES];
    const baton_partial_options_t *options = &model->options;
    support_fill_exact(data, options->count, options->dtype, model->op, rank,
                       &model->random);
    support_ok(baton_partial_contribute(model->partials[rank], data));
    model->last_step[rank] = step;
    if (model->first_step[rank] == 0) {
        model->first_step[rank] = step;
        memcpy(model->pending[rank], data, sizeof(data));
    } else {
        support_reduce(model->pending[rank], data, options->count,
                       options->dtype, model->op);
    }
}

/* The expected result: the reduction of all pending contributions, in rank
 * order. */
static uint32_t expect(const model_t *model, char *result)
{
    const baton_partial_options_t *options = &model->options;
    uint32_t active = 0;
    options->op->identity(NULL, result, options->count, options->dtype);
    for (int rank = 0; rank < model->ranks->size; rank++) {
        if (model->first_step[rank] == 0) {
            continue;
        }
        if (active++ == 0) { /* the oracle knows no infinite identities */
            memcpy(result, model->pending[rank], BYTES);
        } else {
            support_reduce(result, model->pending[rank], options->count,
                           options->dtype, model->op);
        }
    }
    return active;
}

static bool equal(const model_t *model, const void *a, const void *b)
{
    size_t bytes =
        model->options.count * baton_dtype_size(model->options.dtype);
    return memcmp(a, b, bytes) == 0;
}

/* The rank whose start begins the epoch. A start of another rank does not. */
static int starter(const model_t *model, uint64_t epoch)
{
    if (model->options.mode == BATON_MAJORITY) {
        return baton_partial_elect(model->options.seed, epoch,
                                   model->ranks->size);
    }
    return (int)(epoch % (uint64_t)model->ranks->size);
}

/* Some ranks contribute, the epoch runs to its end, and the other ranks
   contribute and start too late. */
static void run_epoch(model_t *model, uint64_t epoch)
{
    int size = model->ranks->size;
    int first = starter(model, epoch);
    bool full = model->options.mode == BATON_FULL;
    bool in_time[LARGEST], started[LARGEST] = {false};
    for (int rank = 0; rank < size; rank++) {
        in_time[rank] = model->late[rank] == 2 ||
                        support_random_below(&model->random, 2) == 0;
        model->late[rank] = in_time[rank] ? 0 : model->late[rank] + 1;
        if (in_time[rank]) {
            contribute(model, rank, epoch);
        }
    }
    char result[BYTES];
    uint32_t active = expect(model, result);
    for (int rank = 0; rank < size; rank++) {
        bool harmless = model->options.mode == BATON_MAJORITY && rank != first;
        if (full || (harmless && in_time[rank])) {
            support_ok(baton_partial_start(model->partials[rank]));
            started[rank] = true;
        }
    }
    if (!full) {
        support_ok(baton_partial_start(model->partials[first]));
        started[first] = true;
    }
    support_drain(model->ranks);
    uint64_t taken_step[LARGEST];
    bool included[LARGEST];
    for (int rank = 0; rank < size; rank++) {
        taken_step[rank] = model->first_step[rank];
        included[rank] =
            taken_step[rank] != 0 && model->last_step[rank] == epoch;
        model->first_step[rank] = 0;
        if (!in_time[rank]) {
            /* A rank that has started this step contributes for the next one.
             */
            contribute(model, rank, started[rank] ? epoch + 1 : epoch);
            /* Not all of the step's is in the result if it is for the same. */
            included[rank] = included[rank] && started[rank];
        }
    }
    for (int rank = 0; rank < size; rank++) {
        bool done = false;
        baton_partial_result_t seen;
        if (!started[rank]) {
            support_ok(baton_partial_start(model->partials[rank]));
        }
        /* The epoch has run, so no rank has to wait. */
        support_ok(baton_partial_test(model->partials[rank], &done));
        if (!done) {
            describe(model, epoch, "is not done");
        }
        support_ok(baton_partial_wait(model->partials[rank], 0, &seen));
        if (!equal(model, seen.data, result)) {
            describe(model, epoch, "wrong result");
        }
        uint64_t oldest = taken_step[rank] != 0 ? taken_step[rank] : epoch;
        assert_int_equal(seen.epoch, epoch);
        assert_int_equal(seen.active, active);
        assert_int_equal(seen.included, included[rank]);
        assert_int_equal(seen.staleness, epoch - oldest);
    }
}

static void expect_pending(model_t *model)
{
    for (int rank = 0; rank < model->ranks->size; rank++) {
        char data[BYTES], identity[BYTES];
        bool any;
        const baton_partial_options_t *options = &model->options;
        options->op->identity(NULL, identity, options->count, options->dtype);
        support_ok(baton_partial_pending(model->partials[rank], data, &any));
        assert_int_equal(any, model->first_step[rank] != 0);
        if (!equal(model, data, any ? model->pending[rank] : identity)) {
            describe(model, EPOCHS, "wrong pending contribution");
        }
    }
}

static void run_model(support_cluster_t *ranks,
                      const baton_partial_options_t *o, support_op_t op)
{
    model_t model = {.ranks = ranks,
                     .options = *o,
                     .op = op,
                     .random = support_random(support_seed(), 4)};
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_partial_create(ranks->groups[rank], o,
                                        &model.partials[rank]));
    }
    for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++) {
        run_epoch(&model, epoch);
    }
    expect_pending(&model);
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_partial_destroy(model.partials[rank]));
    }
}

static void run_types(support_cluster_t *ranks,
                      baton_partial_options_t *options)
{
    static const size_t counts[] = {0, 1, 7};
    /* The library's reductions, which have an identity. */
    for (int op = SUPPORT_SUM; op <= SUPPORT_MAX; op++) {
        for (int dtype = 0; dtype < (int)BATON_DTYPE_COUNT; dtype++) {
            options->op = support_op((support_op_t)op);
            options->dtype = (baton_dtype_t)dtype;
            for (size_t i = 0; i < 3; i++) {
                options->count = counts[i];
                run_model(ranks, options, (support_op_t)op);
            }
        }
    }
}

static void run_mode(baton_partial_mode_t mode)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int variant = 0; variant < 4; variant++) {
            baton_partial_options_t options = {
                .size = sizeof(options),
                .mode = mode,
                .keep = variant % 2 == 0 ? BATON_KEEP_LATEST : BATON_KEEP_ALL,
                .inner = variant < 2 ? baton_allreduce_recursive_doubling
                                     : baton_allreduce_ring,
                .seed = 11,
            };
            run_types(support_cluster_of(sizes[i]), &options);
        }
    }
}

static void test_partial_solo_gives_what_was_there(void **state)
{
    run_mode(BATON_SOLO);
}

static void test_partial_majority_waits_for_the_drawn(void **state)
{
    run_mode(BATON_MAJORITY);
}

static void test_partial_full_waits_for_all(void **state)
{
    run_mode(BATON_FULL);
}

/* Types that can't count this many ranks, and types that just can. */
static void test_partial_counts_more_ranks_than_i8_can(void **state)
{
    static const int sizes[] = {127, 130};
    for (size_t i = 0; i < 2; i++) {
        support_cluster_t *ranks = support_cluster_manual(sizes[i]);
        int size = ranks->size;
        baton_partial_t **partials = calloc((size_t)size, sizeof(*partials));
        assert_non_null(partials);
        for (int dtype = 0; dtype < (int)BATON_DTYPE_COUNT; dtype++) {
            const uint64_t zero = 0;
            baton_partial_options_t options = {.size = sizeof(options),
                                               .mode = BATON_FULL,
                                               .count = 1,
                                               .dtype = (baton_dtype_t)dtype};
            for (int rank = 0; rank < size; rank++) {
                support_ok(baton_partial_create(ranks->groups[rank], &options,
                                                &partials[rank]));
                support_ok(baton_partial_contribute(partials[rank], &zero));
            }
            for (int rank = 0; rank < size; rank++) {
                support_ok(baton_partial_start(partials[rank]));
            }
            for (int rank = 0; rank < size; rank++) {
                baton_partial_result_t seen;
                support_ok(baton_partial_wait(partials[rank], 60000, &seen));
                assert_int_equal(seen.active, size);
            }
            for (int rank = 0; rank < size; rank++) {
                support_ok(baton_partial_destroy(partials[rank]));
            }
        }
        free(partials);
        support_cluster_close(ranks);
    }
}

static void open_partials(support_cluster_t *ranks, baton_partial_t **partials,
                          const baton_partial_options_t *options)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_partial_create(ranks->groups[rank], options,
                                        &partials[rank]));
    }
}

static void close_partials(support_cluster_t *ranks, baton_partial_t **partials)
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

/* While rank 2 does nothing the others run W epochs ahead and no further. When
   it starts it sees every epoch in order. */
static void test_keep_all_holds_the_others(void **state)
{
    for (uint32_t history = 0; history <= 6; history++) {
        support_cluster_t *ranks = support_cluster_of(3);
        baton_partial_t *p[3];
        baton_partial_options_t options = solo_of_one(BATON_KEEP_ALL, history);
        baton_partial_result_t seen;
        uint64_t ahead = history == 0 ? 4 : history;
        open_partials(ranks, p, &options);
        for (uint64_t epoch = 1; epoch <= ahead + 1; epoch++) {
            for (int rank = 0; rank < 2; rank++) {
                contribute_and_start(p[rank], (int64_t)epoch);
            }
            support_drain(ranks);
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
            support_ok(baton_partial_wait(p[2], SUPPORT_WAIT_MS, &seen));
            assert_int_equal(seen.epoch, epoch);
            /* Its first wait lets the epoch run that the others wait for. */
            assert_false(seen.included);
            assert_true(epoch <= ahead || seen.active == 3);
            support_drain(ranks);
        }
        for (int rank = 0; rank < 2; rank++) {
            support_ok(baton_partial_wait(p[rank], SUPPORT_WAIT_MS, &seen));
            assert_int_equal(seen.epoch, ahead + 1);
        }
        close_partials(ranks, p);
    }
}

static void test_keep_latest_gives_the_latest(void **state)
{
    support_cluster_t *ranks = support_cluster_of(3);
    baton_partial_t *p[3];
    baton_partial_options_t options = solo_of_one(BATON_KEEP_LATEST, 0);
    baton_partial_result_t seen;
    open_partials(ranks, p, &options);
    for (int64_t epoch = 1; epoch <= 7; epoch++) {
        contribute_and_start(p[0], epoch);
        support_ok(baton_partial_wait(p[0], SUPPORT_WAIT_MS, &seen));
        assert_int_equal(seen.epoch, epoch);
        assert_int_equal(value_of(&seen), epoch);
        support_drain(ranks);
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
    support_ok(baton_partial_wait(p[2], SUPPORT_WAIT_MS, &seen));
    assert_int_equal(seen.epoch, 8);
    assert_int_equal(value_of(&seen), 800);
    assert_int_equal(seen.active, 1);
    assert_true(seen.included);
    assert_int_equal(seen.staleness, 7);
    close_partials(ranks, p);
}

/* A result neither moves nor changes until the rank's next wait. */
static void test_result_stays_until_the_next_wait(void **state)
{
    for (int keep = 0; keep < 2; keep++) {
        support_cluster_t *ranks = support_cluster_of(2);
        baton_partial_t *p[2] = {NULL, NULL};
        baton_partial_options_t options =
            solo_of_one((baton_keep_t)keep, keep == 0 ? 1 : 8);
        baton_partial_result_t held, seen;
        open_partials(ranks, p, &options);
        contribute_and_start(p[1], 42);
        support_ok(baton_partial_wait(p[1], SUPPORT_WAIT_MS, &held));
        assert_int_equal(value_of(&held), 42);
        support_drain(ranks);
        for (int64_t epoch = 1; epoch <= 8; epoch++) {
            contribute_and_start(p[0], 1000 + epoch);
            support_ok(baton_partial_wait(p[0], SUPPORT_WAIT_MS, &seen));
            support_drain(ranks);
            assert_int_equal(value_of(&held), 42);
        }
        close_partials(ranks, p);
    }
}

/* ---- staleness -------------------------------------------------------- */

/* All ranks but the elected one are late, yet no contribution gets as old as
   two blocks. */
static void test_majority_bounds_the_staleness(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < 5; i++) {
        support_cluster_t *ranks = support_cluster_of(sizes[i]);
        int size = sizes[i];
        baton_partial_t *p[8];
        baton_partial_options_t options = solo_of_one(BATON_KEEP_LATEST, 0);
        options.mode = BATON_MAJORITY;
        options.seed = 5;
        uint64_t oldest = 0;
        open_partials(ranks, p, &options);
        for (uint64_t epoch = 1; epoch <= 40 * (uint64_t)size; epoch++) {
            int elected = baton_partial_elect(options.seed, epoch, size);
            contribute_and_start(p[elected], 1);
            support_drain(ranks);
            for (int rank = 0; rank < size; rank++) {
                baton_partial_result_t seen;
                if (rank != elected) {
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

/* A contribution that takes as long as the test likes: its addition waits in
   the thread that contributes. */
typedef struct slow {
    baton_partial_t *partial;
    atomic_bool inside, released;
} slow_t;

static _Thread_local slow_t *adding; /* in that thread */

static void slow_sum(void *arg, void *target, const void *left,
                     const void *right, size_t count, baton_dtype_t dtype)
{
    if (adding != NULL) {
        atomic_store(&adding->inside, true);
        while (!atomic_load(&adding->released)) {
            sched_yield();
        }
    }
    BATON_SUM->reduce(arg, target, left, right, count, dtype);
}

static void contribute_slowly(void *arg)
{
    const int64_t value = 100;
    adding = arg;
    if (baton_partial_contribute(adding->partial, &value) != BATON_OK) {
        abort();
    }
}

/* An epoch in which what is pending is as old as may be waits for a thread that
   is just adding to it: it would be too old for the next. */
static void test_bound_holds_while_contributing(void **state)
{
    const baton_op_t op = {.name = "slow",
                           .reduce = slow_sum,
                           .identity = BATON_SUM->identity,
                           .commutative = true};
    for (int keep = 0; keep < 2; keep++) {
        support_cluster_t *ranks = support_cluster_of(2);
        baton_partial_t *p[2] = {NULL, NULL};
        baton_partial_options_t options =
            solo_of_one((baton_keep_t)keep, keep == 0 ? 4 : 1);
        options.max_staleness = keep == 0 ? 1 : 0;
        options.op = &op;
        baton_partial_result_t seen;
        bool done = true;
        open_partials(ranks, p, &options);
        contribute_and_start(p[1], 1);
        support_ok(baton_partial_wait(p[1], SUPPORT_WAIT_MS, &seen));
        contribute_and_start(p[0], 10);
        support_ok(baton_partial_wait(p[0], SUPPORT_WAIT_MS, &seen));
        assert_false(seen.included);

        slow_t slow = {.partial = p[0]};
        support_thread_t *thread =
            support_thread_start(contribute_slowly, &slow);
        while (!atomic_load(&slow.inside)) {
            sched_yield();
        }
        contribute_and_start(p[1], 2);
        support_drain(ranks);
        support_ok(baton_partial_test(p[1], &done));
        assert_false(done);
        atomic_store(&slow.released, true);
        support_thread_join(thread);

        support_ok(baton_partial_start(p[0]));
        for (int rank = 0; rank < 2; rank++) {
            support_ok(baton_partial_wait(p[rank], SUPPORT_WAIT_MS, &seen));
            assert_int_equal(value_of(&seen), 112);
            assert_true(seen.included);
            assert_int_equal(seen.staleness, rank == 0 ? 1 : 0);
        }
        close_partials(ranks, p);
    }
}

/* ---- wrong use -------------------------------------------------------- */

static void expect_refused(const baton_partial_options_t *options,
                           const char *text)
{
    baton_partial_t *untouched = (baton_partial_t *)&untouched;
    baton_partial_t *partial = untouched;
    support_expect(baton_partial_create(support_cluster_of(2)->groups[0],
                                        options, &partial),
                   BATON_ERR_INVALID);
    support_says(text);
    assert_ptr_equal(partial, untouched);
}

static void test_partial_wrong_options_are_refused(void **state)
{
    const baton_partial_options_t right = solo_of_one(BATON_KEEP_ALL, 0);
    const baton_op_t nameless = {.name = "half", .reduce = BATON_SUM->reduce};
    const baton_op_t empty = {.name = "empty", .identity = BATON_SUM->identity};
    baton_partial_options_t options = right;
    expect_refused(NULL, "partial options: NULL");
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
    expect_refused(&options, "history is 4294967295, must be 1 to 1048576");
    options = right;
    options.count = SIZE_MAX;
    expect_refused(&options, "count is 18446744073709551615, must be at most ");
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
    support_cluster_t *ranks = support_cluster_of(1);
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
        support_ok(baton_partial_wait(p, SUPPORT_WAIT_MS, &seen));
        /* KEEP_ALL allows one wait a step; LATEST returns the latest result
         * again. */
        support_expect(baton_partial_wait(p, SUPPORT_WAIT_MS, &seen),
                       keep == BATON_KEEP_ALL ? BATON_ERR_STATE : BATON_OK);
        assert_int_equal(value_of(&seen), 3);
        support_ok(baton_partial_destroy(p));
    }
    support_ok(baton_partial_destroy(NULL));
}

static void test_partial_start_while_one_runs_is_busy(void **state)
{
    support_cluster_t *ranks = support_cluster_of(2);
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
        support_ok(baton_partial_wait(p[rank], SUPPORT_WAIT_MS, &seen));
        assert_int_equal(value_of(&seen), 3);
        assert_int_equal(seen.active, 2);
    }
    close_partials(ranks, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partial_solo_gives_what_was_there),
        cmocka_unit_test(test_partial_majority_waits_for_the_drawn),
        cmocka_unit_test(test_partial_full_waits_for_all),
        cmocka_unit_test(test_partial_counts_more_ranks_than_i8_can),
        cmocka_unit_test(test_keep_all_holds_the_others),
        cmocka_unit_test(test_keep_latest_gives_the_latest),
        cmocka_unit_test(test_result_stays_until_the_next_wait),
        cmocka_unit_test(test_majority_bounds_the_staleness),
        cmocka_unit_test(test_bound_holds_while_contributing),
        cmocka_unit_test(test_partial_wrong_options_are_refused),
        cmocka_unit_test(test_partial_wrong_use_is_refused),
        cmocka_unit_test(test_partial_start_while_one_runs_is_busy),
    };
    return cmocka_run_group_tests(tests, support_clusters_open,
                                  support_clusters_close);
}
