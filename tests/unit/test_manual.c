/* Manual progress in an application's own event loop: a descriptor and a
   timeout. */
#include "support/cluster.h"
#include "support/cmocka.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>

/* Each rank has a manual engine; rank 1 sends a number to rank 0. */
static void open_pair(support_pair_t *pair, support_cluster_t *cluster)
{
    support_pair_open(pair, cluster, "number");
    for (bool moved = true; moved;) {
        moved = baton_engine_step(cluster->engines[0]);
        moved |= baton_engine_step(cluster->engines[1]);
    }
}

static bool is_readable(const baton_engine_t *engine, int timeout_ms)
{
    struct pollfd pollfd = {baton_engine_descriptor(engine), POLLIN, 0};
    int count = poll(&pollfd, 1, timeout_ms);
    assert_true(count >= 0);
    return count == 1 && (pollfd.revents & POLLIN) != 0;
}

/* What a loop does before it sleeps: steps until there is nothing to do. */
static int step_until_idle(const baton_engine_t *engine)
{
    baton_engine_t *own = (baton_engine_t *)(uintptr_t)engine;
    int timeout_ms = baton_engine_timeout(own);
    for (int i = 0; i < 1000 && timeout_ms == 0; i++) {
        (void)baton_engine_step(own);
        timeout_ms = baton_engine_timeout(own);
    }
    return timeout_ms;
}

static void test_descriptor_tells_of_a_message(support_cluster_t *cluster)
{
    support_pair_t pair;
    open_pair(&pair, cluster);
    for (uint64_t epoch = 1; epoch <= 100; epoch++) {
        bool done = true;
        pair.sent = epoch;
        support_ok(baton_schedule_start(pair.schedules[0]));
        assert_int_not_equal(step_until_idle(cluster->engines[0]), 0);
        while (is_readable(cluster->engines[0], 0)) { /* of the epoch before */
            (void)baton_engine_step(cluster->engines[0]);
            assert_int_not_equal(step_until_idle(cluster->engines[0]), 0);
        }
        support_ok(baton_schedule_start(pair.schedules[1]));
        support_ends(pair.schedules[1], BATON_OK);
        assert_true(is_readable(cluster->engines[0], SUPPORT_WAIT_MS));
        while (baton_engine_step(cluster->engines[0])) {
        }
        support_ok(baton_schedule_test(pair.schedules[0], &done));
        assert_true(done);
        assert_int_equal(pair.got, epoch);
    }
    support_pair_close(&pair);
}

/* A start from another thread's point of view: mail wakes the loop. */
static void test_timeout_is_zero_while_there_is_work(support_cluster_t *cluster)
{
    support_pair_t pair;
    open_pair(&pair, cluster);
    assert_int_not_equal(step_until_idle(cluster->engines[1]), 0);
    support_ok(baton_schedule_start(pair.schedules[1]));
    support_ends(pair.schedules[1], BATON_OK);
    /* The message has come, and nobody has looked. */
    assert_int_equal(baton_engine_timeout(cluster->engines[0]), 0);
    support_ok(baton_schedule_start(pair.schedules[0]));
    support_ends(pair.schedules[0], BATON_OK);
    support_pair_close(&pair);
}

/* ---- other threads ------------------------------------------------------ */

typedef struct finisher {
    baton_async_t async;
    baton_schedule_t *cancels; /* or NULL: it completes the async node */
} finisher_t;

static void *finish_later(void *arg)
{
    finisher_t *finisher = arg;
    /* By then the loop has most probably gone to sleep. */
    nanosleep(&(struct timespec){0, 5000000}, NULL);
    support_ok(finisher->cancels != NULL
                   ? baton_schedule_cancel(finisher->cancels)
                   : baton_async_complete(finisher->async, BATON_OK));
    return NULL;
}

static baton_status_t begin_async(void *arg, baton_call_t *call,
                                  baton_async_t async)
{
    ((finisher_t *)arg)->async = async;
    return BATON_OK;
}

/* What another thread completes or cancels ends the sleep of an event loop. */
static void test_other_threads_wake_the_loop(support_cluster_t *cluster)
{
    static const baton_async_ops_t ops = {.start = begin_async};
    baton_engine_t *engine = cluster->engines[0];
    for (int i = 0; i < 20; i++) {
        finisher_t finisher = {.cancels = NULL};
        baton_schedule_t *s = support_schedule(cluster->groups[0], "elsewhere");
        (void)baton_add_async(s, &ops, &finisher);
        support_ok(baton_schedule_commit(s));
        support_ok(baton_schedule_start(s));
        assert_int_not_equal(step_until_idle(engine), 0);
        while (is_readable(engine, 0)) {
            (void)baton_engine_step(engine);
            assert_int_not_equal(step_until_idle(engine), 0);
        }
        finisher.cancels = i % 2 == 0 ? s : NULL;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, finish_later, &finisher),
                         0);
        assert_true(is_readable(engine, SUPPORT_WAIT_MS));
        (void)pthread_join(thread, NULL);
        if (finisher.cancels != NULL) { /* what was begun must end */
            support_ok(baton_async_complete(finisher.async, BATON_OK));
        }
        while (baton_engine_step(engine)) {
        }
        support_expect(baton_schedule_wait(s, SUPPORT_WAIT_MS),
                       i % 2 == 0 ? BATON_ERR_CANCELLED : BATON_OK);
        support_ok(baton_schedule_destroy(s));
    }
}

static void test_descriptor_is_of_manual_engines(support_cluster_t *cluster)
{
    assert_int_equal(baton_engine_descriptor(cluster->engines[0]), -1);
    assert_int_equal(baton_engine_timeout(cluster->engines[0]), -1);
    assert_int_equal(baton_engine_descriptor(NULL), -1);
    assert_int_equal(baton_engine_timeout(NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SUPPORT_WITH(test_descriptor_tells_of_a_message, 2, SUPPORT_OWN_MANUAL),
        SUPPORT_WITH(test_timeout_is_zero_while_there_is_work, 2,
                     SUPPORT_OWN_MANUAL),
        SUPPORT_MANUALLY(test_other_threads_wake_the_loop, 1),
        SUPPORT_WITH(test_descriptor_is_of_manual_engines, 1,
                     SUPPORT_ONE_THREAD),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
