/* The function that is called when an epoch has ended: it is called once for
   each epoch, however the epoch has ended. Also the calls that this function
   may make. */
#include "support/sparse.h"

#include <baton/partial.h>
#include <baton/sparse.h>

enum { EPOCHS = 200 };

typedef struct ends {
    baton_schedule_t *schedule;
    atomic_ullong count; /* number of calls, all right so far */
    atomic_bool wrong;
    /* after each epoch below this one the function starts the next */
    uint64_t last;
    baton_status_t status;
} ends_t;

static void note(void *arg, uint64_t epoch, baton_status_t status)
{
    ends_t *ends = arg;
    uint64_t count = atomic_fetch_add(&ends->count, 1) + 1;
    if (epoch != count || (status != BATON_OK && count == 1)) {
        atomic_store(&ends->wrong, true);
    }
    ends->status = status;
    if (epoch < ends->last && status == BATON_OK &&
        (baton_schedule_epoch(ends->schedule) != epoch ||
         baton_schedule_start(ends->schedule) != BATON_OK)) {
        atomic_store(&ends->wrong, true);
    }
}

static void expect(const ends_t *ends, uint64_t count, baton_status_t status)
{
    assert_int_equal(atomic_load(&ends->count), count);
    assert_false(atomic_load(&ends->wrong));
    assert_int_equal(ends->status, status);
}

/* Opens a pair of schedules with this function, and runs an epoch. */
static void open_watched(support_pair_t *pair, support_cluster_t *cluster,
                         ends_t ends[2], uint64_t last)
{
    support_pair_open(pair, cluster, "pair");
    for (int r = 0; r < 2; r++) {
        ends[r] = (ends_t){.schedule = pair->schedules[r], .last = last};
        baton_schedule_on_end(pair->schedules[r], note, &ends[r]);
    }
    support_schedules_run(cluster, pair->schedules);
}

TEST_EACH(test_on_end_each_epoch_starts_the_next, 2)
{
    support_pair_t pair;
    ends_t ends[2];
    open_watched(&pair, cluster, ends, EPOCHS);
    for (int r = 0; r < 2; r++) {
        while (atomic_load(&ends[r].count) < EPOCHS) {
            support_ends(pair.schedules[r], BATON_OK);
        }
        expect(&ends[r], EPOCHS, BATON_OK);
    }
    support_pair_close(&pair);
}

TEST_MANUALLY(test_on_end_failure_is_told_once, 2)
{
    support_pair_t pair;
    ends_t ends[2];
    open_watched(&pair, cluster, ends, 0);
    support_ok(baton_schedule_start(pair.schedules[0]));
    support_ok(baton_schedule_cancel(pair.schedules[0]));
    support_drain(cluster);
    expect(&ends[0], 2, BATON_ERR_CANCELLED);
    expect(&ends[1], 1, BATON_OK); /* rank 1 had not started the second epoch */
    support_expect(baton_schedule_start(pair.schedules[1]), BATON_ERR_FAILED);
    support_drain(cluster);
    expect(&ends[1], 1, BATON_OK);
    support_pair_close(&pair);
    expect(&ends[0], 2, BATON_ERR_CANCELLED);
}

TEST_WITH(test_on_end_counts_anew_behind_a_recovery, 2, SUPPORT_OWN_ENGINES)
{
    support_pair_t pair;
    ends_t ends[2];
    open_watched(&pair, cluster, ends, 0);
    support_ok(baton_schedule_start(pair.schedules[0]));
    support_expect(baton_group_recover(cluster->groups[1], 0),
                   BATON_ERR_TIMEOUT);
    support_ok(baton_group_recover(cluster->groups[0], SUPPORT_WAIT_MS));
    support_ok(baton_group_recover(cluster->groups[1], SUPPORT_WAIT_MS));
    expect(&ends[0], 2, BATON_ERR_CANCELLED);
    atomic_store(&ends[0].count, 0);
    atomic_store(&ends[1].count, 0);
    support_schedules_run(cluster, pair.schedules);
    support_pair_close(&pair); /* so that all calls have returned */
    expect(&ends[0], 1, BATON_OK);
    expect(&ends[1], 1, BATON_OK);
}

/* ---- calls that the function may make ------------------------------------ */

typedef struct inside {
    baton_schedule_t *own, *other;
    baton_buffer_t buffer;
    uint64_t memory[2];
    int calls;
} inside_t;

static void try_all(void *arg, uint64_t epoch, baton_status_t status)
{
    inside_t *inside = arg;
    baton_group_t *group = baton_schedule_group(inside->own);
    baton_schedule_t *made;
    support_ok(status);
    inside->calls++;
    support_ok(baton_schedule_start(inside->other));
    support_expect(baton_schedule_wait(inside->other, -1), BATON_ERR_STATE);
    support_expect(baton_schedule_rebind(inside->other, NULL, &made),
                   BATON_ERR_BUSY); /* its epoch runs */
    support_expect(baton_schedule_destroy(inside->own), BATON_ERR_STATE);
    support_expect(baton_group_recover(group, 0), BATON_ERR_STATE);
    support_expect(baton_group_destroy(group), BATON_ERR_STATE);
    support_ok(baton_schedule_create(group, "made", &made));
    support_expect(baton_schedule_commit(made), BATON_ERR_STATE);
    support_ok(baton_schedule_destroy(made));
    support_ok(
        baton_buffer_rebind(inside->own, inside->buffer, &inside->memory[1]));
}

TEST_MANUALLY(test_on_end_refuses_what_waits, 1)
{
    inside_t inside = {.own = support_schedule(cluster->groups[0], "own"),
                       .other = support_schedule(cluster->groups[0], "other")};
    uint64_t three = 3;
    inside.buffer =
        baton_buffer_bind(inside.own, &inside.memory[0], sizeof three);
    (void)baton_add_copy(inside.own, baton_view(inside.buffer, 0, sizeof three),
                         support_view(inside.own, &three, sizeof three));
    (void)baton_buffer_bind(inside.other, &three, sizeof three);
    (void)baton_add_nop(inside.other);
    baton_schedule_on_end(inside.own, try_all, &inside);
    support_ok(baton_schedule_commit(inside.own));
    support_ok(baton_schedule_commit(inside.other));
    support_run(inside.own);
    support_ends(inside.other, BATON_OK);
    assert_int_equal(baton_schedule_epoch(inside.other), 1);
    assert_int_equal(inside.memory[0], 3);
    assert_int_equal(inside.memory[1], 0);
    baton_schedule_on_end(inside.own, NULL, NULL);
    support_run(inside.own);
    assert_int_equal(inside.memory[1], 3);
    assert_int_equal(inside.calls, 1);
    support_ok(baton_schedule_destroy(inside.own));
    support_ok(baton_schedule_destroy(inside.other));
}

/* ---- partial and sparse -------------------------------------------------- */

TEST_MANUALLY(test_on_end_partial_tells_of_what_peers_begin, 3)
{
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    baton_partial_t *partials[3];
    ends_t ends[3] = {{0}};
    options.count = 1;
    options.dtype = BATON_U64;
    for (int r = 0; r < 3; r++) {
        support_ok(
            baton_partial_create(cluster->groups[r], &options, &partials[r]));
        baton_partial_on_end(partials[r], note, &ends[r]);
    }
    support_drain(cluster);
    support_ok(baton_partial_start(partials[1]));
    support_drain(cluster);
    for (int r = 0; r < 3; r++) {
        expect(&ends[r], 1, BATON_OK);
        support_ok(baton_partial_destroy(partials[r]));
    }
}

TEST(test_on_end_sparse_counts_its_steps)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    ends_t ends = {0};
    options.dtype = BATON_F32;
    options.count = 8;
    options.k = 2;
    options.warmup = 1; /* the step is dense, in another schedule */
    support_sparse_t *sparse = support_sparse_open(3, &options);
    baton_sparse_on_end(sparse->ranks[1], note, &ends);
    for (uint64_t step = 1; step <= 3; step++) {
        support_sparse_fill(sparse, step);
        support_sparse_step(sparse);
        expect(&ends, step, BATON_OK);
    }
    support_sparse_close(sparse);
}
