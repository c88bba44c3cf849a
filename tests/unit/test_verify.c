/* BATON_VERIFY=1: commits that fail on all ranks with the same message, and
   commits that succeed. The group works after both. */
#include "base/alloc.h"
#include "support/stuck.h"

#include <baton/coll.h>

/* Checks that the group works, by a sum over all ranks. */
static void check_health(support_worker_t *worker)
{
    int32_t sum = 1;
    baton_schedule_t *s;
    if (!support_worker_ok(
            worker, baton_schedule_create(worker->group, "healthy", &s))) {
        return;
    }
    baton_view_t view = support_view(s, &sum, sizeof sum);
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = view,
                                   .target = view,
                                   .dtype = BATON_I32,
                                   .op = BATON_SUM};
    baton_add_allreduce_ring(s, &args);
    if (support_worker_ok(worker, baton_schedule_commit(s)) &&
        support_worker_run(worker, s)) {
        (void)support_worker_check(worker, sum == worker->cluster->size, "%d",
                                   sum);
    }
    (void)!baton_schedule_destroy(s);
}

static void run_refusal(support_worker_t *worker)
{
    const bool refused = stuck_refuse(worker->group, worker->arg);
    (void)support_worker_check(worker, refused, "%s", baton_error_message());
    check_health(worker);
}

TEST(test_verify_refuses)
{
    for (size_t r = 0; r < stuck_refusal_count; r++) {
        for (int i = 0; i < SUPPORT_VARIANTS; i++) {
            support_cluster_t *cluster =
                support_cluster_open(stuck_refusals[r].ranks, i);
            support_cluster_run(cluster, run_refusal,
                                (void *)(uintptr_t)&stuck_refusals[r]);
            support_cluster_close(cluster);
        }
    }
}

/* ---- schedules that pass -------------------------------------------- */

static void run_once(int ranks, support_worker_fn run)
{
    support_cluster_t *cluster =
        support_cluster_open(ranks, SUPPORT_OWN_ENGINES);
    support_cluster_run(cluster, run, NULL);
    support_cluster_close(cluster);
}

/* Each rank passes a message around the ring through a node of each kind.
   Lengths are those of the received messages. Then one node needs any of its
   inputs. If it needed all of them there would be a deadlock, and so there
   would be if the messages in a cycle were not optional. */
static void build_all_kinds(baton_schedule_t *s)
{
    int size = baton_schedule_size(s);
    int rank = baton_schedule_rank(s);
    baton_buffer_t memory = baton_buffer_scratch(s, 4 * STUCK_BYTES);
    baton_view_t in = baton_view(memory, 0, 2 * STUCK_BYTES);
    baton_view_t out = baton_view(memory, 2 * STUCK_BYTES, 2 * STUCK_BYTES);
    baton_length_t length = baton_add_length(s);
    (void)stuck_send(s, (rank + 1) % size);
    baton_node_t nodes[] = {
        baton_add_recv(s, (rank + size - 1) % size, in),
        baton_add_reduce_local(s, BATON_I8, BATON_SUM, in, in, in),
        baton_add_copy(s, out, in),
        baton_add_call(s, support_succeed, NULL),
        baton_add_async(s, &stuck_completes_at_once, NULL),
        baton_add_send(s, (rank + 1) % size, out),
        baton_add_recv(s, (rank + size - 1) % size, in),
    };
    baton_set_length(s, nodes[0], length);
    baton_set_length(s, nodes[1], length);
    baton_set_length(s, nodes[2], length);
    baton_set_length(s, nodes[5], length);
    baton_set_length(s, nodes[6], baton_add_length(s));
    for (size_t i = 1; i < 6; i++) {
        baton_before(s, nodes[i - 1], nodes[i]);
    }
    /* This edge does not begin at the send: around the ring that would be a
       deadlock. */
    baton_before(s, nodes[2], nodes[6]);
    baton_node_t any = baton_add_nop(s);
    baton_node_t late = stuck_recv(s, (rank + size - 1) % size);
    baton_set_need(s, any, BATON_NEED_ANY);
    baton_before(s, late, any);
    baton_before(s, baton_add_nop(s), any);
    baton_before(s, any, stuck_send(s, (rank + 1) % size));
    baton_node_t never = stuck_recv(s, (rank + size - 1) % size);
    baton_node_t behind = stuck_send(s, (rank + 1) % size);
    baton_before(s, never, behind);
    baton_set_optional(s, never);
    baton_set_optional(s, behind);
}

static void run_all_kinds(support_worker_t *worker)
{
    baton_schedule_t *s;
    (void)support_worker_ok(worker,
                            baton_schedule_create(worker->group, "x", &s));
    build_all_kinds(s);
    bool going = support_worker_ok(worker, baton_schedule_commit(s));
    for (int epoch = 0; epoch < 3 && going; epoch++) {
        going = support_worker_run(worker, s);
    }
    (void)support_worker_ok(worker, baton_schedule_destroy(s));
}

TEST(test_verify_takes_all_kinds)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        run_once(ranks, run_all_kinds);
    }
}

/* A graph whose commit has failed is completed, committed and run. */
static void run_mending(support_worker_t *worker)
{
    baton_schedule_t *s;
    (void)support_worker_ok(worker,
                            baton_schedule_create(worker->group, "x", &s));
    stuck_build_sends(&(int){2}, s);
    baton_status_t status = baton_schedule_commit(s);
    (void)support_worker_check(worker, status == BATON_ERR_MISMATCH, "%s",
                               baton_error_message());
    if (worker->rank == 1) {
        (void)stuck_recv(s, 0);
    }
    if (support_worker_ok(worker, baton_schedule_commit(s))) {
        (void)support_worker_run(worker, s);
    }
    /* The group counts only this schedule, and not the schedules of the
       verification. */
    if (support_worker_check(
            worker, baton_group_destroy(worker->group) == BATON_ERR_BUSY,
            "a group with a schedule was destroyed")) {
        (void)support_worker_check(worker,
                                   strstr(baton_error_message(),
                                          ": 1 of its schedules still exist, "
                                          "\"x\" for one") != NULL,
                                   "%s", baton_error_message());
    }
    (void)support_worker_ok(worker, baton_schedule_destroy(s));
}

TEST(test_verify_takes_a_mended_graph)
{
    run_once(3, run_mending);
}

/* ---- memory ------------------------------------------------------------ */

typedef struct commits {
    baton_schedule_t *schedules[3];
    baton_status_t statuses[3];
} commits_t;

static void run_commit(support_worker_t *worker)
{
    commits_t *commits = worker->arg;
    commits->statuses[worker->rank] =
        baton_schedule_commit(commits->schedules[worker->rank]);
}

/* If any allocation on any rank fails, commit fails on all ranks without
   waiting, and the same commit succeeds later. */
TEST(test_verify_without_memory_on_one_rank)
{
    bool failed = true;
    for (int64_t nth = 1; failed; nth++) {
        commits_t commits = {0};
        support_cluster_t *cluster =
            support_cluster_open(3, SUPPORT_OWN_ENGINES);
        for (int rank = 0; rank < 3; rank++) {
            commits.schedules[rank] =
                support_schedule(cluster->groups[rank], "x");
            stuck_build_sends(&(int){1}, commits.schedules[rank]);
        }
        baton__alloc_fail_nth(nth);
        support_cluster_run(cluster, run_commit, &commits);
        baton__alloc_fail_nth(0);
        failed = commits.statuses[0] != BATON_OK;
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(commits.statuses[rank],
                             failed ? BATON_ERR_NO_MEMORY : BATON_OK);
        }
        if (failed) {
            support_cluster_run(cluster, run_commit, &commits);
        }
        for (int rank = 0; rank < 3; rank++) {
            support_ok(commits.statuses[rank]);
            support_ok(baton_schedule_destroy(commits.schedules[rank]));
        }
        support_cluster_close(cluster);
    }
}

RUN_TESTS_BETWEEN(stuck_verify_on, stuck_verify_off)
