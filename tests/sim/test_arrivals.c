/* Armed receives and activates in a run that is driven by hand: what a message
   of an epoch is to it, and where its origin goes. */
#include "sched/schedule.h"
#include "support/cluster.h"
#include "support/cmocka.h"

enum { RANKS = 7 };

static baton__run_t *run_of(baton_schedule_t *schedule)
{
    support_ok(baton_schedule_commit(schedule));
    return &schedule->run;
}

static baton_schedule_t *create(int rank)
{
    return support_schedule(support_cluster_of(RANKS)->groups[rank],
                            "arrivals");
}

static void destroy(baton_schedule_t *schedule)
{
    if (schedule->run.phase == BATON__RUN_RUNNING) {
        baton__run_set_phase(&schedule->run, BATON__RUN_IDLE);
    }
    support_ok(baton_schedule_destroy(schedule));
}

/* Pops all ready nodes without completing them. Returns a mask. */
static uint32_t pop_all(baton__run_t *run)
{
    uint32_t mask = 0;
    while (baton__run_has_ready(run)) {
        mask |= 1u << baton__run_pop(run);
    }
    return mask;
}

static void arrive(baton__run_t *run, baton_node_t armed, int origin)
{
    baton__run_activate(run, armed.index,
                        (baton__activation_t){.origin = origin});
}

/* Before, during and after epoch 1. */
TEST(test_arrivals_have_their_turn)
{
    static const baton__turn_t turns[3][3] = {
        {BATON__TURN_PAST, BATON__TURN_LATER, BATON__TURN_LATER},
        {BATON__TURN_PAST, BATON__TURN_NOW, BATON__TURN_LATER},
        {BATON__TURN_PAST, BATON__TURN_PAST, BATON__TURN_LATER},
    };
    baton_schedule_t *s = create(1);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    baton__run_t *run = run_of(s);
    for (int moment = 0; moment < 3; moment++) {
        if (moment == 1) {
            baton__run_begin(run);
            assert_true(baton__run_is_through(run)); /* it is not awaited */
        } else if (moment == 2) {
            baton__run_set_phase(run, BATON__RUN_IDLE);
        }
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            assert_int_equal(baton__run_turn_of(run, armed.index, epoch),
                             turns[moment][epoch]);
        }
    }
    destroy(s);
}

/* Rank 3 of 7 with an armed receive in front of an activate to each other rank:
   only those farther from the origin than rank 3 go out. */
TEST(test_arrivals_go_on_away_from_their_origin)
{
    baton_schedule_t *s = create(3);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    for (int peer = 0; peer < RANKS; peer++) {
        baton_before(s, armed, baton_add_activate(s, peer));
    }
    baton__run_t *run = run_of(s);
    for (int origin = 0; origin < RANKS; origin++) {
        uint32_t expected = 0;
        baton__run_begin(run);
        arrive(run, armed, origin);
        for (int peer = 0; peer < RANKS; peer++) {
            bool farther =
                (peer - origin + RANKS) % RANKS > (3 - origin + RANKS) % RANKS;
            expected |= farther ? 2u << peer : 0;
        }
        assert_int_equal(pop_all(run), expected);
        baton__run_set_phase(run, BATON__RUN_IDLE);
    }
    destroy(s);
}

/* on_start, armed --> any --> activate: the first to fire sets the origin, and
   as long as an activation may come the epoch is not stuck. */
TEST(test_arrivals_after_the_start_keep_its_origin)
{
    baton_schedule_t *s = create(1);
    baton_node_t start = baton_add_on_start(s);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    baton_node_t activate = baton_add_activate(s, 2);
    baton_before(s, start, activate);
    baton_before(s, armed, activate);
    baton_set_need(s, activate, BATON_NEED_ANY);
    baton_before(s, armed, baton_add_nop(s));
    baton__run_t *run = run_of(s);
    baton__run_begin(run);
    baton__run_started(run);
    assert_int_equal(pop_all(run), 1u << start.index);
    baton__run_complete(run, start.index);
    assert_int_equal(pop_all(run), 1u << activate.index);
    assert_false(baton__run_is_stuck(run));
    arrive(run, armed, 0);
    assert_int_equal(
        run->activations[s->ops[activate.index].message.slot].origin, 1);
    destroy(s);
}

RUN_TESTS_BETWEEN(support_clusters_open, support_clusters_close)
