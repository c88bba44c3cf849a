/* Epochs that fail because of their call nodes. Every thread that waits gets
   the error, with a message. sim/test_sim_faults.c has sends that fail, and
   test_isolation.c schedules that differ. */
#include "sched/schedule.h"
#include "support/cluster.h"
#include "transport/group.h"
#include "transport/inproc/rank.h"

typedef struct trap {
    uint64_t epoch; /* the epoch in which the call node fails */
    baton_status_t status;
    int many; /* the number in the node's error message; 0: no message */
    uint64_t calls;
} trap_t;

static baton_status_t spring(void *arg, baton_call_t *call)
{
    trap_t *trap = arg;
    trap->calls++;
    if (baton_call_epoch(call) != trap->epoch) {
        return BATON_OK;
    }
    return trap->many == 0 ? trap->status
                           : baton_call_fail(call, trap->status,
                                             "%d is too many", trap->many);
}

/* ---- call nodes ------------------------------------------------------- */

/* trap --> behind. A failed schedule without messages can be started again. */
TEST_EACH(test_call_error_fails_one_epoch, 1)
{
    trap_t trap = {2, BATON_ERR_LIMIT, 0, 0};
    uint64_t behind = 0;
    bool done;
    baton_schedule_t *s = support_schedule(cluster->groups[0], "fragile");
    baton_node_t call = baton_add_call(s, spring, &trap);
    baton_before(s, call, baton_add_call(s, support_count, &behind));
    support_ok(baton_schedule_commit(s));
    support_run(s);
    support_ok(baton_schedule_start(s));
    for (int again = 0; again < 3; again++) {
        support_ends(s, BATON_ERR_LIMIT);
        support_says("\"fragile\" epoch 2 failed at call#0 on rank 0");
        support_says("call#0 returned -5, BATON_ERR_LIMIT");
        support_expect(baton_schedule_test(s, &done), BATON_ERR_LIMIT);
    }
    assert_int_equal(trap.calls, 2);
    assert_int_equal(behind, 1); /* the node after the trap did not run */
    support_expect(baton_schedule_cancel(s), BATON_ERR_STATE);
    support_run(s);
    assert_int_equal(trap.calls, 3);
    assert_int_equal(behind, 2);
    assert_int_equal(baton_schedule_epoch(s), 3);
    support_run(s); /* the failure has no effect on this epoch, either */
    support_ok(baton_schedule_destroy(s));
}

typedef struct waiter {
    baton_schedule_t *schedule;
    baton_status_t status;
    char sentence[600];
} waiter_t;

static void wait_there(void *arg)
{
    waiter_t *waiter = arg;
    waiter->status = baton_schedule_wait(waiter->schedule, SUPPORT_WAIT_MS);
    snprintf(waiter->sentence, sizeof(waiter->sentence), "%s",
             baton_error_message());
}

/* recv --> trap. A failed schedule with messages stays failed. */
TEST_EACH(test_call_error_wakes_all_who_wait, 2)
{
    enum { WAITERS = 4 };
    trap_t trap = {1, BATON_ERR_UNSUPPORTED, 12, 0};
    support_pair_t pair;
    support_pair_open(&pair, cluster, "beside");
    uint64_t memory[2] = {0};
    baton_schedule_t **s = support_schedules_create(cluster, "doomed");
    support_message(s, 1, 0, &memory[1], &memory[0], 8);
    baton_before(s[0], (baton_node_t){0}, baton_add_call(s[0], spring, &trap));
    support_schedules_commit(cluster, s);

    support_ok(baton_schedule_start(s[0]));
    waiter_t waiters[WAITERS];
    support_thread_t *threads[WAITERS];
    for (int w = 0; w < WAITERS; w++) {
        waiters[w] = (waiter_t){s[0], BATON_OK, ""};
        threads[w] = support_thread_start(wait_there, &waiters[w]);
    }
    support_run(s[1]);
    for (int w = 0; w < WAITERS; w++) {
        support_thread_join(threads[w]);
        assert_int_equal(waiters[w].status, BATON_ERR_UNSUPPORTED);
        assert_non_null(
            strstr(waiters[w].sentence, "\"doomed\" epoch 1 failed at"));
        assert_non_null(strstr(waiters[w].sentence, "12 is too many"));
    }
    assert_int_equal(trap.calls, 1);
    support_fails(baton_schedule_start(s[0]), BATON_ERR_FAILED,
                  "start of \"doomed\": it has failed: ");
    support_says("call#1");

    /* Other schedules of the engine still work. */
    pair.sent = 5;
    support_schedules_run(cluster, pair.schedules);
    assert_int_equal(pair.got, 5);
    support_schedules_destroy(cluster, s);
    support_pair_close(&pair);
}

/* A rank that commits after the epoch of its peer has failed learns of the
   failure, even while it uses another schedule. */
TEST_EACH(test_failure_is_told_to_who_commits_later, 2)
{
    support_pair_t beside;
    baton_schedule_t **s = support_schedules_create(cluster, "late");
    uint64_t numbers[2] = {3, 4};
    support_pair_open(&beside, cluster, "beside");
    support_message(s, 0, 1, &numbers[0], &numbers[1], 8);
    support_ok(baton_schedule_commit(s[0]));
    support_ok(baton_schedule_start(s[0]));
    support_ok(baton_schedule_cancel(s[0]));
    support_ends(s[0], BATON_ERR_CANCELLED);
    for (uint64_t epoch = 1; epoch <= 20; epoch++) {
        beside.sent = epoch;
        support_schedules_run(cluster, beside.schedules);
    }
    support_ok(baton_schedule_commit(s[1]));
    baton_status_t status = baton_schedule_start(s[1]);
    /* The rank may have learned of the failure already. */
    if (status == BATON_OK) {
        status = baton_schedule_wait(s[1], 10000);
        assert_int_equal(status, BATON_ERR_CANCELLED);
    }
    support_says("\"late\" epoch 1 was cancelled on rank 0");
    assert_int_equal(numbers[1], 4);
    support_schedules_destroy(cluster, s);
    support_pair_close(&beside);
}

TEST_EACH(test_receive_without_memory_fails, 2)
{
    uint64_t word = 7;
    baton_schedule_t **s = support_schedules_create(cluster, "unbound");
    support_message(s, 1, 0, &word, NULL, 8);
    support_schedules_commit(cluster, s);
    support_ok(baton_schedule_start(s[0]));
    support_ok(baton_schedule_start(s[1]));
    support_ends(s[0], BATON_ERR_INVALID);
    support_says("no memory is bound to buffer 0, and the node uses 8 bytes");
    (void)!baton_schedule_wait(s[1], SUPPORT_WAIT_MS);
    support_schedules_destroy(cluster, s);
}

static void note(void *arg, baton_status_t status)
{
    *(baton_status_t *)arg = status;
}

/* The schedule is committed after the loss of a rank with which it exchanges no
   messages. */
TEST_MANUALLY(test_on_failure_is_told_of_an_earlier_loss, 3)
{
    baton_status_t noted = BATON_OK;
    const baton_group_t *group = cluster->groups[0];
    group->transport->lose(group->endpoint, 2, BATON_ERR_TRANSPORT,
                           "it is dead");
    support_drain(cluster);
    baton_schedule_t *s = support_schedule(cluster->groups[0], "alone");
    (void)baton_add_send(s, 1, support_scratch(s, 1));
    baton_schedule_on_failure(s, note, &noted);
    support_ok(baton_schedule_commit(s));
    assert_int_equal(noted, BATON_ERR_TRANSPORT);
    support_fails(baton_schedule_start(s), BATON_ERR_FAILED, "rank 2 is gone");
    support_ok(baton_schedule_destroy(s));
}

static void cancel(void *arg, baton_status_t status)
{
    support_ok(baton_schedule_cancel(arg));
}

static void expect_next(void *arg, baton_status_t status)
{
    static int told;
    assert_int_equal(*(char *)arg, "ab"[told++]);
}

/* Pretends twice that rank 1 has no room for the failure of the first
   schedule. */
static baton_status_t notify_late(void *endpoint, int peer,
                                  const baton_header_t *header,
                                  const void *data, size_t bytes)
{
    static uint64_t first;
    static int tries;
    bool fails = header->kind == BATON__MESSAGE_FAILURE && peer == 1;
    first = fails && first == 0 ? header->schedule : first;
    return fails && header->schedule == first && tries++ < 2
               ? BATON_AGAIN
               : baton__inproc_transport.notify(endpoint, peer, header, data,
                                                bytes);
}

/* Rank 0 learns that schedule a has failed, and therefore fails schedule b. It
   tells rank 1 of both. */
TEST(test_failures_are_told_in_their_order)
{
    baton_transport_t late = baton__inproc_transport;
    late.notify = notify_late;
    support_cluster_t *cluster =
        support_cluster_through(3, SUPPORT_MANUAL, &late);
    static char names[2][2] = {"a", "b"};
    baton_schedule_t **all[2];
    uint64_t numbers[4];
    for (int i = 0; i < 2; i++) {
        all[i] = support_schedules_create(cluster, names[i]);
        support_message(all[i], 1, 0, &numbers[0], &numbers[1], 8);
        support_message(all[i], 2 - i, 0, &numbers[2], &numbers[3], 8);
        baton_schedule_on_failure(all[i][1], expect_next, names[i]);
    }
    baton_schedule_on_failure(all[0][0], cancel, all[1][0]);
    for (int i = 0; i < 2; i++) {
        support_schedules_commit(cluster, all[i]);
        support_ok(baton_schedule_start(all[i][0]));
    }
    support_ok(baton_schedule_start(all[0][2]));
    support_ok(baton_schedule_cancel(all[0][2]));
    support_ends(all[1][0], BATON_ERR_CANCELLED);
    support_drain(cluster);
    for (int i = 0; i < 2; i++) {
        support_expect(baton_schedule_start(all[i][1]), BATON_ERR_FAILED);
        support_schedules_destroy(cluster, all[i]);
    }
    support_cluster_close(cluster);
}
