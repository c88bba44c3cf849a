/* Armed receives and activates: what a run makes of a message that names an
   epoch and an origin. */
#include "sched/schedule.h"
#include "support_ranks.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { RANKS = 7, NODES = 16 };

static support_ranks_t *ranks;

static int open_ranks(void **state)
{
    (void)state;
    ranks = support_ranks_open(RANKS);
    return 0;
}

static int close_ranks(void **state)
{
    (void)state;
    support_ranks_close(ranks);
    return 0;
}

/* ---- a run that is driven by hand -------------------------------------- */

/* A run of a committed schedule's plan, with memory of its own: the schedule
   knows nothing of it. */
typedef struct puppet {
    baton_schedule_t *schedule;
    baton__run_t run;
    uint32_t left[NODES];
    uint32_t ready[NODES];
    uint8_t flight[NODES];
    uint32_t owed[NODES];
    baton__header_t headers[NODES];
} puppet_t;

static baton_schedule_t *create(int rank)
{
    baton_schedule_t *schedule;
    support_ok(
        baton_schedule_create(ranks->groups[rank], "arrivals", &schedule));
    return schedule;
}

static void take_strings(puppet_t *puppet, baton_schedule_t *schedule)
{
    support_ok(baton_schedule_commit(schedule));
    *puppet = (puppet_t){.schedule = schedule, .run = schedule->run};
    puppet->run.left = puppet->left;
    puppet->run.ready = puppet->ready;
    puppet->run.flight = puppet->flight;
    puppet->run.owed = puppet->owed;
    puppet->run.headers = puppet->headers;
}

static baton__header_t *header_of(puppet_t *puppet, baton_node_t node)
{
    return &puppet->headers[puppet->schedule->ops[node.index].header];
}

/* An armed receive gets a message. */
static baton__arrival_t get(puppet_t *puppet, baton_node_t armed,
                            uint64_t epoch, int origin)
{
    baton__run_posted(&puppet->run, armed.index);
    *header_of(puppet, armed) = (baton__header_t){epoch, origin};
    return baton__run_arrival(&puppet->run, armed.index);
}

/* Pops what is ready, completing nothing: a mask of nodes. */
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

/* ---- what an armed receive makes of a header --------------------------- */

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
    (void)state;
    puppet_t puppet;
    baton_node_t armed = open_armed(&puppet);
    for (uint64_t epoch = 0; epoch <= 2; epoch++) {
        assert_int_equal(get(&puppet, armed, epoch, 0), BATON__ARRIVAL_DROP);
        assert_int_equal(puppet.flight[armed.index], BATON__NOWHERE);
    }
    baton__run_begin(&puppet.run);
    assert_int_equal(get(&puppet, armed, 2, 0), BATON__ARRIVAL_DROP);
    baton__run_retire(&puppet.run);
    assert_int_equal(get(&puppet, armed, 3, 0), BATON__ARRIVAL_DROP);
    baton_schedule_destroy(puppet.schedule);
}

static void test_arrivals_for_the_running_epoch_count_now(void **state)
{
    (void)state;
    puppet_t puppet;
    baton_node_t armed = open_armed(&puppet);
    baton__run_begin(&puppet.run);
    assert_int_equal(get(&puppet, armed, 3, 0), BATON__ARRIVAL_NOW);
    assert_int_equal(puppet.flight[armed.index], BATON__NOWHERE);
    baton_schedule_destroy(puppet.schedule);
}

static void test_arrivals_for_later_epochs_are_held(void **state)
{
    (void)state;
    puppet_t puppet;
    baton_node_t armed = open_armed(&puppet);
    assert_int_equal(get(&puppet, armed, 4, 0), BATON__ARRIVAL_HOLD);
    assert_int_equal(puppet.flight[armed.index], BATON__HELD);
    assert_false(baton__run_activated(&puppet.run));
    baton__run_begin(&puppet.run);
    assert_int_equal(baton__run_arrival(&puppet.run, armed.index),
                     BATON__ARRIVAL_HOLD);
    baton__run_retire(&puppet.run);
    assert_true(baton__run_activated(&puppet.run));
    baton__run_begin(&puppet.run);
    assert_int_equal(baton__run_arrival(&puppet.run, armed.index),
                     BATON__ARRIVAL_NOW);
    assert_false(baton__run_activated(&puppet.run));
    baton_schedule_destroy(puppet.schedule);
}

static void test_arrivals_are_not_waited_for(void **state)
{
    (void)state;
    puppet_t puppet;
    baton_node_t armed = open_armed(&puppet);
    baton__run_posted(&puppet.run, armed.index);
    baton__run_begin(&puppet.run);
    assert_true(baton__run_through(&puppet.run));
    baton_schedule_destroy(puppet.schedule);
}

/* ---- what it sets off -------------------------------------------------- */

/* armed#0, armed#1 --> any --> nop: the second arrival has no effect. */
static void test_arrivals_fire_a_node_once(void **state)
{
    (void)state;
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
        assert_int_equal(get(&puppet, two, epoch, 2), BATON__ARRIVAL_NOW);
        baton__run_arrive(&puppet.run, two.index);
        assert_int_equal(pop_all(&puppet), 1u << nop.index);
        assert_int_equal(get(&puppet, one, epoch, 0), BATON__ARRIVAL_NOW);
        baton__run_arrive(&puppet.run, one.index);
        assert_int_equal(pop_all(&puppet), 0);
        assert_false(baton__run_through(&puppet.run));
        baton__run_complete(&puppet.run, nop.index);
        assert_true(baton__run_through(&puppet.run));
        baton__run_retire(&puppet.run);
    }
    baton_schedule_destroy(s);
}

/* Rank 3 of 7 with an armed receive in front of an activate to each other rank:
   only those farther from the origin than rank 3 go out. */
static void test_arrivals_go_on_away_from_their_origin(void **state)
{
    (void)state;
    puppet_t puppet;
    baton_schedule_t *s = create(3);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    for (int peer = 0; peer < RANKS; peer++) {
        baton_before(s, armed, baton_add_activate(s, peer));
    }
    take_strings(&puppet, s);
    for (int origin = 0; origin < RANKS; origin++) {
        uint64_t epoch = puppet.run.epoch + 1;
        uint32_t expected = 0;
        baton__run_begin(&puppet.run);
        (void)get(&puppet, armed, epoch, origin);
        baton__run_arrive(&puppet.run, armed.index);
        for (int peer = 0; peer < RANKS; peer++) {
            int mine = (3 - origin + RANKS) % RANKS;
            int theirs = (peer - origin + RANKS) % RANKS;
            baton_node_t activate = {(uint32_t)peer + 1};
            expected |= theirs > mine ? 1u << activate.index : 0;
            assert_int_equal(header_of(&puppet, activate)->origin,
                             theirs > mine ? origin : 3);
        }
        assert_int_equal(pop_all(&puppet), expected);
        baton__run_retire(&puppet.run);
    }
    baton_schedule_destroy(s);
}

/* on_start#0 and armed#1 --> any --> activate#2: the origin is of the one that
   came first. */
static void test_arrivals_after_the_start_keep_its_origin(void **state)
{
    (void)state;
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
    (void)get(&puppet, armed, 1, 0);
    baton__run_arrive(&puppet.run, armed.index);
    assert_int_equal(pop_all(&puppet), 1u << activate.index);
    assert_int_equal(header_of(&puppet, activate)->origin, 1);
    baton_schedule_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrivals_for_retired_epochs_are_dropped),
        cmocka_unit_test(test_arrivals_for_the_running_epoch_count_now),
        cmocka_unit_test(test_arrivals_for_later_epochs_are_held),
        cmocka_unit_test(test_arrivals_are_not_waited_for),
        cmocka_unit_test(test_arrivals_fire_a_node_once),
        cmocka_unit_test(test_arrivals_go_on_away_from_their_origin),
        cmocka_unit_test(test_arrivals_after_the_start_keep_its_origin),
    };
    return cmocka_run_group_tests(tests, open_ranks, close_ranks);
}
