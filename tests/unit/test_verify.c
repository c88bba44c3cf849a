/* BATON_VERIFY=1: commits that all ranks refuse, with one sentence, and what is
   good for use afterwards. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/stuck.h"

#include <stdio.h>
#include <string.h>

/* What all ranks commit, and hear. */
typedef struct trial {
    baton_sim_build_fn build;
    void *arg;
    baton_status_t status;
    const char *text;
} trial_t;

/* The group works: a sum over all. */
static void check_health(support_worker_t *worker)
{
    int32_t sum = 1;
    baton_schedule_t *s;
    if (!support_worker_ok(
            worker, baton_schedule_create(worker->group, "healthy", &s))) {
        return;
    }
    baton_view_t view = support_view(s, &sum, sizeof sum);
    baton_allreduce_t args = {.size = sizeof args,
                              .source = view,
                              .target = view,
                              .dtype = BATON_I32,
                              .op = BATON_SUM};
    baton_allreduce_ring(s, &args);
    if (support_worker_ok(worker, baton_schedule_commit(s)) &&
        support_worker_run(worker, s)) {
        (void)support_worker_check(worker, sum == worker->cluster->size, "%d",
                                   sum);
    }
    (void)!baton_schedule_destroy(s);
}

static void run_refusal(support_worker_t *worker)
{
    const trial_t *trial = worker->arg;
    for (int times = 0; times < 2; times++) {
        baton_schedule_t *s;
        (void)support_worker_ok(worker,
                                baton_schedule_create(worker->group, "x", &s));
        trial->build(trial->arg, s);
        /* The second commit of the same graph is refused as the first. */
        for (int commits = 0; commits < 2; commits++) {
            baton_status_t status = baton_schedule_commit(s);
            (void)support_worker_check(
                worker,
                status == trial->status &&
                    strcmp(baton_error_message(), trial->text) == 0,
                "%s: %s", baton_status_name(status), baton_error_message());
        }
        (void)!baton_schedule_destroy(s);
        check_health(worker);
    }
}

static void refuse(int ranks, baton_sim_build_fn build, void *arg,
                   baton_status_t status, const char *text)
{
    trial_t trial = {build, arg, status, text};
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster =
            support_cluster_open(ranks, &support_variants[i]);
        support_cluster_run(cluster, run_refusal, &trial);
        support_cluster_close(cluster);
    }
}

/* ---- deadlocks --------------------------------------------------------- */

/* Everybody receives from the left before it sends to the right. Before that,
   `arg` nops in a row. */
static void build_ring(void *arg, baton_schedule_t *s)
{
    int rank = baton_schedule_rank(s);
    int size = baton_schedule_size(s);
    baton_node_t recv = stuck_recv(s, (rank + size - 1) % size);
    baton_before(s, recv, stuck_send(s, (rank + 1) % size));
    for (int i = 0; arg != NULL && i < *(int *)arg; i++) {
        baton_node_t nop = baton_add_nop(s);
        baton_before(s, (baton_node_t){nop.index - 1}, nop);
    }
}

static void test_verify_finds_a_cycle(void **state)
{
    (void)state;
    refuse(3, build_ring, NULL, BATON_ERR_DEADLOCK,
           "commit of \"x\" failed on all ranks: epoch 1 can't end on rank 0: "
           "ranks wait in a cycle\n"
           "    rank 0: recv#0 waits for send#1 of rank 2, which is behind "
           "recv#0\n"
           "    rank 2: recv#0 waits for send#1 of rank 1, which is behind "
           "recv#0\n"
           "    rank 1: recv#0 waits for send#1 of rank 0, which is behind "
           "recv#0");
}

static void test_verify_of_one_rank(void **state)
{
    (void)state;
    refuse(1, build_ring, NULL, BATON_ERR_DEADLOCK,
           "commit of \"x\" failed on all ranks: epoch 1 can't end on rank 0: "
           "ranks wait in a cycle\n"
           "    rank 0: recv#0 waits for send#1 of rank 0, which is behind "
           "recv#0");
}

/* More than one block of the exchange. */
static void test_verify_of_many_nodes(void **state)
{
    (void)state;
    int nops = 3000;
    refuse(2, build_ring, &nops, BATON_ERR_DEADLOCK,
           "commit of \"x\" failed on all ranks: epoch 1 can't end on rank 0: "
           "ranks wait in a cycle\n"
           "    rank 0: recv#0 waits for send#1 of rank 1, which is behind "
           "recv#0\n"
           "    rank 1: recv#0 waits for send#1 of rank 0, which is behind "
           "recv#0");
}

static void test_verify_tells_what_relies_on_buffers(void **state)
{
    (void)state;
    refuse(2, stuck_head_to_head, NULL, BATON_ERR_DEADLOCK,
           "commit of \"x\" failed on all ranks: epoch 1 can't end on rank 0: "
           "ranks wait in a cycle\n"
           "    rank 0: send#0 waits for recv#1 of rank 1, which is behind "
           "send#0\n"
           "    rank 1: send#0 waits for recv#1 of rank 0, which is behind "
           "send#0\n"
           "    (it would end if every message sent found a buffer; long ones "
           "don't)");
}

static baton_status_t begin_nothing(void *arg, baton_call_t *call,
                                    baton_async_t async)
{
    (void)arg;
    (void)call;
    (void)async;
    return BATON_DONE;
}

static const baton_async_ops_t nothing = {.start = begin_nothing};

/* Node kinds that do nothing there keep their names. */
static void build_behind_nodes(void *arg, baton_schedule_t *s)
{
    (void)arg;
    int peer = 1 - baton_schedule_rank(s);
    baton_view_t view = support_scratch(s, 8);
    baton_view_t other = support_scratch(s, 8);
    baton_node_t nodes[] = {
        stuck_recv(s, peer),
        baton_add_reduce(s, BATON_F32, BATON_SUM, view, view, view),
        baton_add_copy(s, other, view),
        baton_add_call(s, support_skip, NULL),
        baton_add_async(s, &nothing, NULL),
        stuck_send(s, peer),
    };
    for (size_t i = 1; i < sizeof nodes / sizeof *nodes; i++) {
        baton_before(s, nodes[i - 1], nodes[i]);
    }
}

static void test_verify_knows_all_kinds(void **state)
{
    (void)state;
    refuse(2, build_behind_nodes, NULL, BATON_ERR_DEADLOCK,
           "commit of \"x\" failed on all ranks: epoch 1 can't end on rank 0: "
           "ranks wait in a cycle\n"
           "    rank 0: recv#0 waits for send#5 of rank 1, which is behind "
           "recv#0\n"
           "    rank 1: recv#0 waits for send#5 of rank 0, which is behind "
           "recv#0");
}

/* ---- mismatches -------------------------------------------------------- */

/* Rank 0 sends `arg` messages to rank 1, which has one receive from it. */
static void build_sends(void *arg, baton_schedule_t *s)
{
    if (baton_schedule_rank(s) == 1) {
        (void)stuck_recv(s, 0);
    }
    for (int i = 0; baton_schedule_rank(s) == 0 && i < *(int *)arg; i++) {
        (void)stuck_send(s, 1);
    }
}

static void test_verify_finds_a_send_without_receive(void **state)
{
    (void)state;
    int sends = 3;
    refuse(3, build_sends, &sends, BATON_ERR_MISMATCH,
           "commit of \"x\" failed on all ranks: send#1 of rank 0 has no "
           "receive on rank 1, which has 1 from there");
}

static void test_verify_finds_a_receive_without_send(void **state)
{
    (void)state;
    int sends = 0;
    refuse(3, build_sends, &sends, BATON_ERR_MISMATCH,
           "commit of \"x\" failed on all ranks: recv#0 of rank 1 has no send "
           "on rank 0, which has 0 to there");
}

static void build_unarmed(void *arg, baton_schedule_t *s)
{
    (void)arg;
    if (baton_schedule_rank(s) == 0) {
        baton_node_t start = baton_add_on_start(s);
        baton_before(s, start, baton_add_activate(s, 1));
    }
}

static void test_verify_counts_activations(void **state)
{
    (void)state;
    refuse(2, build_unarmed, NULL, BATON_ERR_MISMATCH,
           "commit of \"x\" failed on all ranks: activate#1 of rank 0 has no "
           "armed receive on rank 1, which has 0 from there");
}

/* ---- errors of one rank ------------------------------------------------ */

static void build_loop(void *arg, baton_schedule_t *s)
{
    baton_node_t nop = baton_add_nop(s);
    if (baton_schedule_rank(s) >= *(int *)arg) {
        baton_before(s, nop, nop);
    }
}

static void test_verify_tells_of_the_lowest_ranks_error(void **state)
{
    (void)state;
    int culprit = 1;
    refuse(3, build_loop, &culprit, BATON_ERR_CYCLE,
           "commit of \"x\" failed on all ranks: rank 1: dependency cycle\n"
           "    nop#0 -> nop#0");
}

static void build_wrong_peer(void *arg, baton_schedule_t *s)
{
    (void)arg;
    if (baton_schedule_rank(s) == 2) {
        (void)stuck_send(s, 3);
    }
}

static void test_verify_tells_of_what_an_adder_met(void **state)
{
    (void)state;
    refuse(3, build_wrong_peer, NULL, BATON_ERR_INVALID,
           "commit of \"x\" failed on all ranks: rank 2: send#0: peer 3 is not "
           "in 0..2");
}

#define VERIFIED(test)                                                         \
    cmocka_unit_test_setup_teardown(test, stuck_verify_on, stuck_verify_off)

int main(void)
{
    const struct CMUnitTest tests[] = {
        VERIFIED(test_verify_finds_a_cycle),
        VERIFIED(test_verify_of_one_rank),
        VERIFIED(test_verify_of_many_nodes),
        VERIFIED(test_verify_tells_what_relies_on_buffers),
        VERIFIED(test_verify_knows_all_kinds),
        VERIFIED(test_verify_finds_a_send_without_receive),
        VERIFIED(test_verify_finds_a_receive_without_send),
        VERIFIED(test_verify_counts_activations),
        VERIFIED(test_verify_tells_of_the_lowest_ranks_error),
        VERIFIED(test_verify_tells_of_what_an_adder_met),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
