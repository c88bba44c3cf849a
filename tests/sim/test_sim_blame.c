/* The exact messages about ranks that wait for a node that does not fire. */
#include "support/cmocka.h"
#include "support/stuck.h"

static void chain_is_stuck(int ranks, stuck_last_fn last, const char *text)
{
    double us;
    baton_sim_t *sim = stuck_open(ranks, 0);
    support_ok(baton_sim_build(sim, "x", stuck_chain, &last));
    stuck_says(baton_sim_epoch(sim, &us), BATON_ERR_DEADLOCK, text);
    support_ok(baton_sim_destroy(sim));
}

/* The last rank finds that its epoch can't end, and so all fail. */
static void all_fail(int ranks, baton_sim_build_fn build, void *arg,
                     const char *text)
{
    double us;
    baton_sim_t *sim = stuck_open(ranks, 0);
    support_ok(baton_sim_build(sim, "x", build, arg));
    stuck_says(baton_sim_epoch(sim, &us), BATON_ERR_UNREACHABLE, text);
    for (int rank = 0; rank < ranks; rank++) {
        stuck_says(baton_schedule_wait(baton_sim_schedule(sim, rank), -1),
                   BATON_ERR_UNREACHABLE, text);
    }
    support_ok(baton_sim_destroy(sim));
}

static void behind_skipped_call(baton_schedule_t *s)
{
    baton_before(s, baton_add_call(s, support_skip, NULL), (baton_node_t){0});
}

static void test_unreachable_names_the_call_that_skipped(void **state)
{
    stuck_last_fn last = behind_skipped_call;
    all_fail(3, stuck_chain, &last,
             "\"x\" epoch 1 can't end on rank 2: send#0 will not fire: call#1 "
             "skipped (is what lies behind it optional?)");
}

/* Two calls that skip -> any of them -> send. */
static void behind_or_node(baton_schedule_t *s)
{
    baton_node_t either = baton_add_nop(s);
    baton_set_need(s, either, BATON_NEED_ANY);
    for (int i = 0; i < 2; i++) {
        baton_before(s, baton_add_call(s, support_skip, NULL), either);
    }
    baton_before(s, either, (baton_node_t){0});
}

static void test_unreachable_behind_an_or_that_nothing_satisfies(void **state)
{
    stuck_last_fn last = behind_or_node;
    all_fail(2, stuck_chain, &last,
             "\"x\" epoch 1 can't end on rank 1: send#0 will not fire: call#2 "
             "skipped (is what lies behind it optional?)");
}

static void behind_own_message(baton_schedule_t *s)
{
    int rank = baton_schedule_rank(s);
    baton_node_t recv = stuck_recv(s, rank);
    baton_node_t send = stuck_send(s, rank);
    baton_before(s, recv, (baton_node_t){0});
    baton_before(s, baton_add_call(s, support_skip, NULL), send);
}

static void test_deadlock_behind_a_message_to_itself(void **state)
{
    chain_is_stuck(2, behind_own_message,
                   "\"x\" epoch 1 can't end on rank 0:\n"
                   "    rank 0: recv#0 waits for send#0 of rank 1, which is "
                   "behind recv#1\n"
                   "    rank 1: recv#1 waits for send#2 of rank 1\n"
                   "    rank 1: send#2 will not fire: call#3 skipped");
}

static void behind_armed(baton_schedule_t *s)
{
    int rank = baton_schedule_rank(s);
    baton_before(s, baton_add_armed_recv(s, rank), (baton_node_t){0});
    baton_before(s, baton_add_call(s, support_skip, NULL),
                 baton_add_activate(s, rank));
}

static void test_deadlock_behind_an_armed_receive(void **state)
{
    chain_is_stuck(2, behind_armed,
                   "\"x\" epoch 1 can't end on rank 0:\n"
                   "    rank 0: recv#0 waits for send#0 of rank 1\n"
                   "    rank 1: send#0 is behind armed_recv#1, and nobody "
                   "activates it");
}

static void skip_required(void *arg, baton_schedule_t *s)
{
    baton_node_t nop = baton_add_nop(s);
    baton_before(s, baton_add_call(s, support_skip, NULL), nop);
    baton_before(s, nop, baton_add_nop(s));
}

static void test_unreachable_behind_its_own_call(void **state)
{
    all_fail(1, skip_required, NULL,
             "\"x\" epoch 1 can't end on rank 0: nop#0 will not fire: call#1 "
             "skipped (is what lies behind it optional?)");
}

/* An optional send behind a call that skips: its rank's epoch ends. */
static void build_optional(void *arg, baton_schedule_t *s)
{
    if (baton_schedule_rank(s) == 0) {
        (void)stuck_recv(s, 1);
    } else {
        baton_node_t send = stuck_send(s, 0);
        baton_set_optional(s, send);
        baton_before(s, baton_add_call(s, support_skip, NULL), send);
    }
}

static void test_deadlock_for_a_rank_whose_epoch_has_ended(void **state)
{
    stuck_build(2, 0, build_optional,
                "\"x\" epoch 1 can't end on rank 0:\n"
                "    rank 0: recv#0 waits for send#0 of rank 1\n"
                "    rank 1 has ended epoch 1 without send#0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unreachable_names_the_call_that_skipped),
        cmocka_unit_test(test_unreachable_behind_an_or_that_nothing_satisfies),
        cmocka_unit_test(test_deadlock_behind_a_message_to_itself),
        cmocka_unit_test(test_deadlock_behind_an_armed_receive),
        cmocka_unit_test(test_unreachable_behind_its_own_call),
        cmocka_unit_test(test_deadlock_for_a_rank_whose_epoch_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
