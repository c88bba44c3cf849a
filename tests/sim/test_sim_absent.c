/* The exact messages about ranks that wait for one that has not started or is
   at its limit, and of ranks that depend on one that is dead. */
#include "support/cmocka.h"
#include "support/stuck.h"

/* Starts all ranks but the last, `epochs` times. */
static baton_status_t start_but_last(baton_sim_t *sim, int ranks, int epochs)
{
    baton_status_t status = BATON_OK;
    for (int epoch = 0; epoch < epochs && status == BATON_OK; epoch++) {
        for (int rank = 0; rank < ranks - 1; rank++) {
            support_ok(baton_schedule_start(baton_sim_schedule(sim, rank)));
        }
        status = baton_sim_run(sim, -1.0);
    }
    return status;
}

static void test_deadlock_for_a_rank_that_has_not_started(void **state)
{
    double us;
    baton_sim_t *sim = stuck_open(3, 0);
    support_ok(baton_sim_build(sim, "x", stuck_chain, NULL));
    support_ok(baton_sim_epoch(sim, &us));
    stuck_says(start_but_last(sim, 3, 1), BATON_ERR_DEADLOCK,
               "\"x\" epoch 2 can't end on rank 0:\n"
               "    rank 0: recv#0 waits for send#0 of rank 1, which is behind "
               "recv#1\n"
               "    rank 1: recv#1 waits for send#0 of rank 2\n"
               "    rank 2 has not started epoch 2");
    /* The missing rank starts after all. */
    support_ok(baton_schedule_start(baton_sim_schedule(sim, 2)));
    support_ok(baton_sim_run(sim, -1.0));
    support_ok(baton_sim_destroy(sim));
}

/* Rank 1's epoch begins when it is activated, but its send requires its start.
 */
static void build_half_started(void *arg, baton_schedule_t *s)
{
    baton_node_t start = baton_add_on_start(s);
    if (baton_schedule_rank(s) == 0) {
        baton_before(s, start, baton_add_activate(s, 1));
        (void)stuck_recv(s, 1);
    } else {
        (void)baton_add_armed_recv(s, 0);
        baton_before(s, start, stuck_send(s, 0));
    }
}

static void test_deadlock_for_a_rank_that_was_only_activated(void **state)
{
    baton_sim_t *sim = stuck_open(2, 0);
    support_ok(baton_sim_build(sim, "x", build_half_started, NULL));
    stuck_says(
        start_but_last(sim, 2, 1), BATON_ERR_DEADLOCK,
        "\"x\" epoch 1 can't end on rank 0:\n"
        "    rank 0: recv#2 waits for send#2 of rank 1\n"
        "    rank 1: send#2 is behind on_start#0, and epoch 1 was not started "
        "there");
    support_ok(baton_sim_destroy(sim));
}

/* Rank 1 has an armed receive that nobody sends to, or a limit. */
static void build_activated(void *arg, baton_schedule_t *s)
{
    const bool *activates = arg;
    if (baton_schedule_rank(s) == 0) {
        baton_node_t call = baton_add_call(s, support_skip, NULL);
        baton_node_t activate = baton_add_activate(s, 1);
        if (*activates) {
            call = baton_add_on_start(s);
        }
        baton_before(s, call, activate);
        (void)stuck_recv(s, 1);
    } else {
        (void)baton_add_armed_recv(s, 0);
        (void)stuck_send(s, 0);
    }
}

static void test_deadlock_for_a_rank_that_was_not_activated(void **state)
{
    bool activates = false;
    baton_sim_t *sim = stuck_open(2, 0);
    support_ok(baton_sim_build(sim, "x", build_activated, &activates));
    stuck_says(start_but_last(sim, 2, 1), BATON_ERR_DEADLOCK,
               "\"x\" epoch 1 can't end on rank 0:\n"
               "    rank 0: recv#2 waits for send#1 of rank 1\n"
               "    rank 1 has not started epoch 1, and nobody activates it");
    support_ok(baton_sim_destroy(sim));
}

static void test_deadlock_for_a_rank_at_its_limit(void **state)
{
    bool activates = true;
    baton_sim_t *sim = stuck_open(2, 0);
    support_ok(baton_sim_build(sim, "x", build_activated, &activates));
    baton_schedule_limit(baton_sim_schedule(sim, 1), 2);
    stuck_says(start_but_last(sim, 2, 3), BATON_ERR_DEADLOCK,
               "\"x\" epoch 3 can't end on rank 0:\n"
               "    rank 0: recv#3 waits for send#1 of rank 1\n"
               "    rank 1 has not started epoch 3, which is beyond its limit");
    support_ok(baton_sim_destroy(sim));
}

/* Rank 1 sends to rank 0 and waits for rank 2. */
static void build_behind(void *arg, baton_schedule_t *s)
{
    switch (baton_schedule_rank(s)) {
    case 0:
        (void)stuck_recv(s, 1);
        break;
    case 1:
        (void)stuck_send(s, 0);
        (void)stuck_recv(s, 2);
        break;
    default:
        (void)stuck_send(s, 1);
        break;
    }
}

static void test_deadlock_for_a_rank_in_an_earlier_epoch(void **state)
{
    baton_sim_t *sim = stuck_open(3, 0);
    support_ok(baton_sim_build(sim, "x", build_behind, NULL));
    stuck_says(start_but_last(sim, 3, 1), BATON_ERR_DEADLOCK,
               "\"x\" epoch 1 can't end on rank 1:\n"
               "    rank 1: recv#1 waits for send#0 of rank 2\n"
               "    rank 2 has not started epoch 1");
    support_ok(baton_schedule_start(baton_sim_schedule(sim, 0)));
    stuck_says(baton_sim_run(sim, -1.0), BATON_ERR_DEADLOCK,
               "\"x\" epoch 2 can't end on rank 0:\n"
               "    rank 0: recv#0 waits for send#0 of rank 1, which is still "
               "in epoch 1, behind recv#1\n"
               "    rank 1: recv#1 waits for send#0 of rank 2\n"
               "    rank 2 has not started epoch 1");
    support_ok(baton_sim_destroy(sim));
}

/* Every rank that the dead one's failure reaches gets the message of the rank
   that met it. */
static void test_a_rank_that_is_dead_fails_those_that_need_it(void **state)
{
    baton_sim_t *sim = stuck_open(4, 0);
    support_ok(baton_sim_build(sim, "x", stuck_chain, NULL));
    support_ok(baton_sim_kill(sim, 2));
    support_ok(start_but_last(sim, 4, 1));
    for (int rank = 0; rank < 2; rank++) {
        stuck_says(baton_schedule_wait(baton_sim_schedule(sim, rank), -1),
                   BATON_ERR_TRANSPORT,
                   "\"x\" epoch 1 failed at recv#1 on rank 1: rank 2 is gone: "
                   "the other rank is dead");
    }
    support_ok(baton_sim_destroy(sim));
}

/* ---- with introductions ------------------------------------------------ */

static baton_sim_t *open_introduced(int ranks)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = ranks;
    options.link.alpha_us = 1.0;
    options.introductions = true;
    baton_sim_t *sim;
    support_ok(baton_sim_create(&options, &sim));
    return sim;
}

static baton_schedule_t *commit_chain(baton_sim_t *sim, int rank,
                                      stuck_last_fn last)
{
    baton_schedule_t *s = support_schedule(baton_sim_group(sim, rank), "x");
    stuck_chain(last != NULL ? &last : NULL, s);
    support_ok(baton_schedule_commit(s));
    return s;
}

/* The send is not held back for a rank that will never commit its receive. */
static void
test_a_send_to_a_rank_that_died_before_its_commit_fails(void **state)
{
    baton_sim_t *sim = open_introduced(2);
    support_ok(baton_sim_kill(sim, 0));
    support_ok(baton_sim_run(sim, -1.0));
    baton_schedule_t *one = commit_chain(sim, 1, NULL);
    support_ok(baton_schedule_start(one));
    stuck_says(baton_schedule_wait(one, -1), BATON_ERR_TRANSPORT,
               "\"x\" epoch 1 failed at send#0 on rank 1: rank 0 is gone: the "
               "transport failed");
    support_ok(baton_schedule_destroy(one));
    support_ok(baton_sim_destroy(sim));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deadlock_for_a_rank_that_has_not_started),
        cmocka_unit_test(test_deadlock_for_a_rank_that_was_only_activated),
        cmocka_unit_test(test_deadlock_for_a_rank_that_was_not_activated),
        cmocka_unit_test(test_deadlock_for_a_rank_at_its_limit),
        cmocka_unit_test(test_deadlock_for_a_rank_in_an_earlier_epoch),
        cmocka_unit_test(test_a_rank_that_is_dead_fails_those_that_need_it),
        cmocka_unit_test(
            test_a_send_to_a_rank_that_died_before_its_commit_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
