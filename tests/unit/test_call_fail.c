/* A call node that says why it fails. */
#include "support/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static baton_status_t refuse(void *arg, baton_call_t *call)
{
    return baton_call_fail(call, BATON_ERR_LIMIT, "%d is too many",
                           *(const int *)arg);
}

static baton_status_t only_return(void *arg, baton_call_t *call)
{
    (void)arg;
    (void)call;
    return BATON_ERR_LIMIT;
}

static void run(baton_call_fn fn, const char *expected)
{
    int many = 12;
    const baton_sim_options_t options = support_sim_options(2);
    baton_sim_t *sim = support_sim_open(&options);
    baton_schedule_t *schedules[2];
    for (int r = 0; r < 2; r++) {
        baton_schedule_t *s = support_sim_schedule(sim, r, "refusing");
        baton_view_t word = support_scratch(s, 4);
        if (r == 0) {
            baton_node_t call = baton_add_call(s, fn, &many);
            baton_before(s, call, baton_add_send(s, 1, word));
        } else {
            (void)baton_add_recv(s, 0, word);
        }
        support_ok(baton_schedule_commit(s));
        schedules[r] = s;
    }
    for (int r = 0; r < 2; r++) {
        support_ok(baton_schedule_start(schedules[r]));
    }
    for (int r = 0; r < 2; r++) { /* the peer, too */
        support_expect(baton_schedule_wait(schedules[r], -1), BATON_ERR_LIMIT);
        assert_non_null(strstr(baton_error_message(), expected));
        support_ok(baton_schedule_destroy(schedules[r]));
    }
    support_ok(baton_sim_destroy(sim));
}

static void test_call_fail_gives_the_reason(void **state)
{
    (void)state;
    run(refuse, "12 is too many");
}

static void test_call_that_returns_an_error_is_named(void **state)
{
    (void)state;
    run(only_return, "call#0 returned -5, BATON_ERR_LIMIT");
}

static void test_call_fail_without_a_call(void **state)
{
    (void)state;
    support_expect(baton_call_fail(NULL, BATON_ERR_LIMIT, "x"),
                   BATON_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_call_fail_gives_the_reason),
        cmocka_unit_test(test_call_that_returns_an_error_is_named),
        cmocka_unit_test(test_call_fail_without_a_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
