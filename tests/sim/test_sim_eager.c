/* Eager sends complete when they are posted, long before they arrive. 2 us a
   message and 1 us a byte, so 8 bytes take 10 us. */
#include "support/cmocka.h"
#include "support/sim.h"

#include <string.h>

enum { BYTES = 8, SENDS = 3 };

typedef struct burst {
    baton_sim_t *sim;
    baton_schedule_t *send, *recv;
    unsigned char out[BYTES], in[SENDS][BYTES];
} burst_t;

/* One rank sends the same memory three times, the other receives three. */
static void burst_open(burst_t *burst, size_t eager_bytes)
{
    baton_sim_options_t options = support_sim_options(2);
    options.eager_bytes = eager_bytes;
    *burst = (burst_t){.sim = support_sim_open(&options)};
    burst->send = support_sim_schedule(burst->sim, 0, "burst");
    burst->recv = support_sim_schedule(burst->sim, 1, "burst");
    memset(burst->out, 7, BYTES);
    baton_view_t view = support_view(burst->send, burst->out, BYTES);
    for (int i = 0; i < SENDS; i++) {
        (void)baton_add_send(burst->send, 1, view);
        (void)baton_add_recv(burst->recv, 0,
                             support_view(burst->recv, burst->in[i], BYTES));
    }
    support_ok(baton_schedule_commit(burst->send));
    support_ok(baton_schedule_commit(burst->recv));
}

static void burst_close(const burst_t *burst)
{
    for (int i = 0; i < SENDS; i++) {
        assert_int_equal(burst->in[i][0], 7);
        assert_int_equal(burst->in[i][BYTES - 1], 7);
    }
    support_ok(baton_schedule_destroy(burst->recv));
    support_ok(baton_sim_destroy(burst->sim));
}

static void test_eager_sends_are_done_when_posted(void **state)
{
    burst_t burst;
    burst_open(&burst, BYTES + 1);
    support_ok(baton_schedule_start(burst.send));
    support_ok(baton_schedule_wait(burst.send, -1));
    support_us(baton_schedule_ended_us(burst.send), 0.0);
    memset(burst.out, 0, BYTES); /* it is the sender's again */
    support_ok(baton_schedule_start(burst.recv));
    support_ok(baton_schedule_wait(burst.recv, -1));
    support_us(baton_schedule_ended_us(burst.recv), 30.0); /* one port */
    support_ok(baton_schedule_destroy(burst.send));
    burst_close(&burst);
}

static void
test_sends_that_are_not_shorter_wait_for_their_transfer(void **state)
{
    burst_t burst;
    burst_open(&burst, BYTES);
    support_ok(baton_schedule_start(burst.send));
    support_ok(baton_schedule_wait(burst.send, -1));
    support_us(baton_schedule_ended_us(burst.send), 30.0);
    support_ok(baton_schedule_start(burst.recv));
    support_ok(baton_schedule_wait(burst.recv, -1));
    support_ok(baton_schedule_destroy(burst.send));
    burst_close(&burst);
}

/* Its sends are still in the port's queue, and are in the trace. */
static void test_eager_sender_may_go_under_a_trace(void **state)
{
    burst_t burst;
    support_trace_t trace = {.count = 0};
    burst_open(&burst, BYTES + 1);
    baton_sim_trace(burst.sim, support_trace, &trace);
    support_ok(baton_schedule_start(burst.send));
    support_ok(baton_schedule_wait(burst.send, -1));
    support_ok(baton_schedule_destroy(burst.send));
    memset(burst.out, 0, BYTES);
    support_ok(baton_schedule_start(burst.recv));
    support_ok(baton_schedule_wait(burst.recv, -1));
    support_us(baton_schedule_ended_us(burst.recv), 30.0);
    support_us(support_event(&trace, BATON_SIM_RECV, 1, 2)->end_us, 30.0);
    burst_close(&burst);
}

static void test_eager_bytes_above_sync_bytes_are_refused(void **state)
{
    baton_sim_options_t options = support_sim_options(2);
    baton_sim_t *sim;
    options.sync_bytes = 100;
    options.eager_bytes = 101;
    support_expect(baton_sim_create(&options, &sim), BATON_ERR_INVALID);
    assert_non_null(strstr(baton_error_message(), "eager_bytes is 101"));
    options.eager_bytes = 100;
    support_ok(baton_sim_create(&options, &sim));
    support_ok(baton_sim_destroy(sim));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eager_sends_are_done_when_posted),
        cmocka_unit_test(
            test_sends_that_are_not_shorter_wait_for_their_transfer),
        cmocka_unit_test(test_eager_sender_may_go_under_a_trace),
        cmocka_unit_test(test_eager_bytes_above_sync_bytes_are_refused),
    };
    return cmocka_run_group_tests_name("sim eager", tests, NULL, NULL);
}
