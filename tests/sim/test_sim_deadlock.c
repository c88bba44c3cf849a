/* The exact messages about ranks that wait in a cycle. */
#include "support/cmocka.h"
#include "support/stuck.h"

/* Every rank receives from the left before it sends to the right. */
static void build_ring(void *arg, baton_schedule_t *s)
{
    int rank = baton_schedule_rank(s);
    int size = baton_schedule_size(s);
    baton_node_t recv = stuck_recv(s, (rank + size - 1) % size);
    baton_before(s, recv, stuck_send(s, (rank + 1) % size));
}

static void test_deadlock_of_many_shows_some(void **state)
{
    stuck_build(
        1000, 0, build_ring,
        "\"x\" epoch 1 can't end on rank 0: ranks wait in a cycle\n"
        "    rank 0: recv#0 waits for send#1 of rank 999, which is behind "
        "recv#0\n"
        "    rank 999: recv#0 waits for send#1 of rank 998, which is behind "
        "recv#0\n"
        "    rank 998: recv#0 waits for send#1 of rank 997, which is behind "
        "recv#0\n"
        "    rank 997: recv#0 waits for send#1 of rank 996, which is behind "
        "recv#0\n"
        "    rank 996: recv#0 waits for send#1 of rank 995, which is behind "
        "recv#0\n"
        "    rank 995: recv#0 waits for send#1 of rank 994, which is behind "
        "recv#0\n"
        "    ... 993 more\n"
        "    rank 1: recv#0 waits for send#1 of rank 0, which is behind "
        "recv#0");
}

/* Rank 0 waits for rank 1; rank 1 and 2 for each other. */
static void build_tail(void *arg, baton_schedule_t *s)
{
    int rank = baton_schedule_rank(s);
    if (rank == 0) {
        (void)stuck_recv(s, 1);
        return;
    }
    baton_node_t recv = stuck_recv(s, 3 - rank);
    baton_before(s, recv, stuck_send(s, 3 - rank));
    if (rank == 1) {
        baton_node_t nop = baton_add_nop(s);
        baton_before(s, recv, nop);
        baton_before(s, nop, stuck_send(s, 0));
    }
}

static void test_deadlock_leaves_out_who_is_not_in_the_cycle(void **state)
{
    stuck_build(
        3, 0, build_tail,
        "\"x\" epoch 1 can't end on rank 0: ranks wait in a cycle\n"
        "    rank 1: recv#0 waits for send#1 of rank 2, which is behind "
        "recv#0\n"
        "    rank 2: recv#0 waits for send#1 of rank 1, which is behind "
        "recv#0");
}

static void test_deadlock_of_sends_head_to_head(void **state)
{
    stuck_build(
        2, STUCK_BYTES, stuck_head_to_head,
        "\"x\" epoch 1 can't end on rank 0: ranks wait in a cycle\n"
        "    rank 0: send#0 waits for recv#1 of rank 1, which is behind "
        "send#0\n"
        "    rank 1: send#0 waits for recv#1 of rank 0, which is behind "
        "send#0");
    double us;
    baton_sim_t *sim = stuck_open(2, STUCK_BYTES + 1);
    support_ok(baton_sim_build(sim, "x", stuck_head_to_head, NULL));
    support_ok(baton_sim_epoch(sim, &us));
    support_ok(baton_sim_destroy(sim));
}

/* Rank 0's send needs one of two receives, and each rank waits for that send.
 */
static void build_choice(void *arg, baton_schedule_t *s)
{
    int rank = baton_schedule_rank(s);
    if (rank != 0) {
        baton_node_t recv = stuck_recv(s, 0);
        baton_before(s, recv, stuck_send(s, 0));
        return;
    }
    baton_node_t any = baton_add_nop(s);
    for (int peer = 1; peer < 3; peer++) {
        baton_before(s, stuck_recv(s, peer), any);
        baton_before(s, any, stuck_send(s, peer));
    }
    baton_set_need(s, any, BATON_NEED_ANY);
}

static void test_deadlock_behind_a_choice(void **state)
{
    stuck_build(
        3, 0, build_choice,
        "\"x\" epoch 1 can't end on rank 0: ranks wait in a cycle\n"
        "    rank 0: recv#1 waits for send#1 of rank 1, which is behind "
        "recv#0\n"
        "    rank 1: recv#0 waits for send#2 of rank 0, which is behind "
        "recv#1 (nop#0 needs 1 of 2)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deadlock_of_many_shows_some),
        cmocka_unit_test(test_deadlock_leaves_out_who_is_not_in_the_cycle),
        cmocka_unit_test(test_deadlock_of_sends_head_to_head),
        cmocka_unit_test(test_deadlock_behind_a_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
