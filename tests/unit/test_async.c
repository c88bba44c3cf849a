/* Async nodes, which complete in their start, in another thread or when they
   are polled; and the end of an epoch that has failed meanwhile. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/pair.h"

#include <limits.h>
#include <sched.h>
#include <string.h>

/* An async node with its behaviour, and a call behind it that counts:

       async --> count (optional)                                            */
typedef struct worker {
    baton_schedule_t *schedule;
    baton_status_t start;  /* what its start returns */
    bool completes;        /* in its start, */
    baton_status_t status; /* the status of its completion */
    int polls_left;
    baton_async_t async;
    atomic_bool begun;
    atomic_int cancels;
    uint64_t behind;
} worker_t;

static baton_status_t begin(void *arg, baton_call_t *call, baton_async_t async)
{
    worker_t *worker = arg;
    worker->async = async;
    if (worker->completes &&
        baton_async_complete(async, worker->status) != BATON_OK) {
        return BATON_ERR_STATE;
    }
    atomic_store(&worker->begun, true);
    return worker->start;
}

static baton_status_t look(void *arg)
{
    worker_t *worker = arg;
    return worker->polls_left-- > 0 ? BATON_AGAIN : worker->status;
}

static void note_cancel(void *arg)
{
    worker_t *worker = arg;
    atomic_fetch_add(&worker->cancels, 1);
}

static const baton_async_ops_t notifies = {.start = begin,
                                           .cancel = note_cancel};
static const baton_async_ops_t polled = {
    .start = begin, .poll = look, .cancel = note_cancel};

static baton_status_t count(void *arg, baton_call_t *call)
{
    worker_t *worker = arg;
    worker->behind++;
    return BATON_OK;
}

static void open_worker(worker_t *worker, support_cluster_t *cluster,
                        const baton_async_ops_t *ops)
{
    baton_schedule_t *s = support_schedule(cluster->groups[0], "async");
    baton_node_t behind = baton_add_call(s, count, worker);
    baton_set_optional(s, behind);
    baton_before(s, baton_add_async(s, ops, worker), behind);
    support_ok(baton_schedule_commit(s));
    worker->schedule = s;
}

/* Runs three epochs, which end without the test's help. */
static void expect_ends(const worker_t *how, const baton_async_ops_t *ops,
                        baton_status_t wanted, uint64_t behind)
{
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster =
            support_cluster_open(1, &support_variants[i]);
        worker_t worker = {.start = how->start,
                           .completes = how->completes,
                           .status = how->status};
        open_worker(&worker, cluster, ops);
        for (uint64_t epoch = 1; epoch <= 3; epoch++) {
            worker.polls_left = how->polls_left;
            support_ok(baton_schedule_start(worker.schedule));
            support_expect(
                baton_schedule_wait(worker.schedule, SUPPORT_WAIT_MS), wanted);
            assert_int_equal(worker.behind, epoch * behind);
            assert_int_equal(baton_schedule_epoch(worker.schedule), epoch);
        }
        assert_int_equal(worker.cancels, 0);
        support_ok(baton_schedule_destroy(worker.schedule));
        support_cluster_close(cluster);
    }
}

static void test_async_ends_in_its_start(void **state)
{
    const worker_t done = {.start = BATON_DONE};
    const worker_t skips = {.start = BATON_SKIP};
    const worker_t fails = {.start = BATON_ERR_LIMIT};
    expect_ends(&done, &notifies, BATON_OK, 1);
    expect_ends(&skips, &notifies, BATON_OK, 0);
    expect_ends(&fails, &notifies, BATON_ERR_LIMIT, 0);
}

static void test_async_completes_before_its_start_returns(void **state)
{
    const worker_t ok = {.completes = true};
    const worker_t skips = {.completes = true, .status = BATON_SKIP};
    const worker_t fails = {.completes = true, .status = BATON_ERR_SYSTEM};
    expect_ends(&ok, &notifies, BATON_OK, 1);
    expect_ends(&skips, &notifies, BATON_OK, 0);
    expect_ends(&fails, &notifies, BATON_ERR_SYSTEM, 0);
}

static void test_async_is_asked_until_it_is_done(void **state)
{
    const worker_t soon = {.polls_left = 0};
    const worker_t later = {.polls_left = 20};
    const worker_t fails = {.polls_left = 3, .status = BATON_ERR_SYSTEM};
    expect_ends(&soon, &polled, BATON_OK, 1);
    expect_ends(&later, &polled, BATON_OK, 1);
    expect_ends(&fails, &polled, BATON_ERR_SYSTEM, 0);
}

/* ---- another thread ---------------------------------------------------- */

static void complete_there(void *arg)
{
    worker_t *worker = arg;
    while (!atomic_load(&worker->begun)) {
        sched_yield();
    }
    worker->status = baton_async_complete(worker->async, BATON_OK);
}

static void test_async_is_completed_by_another_thread(void **state)
{
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster =
            support_cluster_open(1, &support_variants[i]);
        worker_t worker = {.start = BATON_OK};
        open_worker(&worker, cluster, &notifies);
        for (uint64_t epoch = 1; epoch <= 200; epoch++) {
            atomic_store(&worker.begun, false);
            support_thread_t *thread =
                support_thread_start(complete_there, &worker);
            support_run(worker.schedule);
            support_thread_join(thread);
            support_ok(worker.status);
            assert_int_equal(worker.behind, epoch);
        }
        support_ok(baton_schedule_destroy(worker.schedule));
        support_cluster_close(cluster);
    }
}

static void test_async_completes_once(void **state)
{
    support_cluster_t *cluster = support_cluster_manual(1);
    worker_t worker = {.start = BATON_OK};
    open_worker(&worker, cluster, &notifies);
    support_ok(baton_schedule_start(worker.schedule));
    support_expect(baton_schedule_wait(worker.schedule, 0), BATON_ERR_TIMEOUT);
    support_says("async#1, which was begun; behind it: call#0");
    support_ok(baton_async_complete(worker.async, BATON_OK));
    support_expect(baton_async_complete(worker.async, BATON_ERR_LIMIT),
                   BATON_ERR_STATE);
    support_says("the node has completed already");
    support_ok(baton_schedule_wait(worker.schedule, SUPPORT_WAIT_MS));
    support_expect(baton_async_complete(worker.async, BATON_OK),
                   BATON_ERR_STATE);
    support_ok(baton_schedule_destroy(worker.schedule));
    support_cluster_close(cluster);
}

/* ---- failure ----------------------------------------------------------- */

/* A cancelled epoch ends when its node does, whose operation may still use
   memory. The node's status is ignored. */
static void test_async_is_waited_for_after_a_cancel(void **state)
{
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster =
            support_cluster_open(1, &support_variants[i]);
        worker_t worker = {.start = BATON_OK};
        open_worker(&worker, cluster, &notifies);
        for (int epoch = 1; epoch <= 3; epoch++) {
            atomic_store(&worker.begun, false);
            support_ok(baton_schedule_start(worker.schedule));
            support_expect(baton_schedule_wait(worker.schedule, 1),
                           BATON_ERR_TIMEOUT);
            while (!atomic_load(&worker.begun)) { /* a thread may be late */
                (void)baton_engine_step(cluster->engines[0]);
            }
            support_ok(baton_schedule_cancel(worker.schedule));
            support_expect(baton_schedule_wait(worker.schedule, 1),
                           BATON_ERR_TIMEOUT);
            while (atomic_load(&worker.cancels) < epoch) {
                (void)baton_engine_step(cluster->engines[0]);
            }
            support_ok(baton_async_complete(worker.async, BATON_ERR_SYSTEM));
            support_expect(
                baton_schedule_wait(worker.schedule, SUPPORT_WAIT_MS),
                BATON_ERR_CANCELLED);
            assert_int_equal(worker.cancels, epoch);
        }
        assert_int_equal(worker.behind, 0);
        support_ok(baton_schedule_destroy(worker.schedule));
        support_cluster_close(cluster);
    }
}

static void test_async_needs_a_start(void **state)
{
    static const baton_async_ops_t nothing = {.poll = look};
    support_cluster_t *ranks = support_cluster_manual(1);
    baton_schedule_t *s = support_schedule(ranks->groups[0], "async");
    (void)baton_add_async(s, &nothing, NULL);
    support_expect(baton_schedule_commit(s), BATON_ERR_INVALID);
    support_says("async#0: it has no start");
    support_ok(baton_schedule_destroy(s));
    s = support_schedule(ranks->groups[0], "async");
    (void)baton_add_async(s, NULL, NULL);
    support_expect(baton_schedule_commit(s), BATON_ERR_INVALID);
    support_says("async#0: it has no functions");
    support_ok(baton_schedule_destroy(s));
    support_cluster_close(ranks);
}

/* A completion that comes an epoch late must not complete the next one. */
static void test_async_of_an_earlier_epoch_is_refused(void **state)
{
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster =
            support_cluster_open(1, &support_variants[i]);
        worker_t worker = {.start = BATON_OK, .polls_left = 0};
        baton_schedule_t *s = support_schedule(cluster->groups[0], "late");
        (void)baton_add_async(s, &polled, &worker);
        support_ok(baton_schedule_commit(s));
        support_run(s);
        const baton_async_t late = worker.async;
        worker.polls_left = INT_MAX;
        atomic_store(&worker.begun, false);
        support_ok(baton_schedule_start(s));
        while (!atomic_load(&worker.begun)) {
            (void)baton_engine_step(cluster->engines[0]);
        }
        support_expect(baton_async_complete(late, BATON_OK), BATON_ERR_STATE);
        support_expect(baton_schedule_wait(s, 20), BATON_ERR_TIMEOUT);
        support_ok(baton_async_complete(worker.async, BATON_OK));
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
        support_ok(baton_schedule_destroy(s));
        support_cluster_close(cluster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_async_of_an_earlier_epoch_is_refused),
        cmocka_unit_test(test_async_ends_in_its_start),
        cmocka_unit_test(test_async_completes_before_its_start_returns),
        cmocka_unit_test(test_async_is_asked_until_it_is_done),
        cmocka_unit_test(test_async_is_completed_by_another_thread),
        cmocka_unit_test(test_async_completes_once),
        cmocka_unit_test(test_async_is_waited_for_after_a_cancel),
        cmocka_unit_test(test_async_needs_a_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
