/* After failures the caller owns its memory again, and a group works again
   after a recovery. baton-fuzz tests random failures of nodes. */
#include "base/clock.h"
#include "progress/state/task.h"
#include "support/cluster.h"
#include "support/given_up.h"
#include "support/sanitized.h"
#include "transport/inproc/rank.h"

#include <baton/coll.h>
#include <sched.h>

/* ---- memory ------------------------------------------------------------ */

static void run_given_up(support_worker_t *worker)
{
    int64_t allocated;
    const char *wrong =
        given_up_run(worker->group, *(const uint64_t *)worker->arg,
                     SUPPORT_REPEAT(300), &allocated);
    (void)support_worker_check(worker, wrong == NULL, "%s", wrong);
}

TEST_EACH(test_memory_is_the_callers_after_a_failure, 3)
{
    uint64_t seed = support_seed();
    support_cluster_run(cluster, run_given_up, &seed);
}

/* ---- the notices of a recovery ----------------------------------------- */

/* The other ranks wait for a rank that recovers late, and name it. */
TEST_MANUALLY(test_recovery_names_who_has_not_come, 2)
{
    support_fails(baton_group_recover(cluster->groups[0], 0), BATON_ERR_TIMEOUT,
                  "rank 1 has not called baton_group_recover");
    support_ok(baton_group_recover(cluster->groups[1], 10000));
    support_ok(baton_group_recover(cluster->groups[0], 10000));
}

/* A schedule whose peer has destroyed its own stays failed. Others work. */
TEST_MANUALLY(test_recovery_tells_of_what_a_peer_has_destroyed, 2)
{
    support_pair_t kept, gone;
    support_pair_open(&kept, cluster, "kept");
    support_pair_open(&gone, cluster, "gone");
    support_schedules_run(cluster, gone.schedules);
    support_ok(baton_schedule_destroy(gone.schedules[0]));
    gone.schedules[0] = NULL;
    (void)!baton_group_recover(cluster->groups[0], 0);
    support_fails(baton_group_recover(cluster->groups[1], 10000),
                  BATON_ERR_FAILED, "\"gone\"");
    support_ok(baton_group_recover(cluster->groups[0], 10000));
    support_expect(baton_schedule_start(gone.schedules[1]), BATON_ERR_FAILED);
    kept.sent = 7;
    support_schedules_run(cluster, kept.schedules);
    assert_int_equal(kept.got, 7);
    support_pair_close(&kept);
    support_pair_close(&gone);
}

static void recover_both(support_cluster_t *ranks)
{
    (void)!baton_group_recover(ranks->groups[0], 0);
    support_ok(baton_group_recover(ranks->groups[1], 10000));
    support_ok(baton_group_recover(ranks->groups[0], 10000));
}

/* An epoch that a recovery cancels has not succeeded, even if no thread waited
   for it before. The error that a wait has returned once is not returned again
   after a recovery. */
TEST_MANUALLY(test_recovery_leaves_no_failure_unreported, 2)
{
    support_pair_t pair;
    support_pair_open(&pair, cluster, "late");
    baton_schedule_t **s = pair.schedules;
    for (int round = 0; round < 3; round++) {
        bool done = false;
        /* In this round, wait returns the error before the recovery. */
        bool seen = round == 2;
        support_ok(baton_schedule_start(s[0]));
        if (seen) {
            support_ok(baton_schedule_cancel(s[0]));
            support_expect(baton_schedule_wait(s[0], -1), BATON_ERR_CANCELLED);
        }
        recover_both(cluster);
        if (round == 1) {
            recover_both(cluster);
        }
        support_expect(baton_schedule_test(s[0], &done),
                       seen ? BATON_OK : BATON_ERR_CANCELLED);
        support_expect(baton_schedule_wait(s[0], -1),
                       seen ? BATON_OK : BATON_ERR_CANCELLED);
        support_ok(baton_schedule_wait(s[1], -1));
        /* Epochs count from 1 again after a recovery, so an earlier epoch had
           the number of this one. */
        if (round > 0) {
            pair.sent = (uint64_t)round + 7;
            support_schedules_run(cluster, s);
            assert_int_equal(pair.got, round + 7);
            /* The epoch that was cancelled is no longer the last one. */
            support_ok(baton_schedule_wait(s[0], -1));
        }
    }
    support_pair_close(&pair);
}

typedef struct keeper {
    uint64_t told, epoch;
} keeper_t;

static bool keep(void *arg, uint64_t epoch)
{
    keeper_t *keeper = arg;
    keeper->told++;
    keeper->epoch = epoch;
    return true;
}

/* All ranks learn the last epoch that any of them has completed. */
TEST_MANUALLY(test_recovery_tells_the_last_completed_epoch, 3)
{
    keeper_t keepers[3] = {{0, 0}};
    uint64_t numbers[3] = {0};
    baton_schedule_t **s = support_schedules_create(cluster, "kept");
    support_message(s, 0, 1, &numbers[0], &numbers[1], 8);
    for (int rank = 0; rank < 3; rank++) {
        baton_schedule_on_recover(s[rank], keep, &keepers[rank]);
    }
    support_schedules_commit(cluster, s);
    for (int epoch = 1; epoch <= 5; epoch++) {
        support_run(s[0]);
    }
    support_run(s[1]);
    for (int rank = 0; rank < 2; rank++) {
        (void)!baton_group_recover(cluster->groups[rank], 0);
    }
    for (int rank = 2; rank >= 0; rank--) {
        support_ok(baton_group_recover(cluster->groups[rank], 10000));
    }
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(keepers[rank].told, 1);
        assert_int_equal(keepers[rank].epoch, 5);
        assert_int_equal(baton_schedule_epoch(s[rank]), 0);
    }
    numbers[0] = 11;
    support_schedules_run(cluster, s);
    assert_int_equal(numbers[1], 11);
    support_schedules_destroy(cluster, s);
}

static bool is_time(void *arg, uint64_t epoch)
{
    return baton__clock_ns() >= *(uint64_t *)arg;
}

/* No event wakes the rank, so it must ask again by itself. */
TEST_WITH(test_recovery_asks_again_who_says_false, 1, SUPPORT_OWN_ENGINES)
{
    uint64_t at = baton__clock_ns() + 20000000;
    baton_schedule_t **s = support_schedules_create(cluster, "late");
    baton_add_barrier(s[0]);
    baton_schedule_on_recover(s[0], is_time, &at);
    support_schedules_commit(cluster, s);
    support_ok(baton_group_recover(cluster->groups[0], -1));
    support_schedules_destroy(cluster, s);
}

/* Calls recover on these ranks in turn. Each goes as far as it can. */
static void recover_in_part(support_cluster_t *ranks, const char *order)
{
    for (; *order != '\0'; order++) {
        (void)!baton_group_recover(ranks->groups[*order - '0'], 0);
    }
}

/* Ranks that know each other start a barrier. Rank 0 completes its recovery,
   and the other ranks have only begun theirs. */
static baton_schedule_t **recover_first(support_cluster_t *cluster,
                                        keeper_t keepers[3])
{
    baton_schedule_t **s = support_schedules_create(cluster, "first");
    for (int rank = 0; rank < 3; rank++) {
        baton_add_barrier(s[rank]);
        baton_schedule_on_recover(s[rank], keep, &keepers[rank]);
    }
    support_schedules_commit(cluster, s);
    for (int rank = 0; rank < 3; rank++) {
        support_ok(baton_schedule_start(s[rank]));
    }
    support_drain(cluster);
    recover_in_part(cluster, "222111");
    support_ok(baton_group_recover(cluster->groups[0], 10000));
    return s;
}

/* Rank 0 begins another recovery before the other ranks have completed the
   first. They complete it nevertheless, and then learn of the second. */
TEST_WITH(test_recovery_twice_in_a_row_is_told_of, 3, SUPPORT_OWN_MANUAL)
{
    keeper_t keepers[3] = {{0, 0}};
    baton_schedule_t **s = recover_first(cluster, keepers);
    recover_in_part(cluster, "0001");
    support_ok(baton_group_recover(cluster->groups[2], 10000));
    support_ok(baton_group_recover(cluster->groups[1], 10000));
    for (int rank = 1; rank < 3; rank++) {
        support_fails(baton_schedule_start(s[rank]), BATON_ERR_FAILED,
                      "rank 0 recovers its group");
    }
    bool done[3] = {false};
    while (!done[0] || !done[1] || !done[2]) {
        for (int rank = 0; rank < 3; rank++) {
            done[rank] =
                done[rank] ||
                baton_group_recover(cluster->groups[rank], 0) == BATON_OK;
        }
    }
    assert_int_equal(keepers[1].told, 2);
    support_schedules_destroy(cluster, s);
}

/* After its recovery rank 0 destroys the schedule. The recovery of the other
   ranks ends nevertheless. */
TEST_WITH(test_recovery_ends_though_a_peer_destroys, 3, SUPPORT_OWN_MANUAL)
{
    keeper_t keepers[3] = {{0, 0}};
    baton_schedule_t **s = recover_first(cluster, keepers);
    support_ok(baton_schedule_destroy(s[0]));
    s[0] = NULL;
    for (int i = 0; i < 20; i++) {
        (void)baton_engine_step(cluster->engines[0]);
    }
    support_ok(baton_group_recover(cluster->groups[2], 10000));
    support_ok(baton_group_recover(cluster->groups[1], 10000));
    for (int rank = 1; rank < 3; rank++) {
        assert_int_equal(keepers[rank].told, 1);
        support_fails(baton_schedule_start(s[rank]), BATON_ERR_FAILED,
                      "was destroyed on rank 0");
    }
    support_schedules_destroy(cluster, s);
}

/* ---- epochs that have ended already ------------------------------------ */

static baton_token_t posted;
static bool fills, withdraws;

static bool post_receive(void *endpoint, baton_token_t token, int peer,
                         const baton_header_t *header, void *target,
                         size_t bytes)
{
    posted = token;
    return fills;
}

static bool withdraw_receive(void *endpoint, baton_token_t token, int peer)
{
    /* A poll has reported, or will report, the end of the receive. */
    return withdraws;
}

/* A sender has filled the receive. The poll reports a failure before it reports
   the end of the receive. */
static size_t poll_filled(void *endpoint, baton_event_t *out, size_t max)
{
    size_t count = baton__inproc_transport.poll(endpoint, out, max - 1);
    if (fills && count > 0 &&
        out[0].message->header.kind == BATON__MESSAGE_FAILURES) {
        out[count++] =
            (baton_event_t){.kind = BATON_EVENT_RECEIVED, .token = posted};
        fills = false;
    }
    return count;
}

/* Rank 1: recv --> call, send. */
static void end_behind_failure(void)
{
    baton_transport_t filling = baton__inproc_transport;
    filling.post_receive = post_receive;
    filling.withdraw_receive = withdraw_receive;
    filling.poll = poll_filled;
    support_cluster_t *cluster =
        support_cluster_through(2, SUPPORT_MANUAL, &filling);
    baton_schedule_t **s = support_schedules_create(cluster, "filled");
    uint64_t numbers[4] = {0}, received = 0;
    support_message(s, 0, 1, &numbers[0], &numbers[1], 8);
    support_message(s, 1, 0, &numbers[2], &numbers[3], 8);
    baton_before(s[1], (baton_node_t){0},
                 baton_add_call(s[1], support_count, &received));
    support_schedules_commit(cluster, s);
    support_schedules_run(cluster, s);
    fills = true;
    support_ok(baton_schedule_start(s[1]));
    recover_both(cluster);
    assert_false(fills);
    assert_int_equal(received, 1);
    support_schedules_run(cluster, s);
    assert_int_equal(received, 2);
    support_schedules_destroy(cluster, s);
    support_cluster_close(cluster);
}

TEST(test_recovery_of_a_receive_that_ends_behind_its_failure)
{
    withdraws = true;
    end_behind_failure();
    /* The receive is in transfer until the poll reports its end. */
    withdraws = false;
    end_behind_failure();
}

/* ---- threads that wait meanwhile -------------------------------------- */

typedef struct waiting {
    baton_schedule_t *schedule;
    baton_status_t status;
} waiting_t;

static void wait_for_it(void *arg)
{
    waiting_t *waiting = arg;
    waiting->status = baton_schedule_wait(waiting->schedule, SUPPORT_WAIT_MS);
}

static void recover_there(void *arg)
{
    (void)!baton_group_recover(arg, SUPPORT_WAIT_MS);
}

/* A recovery cancels an epoch while a thread waits for it. The thread gets the
   error, however late it continues. */
TEST_WITH(test_recovery_leaves_no_waiter_behind, 2, SUPPORT_OWN_ENGINES)
{
    baton_schedule_t **s = support_schedules_create(cluster, "barrier");
    baton_add_barrier(s[0]);
    baton_add_barrier(s[1]);
    support_schedules_commit(cluster, s);
    for (int round = 0; round < 50; round++) {
        waiting_t waiting = {s[0], BATON_OK};
        support_ok(baton_schedule_start(s[0]));
        support_thread_t *waiter = support_thread_start(wait_for_it, &waiting);
        while (round % 2 == 0 &&
               atomic_load(&baton__task_of(s[0])->waiters) == 0) {
            sched_yield();
        }
        support_thread_t *peer =
            support_thread_start(recover_there, cluster->groups[1]);
        support_ok(baton_group_recover(cluster->groups[0], SUPPORT_WAIT_MS));
        support_thread_join(peer);
        support_thread_join(waiter);
        /* In other rounds the thread may begin to wait after the recovery. */
        if (round % 2 == 0) {
            assert_int_equal(waiting.status, BATON_ERR_CANCELLED);
        }
    }
    support_schedules_destroy(cluster, s);
}
