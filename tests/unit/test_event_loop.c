/* Who is woken, and when; see progress/event_loop.h. A wait that ends at the
   wrong time hangs. */
#include "progress/event_loop.h"
#include "support/cmocka.h"
#include <baton/transport.h>

enum { SOON_US = 100000, NEVER_US = 2000000000 };

static baton__event_loop_t *open_loop(void)
{
    baton__event_loop_t *loop;
    assert_int_equal(baton__event_loop_open(&loop), BATON_OK);
    return loop;
}

TEST(test_event_loop_timer_is_set_closer)
{
    baton__event_loop_t *loop = open_loop();
    baton__event_loop_set_timer(loop, NEVER_US);
    baton__event_loop_wait_sooner(loop, SOON_US);
    baton__event_loop_wait_sooner(loop, NEVER_US); /* not later */
    assert_int_equal(baton__event_loop_wait(loop), BATON__WAKEUP_TIMER);
    baton__event_loop_set_timer(loop, SOON_US); /* anew, after it has ended */
    assert_int_equal(baton__event_loop_wait(loop), BATON__WAKEUP_TIMER);
    baton__event_loop_close(loop);
}

TEST(test_event_loop_kick_ends_a_wait)
{
    baton__event_loop_t *loop = open_loop();
    baton__event_loop_set_timer(loop, SOON_US);
    baton__event_loop_set_timer(loop, BATON_SLEEP_FOREVER);
    baton__event_loop_kick(loop);
    assert_int_equal(baton__event_loop_wait(loop), BATON__WAKEUP_KICK);
    baton__event_loop_close(loop);
}

/* While the gate is closed a kick is for who sleeps at the descriptors. */
TEST(test_event_loop_closed_gate_keeps_the_thread_asleep)
{
    baton__event_loop_t *loop = open_loop();
    baton__event_loop_gate(loop, false);
    baton__event_loop_kick(loop);
    baton__event_loop_set_timer(loop, SOON_US);
    assert_int_equal(baton__event_loop_wait(loop), BATON__WAKEUP_TIMER);
    assert_int_equal(baton__event_loop_sleep(loop, BATON_SLEEP_FOREVER),
                     BATON__WAKEUP_KICK);
    assert_int_equal(baton__event_loop_sleep(loop, 1), BATON__WAKEUP_TIMER);
    baton__event_loop_kick(loop);
    baton__event_loop_gate(loop, true);
    assert_int_equal(baton__event_loop_wait(loop), BATON__WAKEUP_KICK);
    baton__event_loop_close(loop);
}

RUN_TESTS()
