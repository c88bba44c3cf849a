/* Which thread is woken, and when; see event_loop.h. If a wait ended at the
   wrong time, the test would hang. */
#include "progress/driving/event_loop.h"
#include "support/cluster.h"

#include <sys/resource.h>
#include <unistd.h>

enum { SOON_US = 100000, NEVER_US = 2000000000 };

static baton__event_loop_t *open_loop(void)
{
    baton__event_loop_t *loop;
    assert_int_equal(baton__event_loop_open(&loop), BATON_OK);
    return loop;
}

/* If there are no descriptors, the error names the object that could not be
   made. Descriptors that were made are closed, and libevent does not end the
   process. */
TEST(test_event_loop_needs_descriptors)
{
    static const char *const what[] = {
        "eventfd failed: ", "epoll failed: ", "timerfd failed: ", "libevent "};
    struct rlimit given;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &given), 0);
    const int lowest = dup(STDERR_FILENO);
    assert_int_equal(close(lowest), 0);
    baton__event_loop_t *loop = NULL;
    int last = 0;
    for (int more = 0;; more++) {
        struct rlimit few = {(rlim_t)(lowest + more), given.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        baton_status_t status = baton__event_loop_open(&loop);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &given), 0);
        if (status == BATON_OK) {
            break;
        }
        support_expect(status, BATON_ERR_SYSTEM);
        if (last < 3 && strstr(baton_error_message(), what[last]) == NULL) {
            last++;
        }
        support_says(what[last]);
        assert_int_equal(dup(STDERR_FILENO), lowest);
        assert_int_equal(close(lowest), 0);
    }
    assert_int_equal(last, 3);
    baton__event_loop_close(loop);
}

TEST(test_event_loop_timer_is_set_closer)
{
    baton__event_loop_t *loop = open_loop();
    baton__event_loop_set_timer(loop, NEVER_US);
    baton__event_loop_wait_sooner(loop, SOON_US);
    /* A later time has no effect. */
    baton__event_loop_wait_sooner(loop, NEVER_US);
    assert_int_equal(baton__event_loop_wait(loop), BATON__WAKEUP_TIMER);
    /* The timer is set anew after it has ended. */
    baton__event_loop_set_timer(loop, SOON_US);
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
    baton__event_loop_set_timer(loop, SOON_US);
    assert_int_equal(baton__event_loop_wait(loop), BATON__WAKEUP_TIMER);
    baton__event_loop_close(loop);
}

/* While the gate is closed, a kick wakes only a thread that sleeps at the
   descriptors. */
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

static int list_descriptor(void *object, int k)
{
    return ((int *)object)[k];
}

static void drain_list(void *object)
{
    char byte;
    assert_int_equal(read(*(int *)object, &byte, 1), 1);
}

TEST(test_event_loop_watch_that_fails_leaves_the_others)
{
    int list[] = {-1, -1}, pipes[2];
    assert_int_equal(pipe(pipes), 0);
    list[0] = pipes[0];
    const baton__watched_t watched = {"it", list, list_descriptor, drain_list};
    baton__event_loop_t *loop = open_loop();
    baton__watch_t *watch, *again;
    support_ok(baton__event_loop_watch(loop, &watched, &watch));
    support_expect(baton__event_loop_watch(loop, &watched, &again),
                   BATON_ERR_SYSTEM);
    assert_int_equal(write(pipes[1], "", 1), 1);
    assert_int_equal(baton__event_loop_wait(loop), BATON__WAKEUP_MESSAGE);
    baton__event_loop_unwatch(watch);
    baton__event_loop_close(loop);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}
