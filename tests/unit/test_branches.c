/* Nodes that need not fire, and epochs that a limit holds back. Messages of
   branches and stragglers of k of n are baton-fuzz's, in any order. */
#include "support/cluster.h"
#include "support/cmocka.h"

static baton_status_t skip_odd(void *arg, baton_call_t *call)
{
    return baton_call_epoch(call) % 2 == 1 ? BATON_SKIP : BATON_OK;
}

/* A skipped branch does not fire, but a node with another input does:

       skip_odd --> branch (optional)
           |
           +------> join (any)
       nop --------/                                                         */
TEST_EACH(test_skip_leaves_the_branch_out, 1)
{
    baton_schedule_t *s;
    uint64_t branches = 0, joins = 0;
    s = support_schedule(cluster->groups[0], "skip");
    baton_node_t skip = baton_add_call(s, skip_odd, NULL);
    baton_node_t branch = baton_add_call(s, support_count, &branches);
    baton_node_t nop = baton_add_nop(s);
    baton_node_t join = baton_add_call(s, support_count, &joins);
    baton_set_optional(s, branch);
    baton_set_need(s, join, BATON_NEED_ANY);
    baton_before(s, skip, branch);
    baton_before(s, skip, join);
    baton_before(s, nop, join);
    support_ok(baton_schedule_commit(s));
    for (uint64_t epoch = 1; epoch <= 20; epoch++) {
        support_run(s);
        assert_int_equal(branches, epoch / 2);
        assert_int_equal(joins, epoch);
    }
    support_ok(baton_schedule_destroy(s));
}

/* ---- limit ------------------------------------------------------------ */

/* Rank 0 activates; rank 1 never starts. */
TEST_MANUALLY(test_limit_holds_external_epochs_back, 2)
{
    baton_schedule_t **s = support_schedules_create(cluster, "limited");
    uint64_t calls[2] = {0, 0};
    for (int rank = 0; rank < 2; rank++) {
        baton_node_t begin =
            baton_add_activation(s[rank], baton_add_on_start(s[rank]));
        baton_node_t call =
            baton_add_call(s[rank], support_count, &calls[rank]);
        baton_before(s[rank], begin, call);
    }
    support_schedules_commit(cluster, s);
    baton_schedule_limit(s[1], 0);
    for (int epoch = 1; epoch <= 5; epoch++) {
        support_run(s[0]);
    }
    support_drain(cluster);
    assert_int_equal(calls[1], 0);
    baton_schedule_limit(s[1], 1);
    support_drain(cluster);
    assert_int_equal(calls[0], 5);
    assert_int_equal(calls[1], 1); /* the messages of the others are kept */
    baton_schedule_limit(s[1], 3);
    support_drain(cluster);
    assert_int_equal(calls[1], 3);
    baton_schedule_limit(s[1], 2); /* never lowered */
    support_drain(cluster);
    for (int epoch = 1; epoch <= 4; epoch++) {
        support_run(
            s[1]); /* epochs 1 to 3 have run; its own start begins the 4th */
    }
    assert_int_equal(calls[1], 4);
    assert_int_equal(baton_schedule_epoch(s[1]), 4);
    baton_schedule_limit(s[1], 100);
    support_drain(cluster);
    assert_int_equal(calls[1], 5);
    support_schedules_destroy(cluster, s);
}

RUN_TESTS()
