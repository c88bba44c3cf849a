/* The loop's timer, which two threads set: see progress/event_loop.h. A wait
   that ends at the wrong time hangs. */
#include "progress/event_loop.h"
#include "support/cmocka.h"

enum { SOON_US = 100000, NEVER_US = 2000000000 };

static void test_event_loop_timer_moved_closer(void **state)
{
    baton__event_loop_t *loop;
    assert_int_equal(baton__event_loop_open(&loop), BATON_OK);
    baton__event_loop_set_timer(loop, NEVER_US);
    baton__event_loop_move_timer(loop, SOON_US);
    assert_int_equal(baton__event_loop_wait(loop), BATON__WAKEUP_TIMER);
    baton__event_loop_close(loop);
}

/* The thread sets the same time once more: that is not in force any longer. */
static void test_event_loop_timer_moved_away(void **state)
{
    baton__event_loop_t *loop;
    assert_int_equal(baton__event_loop_open(&loop), BATON_OK);
    baton__event_loop_set_timer(loop, SOON_US);
    baton__event_loop_move_timer(loop, NEVER_US);
    baton__event_loop_set_timer(loop, SOON_US);
    assert_int_equal(baton__event_loop_wait(loop), BATON__WAKEUP_TIMER);
    baton__event_loop_close(loop);
}

static void test_event_loop_kick_ends_a_wait_moved_away(void **state)
{
    baton__event_loop_t *loop;
    assert_int_equal(baton__event_loop_open(&loop), BATON_OK);
    baton__event_loop_set_timer(loop, SOON_US);
    baton__event_loop_move_timer(loop, NEVER_US);
    baton__event_loop_kick(loop);
    assert_int_equal(baton__event_loop_wait(loop), BATON__WAKEUP_KICK);
    baton__event_loop_close(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_event_loop_timer_moved_closer),
        cmocka_unit_test(test_event_loop_timer_moved_away),
        cmocka_unit_test(test_event_loop_kick_ends_a_wait_moved_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
