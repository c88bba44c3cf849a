/* An armed receive and an activate in a run that is driven by hand. Where
   activations go is told by unit/test_activation.c. */
#include "sched/schedule.h"
#include "support/cluster.h"
#include "support/cmocka.h"

/* Pops all ready nodes without completing them. Returns a mask. */
static uint32_t pop_all(baton__run_t *run)
{
    uint32_t mask = 0;
    while (baton__run_has_ready(run)) {
        mask |= 1u << baton__run_pop(run);
    }
    return mask;
}

/* on_start, armed --> any --> activate: the first to fire sets the origin, and
   as long as an activation may come the epoch is not stuck. */
TEST_MANUALLY(test_arrivals_after_the_start_keep_its_origin, 7)
{
    baton_schedule_t *s = support_schedule(cluster->groups[1], "arrivals");
    baton_node_t start = baton_add_on_start(s);
    baton_node_t armed = baton_add_armed_recv(s, 0);
    baton_node_t activate = baton_add_activate(s, 2);
    baton_before(s, start, activate);
    baton_before(s, armed, activate);
    baton_set_need(s, activate, BATON_NEED_ANY);
    baton_before(s, armed, baton_add_nop(s));
    support_ok(baton_schedule_commit(s));
    baton__run_t *run = &s->run;
    baton__run_begin(run);
    baton__run_started(run);
    assert_int_equal(pop_all(run), 1u << start.index);
    baton__run_complete(run, start.index);
    assert_int_equal(pop_all(run), 1u << activate.index);
    assert_false(baton__run_is_stuck(run));
    baton__run_activate(run, armed.index, (baton__activation_t){.origin = 0});
    assert_int_equal(
        run->activations[s->ops[activate.index].message.slot].origin, 1);
    baton__run_set_phase(run, BATON__RUN_IDLE);
    support_ok(baton_schedule_destroy(s));
}

RUN_TESTS()
