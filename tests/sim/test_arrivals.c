/* Armed receives and activates: how a run handles a message of an epoch and the
   origin in it. */
#include "sched/schedule.h"
#include "support/cluster.h"
#include "support/cmocka.h"

enum { RANKS = 7, NODES = 16 };

static support_cluster_t *ranks;

static int open_ranks(void **state)
{
    ranks = support_cluster_manual(RANKS);
    return 0;
}

static int close_ranks(void **state)
{
    support_cluster_close(ranks);
    return 0;
}

/* ---- a run that is driven by hand -------------------------------------- */

/* A run of a committed schedule's plan, with memory of its own. */
typedef struct puppet {
    baton_schedule_t *schedule;
    baton__run_t run;
    uint32_t left[NODES];
    uint32_t ready[NODES];
    uint8_t state[NODES];
    baton__activation_t activations[NODES];
} puppet_t;

static baton_schedule_t *create(int rank)
{
    baton_schedule_t *schedule =
        support_schedule(ranks->groups[rank], "arrivals");
    return schedule;
}

static void take_strings(puppet_t *puppet, baton_schedule_t *schedule)
{
    support_ok(baton_schedule_commit(schedule));
    *puppet = (puppet_t){.schedule = schedule, .run = schedule->run};
    puppet->run.left = puppet->left;
    puppet->run.ready = puppet->ready;
    puppet->run.state = puppet->state;
    puppet->run.activations = puppet->activations;
}

static int64_t origin_of(puppet_t *puppet, baton_node_t node)
{
    return puppet->activations[puppet->schedule->ops[node.index].message.slot]
        .origin;
}

static baton__turn_t turn_of(puppet_t *puppet, baton_node_t armed,
                             uint64_t epoch)
{
    return baton__run_turn_of(&puppet->run, armed.index, epoch);
}

/* An armed receive gets the running epoch's message. */
static void arrive(puppet_t *puppet, baton_node_t armed, int origin)
{
    assert_int_equal(turn_of(puppet, armed, puppet->run.epoch),
                     BATON__TURN_NOW);
    baton__run_activate(&puppet->run, armed.index,
                        (baton__activation_t){.origin = origin});
}

/* Pops all ready nodes without completing them. Returns a mask. */
static uint32_t pop_all(puppet_t *puppet)
{
    uint32_t mask = 0;
    while (baton__run_has_ready(&puppet->run)) {
        uint32_t node = baton__run_pop(&puppet->run);
        assert_int_equal(mask >> node & 1, 0);
        mask |= 1u << node;
    }
    return mask;
}

/* ---- what a message is to an armed receive ----------------------------- */

/* Rank 1: armed#0 from rank 0. The run is idle after epoch 2. */
static baton_node_t open_armed(puppet_t *puppet)
{
    baton_schedule_t *s = create(1);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    take_strings(puppet, s);
    puppet->run.epoch = 2;
    return armed;
}

static void test_arrivals_for_retired_epochs_are_dropped(void **state)
{
    puppet_t puppet;
    baton_node_t armed = open_armed(&puppet);
    for (uint64_t epoch = 0; epoch <= 2; epoch++) {
        assert_int_equal(turn_of(&puppet, armed, epoch), BATON__TURN_PAST);
    }
    baton__run_begin(&puppet.run);
    assert_int_equal(turn_of(&puppet, armed, 2), BATON__TURN_PAST);
    baton__run_retire(&puppet.run);
    assert_int_equal(turn_of(&puppet, armed, 3), BATON__TURN_PAST);
    support_ok(baton_schedule_destroy(puppet.schedule));
}

static void test_arrivals_for_the_running_epoch_count_now(void **state)
{
    puppet_t puppet;
    baton_node_t armed = open_armed(&puppet);
    baton__run_begin(&puppet.run);
    assert_int_equal(turn_of(&puppet, armed, 3), BATON__TURN_NOW);
    support_ok(baton_schedule_destroy(puppet.schedule));
}

static void test_arrivals_for_later_epochs_are_kept(void **state)
{
    puppet_t puppet;
    baton_node_t armed = open_armed(&puppet);
    assert_int_equal(turn_of(&puppet, armed, 4), BATON__TURN_LATER);
    baton__run_begin(&puppet.run);
    assert_int_equal(turn_of(&puppet, armed, 4), BATON__TURN_LATER);
    baton__run_retire(&puppet.run);
    assert_int_equal(turn_of(&puppet, armed, 4), BATON__TURN_LATER);
    baton__run_begin(&puppet.run);
    assert_int_equal(turn_of(&puppet, armed, 4), BATON__TURN_NOW);
    support_ok(baton_schedule_destroy(puppet.schedule));
}

static void test_arrivals_are_not_waited_for(void **state)
{
    puppet_t puppet;
    (void)open_armed(&puppet);
    baton__run_begin(&puppet.run);
    assert_true(baton__run_is_through(&puppet.run));
    support_ok(baton_schedule_destroy(puppet.schedule));
}

/* armed#0 --> nop#1, which the epoch requires. As long as an activation may
   come the epoch is not stuck. */
static void test_arrivals_may_still_come(void **state)
{
    puppet_t puppet;
    baton_schedule_t *s = create(1);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    baton_before(s, armed, baton_add_nop(s));
    take_strings(&puppet, s);
    baton__run_begin(&puppet.run);
    assert_false(baton__run_is_stuck(&puppet.run));
    arrive(&puppet, armed, 0);
    assert_int_equal(pop_all(&puppet), 1u << 1);
    assert_false(baton__run_is_through(&puppet.run));
    support_ok(baton_schedule_destroy(s));
}

/* ---- what it sets off -------------------------------------------------- */

/* armed#0, armed#1 --> any --> nop: the second arrival has no effect. */
static void test_arrivals_fire_a_node_once(void **state)
{
    puppet_t puppet;
    baton_schedule_t *s = create(1);
    baton_node_t one = baton_add_armed_recv(s, 0);
    baton_node_t two = baton_add_armed_recv(s, 2);
    baton_node_t nop = baton_add_nop(s);
    baton_before(s, one, nop);
    baton_before(s, two, nop);
    baton_set_need(s, nop, BATON_NEED_ANY);
    take_strings(&puppet, s);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        baton__run_begin(&puppet.run);
        assert_int_equal(pop_all(&puppet), 0);
        arrive(&puppet, two, 2);
        assert_int_equal(pop_all(&puppet), 1u << nop.index);
        arrive(&puppet, one, 0);
        assert_int_equal(pop_all(&puppet), 0);
        assert_false(baton__run_is_through(&puppet.run));
        baton__run_complete(&puppet.run, nop.index);
        assert_true(baton__run_is_through(&puppet.run));
        baton__run_retire(&puppet.run);
    }
    support_ok(baton_schedule_destroy(s));
}

/* Rank 3 of 7 with an armed receive in front of an activate to each other rank:
   only those farther from the origin than rank 3 go out. */
static void test_arrivals_go_on_away_from_their_origin(void **state)
{
    puppet_t puppet;
    baton_schedule_t *s = create(3);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    for (int peer = 0; peer < RANKS; peer++) {
        baton_before(s, armed, baton_add_activate(s, peer));
    }
    take_strings(&puppet, s);
    for (int origin = 0; origin < RANKS; origin++) {
        uint32_t expected = 0;
        baton__run_begin(&puppet.run);
        arrive(&puppet, armed, origin);
        for (int peer = 0; peer < RANKS; peer++) {
            int mine = (3 - origin + RANKS) % RANKS;
            int theirs = (peer - origin + RANKS) % RANKS;
            baton_node_t activate = {(uint32_t)peer + 1};
            expected |= theirs > mine ? 1u << activate.index : 0;
            assert_int_equal(origin_of(&puppet, activate),
                             theirs > mine ? origin : 3);
        }
        assert_int_equal(pop_all(&puppet), expected);
        baton__run_retire(&puppet.run);
    }
    support_ok(baton_schedule_destroy(s));
}

/* on_start#0 and armed#1 --> any --> activate#2: the first to fire sets the
   origin. */
static void test_arrivals_after_the_start_keep_its_origin(void **state)
{
    puppet_t puppet;
    baton_schedule_t *s = create(1);
    baton_node_t start = baton_add_on_start(s);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    baton_node_t activate = baton_add_activate(s, 2);
    baton_before(s, start, activate);
    baton_before(s, armed, activate);
    baton_set_need(s, activate, BATON_NEED_ANY);
    take_strings(&puppet, s);
    baton__run_begin(&puppet.run);
    baton__run_started(&puppet.run);
    baton__run_started(&puppet.run);
    assert_int_equal(pop_all(&puppet), 1u << start.index);
    baton__run_complete(&puppet.run, start.index);
    arrive(&puppet, armed, 0);
    assert_int_equal(pop_all(&puppet), 1u << activate.index);
    assert_int_equal(origin_of(&puppet, activate), 1);
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
    return cmocka_run_group_tests(tests, open_ranks, close_ranks);
}
