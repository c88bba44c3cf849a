/* Epochs: start, test and wait, on a manual engine and on engines with threads.
   What may change between epochs. Several schedules on one engine and on
   several engines, and call nodes that start schedules. */
#include "support/cluster.h"
#include "support/sanitized.h"

#include <baton/coll.h>

/* ---- start, test, wait ------------------------------------------------ */

TEST_EACH(test_epoch_runs_once_a_start, 1)
{
    uint64_t calls = 0;
    bool done = false;
    baton_schedule_t *s = support_schedule(cluster->groups[0], "count");
    (void)baton_add_call(s, support_count, &calls);
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_test(s, &done));
    assert_true(done); /* no epoch is in flight before the first start */
    support_fails(baton_schedule_wait(s, 0), BATON_ERR_STATE,
                  "wait for \"count\": it has not been started: call "
                  "baton_schedule_start first");
    assert_int_equal(baton_schedule_epoch(s), 0);
    for (uint64_t epoch = 1; epoch <= 100; epoch++) {
        support_ok(baton_schedule_start(s));
        if (epoch % 2 == 0) {
            support_ends(s, BATON_OK);
        }
        do {
            support_ok(baton_schedule_test(s, &done));
        } while (!done);
        assert_int_equal(calls, epoch);
        assert_int_equal(baton_schedule_epoch(s), epoch);
    }
    support_ok(baton_schedule_destroy(s));
}

/* ---- the outcomes of epochs ------------------------------------------- */

static baton_status_t fail_even(void *arg, baton_call_t *call)
{
    return baton_call_epoch(call) % 2 == 0 ? BATON_ERR_LIMIT : BATON_OK;
}

/* Rank 1 starts epoch 1 and does not wait for it. Rank 0 goes on to epoch 2. It
   also activates that epoch on rank 1, where it fails. */
TEST_EACH(test_wait_gives_the_outcome_of_its_own_epoch, 2)
{
    baton_schedule_t **s = support_schedules_create(cluster, "own");
    baton_failure_t failure;
    bool done = false;
    (void)baton_add_activation(s[0], baton_add_on_start(s[0]));
    baton_before(s[1], baton_add_activation(s[1], baton_add_on_start(s[1])),
                 baton_add_call(s[1], fail_even, NULL));
    support_schedules_commit(cluster, s);
    support_ok(baton_schedule_start(s[1]));
    support_run(s[0]);
    while (baton_schedule_epoch(s[1]) == 0) {
        (void)baton_engine_step(cluster->engines[1]);
    }
    support_ok(baton_schedule_start(s[0]));
    while (baton_schedule_failure(s[1], &failure) != BATON_OK) {
        (void)baton_engine_step(cluster->engines[0]);
        (void)baton_engine_step(cluster->engines[1]);
    }
    assert_int_equal(failure.epoch, 2);
    support_ends(s[1], BATON_OK);
    support_ok(baton_schedule_test(s[1], &done));
    assert_true(done);
    support_fails(baton_schedule_start(s[1]), BATON_ERR_FAILED,
                  "\"own\" epoch 2 failed at call#");
    support_schedules_destroy(cluster, s);
}

static baton_status_t skip_first(void *arg, baton_call_t *call)
{
    return baton_call_epoch(call) == 1 ? BATON_SKIP : BATON_OK;
}

/* In epoch 1 rank 0 does not send the message that rank 1 waits for. The
   message of epoch 2 arrives before or after rank 1 has started. */
TEST_MANUALLY(test_a_message_that_is_not_sent_is_named, 2)
{
    for (int early = 0; early < 2; early++) {
        baton_schedule_t **s = support_schedules_create(cluster, "branch");
        baton_node_t send = baton_add_send(s[0], 1, support_scratch(s[0], 1));
        baton_set_optional(s[0], send);
        baton_before(s[0], baton_add_call(s[0], skip_first, NULL), send);
        (void)baton_add_recv(s[1], 0, support_scratch(s[1], 1));
        support_schedules_commit(cluster, s);
        for (int i = 0; i < 3; i++) {
            support_ok(baton_schedule_start(s[i == 2 * early]));
            support_drain(cluster);
        }
        support_fails(baton_schedule_wait(s[1], SUPPORT_WAIT_MS),
                      BATON_ERR_MISMATCH,
                      "has not sent: it is in epoch 2 already");
        support_schedules_destroy(cluster, s);
    }
}

/* ---- between epochs --------------------------------------------------- */

TEST_EACH(test_rebind_between_epochs, 2)
{
    baton_schedule_t **s = support_schedules_create(cluster, "moving");
    uint64_t places[4] = {0}, sent = 0;
    baton_buffer_t bound = baton_buffer_bind(s[0], NULL, 8);
    baton_view_t scratch = support_scratch(s[0], 8);
    baton_before(s[0], baton_add_recv(s[0], 1, scratch),
                 baton_add_copy(s[0], baton_view(bound, 0, 8), scratch));
    (void)baton_add_send(s[1], 0, support_view(s[1], &sent, 8));
    support_ok(baton_buffer_rebind(s[0], bound, &places[3]));
    support_schedules_commit(cluster, s);
    support_fails(baton_buffer_rebind(s[0], scratch.buffer, places),
                  BATON_ERR_INVALID,
                  "rebind in \"moving\": buffer 1 is scratch");
    support_fails(baton_buffer_rebind(s[0], (baton_buffer_t){9}, places),
                  BATON_ERR_INVALID, "buffer 9 is not one of its buffers");
    for (size_t epoch = 1; epoch <= 3; epoch++) {
        support_ok(baton_buffer_rebind(s[0], bound, &places[epoch - 1]));
        support_ok(baton_schedule_start(s[0]));
        support_fails(baton_buffer_rebind(s[0], bound, &places[3]),
                      BATON_ERR_BUSY, "\"moving\"");
        sent = epoch;
        support_run(s[1]);
        support_ends(s[0], BATON_OK);
        assert_int_equal(places[epoch - 1], epoch);
    }
    assert_int_equal(places[3], 0);
    support_schedules_destroy(cluster, s);
}

/* Every epoch fails, so a wait never returns BATON_OK, however late it comes.
 */
typedef struct observer {
    baton_schedule_t *schedule;
    atomic_bool *over;
    uint64_t wrong;
} observer_t;

static baton_status_t fail_always(void *arg, baton_call_t *call)
{
    return BATON_ERR_LIMIT;
}

static void observe(void *arg)
{
    observer_t *observer = arg;
    while (!atomic_load(observer->over)) {
        baton_status_t status =
            baton_schedule_wait(observer->schedule, SUPPORT_WAIT_MS);
        /* BATON_ERR_FAILED: the epoch's own status is no longer known */
        observer->wrong +=
            status != BATON_ERR_LIMIT && status != BATON_ERR_FAILED;
    }
}

TEST_EACH(test_wait_of_many_never_misses_a_failure, 1)
{
    enum { OBSERVERS = 3, EPOCHS = SUPPORT_REPEAT(2000) };
    atomic_bool over = false;
    observer_t observers[OBSERVERS];
    support_thread_t *threads[OBSERVERS];
    baton_schedule_t *s = support_schedule(cluster->groups[0], "failing");
    (void)baton_add_call(s, fail_always, NULL);
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_start(s));
    for (int k = 0; k < OBSERVERS; k++) {
        observers[k] = (observer_t){s, &over, 0};
        threads[k] = support_thread_start(observe, &observers[k]);
    }
    for (int epoch = 1; epoch < EPOCHS; epoch++) {
        support_ends(s, BATON_ERR_LIMIT);
        support_ok(baton_schedule_start(s));
    }
    atomic_store(&over, true);
    for (int k = 0; k < OBSERVERS; k++) {
        support_thread_join(threads[k]);
        assert_int_equal(observers[k].wrong, 0);
    }
    support_ok(baton_schedule_destroy(s));
}

/* ---- several schedules ------------------------------------------------ */

typedef struct crossing {
    baton_schedule_t *own, *other;
    baton_buffer_t buffer;
    char *memory;
} crossing_t;

static baton_status_t cross(void *arg, baton_call_t *call)
{
    crossing_t *crossing = arg;
    baton_status_t status = baton_schedule_start(crossing->other);
    return status == BATON_OK
               ? baton_buffer_rebind(crossing->own, crossing->buffer,
                                     crossing->memory)
               : status;
}

/* While the thread drives the other engine, it is still the driver of the first
   one, which is a condition of a rebind. */
TEST_VARIANTS(test_call_node_starts_a_schedule_of_another_engine, 2,
              SUPPORT_OWN_ENGINES, SUPPORT_OWN_MANUAL + 1)
{
    char from[8] = "crossed", to[8] = "";
    uint64_t calls = 0;
    crossing_t crossing = {.memory = from};
    crossing.own = support_schedule(cluster->groups[0], "own");
    crossing.other = support_schedule(cluster->groups[1], "other");
    (void)baton_add_call(crossing.other, support_count, &calls);
    crossing.buffer = baton_buffer_bind(crossing.own, NULL, 8);
    baton_node_t call = baton_add_call(crossing.own, cross, &crossing);
    baton_node_t copy =
        baton_add_copy(crossing.own, support_view(crossing.own, to, 8),
                       baton_view(crossing.buffer, 0, 8));
    baton_before(crossing.own, call, copy);
    support_ok(baton_schedule_commit(crossing.own));
    support_ok(baton_schedule_commit(crossing.other));
    support_run(crossing.own);
    support_ends(crossing.other, BATON_OK);
    assert_int_equal(calls, 1);
    assert_string_equal(to, "crossed");
    support_ok(baton_schedule_destroy(crossing.own));
    support_ok(baton_schedule_destroy(crossing.other));
}

/* Calls that a call node makes on its own engine. Creating and starting
   schedules is allowed; calls that would have to wait fail at once and change
   nothing. */
typedef struct builder {
    baton_group_t *group;
    baton_schedule_t *own, *other, *made;
    uint64_t calls;
    baton_status_t created, started, committed, destroyed, waited, recovered;
} builder_t;

static baton_status_t try_all(void *arg, baton_call_t *call)
{
    builder_t *builder = arg;
    char name[32];
    snprintf(name, sizeof name, "made %d", (int)baton_call_epoch(call));
    builder->created =
        baton_schedule_create(builder->group, name, &builder->made);
    (void)baton_add_call(builder->made, support_count, &builder->calls);
    builder->committed = baton_schedule_commit(builder->made);
    builder->destroyed = baton_schedule_destroy(builder->own);
    builder->started = baton_schedule_start(builder->other);
    builder->waited = baton_schedule_wait(builder->other, -1);
    builder->recovered = baton_group_recover(builder->group, -1);
    return BATON_OK;
}

TEST_EACH(test_call_node_is_refused_what_would_wait, 2)
{
    support_pair_t pair;
    builder_t builder = {.group = cluster->groups[0]};
    support_pair_open(&pair, cluster, "other");
    builder.other = pair.schedules[0];
    builder.own = support_schedule(cluster->groups[0], "own");
    (void)baton_add_call(builder.own, try_all, &builder);
    support_ok(baton_schedule_commit(builder.own));
    for (uint64_t epoch = 1; epoch <= 50; epoch++) {
        support_run(builder.own);
        support_ok(builder.created);
        support_ok(builder.started);
        assert_int_equal(builder.committed, BATON_ERR_STATE);
        assert_int_equal(builder.destroyed, BATON_ERR_STATE);
        assert_int_equal(builder.waited, BATON_ERR_STATE);
        assert_int_equal(builder.recovered, BATON_ERR_STATE);
        support_ok(baton_schedule_commit(builder.made));
        support_run(builder.made);
        assert_int_equal(builder.calls, epoch);
        support_pair_send(&pair, epoch);
        support_ends(builder.other, BATON_OK);
        assert_int_equal(pair.got, epoch);
        support_ok(baton_schedule_destroy(builder.made));
    }
    support_ok(baton_schedule_destroy(builder.own));
    support_pair_close(&pair);
}

/* ---- limit ------------------------------------------------------------ */

/* Rank 0 activates the epochs. Rank 1 never starts one. */
TEST_MANUALLY(test_limit_holds_external_epochs_back, 2)
{
    baton_schedule_t **s = support_schedules_create(cluster, "limited");
    uint64_t calls[2] = {0, 0};
    for (int rank = 0; rank < 2; rank++) {
        baton_node_t begin =
            baton_add_activation(s[rank], baton_add_on_start(s[rank]));
        baton_node_t call =
            baton_add_call(s[rank], support_count, &calls[rank]);
        baton_before(s[rank], begin, call);
    }
    support_schedules_commit(cluster, s);
    baton_schedule_limit(s[1], 0);
    for (int epoch = 1; epoch <= 5; epoch++) {
        support_run(s[0]);
    }
    support_drain(cluster);
    assert_int_equal(calls[1], 0);
    baton_schedule_limit(s[1], 1);
    support_drain(cluster);
    assert_int_equal(calls[0], 5);
    assert_int_equal(calls[1], 1); /* messages for later epochs are kept */
    baton_schedule_limit(s[1], 3);
    support_drain(cluster);
    assert_int_equal(calls[1], 3);
    baton_schedule_limit(s[1], 2); /* a limit is never lowered */
    support_drain(cluster);
    for (int epoch = 1; epoch <= 4; epoch++) {
        support_run(
            /* Epochs 1 to 3 have run; the rank's own start begins the 4th. */
            s[1]);
    }
    assert_int_equal(calls[1], 4);
    assert_int_equal(baton_schedule_epoch(s[1]), 4);
    baton_schedule_limit(s[1], 100);
    support_drain(cluster);
    assert_int_equal(calls[1], 5);
    support_schedules_destroy(cluster, s);
}
