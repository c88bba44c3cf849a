/* Partial all-reduces: an example for each sentence of partial.h, about slow
   ranks and the results that are kept for them, a thread that is adding its
   contribution, counts of many ranks, statistics, cost-only simulations, and
   wrong use. One thread decides when each rank starts. Properties of all
   partials are in sim/test_properties.c. */
#include "support/sim.h"

#include <baton/coll.h>
#include <baton/partial.h>
#include <sched.h>
#include <sys/mman.h>

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

static int64_t value_of(const baton_partial_result_t *result)
{
    return *(const int64_t *)result->data;
}

static void contribute_and_start(baton_partial_t *partial, int64_t value)
{
    support_ok(baton_partial_contribute(partial, &value));
    support_ok(baton_partial_start(partial));
}

static baton_partial_result_t wait_for(baton_partial_t *partial)
{
    baton_partial_result_t result;
    support_ok(baton_partial_wait(partial, SUPPORT_WAIT_MS, &result));
    return result;
}

/* Contributes, starts and waits. */
static baton_partial_result_t take_step(baton_partial_t *partial, int64_t value)
{
    contribute_and_start(partial, value);
    return wait_for(partial);
}

/* Two ranks, and a partial all-reduce on each from open_two to close_two. */
static support_cluster_t *two;
static baton_partial_t *both[2];

static void open_two(const baton_partial_options_t *options)
{
    two = support_cluster_of(2);
    open_partials(two, both, options);
}

static int close_two(void **state)
{
    close_partials(two, both);
    return 0;
}

#define PAIR_TEST(name) TEST_BETWEEN(name, NULL, close_two)

/* ---- slow ranks ------------------------------------------------------- */

/* A result neither moves nor changes until the rank's next wait. */
TEST(test_result_stays_until_the_next_wait)
{
    for (int keep = 0; keep < 2; keep++) {
        baton_partial_options_t options =
            solo_of_one((baton_keep_t)keep, keep == BATON_KEEP_LATEST ? 1 : 8);
        open_two(&options);
        const baton_partial_result_t held = take_step(both[1], 42);
        assert_int_equal(value_of(&held), 42);
        support_drain(two);
        for (int64_t epoch = 1; epoch <= 8; epoch++) {
            (void)take_step(both[0], 1000 + epoch);
            support_drain(two);
            assert_int_equal(value_of(&held), 42);
        }
        (void)close_two(NULL);
    }
}

/* By default a late rank gets every result, in the order of steps. So the
   weights of a plain training loop stay the same on all ranks. */
PAIR_TEST(test_plain_loop_keeps_weights_the_same)
{
    enum { STEPS = 4 };
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    int64_t weight[2] = {0, 0};
    options.count = 1;
    options.dtype = BATON_I64;
    open_two(&options);
    for (int late = 0; late < 2; late++) {
        for (int64_t step = 1; step <= STEPS; step++) {
            const baton_partial_result_t seen = take_step(both[late], step);
            weight[late] = 3 * weight[late] + value_of(&seen);
            support_drain(two);
        }
    }
    assert_int_equal(weight[0], weight[1]);
}

/* ---- a thread that contributes ---------------------------------------- */

/* A contribution that takes as long as the test likes, since the addition waits
   in the contributing thread. */
typedef struct slow {
    baton_partial_t *partial;
    atomic_bool inside, released;
} slow_t;

static _Thread_local slow_t *adding; /* set only in the contributing thread */

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

static void zero(void *arg, void *target, size_t count, baton_dtype_t dtype)
{
    BATON_SUM->identity(arg, target, count, dtype);
}

static const baton_op_t slow_op = {
    .name = "slow", .reduce = slow_sum, .identity = zero, .commutative = true};

static void contribute_slowly(void *arg)
{
    const int64_t value = 100;
    adding = arg;
    if (baton_partial_contribute(adding->partial, &value) != BATON_OK) {
        abort();
    }
}

static support_thread_t *begin_to_contribute(slow_t *slow)
{
    support_thread_t *thread = support_thread_start(contribute_slowly, slow);
    while (!atomic_load(&slow->inside)) {
        sched_yield();
    }
    return thread;
}

/* If the pending contribution is as old as it may be, an epoch waits for a
   thread that is just adding to it: it would be too old for the next epoch. */
TEST(test_bound_holds_while_contributing)
{
    for (int keep = 0; keep < 2; keep++) {
        bool latest = keep == BATON_KEEP_LATEST;
        baton_partial_options_t options =
            solo_of_one((baton_keep_t)keep, latest ? 4 : 1);
        options.max_staleness = latest ? 1 : 0;
        options.op = &slow_op;
        bool done = true;
        open_two(&options);
        (void)take_step(both[1], 1);
        assert_false(take_step(both[0], 10).included);

        slow_t slow = {.partial = both[0]};
        support_thread_t *thread = begin_to_contribute(&slow);
        contribute_and_start(both[1], 2);
        support_drain(two);
        support_ok(baton_partial_test(both[1], &done));
        assert_false(done);
        atomic_store(&slow.released, true);
        support_thread_join(thread);

        support_ok(baton_partial_start(both[0]));
        for (int rank = 0; rank < 2; rank++) {
            const baton_partial_result_t seen = wait_for(both[rank]);
            assert_int_equal(value_of(&seen), 112);
            assert_true(seen.included);
            assert_int_equal(seen.staleness, rank == 0 ? 1 : 0);
        }
        (void)close_two(NULL);
    }
}

/* Without a bound an epoch does not wait for a thread that is just adding, and
   takes nothing from its rank. */
PAIR_TEST(test_contribution_in_the_making_is_not_taken)
{
    baton_partial_options_t options = solo_of_one(BATON_KEEP_ALL, 8);
    options.op = &slow_op;
    open_two(&options);
    slow_t slow = {.partial = both[0]};
    int64_t first = 10;
    support_ok(baton_partial_contribute(both[0], &first));
    support_thread_t *thread = begin_to_contribute(&slow);
    for (int64_t epoch = 1; epoch <= 2; epoch++) {
        const baton_partial_result_t seen = take_step(both[1], epoch);
        assert_int_equal(value_of(&seen), epoch == 1 ? 1 : 112);
        support_drain(two);
        if (epoch == 1) {
            atomic_store(&slow.released, true);
            support_thread_join(thread);
        }
    }
}

/* ---- several tensors ---------------------------------------------------- */

enum { TENSORS = 3, ELEMENTS = 4 };
static const size_t cut[TENSORS] = {1, 0, 3};

static baton_partial_options_t solo_of_tensors(const baton_op_t *op)
{
    baton_partial_options_t options = solo_of_one(BATON_KEEP_ALL, 8);
    options.count = 0;
    options.counts = cut;
    options.tensors = TENSORS;
    options.op = op;
    return options;
}

static void contribute_tensor(baton_partial_t *partial, size_t tensor,
                              int64_t first)
{
    const int64_t data[] = {first, first + 1, first + 2};
    support_ok(baton_partial_contribute_tensor(partial, tensor, data));
}

static void expect_result(baton_partial_t *partial, uint32_t active,
                          bool included, const int64_t expected[ELEMENTS])
{
    const baton_partial_result_t seen = wait_for(partial);
    assert_memory_equal(seen.data, expected, ELEMENTS * sizeof *expected);
    assert_int_equal(seen.active, active);
    assert_int_equal(seen.included, included);
}

static void expect_pending(baton_partial_t *partial, bool any,
                           const int64_t expected[ELEMENTS])
{
    int64_t pending[ELEMENTS];
    bool is = !any;
    support_ok(baton_partial_pending(partial, pending, &is));
    assert_int_equal(is, any);
    assert_memory_equal(pending, expected, sizeof pending);
}

/* When epoch 1 begins, rank 0 has contributed one tensor. It contributes the
   other one before epoch 2. It has started neither step. */
PAIR_TEST(test_tensors_of_a_step_are_in_one_epoch)
{
    const baton_partial_options_t options = solo_of_tensors(NULL);
    open_two(&options);
    assert_int_equal(baton_partial_offset(both[0], 2), 1);
    assert_int_equal(baton_partial_offset(both[0], TENSORS), ELEMENTS);
    for (int64_t epoch = 1; epoch <= 2; epoch++) {
        contribute_tensor(both[0], epoch == 1 ? 2 : 0, 10);
        contribute_tensor(both[1], 2, epoch);
        support_ok(baton_partial_start(both[1]));
        expect_result(both[1], 1, true,
                      (int64_t[]){0, epoch, epoch + 1, epoch + 2});
        support_drain(two);
    }
    expect_pending(both[0], true, (int64_t[]){10, 10, 11, 12});
    support_ok(baton_partial_start(both[0]));
    contribute_tensor(both[0], 0, 100); /* this contribution is for step 2 */
    expect_result(both[0], 1, false, (int64_t[]){0, 1, 2, 3});
    expect_pending(both[0], true, (int64_t[]){110, 10, 11, 12});
    support_ok(baton_partial_start(both[1]));
    expect_result(both[1], 1, false, (int64_t[]){10, 10, 11, 12});
    expect_pending(both[0], true, (int64_t[]){100, 0, 0, 0});
    for (int64_t step = 2; step <= 3; step++) {
        support_ok(baton_partial_start(both[0]));
        expect_result(both[0], 1, false,
                      step == 2 ? (int64_t[]){0, 2, 3, 4}
                                : (int64_t[]){10, 10, 11, 12});
    }
}

/* Two contributions to a tensor are reduced. A tensor without a contribution
   counts as neutral, even if an older step is pending. */
PAIR_TEST(test_tensors_that_are_missing_are_neutral)
{
    const baton_partial_options_t options = solo_of_tensors(BATON_MAX);
    const int64_t none = INT64_MIN;
    open_two(&options);
    for (int step = 1; step <= 2; step++) {
        support_ok(baton_partial_start(both[1]));
        expect_result(both[1], 0, false, (int64_t[]){none, none, none, none});
    }
    support_drain(two);
    contribute_tensor(both[0], 1, 0);
    contribute_tensor(both[0], 2, 5);
    contribute_tensor(both[0], 2, 4);
    support_ok(baton_partial_start(both[0]));
    expect_result(both[0], 0, false, (int64_t[]){none, none, none, none});
    expect_pending(both[0], true, (int64_t[]){none, 5, 6, 7});
    contribute_tensor(both[0], 0, -1);
    support_ok(baton_partial_start(both[0]));
    expect_result(both[0], 0, false, (int64_t[]){none, none, none, none});
    /* This step has no new contribution. */
    support_ok(baton_partial_start(both[0]));
    expect_result(both[0], 1, false, (int64_t[]){-1, 5, 6, 7});
    expect_pending(both[0], false, (int64_t[]){none, none, none, none});
}

/* When all ranks have ended the last step, pending contributions can be moved
   to a partial that divides the vector into other tensors. */
TEST(test_tensors_are_cut_anew)
{
    static const size_t other_cut[] = {3, 1};
    baton_partial_t *others[2] = {NULL, NULL};
    baton_partial_options_t options = solo_of_tensors(NULL);
    int64_t pending[ELEMENTS];
    bool any = false;
    open_two(&options);
    support_ok(baton_partial_start(both[1]));
    expect_result(both[1], 0, false, (int64_t[]){0, 0, 0, 0});
    support_drain(two);
    contribute_tensor(both[0], 2, 10);
    /* The contribution comes too late for this step. */
    support_ok(baton_partial_start(both[0]));
    expect_result(both[0], 0, false, (int64_t[]){0, 0, 0, 0});
    contribute_tensor(both[0], 0, 7); /* for a step that is never started */
    options.counts = other_cut;
    options.tensors = 2;
    open_partials(two, others, &options);
    for (int rank = 0; rank < 2; rank++) {
        support_ok(baton_partial_pending(both[rank], pending, &any));
        assert_int_equal(any, rank == 0);
        if (any) {
            support_ok(baton_partial_contribute(others[rank], pending));
        }
    }
    (void)close_two(NULL);
    contribute_tensor(others[1], 1, 100);
    support_ok(baton_partial_start(others[1]));
    expect_result(others[1], 2, true, (int64_t[]){7, 10, 11, 112});
    close_partials(two, others);
}

/* ---- tensors that are lent ---------------------------------------------- */

enum { LONG = BATON_PARTIAL_TREE_BYTES / sizeof(int64_t) + 1 };
static const size_t long_cut[TENSORS] = {LONG, 0, 2};
static int64_t lent[LONG], shorts[2];

static void open_long(baton_partial_mode_t mode)
{
    baton_partial_options_t options = solo_of_tensors(NULL);
    options.counts = long_cut;
    options.mode = mode;
    open_two(&options);
}

/* Opens two ranks. Rank 0 is late for epoch 1, and lends its tensors. */
static void lend_late(int64_t first)
{
    open_long(BATON_SOLO);
    support_ok(baton_partial_start(both[1]));
    (void)wait_for(both[1]);
    support_drain(two);
    lent[LONG - 1] = first;
    shorts[1] = 7;
    support_ok(baton_partial_contribute_tensor_lent(both[0], 0, lent));
    support_ok(baton_partial_contribute_tensor_lent(both[0], 1, NULL));
    support_ok(baton_partial_contribute_tensor_lent(both[0], 2, shorts));
}

static void contribute_and_start_long(baton_partial_t *partial, int64_t last)
{
    static int64_t other[LONG];
    other[LONG - 1] = last;
    support_ok(baton_partial_contribute_tensor(partial, 0, other));
    support_ok(baton_partial_start(partial));
}

static void expect_long(baton_partial_t *partial, int64_t last,
                        int64_t of_shorts)
{
    const baton_partial_result_t seen = wait_for(partial);
    const int64_t *data = seen.data;
    assert_int_equal(data[LONG - 1], last);
    assert_int_equal(data[LONG + 1], of_shorts);
}

/* Results are written to the lent memory, after the pending contributions there
   have been copied. */
PAIR_TEST(test_lent_tensors_get_the_result)
{
    void *const targets[TENSORS] = {lent, NULL, shorts};
    baton_partial_result_t seen;
    lend_late(5);
    support_ok(baton_partial_start(both[0]));
    support_ok(baton_partial_wait_into(both[0], -1, targets, &seen));
    assert_int_equal(lent[LONG - 1], 0);
    assert_int_equal(shorts[1], 0);
    assert_memory_equal(seen.data, lent, sizeof lent);
    contribute_and_start_long(both[1], 1000);
    expect_long(both[1], 1005, 7);
}

/* A short tensor is copied at once. A second contribution is added to a long
   tensor, which ends its loan. The tensors that a late rank lends for step 2
   are added to the pending step 1; step 3 does not use their memory again. */
PAIR_TEST(test_lent_tensors_are_added)
{
    lend_late(5);
    shorts[1] = 0;
    support_ok(baton_partial_contribute_tensor_lent(both[0], 0, lent));
    lent[LONG - 1] = 0;
    support_ok(baton_partial_start(both[0]));
    expect_long(both[0], 0, 0);
    support_ok(baton_partial_contribute_tensor_lent(both[0], 0, lent));
    support_ok(baton_partial_start(both[0]));
    expect_long(both[0], 10, 7);
    contribute_and_start_long(both[0], 9);
    expect_long(both[0], 9, 0);
}

/* A recovery ends loans, also those of a step that was not started, and so does
   destroy. A wait that timed out does not. */
PAIR_TEST(test_lent_tensors_outlast_no_recovery)
{
    baton_partial_result_t seen;
    lend_late(5);
    support_cluster_recover(two);
    lent[LONG - 1] = 3;
    support_ok(baton_partial_start(both[0]));
    expect_long(both[0], 5, 7);
    (void)close_two(NULL);
    open_long(BATON_FULL);
    support_ok(baton_partial_contribute_tensor_lent(both[0], 0, lent));
    support_ok(baton_partial_start(both[0]));
    support_fails(baton_partial_wait(both[0], 0, &seen), BATON_ERR_TIMEOUT, "");
    contribute_and_start_long(both[1], 1000);
    expect_long(both[0], 1003, 0);
    support_ok(baton_partial_contribute_tensor_lent(both[0], 0, lent));
    support_fails(baton_partial_wait_into(both[0], -1, NULL, &seen),
                  BATON_ERR_INVALID, "targets is NULL");
}

/* When a step has ended, the application may free the memory that it lent for
   it. The library does not read it if the next step fails before it has taken
   anything. */
PAIR_TEST(test_lent_tensors_are_not_read_after_their_step)
{
    baton_partial_result_t seen;
    open_long(BATON_FULL);
    int64_t *freed = mmap(NULL, sizeof lent, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(freed != MAP_FAILED);
    support_ok(baton_partial_contribute_tensor_lent(both[0], 0, freed));
    support_ok(baton_partial_start(both[0]));
    contribute_and_start_long(both[1], 1000);
    (void)wait_for(both[0]);
    assert_int_equal(munmap(freed, sizeof lent), 0);
    support_ok(baton_partial_start(both[0]));
    support_ok(baton_schedule_cancel(
        (baton_schedule_t *)(uintptr_t)baton_partial_schedule(both[0])));
    support_fails(baton_partial_wait(both[0], -1, &seen), BATON_ERR_CANCELLED,
                  "");
}

/* Short vectors are copied, even if the operation does not allow an activation
   to carry them. */
PAIR_TEST(test_lent_vectors_that_are_short_are_copied)
{
    baton_partial_options_t options = solo_of_one(BATON_KEEP_ALL, 8);
    options.op = BATON_MAX;
    open_two(&options);
    int64_t value = 5;
    support_ok(baton_partial_contribute_lent(both[0], &value));
    value = 99;
    support_ok(baton_partial_start(both[0]));
    const baton_partial_result_t seen = wait_for(both[0]);
    assert_int_equal(value_of(&seen), 5);
    support_drain(two);
}

/* Results and pending contributions add up to all that was lent, in place, for
   each type, in each mode, on some numbers of ranks. The first rank of each
   step starts alone. */
static void conserve_type(int size, baton_dtype_t dtype)
{
    enum { STEPS = 2 };
    support_cluster_t *ranks = support_cluster_of(size);
    const bool pairs = dtype >= BATON_I16_I32;
    const baton_op_t *of_numbers = dtype == BATON_BOOL ? BATON_LOR : BATON_SUM;
    const baton_op_t *op = pairs ? BATON_MINLOC : of_numbers;
    const baton_op_t *one = pairs ? BATON_MAXLOC : BATON_PROD;
    const size_t bytes = baton_dtype_size(dtype);
    const size_t some = BATON_PARTIAL_TREE_BYTES / bytes + (size_t)size;
    const size_t counts[] = {some + 1, 0, 1, 2, some}, count = 2 * some + 4;
    baton_partial_options_t options = {.size = sizeof options,
                                       .tensors = 5,
                                       .counts = counts,
                                       .op = op,
                                       .dtype = dtype};
    options.mode = (baton_partial_mode_t)((size + (int)dtype) % 6);
    options.mode_ranks =
        options.mode >= BATON_QUORUM ? (uint32_t)(size + 1) / 2 : 0;
    baton_partial_t *partials[8];
    char *memory[8], *sum = malloc(count * bytes), *all = malloc(count * bytes);
    baton_partial_result_t seen;
    bool any;
    open_partials(ranks, partials, &options);
    op->identity(NULL, sum, count, dtype);
    op->identity(NULL, all, count, dtype);
    for (int r = 0; r < size; r++) {
        memory[r] = malloc(count * bytes);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < size; i++) {
            const int r = (i + step) % size;
            one->identity(NULL, memory[r], count, dtype);
            op->reduce(NULL, all, all, memory[r], count, dtype);
            for (size_t t = 0; t < 5; t++) {
                support_ok(baton_partial_contribute_tensor_lent(
                    partials[r], t,
                    memory[r] + baton_partial_offset(partials[r], t) * bytes));
            }
            support_ok(baton_partial_start(partials[r]));
            support_drain(ranks);
        }
        for (int r = 0; r < size; r++) {
            void *targets[5];
            for (size_t t = 0; t < 5; t++) {
                targets[t] =
                    memory[r] + baton_partial_offset(partials[r], t) * bytes;
            }
            support_ok(baton_partial_wait_into(partials[r], SUPPORT_WAIT_MS,
                                               targets, &seen));
            assert_memory_equal(memory[r], memory[0], count * bytes);
        }
        op->reduce(NULL, sum, sum, memory[0], count, dtype);
    }
    for (int r = 0; r < size; r++) {
        support_ok(baton_partial_pending(partials[r], memory[r], &any));
        op->reduce(NULL, sum, sum, memory[r], count, dtype);
        free(memory[r]);
    }
    assert_memory_equal(sum, all, count * bytes);
    close_partials(ranks, partials);
    free(sum);
    free(all);
}

TEST(test_lent_tensors_of_each_type_are_conserved)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int dtype = 1; dtype < BATON_DTYPE_COUNT; dtype++) {
            conserve_type(sizes[i], (baton_dtype_t)dtype);
        }
    }
}

TEST(test_tensors_that_are_wrong_are_refused)
{
    static const size_t huge[TENSORS] = {SIZE_MAX, 1, 1};
    baton_group_t *group = support_cluster_of(1)->groups[0];
    baton_partial_options_t wrong = solo_of_tensors(NULL);
    baton_partial_t *p = NULL;
    const int64_t data = 0;
    wrong.count = 3;
    support_fails(baton_partial_create(group, &wrong, &p), BATON_ERR_INVALID,
                  "count is 3, must be 0, or the sum of counts, 4");
    wrong.tensors = 0;
    support_fails(baton_partial_create(group, &wrong, &p), BATON_ERR_INVALID,
                  "tensors is 0, and counts is not NULL");
    wrong = solo_of_tensors(NULL);
    wrong.counts = huge;
    support_fails(baton_partial_create(group, &wrong, &p), BATON_ERR_INVALID,
                  "the counts of tensors 0 to 1 add up to more than");
    wrong = solo_of_tensors(NULL);
    wrong.memory = BATON_MEMORY_DEVICE;
    support_fails(baton_partial_create(group, &wrong, &p),
                  BATON_ERR_UNSUPPORTED,
                  "tensors is 3, which is not supported with device memory");
    wrong = solo_of_tensors(NULL);
    support_ok(baton_partial_create(group, &wrong, &p));
    support_fails(baton_partial_contribute_tensor(p, TENSORS, &data),
                  BATON_ERR_INVALID, "\"slow\" has 3 tensors, and no tensor 3");
    support_fails(baton_partial_contribute_tensor(p, 0, NULL),
                  BATON_ERR_INVALID, "tensor 0 of \"slow\": data is NULL");
    /* The tensor is empty, so NULL is allowed. */
    support_ok(baton_partial_contribute_tensor(p, 1, NULL));
    support_ok(baton_partial_destroy(p));
}

/* ---- how many are counted ---------------------------------------------- */

/* Ranks are counted with types that can't hold their number, and with types
   that just can. */
TEST(test_partial_counts_more_ranks_than_i8_can)
{
    static const int sizes[] = {127, 130};
    for (size_t i = 0; i < 2; i++) {
        support_cluster_t *ranks = support_cluster_manual(sizes[i]);
        baton_partial_t *p[130];
        for (int dtype = 1; dtype < (int)BATON_DTYPE_COUNT; dtype++) {
            const uint64_t zero[2] = {0};
            baton_partial_options_t options = solo_of_one(BATON_KEEP_LATEST, 0);
            options.mode = BATON_FULL;
            options.dtype = (baton_dtype_t)dtype;
            if (!baton_op_takes(BATON_SUM, options.dtype)) {
                continue;
            }
            open_partials(ranks, p, &options);
            for (int rank = 0; rank < sizes[i]; rank++) {
                support_ok(baton_partial_contribute(p[rank], zero));
                support_ok(baton_partial_start(p[rank]));
            }
            for (int rank = 0; rank < sizes[i]; rank++) {
                assert_int_equal(wait_for(p[rank]).active, sizes[i]);
            }
            close_partials(ranks, p);
        }
        support_cluster_close(ranks);
    }
}

/* ---- without payload --------------------------------------------------- */

enum { RANKS = 4 };

/* Simulates one step. A cost-only simulation has no memory for vectors, so they
   may have a TiB. */
static baton_sim_totals_t simulate(bool cost_only,
                                   const baton_partial_options_t *options)
{
    baton_sim_options_t model = support_sim_options(RANKS);
    model.link = (baton_sim_link_t){.alpha_us = 1};
    model.cost_only = cost_only;
    baton_sim_t *sim = support_sim_open(&model);
    baton_partial_t *p[RANKS];
    int64_t data[5] = {1};
    bool any = true;
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_partial_create(baton_sim_group(sim, rank), options,
                                        &p[rank]));
        support_ok(baton_partial_contribute(p[rank], cost_only ? NULL : data));
        if (cost_only) {
            support_ok(baton_partial_pending(p[rank], NULL, &any));
            assert_true(any);
        }
        support_ok(baton_partial_start(p[rank]));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        baton_partial_result_t seen;
        support_ok(baton_partial_wait(p[rank], -1, &seen));
        assert_int_equal(seen.epoch, 1);
        assert_int_equal(seen.active, cost_only ? 0 : RANKS);
        assert_int_equal(seen.data == NULL, cost_only);
        assert_true(seen.included);
        support_ok(baton_partial_destroy(p[rank]));
    }
    baton_sim_totals_t totals = baton_sim_totals(sim);
    support_ok(baton_sim_destroy(sim));
    return totals;
}

/* With a maximum the count of active ranks is reduced separately. */
TEST(test_partial_costs_the_same_without_payload)
{
    baton_partial_options_t options = solo_of_one(BATON_KEEP_ALL, 0);
    options.mode = BATON_FULL;
    options.op = BATON_MAX;
    options.count = 5;
    baton_sim_totals_t with = simulate(false, &options);
    baton_sim_totals_t without = simulate(true, &options);
    assert_memory_equal(&with, &without, sizeof with);
    options.mode = BATON_SOLO;
    options.count = (size_t)1 << 38;
    options.inner = baton_add_allreduce_binomial;
    assert_true(simulate(true, &options).bytes > (uint64_t)1 << 40);
}

/* ---- wrong use --------------------------------------------------------- */

typedef struct refusal {
    const char *says;
    baton_partial_options_t options;
} refusal_t;

#define BAD(...)                                                               \
    {                                                                          \
        .size = sizeof(baton_partial_options_t), .dtype = BATON_F32,           \
        __VA_ARGS__                                                            \
    }

TEST(test_partial_wrong_options_are_refused)
{
    const baton_op_t half = {.name = "half", .reduce = BATON_SUM->reduce};
    const baton_op_t empty = {.name = "empty", .identity = BATON_SUM->identity};
    const refusal_t all[] = {
        {"size is 0", {.size = 0}},
        {"mode is 6, must be one of baton_partial_mode_t, 0 to 5",
         BAD(.mode = (baton_partial_mode_t)6)},
        {"QUORUM is 0, must be 1 to 2", BAD(.mode = BATON_QUORUM)},
        {"mode_ranks of QUORUM is 3, must be 1 to 2",
         BAD(.mode = BATON_QUORUM, .mode_ranks = 3)},
        {"CANDIDATES_ANY is 0", BAD(.mode = BATON_CANDIDATES_ANY)},
        {"mode_ranks of CANDIDATES_ALL is 7",
         BAD(.mode = BATON_CANDIDATES_ALL, .mode_ranks = 7)},
        {"mode_ranks is 2, must be 0: SOLO", BAD(.mode_ranks = 2)},
        {"keep is -1", BAD(.keep = (baton_keep_t)-1)},
        {"dtype is 0, which is no element type; set BATON_F32",
         {.size = sizeof(baton_partial_options_t)}},
        {"dtype is 21, which is no element type",
         {.size = sizeof(baton_partial_options_t), .dtype = BATON_DTYPE_COUNT}},
        {"memory is 7", BAD(.memory = (baton_memory_t)7)},
        {"history is 4294967295, must be 1 to 1048576",
         BAD(.history = UINT32_MAX)},
        {"max_staleness is 4294967295", BAD(.max_staleness = UINT32_MAX)},
        {"max_staleness is 3, must be 1 to 2, the history",
         BAD(.keep = BATON_KEEP_ALL, .history = 2, .max_staleness = 3)},
        {"count is 18446744073709551615, must be at most ",
         BAD(.count = SIZE_MAX)},
        {"\"half\" has no identity", BAD(.op = &half)},
        {"op->reduce is NULL", BAD(.op = &empty)},
        {"op is band, which does not reduce f32", BAD(.op = BATON_BAND)},
    };
    baton_group_t *group = support_cluster_of(2)->groups[0];
    baton_partial_t *untouched = (baton_partial_t *)&untouched;
    baton_partial_t *partial = untouched;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        support_fails(baton_partial_create(group, &all[i].options, &partial),
                      BATON_ERR_INVALID, all[i].says);
    }
    assert_ptr_equal(partial, untouched);
}

TEST(test_partial_wrong_use_is_refused)
{
    support_cluster_t *ranks = support_cluster_of(1);
    for (int keep = 0; keep < 2; keep++) {
        baton_partial_options_t options = solo_of_one((baton_keep_t)keep, 0);
        baton_partial_t *p = NULL;
        baton_partial_result_t seen;
        bool flag;
        support_ok(baton_partial_create(ranks->groups[0], &options, &p));
        support_fails(baton_partial_wait(p, -1, &seen), BATON_ERR_STATE,
                      "\"slow\": no step was started");
        support_ok(baton_partial_test(p, &flag));
        assert_true(flag);
        seen = take_step(p, 3);
        /* KEEP_ALL allows one wait a step, and LATEST any number. */
        support_expect(baton_partial_wait(p, SUPPORT_WAIT_MS, &seen),
                       keep == BATON_KEEP_ALL ? BATON_ERR_STATE : BATON_OK);
        assert_int_equal(value_of(&seen), 3);
        support_ok(baton_partial_destroy(p));
    }
}

PAIR_TEST(test_partial_start_while_one_runs_is_busy)
{
    baton_partial_options_t options = solo_of_one(BATON_KEEP_ALL, 0);
    baton_partial_result_t seen;
    options.mode = BATON_FULL;
    open_two(&options);
    contribute_and_start(both[0], 1);
    support_expect(baton_partial_start(both[0]), BATON_ERR_BUSY);
    support_fails(baton_partial_wait(both[0], 1, &seen), BATON_ERR_TIMEOUT,
                  "\"slow\" epoch 1");
    contribute_and_start(both[1], 2);
    for (int rank = 0; rank < 2; rank++) {
        seen = wait_for(both[rank]);
        assert_int_equal(value_of(&seen), 3);
        assert_int_equal(seen.active, 2);
    }
}

RUN_TESTS_BETWEEN(support_clusters_open, support_clusters_close)
