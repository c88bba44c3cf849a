/* Armed receives and activates: how a run handles a message of an epoch and the
   origin in it. */
#include "sched/schedule.h"
#include "support/cluster.h"
#include "support/cmocka.h"

enum { RANKS = 7, NODES = 16 };

/* ---- a run that is driven by hand -------------------------------------- */

/* A run of a committed schedule's plan, with memory of its own. */
typedef struct driven_run {
    baton_schedule_t *schedule;
    baton__run_t run;
    uint32_t left[NODES];
    uint32_t ready[NODES];
    uint8_t state[NODES];
    baton__activation_t activations[NODES];
} driven_run_t;

static baton_schedule_t *create(int rank)
{
    return support_schedule(support_cluster_of(RANKS)->groups[rank],
                            "arrivals");
}

static void take_strings(driven_run_t *driven, baton_schedule_t *schedule)
{
    support_ok(baton_schedule_commit(schedule));
    *driven = (driven_run_t){.schedule = schedule, .run = schedule->run};
    driven->run.left = driven->left;
    driven->run.ready = driven->ready;
    driven->run.state = driven->state;
    driven->run.activations = driven->activations;
}

static int64_t origin_of(driven_run_t *driven, baton_node_t node)
{
    return driven->activations[driven->schedule->ops[node.index].message.slot]
        .origin;
}

static baton__turn_t turn_of(driven_run_t *driven, baton_node_t armed,
                             uint64_t epoch)
{
    return baton__run_turn_of(&driven->run, armed.index, epoch);
}

/* An armed receive gets the running epoch's message. */
static void arrive(driven_run_t *driven, baton_node_t armed, int origin)
{
    assert_int_equal(turn_of(driven, armed, driven->run.epoch),
                     BATON__TURN_NOW);
    baton__run_activate(&driven->run, armed.index,
                        (baton__activation_t){.origin = origin});
}

/* Pops all ready nodes without completing them. Returns a mask. */
static uint32_t pop_all(driven_run_t *driven)
{
    uint32_t mask = 0;
    while (baton__run_has_ready(&driven->run)) {
        uint32_t node = baton__run_pop(&driven->run);
        assert_int_equal(mask >> node & 1, 0);
        mask |= 1u << node;
    }
    return mask;
}

/* ---- what a message is to an armed receive ----------------------------- */

/* Rank 1: armed#0 from rank 0. The run is idle after epoch 2. */
static baton_node_t open_armed(driven_run_t *driven)
{
    baton_schedule_t *s = create(1);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    take_strings(driven, s);
    driven->run.epoch = 2;
    return armed;
}

static void test_arrivals_for_retired_epochs_are_dropped(void **state)
{
    driven_run_t driven;
    baton_node_t armed = open_armed(&driven);
    for (uint64_t epoch = 0; epoch <= 2; epoch++) {
        assert_int_equal(turn_of(&driven, armed, epoch), BATON__TURN_PAST);
    }
    baton__run_begin(&driven.run);
    assert_int_equal(turn_of(&driven, armed, 2), BATON__TURN_PAST);
    baton__run_set_phase(&driven.run, BATON__RUN_IDLE);
    assert_int_equal(turn_of(&driven, armed, 3), BATON__TURN_PAST);
    support_ok(baton_schedule_destroy(driven.schedule));
}

static void test_arrivals_for_the_running_epoch_count_now(void **state)
{
    driven_run_t driven;
    baton_node_t armed = open_armed(&driven);
    baton__run_begin(&driven.run);
    assert_int_equal(turn_of(&driven, armed, 3), BATON__TURN_NOW);
    support_ok(baton_schedule_destroy(driven.schedule));
}

static void test_arrivals_for_later_epochs_are_kept(void **state)
{
    driven_run_t driven;
    baton_node_t armed = open_armed(&driven);
    assert_int_equal(turn_of(&driven, armed, 4), BATON__TURN_LATER);
    baton__run_begin(&driven.run);
    assert_int_equal(turn_of(&driven, armed, 4), BATON__TURN_LATER);
    baton__run_set_phase(&driven.run, BATON__RUN_IDLE);
    assert_int_equal(turn_of(&driven, armed, 4), BATON__TURN_LATER);
    baton__run_begin(&driven.run);
    assert_int_equal(turn_of(&driven, armed, 4), BATON__TURN_NOW);
    support_ok(baton_schedule_destroy(driven.schedule));
}

static void test_arrivals_are_not_waited_for(void **state)
{
    driven_run_t driven;
    (void)open_armed(&driven);
    baton__run_begin(&driven.run);
    assert_true(baton__run_is_through(&driven.run));
    support_ok(baton_schedule_destroy(driven.schedule));
}

/* armed#0 --> nop#1, which the epoch requires. As long as an activation may
   come the epoch is not stuck. */
static void test_arrivals_may_still_come(void **state)
{
    driven_run_t driven;
    baton_schedule_t *s = create(1);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    baton_before(s, armed, baton_add_nop(s));
    take_strings(&driven, s);
    baton__run_begin(&driven.run);
    assert_false(baton__run_is_stuck(&driven.run));
    arrive(&driven, armed, 0);
    assert_int_equal(pop_all(&driven), 1u << 1);
    assert_false(baton__run_is_through(&driven.run));
    support_ok(baton_schedule_destroy(s));
}

/* ---- what it sets off -------------------------------------------------- */

/* armed#0, armed#1 --> any --> nop: the second arrival has no effect. */
static void test_arrivals_fire_a_node_once(void **state)
{
    driven_run_t driven;
    baton_schedule_t *s = create(1);
    baton_node_t one = baton_add_armed_recv(s, 0);
    baton_node_t two = baton_add_armed_recv(s, 2);
    baton_node_t nop = baton_add_nop(s);
    baton_before(s, one, nop);
    baton_before(s, two, nop);
    baton_set_need(s, nop, BATON_NEED_ANY);
    take_strings(&driven, s);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        baton__run_begin(&driven.run);
        assert_int_equal(pop_all(&driven), 0);
        arrive(&driven, two, 2);
        assert_int_equal(pop_all(&driven), 1u << nop.index);
        arrive(&driven, one, 0);
        assert_int_equal(pop_all(&driven), 0);
        assert_false(baton__run_is_through(&driven.run));
        baton__run_complete(&driven.run, nop.index);
        assert_true(baton__run_is_through(&driven.run));
        baton__run_set_phase(&driven.run, BATON__RUN_IDLE);
    }
    support_ok(baton_schedule_destroy(s));
}

/* Rank 3 of 7 with an armed receive in front of an activate to each other rank:
   only those farther from the origin than rank 3 go out. */
static void test_arrivals_go_on_away_from_their_origin(void **state)
{
    driven_run_t driven;
    baton_schedule_t *s = create(3);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    for (int peer = 0; peer < RANKS; peer++) {
        baton_before(s, armed, baton_add_activate(s, peer));
    }
    take_strings(&driven, s);
    for (int origin = 0; origin < RANKS; origin++) {
        uint32_t expected = 0;
        baton__run_begin(&driven.run);
        arrive(&driven, armed, origin);
        for (int peer = 0; peer < RANKS; peer++) {
            int mine = (3 - origin + RANKS) % RANKS;
            int theirs = (peer - origin + RANKS) % RANKS;
            baton_node_t activate = {(uint32_t)peer + 1};
            expected |= theirs > mine ? 1u << activate.index : 0;
            assert_int_equal(origin_of(&driven, activate),
                             theirs > mine ? origin : 3);
        }
        assert_int_equal(pop_all(&driven), expected);
        baton__run_set_phase(&driven.run, BATON__RUN_IDLE);
    }
    support_ok(baton_schedule_destroy(s));
}

/* on_start#0 and armed#1 --> any --> activate#2: the first to fire sets the
   origin. */
static void test_arrivals_after_the_start_keep_its_origin(void **state)
{
    driven_run_t driven;
    baton_schedule_t *s = create(1);
    baton_node_t start = baton_add_on_start(s);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    baton_node_t activate = baton_add_activate(s, 2);
    baton_before(s, start, activate);
    baton_before(s, armed, activate);
    baton_set_need(s, activate, BATON_NEED_ANY);
    take_strings(&driven, s);
    baton__run_begin(&driven.run);
    baton__run_started(&driven.run);
    baton__run_started(&driven.run);
    assert_int_equal(pop_all(&driven), 1u << start.index);
    baton__run_complete(&driven.run, start.index);
    arrive(&driven, armed, 0);
    assert_int_equal(pop_all(&driven), 1u << activate.index);
    assert_int_equal(origin_of(&driven, activate), 1);
    support_ok(baton_schedule_destroy(s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrivals_for_retired_epochs_are_dropped),
        cmocka_unit_test(test_arrivals_for_the_running_epoch_count_now),
        cmocka_unit_test(test_arrivals_for_later_epochs_are_kept),
        cmocka_unit_test(test_arrivals_are_not_waited_for),
        cmocka_unit_test(test_arrivals_may_still_come),
        cmocka_unit_test(test_arrivals_fire_a_node_once),
        cmocka_unit_test(test_arrivals_go_on_away_from_their_origin),
        cmocka_unit_test(test_arrivals_after_the_start_keep_its_origin),
    };
    return cmocka_run_group_tests(tests, support_clusters_open,
                                  support_clusters_close);
}
