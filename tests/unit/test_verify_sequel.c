/* BATON_VERIFY=1: what is committed after all, and ranks without memory. */
#include "base/alloc.h"
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/stuck.h"

#include <string.h>

/* Rank 0 sends `count` messages to rank 1, which has one receive from it. */
static void build_sends(baton_schedule_t *s, int count)
{
    if (baton_schedule_rank(s) == 1) {
        (void)stuck_recv(s, 0);
    }
    for (int i = 0; baton_schedule_rank(s) == 0 && i < count; i++) {
        (void)stuck_send(s, 1);
    }
}

/* What has to pass: stragglers of a 1-of-n, a message to itself, and a branch
   that a call may not take. */
static void build_stragglers(baton_schedule_t *s)
{
    int size = baton_schedule_size(s);
    int rank = baton_schedule_rank(s);
    baton_node_t any = baton_add_nop(s);
    baton_set_need(s, any, BATON_NEED_ANY);
    for (int peer = 0; peer < size; peer++) {
        baton_node_t recv = stuck_recv(s, peer);
        baton_set_optional(s, recv);
        baton_before(s, recv, any);
        (void)stuck_send(s, peer);
    }
    baton_node_t call = baton_add_call(s, support_skip, NULL);
    baton_node_t send = stuck_send(s, (rank + 1) % size);
    baton_node_t recv = stuck_recv(s, (rank + size - 1) % size);
    baton_before(s, call, send);
    baton_before(s, call, recv);
    baton_set_optional(s, send);
    baton_set_optional(s, recv);
}

static void run_stragglers(support_worker_t *worker)
{
    baton_schedule_t *s;
    (void)support_worker_ok(worker,
                            baton_schedule_create(worker->group, "x", &s));
    build_stragglers(s);
    bool going = support_worker_ok(worker, baton_schedule_commit(s));
    for (int epoch = 0; epoch < 3 && going; epoch++) {
        going = support_worker_run(worker, s);
    }
    (void)support_worker_ok(worker, baton_schedule_destroy(s));
}

static void test_verify_takes_what_is_optional(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++) {
        support_cluster_t *cluster =
            support_cluster_open(ranks, &support_variants[SUPPORT_OWN_ENGINES]);
        support_cluster_run(cluster, run_stragglers, NULL);
        support_cluster_close(cluster);
    }
}

/* Each rank passes a message on round the ring, through a node of each kind
   that computes; lengths are those of what comes. */
static baton_status_t complete_at_once(void *arg, baton_call_t *call,
                                       baton_async_t async)
{
    (void)arg;
    (void)call;
    return baton_async_complete(async, BATON_OK);
}

static const baton_async_ops_t completes_at_once = {.start = complete_at_once};

static void build_all_kinds(baton_schedule_t *s)
{
    int size = baton_schedule_size(s);
    int rank = baton_schedule_rank(s);
    baton_buffer_t memory =
        baton_buffer_scratch(s, 4 * STUCK_BYTES, BATON_MEMORY_HOST);
    baton_view_t in = baton_view(memory, 0, 2 * STUCK_BYTES);
    baton_view_t out = baton_view(memory, 2 * STUCK_BYTES, 2 * STUCK_BYTES);
    baton_length_t length = baton_add_length(s);
    (void)stuck_send(s, (rank + 1) % size);
    baton_node_t nodes[] = {
        baton_add_recv(s, (rank + size - 1) % size, in),
        baton_add_reduce(s, BATON_I8, BATON_SUM, in, in, in),
        baton_add_copy(s, out, in),
        baton_add_call(s, support_succeed, NULL),
        baton_add_async(s, &completes_at_once, NULL),
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
    /* Not behind the send: in the ring those wait for each other. */
    baton_before(s, nodes[2], nodes[6]);
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

static void test_verify_takes_all_kinds(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        support_cluster_t *cluster =
            support_cluster_open(ranks, &support_variants[SUPPORT_OWN_ENGINES]);
        support_cluster_run(cluster, run_all_kinds, NULL);
        support_cluster_close(cluster);
    }
}

/* A graph that was refused is mended, committed and run. */
static void run_mending(support_worker_t *worker)
{
    baton_schedule_t *s;
    (void)support_worker_ok(worker,
                            baton_schedule_create(worker->group, "x", &s));
    build_sends(s, 2);
    baton_status_t status = baton_schedule_commit(s);
    (void)support_worker_check(worker, status == BATON_ERR_MISMATCH, "%s",
                               baton_error_message());
    if (worker->rank == 1) {
        (void)stuck_recv(s, 0);
    }
    if (support_worker_ok(worker, baton_schedule_commit(s)) &&
        support_worker_ok(worker, baton_schedule_start(s))) {
        (void)support_worker_ok(worker,
                                baton_schedule_wait(s, SUPPORT_WAIT_MS));
    }
    /* The group knows only this one, not what verifies. */
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

static void test_verify_takes_a_mended_graph(void **state)
{
    (void)state;
    support_cluster_t *cluster =
        support_cluster_open(3, &support_variants[SUPPORT_OWN_ENGINES]);
    support_cluster_run(cluster, run_mending, NULL);
    support_cluster_close(cluster);
}

/* Ranks that commit in another order hear of it. */
static void run_disorder(support_worker_t *worker)
{
    baton_schedule_t *s;
    (void)support_worker_ok(
        worker, baton_schedule_create(worker->group,
                                      worker->rank == 0 ? "a" : "b", &s));
    if (worker->rank == 0) {
        (void)stuck_send(s, 1);
    }
    baton_status_t status = baton_schedule_commit(s);
    (void)support_worker_check(
        worker,
        status == BATON_ERR_MISMATCH &&
            strstr(baton_error_message(),
                   " failed on all ranks: rank 0 commits \"a\" while rank 1 "
                   "commits \"b\": with BATON_VERIFY=1 all ranks commit in one "
                   "order") != NULL,
        "%s", baton_error_message());
    (void)support_worker_ok(worker, baton_schedule_destroy(s));
}

static void test_verify_tells_of_another_order(void **state)
{
    (void)state;
    support_cluster_t *cluster =
        support_cluster_open(2, &support_variants[SUPPORT_OWN_ENGINES]);
    support_cluster_run(cluster, run_disorder, NULL);
    support_cluster_close(cluster);
}

/* ---- memory ------------------------------------------------------------ */

typedef struct famine {
    baton_schedule_t *schedules[3];
    baton_status_t statuses[3];
} famine_t;

static void run_famine(support_worker_t *worker)
{
    famine_t *famine = worker->arg;
    famine->statuses[worker->rank] =
        baton_schedule_commit(famine->schedules[worker->rank]);
}

/* Whichever rank it is whose allocation fails, and wherever: nobody commits,
   nobody waits, and the same commit succeeds later. */
static void test_verify_without_memory_on_one_rank(void **state)
{
    (void)state;
    bool failed = true;
    for (int64_t nth = 1; failed; nth++) {
        famine_t famine = {0};
        support_cluster_t *cluster =
            support_cluster_open(3, &support_variants[SUPPORT_OWN_ENGINES]);
        for (int rank = 0; rank < 3; rank++) {
            famine.schedules[rank] =
                support_schedule(cluster->groups[rank], "x");
            build_sends(famine.schedules[rank], 1);
        }
        baton__alloc_fail_nth(nth);
        support_cluster_run(cluster, run_famine, &famine);
        baton__alloc_fail_nth(0);
        failed = famine.statuses[0] != BATON_OK;
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(famine.statuses[rank],
                             failed ? BATON_ERR_NO_MEMORY : BATON_OK);
        }
        if (failed) {
            support_cluster_run(cluster, run_famine, &famine);
        }
        for (int rank = 0; rank < 3; rank++) {
            support_ok(famine.statuses[rank]);
            support_ok(baton_schedule_destroy(famine.schedules[rank]));
        }
        support_cluster_close(cluster);
    }
}

#define VERIFIED(test)                                                         \
    cmocka_unit_test_setup_teardown(test, stuck_verify_on, stuck_verify_off)

int main(void)
{
    const struct CMUnitTest tests[] = {
        VERIFIED(test_verify_takes_what_is_optional),
        VERIFIED(test_verify_takes_all_kinds),
        VERIFIED(test_verify_takes_a_mended_graph),
        VERIFIED(test_verify_tells_of_another_order),
        VERIFIED(test_verify_without_memory_on_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
