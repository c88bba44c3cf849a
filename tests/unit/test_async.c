/* Async nodes, which complete in their start, in another thread or when they
   are polled; and the end of an epoch that has failed meanwhile. */
#include "support/cluster.h"

#include <limits.h>
#include <sched.h>

/* An async node with a certain behaviour, and a call node after it, which
   counts: async --> count (optional) */
typedef struct operation {
    baton_schedule_t *schedule;
    baton_status_t start;  /* the status that `start` returns */
    bool completes;        /* `start` completes the node with `status` */
    baton_status_t status; /* the status of the completion */
    int polls_left;
    baton_async_t async;
    atomic_bool begun;
    atomic_int cancels;
    uint64_t behind;
} operation_t;

static baton_status_t begin(void *arg, baton_call_t *call, baton_async_t async)
{
    operation_t *operation = arg;
    operation->async = async;
    if (operation->completes &&
        baton_async_complete(async, operation->status) != BATON_OK) {
        return BATON_ERR_STATE;
    }
    atomic_store(&operation->begun, true);
    return operation->start;
}

static baton_status_t look(void *arg)
{
    operation_t *operation = arg;
    return operation->polls_left-- > 0 ? BATON_AGAIN : operation->status;
}

static void note_cancel(void *arg)
{
    operation_t *operation = arg;
    atomic_fetch_add(&operation->cancels, 1);
}

static const baton_async_ops_t notifies = {.start = begin,
                                           .cancel = note_cancel};
static const baton_async_ops_t polled = {
    .start = begin, .poll = look, .cancel = note_cancel};

static baton_status_t count(void *arg, baton_call_t *call)
{
    operation_t *operation = arg;
    operation->behind++;
    return BATON_OK;
}

static void open_operation(operation_t *operation, support_cluster_t *cluster,
                           const baton_async_ops_t *ops)
{
    baton_schedule_t *s = support_schedule(cluster->groups[0], "async");
    baton_node_t behind = baton_add_call(s, count, operation);
    baton_set_optional(s, behind);
    baton_before(s, baton_add_async(s, ops, operation), behind);
    support_ok(baton_schedule_commit(s));
    operation->schedule = s;
}

/* Epochs that end without further calls of the test. Each row says how the node
   completes, how the epoch ends, and how often the call node after it runs. */
static const struct {
    operation_t how;
    const baton_async_ops_t *ops;
    baton_status_t wanted;
    uint64_t behind;
} ends[] = {
    /* The node completes by the status that its start returns. */
    {{.start = BATON_DONE}, &notifies, BATON_OK, 1},
    {{.start = BATON_SKIP}, &notifies, BATON_OK, 0},
    {{.start = BATON_ERR_LIMIT}, &notifies, BATON_ERR_LIMIT, 0},
    /* The node completes before its start returns. */
    {{.completes = true}, &notifies, BATON_OK, 1},
    {{.completes = true, .status = BATON_SKIP}, &notifies, BATON_OK, 0},
    {{.completes = true, .status = BATON_ERR_SYSTEM},
     &notifies,
     BATON_ERR_SYSTEM,
     0},
    /* The node completes when it is polled. */
    {{.polls_left = 0}, &polled, BATON_OK, 1},
    {{.polls_left = 20}, &polled, BATON_OK, 1},
    {{.polls_left = 3, .status = BATON_ERR_SYSTEM},
     &polled,
     BATON_ERR_SYSTEM,
     0},
};

TEST_EACH(test_async_ends_in_each_way, 1)
{
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        operation_t operation = ends[i].how;
        open_operation(&operation, cluster, ends[i].ops);
        for (uint64_t epoch = 1; epoch <= 3; epoch++) {
            operation.polls_left = ends[i].how.polls_left;
            support_ok(baton_schedule_start(operation.schedule));
            support_ends(operation.schedule, ends[i].wanted);
            assert_int_equal(operation.behind, epoch * ends[i].behind);
            assert_int_equal(baton_schedule_epoch(operation.schedule), epoch);
        }
        assert_int_equal(operation.cancels, 0);
        support_ok(baton_schedule_destroy(operation.schedule));
    }
}

/* ---- another thread ---------------------------------------------------- */

static void complete_there(void *arg)
{
    operation_t *operation = arg;
    while (!atomic_load(&operation->begun)) {
        sched_yield();
    }
    operation->status = baton_async_complete(operation->async, BATON_OK);
}

TEST_EACH(test_async_is_completed_by_another_thread, 1)
{
    operation_t operation = {.start = BATON_OK};
    open_operation(&operation, cluster, &notifies);
    for (uint64_t epoch = 1; epoch <= 200; epoch++) {
        atomic_store(&operation.begun, false);
        support_thread_t *thread =
            support_thread_start(complete_there, &operation);
        support_run(operation.schedule);
        support_thread_join(thread);
        support_ok(operation.status);
        assert_int_equal(operation.behind, epoch);
    }
    support_ok(baton_schedule_destroy(operation.schedule));
}

TEST_MANUALLY(test_async_completes_once, 1)
{
    operation_t operation = {.start = BATON_OK};
    open_operation(&operation, cluster, &notifies);
    support_fails(baton_schedule_run(operation.schedule, 0), BATON_ERR_TIMEOUT,
                  "async#1, which was begun; after it: call#0");
    support_expect(baton_schedule_run(operation.schedule, 0), BATON_ERR_BUSY);
    support_ok(baton_async_complete(operation.async, BATON_OK));
    support_fails(baton_async_complete(operation.async, BATON_ERR_LIMIT),
                  BATON_ERR_STATE, "the node has completed already");
    support_ends(operation.schedule, BATON_OK);
    support_expect(baton_async_complete(operation.async, BATON_OK),
                   BATON_ERR_STATE);
    support_ok(baton_schedule_destroy(operation.schedule));
}

/* ---- failure ----------------------------------------------------------- */

/* A cancelled epoch ends only when its node has completed, since the operation
   may still use memory. The status of that completion is ignored. */
TEST_EACH(test_async_is_waited_for_after_a_cancel, 1)
{
    operation_t operation = {.start = BATON_OK};
    open_operation(&operation, cluster, &notifies);
    for (int epoch = 1; epoch <= 3; epoch++) {
        atomic_store(&operation.begun, false);
        support_expect(baton_schedule_run(operation.schedule, 1),
                       BATON_ERR_TIMEOUT);
        while (!atomic_load(&operation.begun)) { /* the thread may begin late */
            (void)baton_engine_step(cluster->engines[0]);
        }
        support_ok(baton_schedule_cancel(operation.schedule));
        support_expect(baton_schedule_wait(operation.schedule, 1),
                       BATON_ERR_TIMEOUT);
        while (atomic_load(&operation.cancels) < epoch) {
            (void)baton_engine_step(cluster->engines[0]);
        }
        support_ok(baton_async_complete(operation.async, BATON_ERR_SYSTEM));
        support_ends(operation.schedule, BATON_ERR_CANCELLED);
        assert_int_equal(operation.cancels, epoch);
    }
    assert_int_equal(operation.behind, 0);
    support_ok(baton_schedule_destroy(operation.schedule));
}

/* A completion that comes one epoch late must not complete the node in the next
   epoch. */
TEST_EACH(test_async_of_an_earlier_epoch_is_refused, 1)
{
    operation_t operation = {.start = BATON_OK, .polls_left = 0};
    baton_schedule_t *s = support_schedule(cluster->groups[0], "late");
    (void)baton_add_async(s, &polled, &operation);
    support_ok(baton_schedule_commit(s));
    support_run(s);
    const baton_async_t late = operation.async;
    operation.polls_left = INT_MAX;
    atomic_store(&operation.begun, false);
    support_ok(baton_schedule_start(s));
    while (!atomic_load(&operation.begun)) {
        (void)baton_engine_step(cluster->engines[0]);
    }
    support_expect(baton_async_complete(late, BATON_OK), BATON_ERR_STATE);
    support_expect(baton_schedule_wait(s, 20), BATON_ERR_TIMEOUT);
    support_ok(baton_async_complete(operation.async, BATON_OK));
    support_ends(s, BATON_OK);
    support_ok(baton_schedule_destroy(s));
}

static baton_status_t complete_and_fail(void *arg, baton_call_t *call)
{
    operation_t *operation = arg;
    support_ok(baton_async_complete(operation->async, BATON_OK));
    return BATON_ERR_LIMIT;
}

/* An async node that has completed when its epoch fails is not cancelled. */
TEST_EACH(test_async_that_has_completed_is_not_cancelled, 1)
{
    operation_t operation = {.start = BATON_OK};
    baton_schedule_t *s = support_schedule(cluster->groups[0], "done");
    baton_node_t first = baton_add_nop(s);
    baton_node_t async = baton_add_async(s, &notifies, &operation);
    baton_node_t call = baton_add_call(s, complete_and_fail, &operation);
    baton_before(s, first, async);
    baton_before(s, first, call); /* the nodes fire in this order */
    support_ok(baton_schedule_commit(s));
    support_expect(baton_schedule_run(s, SUPPORT_WAIT_MS), BATON_ERR_LIMIT);
    assert_int_equal(atomic_load(&operation.cancels), 0);
    support_ok(baton_schedule_destroy(s));
}
