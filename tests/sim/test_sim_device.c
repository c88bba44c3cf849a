/* Devices in virtual time: what copies and kernels take, what goes on at once,
   and builders on device memory. */
#include "support/cmocka.h"
#include "support/sim.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 64, COUNT = BYTES / (int)sizeof(int32_t) };

/* Of a copy, a kernel, and a message of BYTES bytes. */
static const double copy_us = 3 + BYTES * 0.5;
static const double kernel_us = 2 + BYTES * 0.25;
static const double message_us = 5 + BYTES;

static baton_sim_options_t costs(int ranks, bool cost_only)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = ranks;
    options.cost_only = cost_only;
    options.link = (baton_sim_link_t){.alpha_us = 5, .beta_ns = 1000};
    options.devices = true;
    options.device_link = (baton_sim_link_t){.alpha_us = 3, .beta_ns = 500};
    options.launch_us = 2;
    options.device_gamma_ns = 250;
    return options;
}

static baton_view_t on_device(baton_schedule_t *schedule)
{
    baton_view_t view = support_scratch(schedule, BYTES);
    baton_buffer_set_memory(schedule, view.buffer, BATON_MEMORY_DEVICE);
    return view;
}

static double run(baton_sim_t *sim, baton_schedule_t *schedule)
{
    double began_us = baton_sim_now_us(sim);
    support_ok(baton_schedule_start(schedule));
    support_ok(baton_schedule_wait(schedule, -1));
    return baton_schedule_ended_us(schedule) - began_us;
}

static int32_t in[COUNT], out[2][COUNT];

/* in --> copy --> sum --> copy --> out, `parts` times beside each other */
static double run_parts(bool cost_only, int parts)
{
    baton_sim_options_t options = costs(1, cost_only);
    baton_sim_t *sim;
    support_ok(baton_sim_create(&options, &sim));
    baton_schedule_t *s = support_schedule(baton_sim_group(sim, 0), "parts");
    for (int i = 0; i < parts; i++) {
        baton_view_t a = on_device(s);
        baton_node_t first = baton_add_copy(s, a, support_view(s, in, BYTES));
        baton_node_t sum = baton_add_reduce(s, BATON_I32, BATON_SUM, a, a, a);
        baton_node_t last =
            baton_add_copy(s, support_view(s, out[i], BYTES), a);
        baton_before(s, first, sum);
        baton_before(s, sum, last);
    }
    support_ok(baton_schedule_commit(s));
    for (int i = 0; i < COUNT; i++) {
        in[i] = i - 5;
    }
    double us = run(sim, s);
    support_us(run(sim, s), us);
    for (int i = 0; i < COUNT && !cost_only; i++) {
        assert_int_equal(out[parts - 1][i], 2 * in[i]);
    }
    support_ok(baton_schedule_destroy(s));
    support_ok(baton_sim_destroy(sim));
    return us;
}

static void test_sim_device_times(void **state)
{
    for (int cost_only = 0; cost_only < 2; cost_only++) {
        support_us(run_parts(cost_only != 0, 1), 2 * copy_us + kernel_us);
        /* The second part's first copy waits for the link, its kernel hides
           the first part's last copy, or the other way round. */
        double longer = copy_us > kernel_us ? copy_us : kernel_us;
        support_us(run_parts(cost_only != 0, 2),
                   2 * copy_us + kernel_us + longer);
    }
}

/* The ring on device memory takes what its messages and kernels take. */
static void build_ring(void *arg, baton_schedule_t *schedule)
{
    int rank = baton_schedule_rank(schedule);
    int32_t(*data)[COUNT] = arg;
    baton_buffer_t buffer = baton_buffer_bind(schedule, data[rank], BYTES);
    baton_buffer_set_memory(schedule, buffer, BATON_MEMORY_DEVICE);
    baton_view_t view = baton_view(buffer, 0, BYTES);
    baton_allreduce_ring(schedule,
                         &(baton_allreduce_t){.size = sizeof(baton_allreduce_t),
                                              .source = view,
                                              .target = view,
                                              .dtype = BATON_I32,
                                              .op = BATON_SUM});
}

static void test_sim_device_ring(void **state)
{
    enum { RANKS = 4 };
    static int32_t data[RANKS][COUNT];
    for (int cost_only = 0; cost_only < 2; cost_only++) {
        baton_sim_options_t options = costs(RANKS, cost_only != 0);
        baton_sim_t *sim;
        support_ok(baton_sim_create(&options, &sim));
        for (int rank = 0; rank < RANKS; rank++) {
            for (int i = 0; i < COUNT; i++) {
                data[rank][i] = (rank + 1) * i;
            }
        }
        support_ok(baton_sim_build(sim, "ring", build_ring, data));
        double us;
        support_ok(baton_sim_epoch(sim, &us));
        double part = 1.0 / RANKS;
        support_us(us, 2 * (RANKS - 1) * (5 + part * BYTES) +
                           (RANKS - 1) * (2 + part * BYTES * 0.25));
        for (int i = 0; i < COUNT && cost_only == 0; i++) {
            assert_int_equal(data[RANKS - 1][i], 10 * i);
        }
        support_ok(baton_sim_destroy(sim));
    }
}

/* A message out of device memory begins when the copy there has ended. */
static void build_pair(void *arg, baton_schedule_t *schedule)
{
    baton_view_t view = on_device(schedule);
    if (baton_schedule_rank(schedule) == 0) {
        baton_node_t copy =
            baton_add_copy(schedule, view, support_view(schedule, in, BYTES));
        baton_before(schedule, copy, baton_add_send(schedule, 1, view));
    } else {
        (void)baton_add_recv(schedule, 0, view);
    }
}

static void test_sim_device_message(void **state)
{
    baton_sim_options_t options = costs(2, false);
    baton_sim_t *sim;
    support_ok(baton_sim_create(&options, &sim));
    support_ok(baton_sim_build(sim, "pair", build_pair, NULL));
    double us;
    support_ok(baton_sim_epoch(sim, &us));
    support_us(us, copy_us + message_us);
    support_ok(baton_sim_destroy(sim));
}

static void test_sim_device_streams_of_users(void **state)
{
    baton_sim_options_t options = costs(1, true);
    baton_sim_t *sim;
    support_ok(baton_sim_create(&options, &sim));
    baton_schedule_t *s = support_schedule(baton_sim_group(sim, 0), "on");
    baton_view_t a = on_device(s);
    (void)baton_add_reduce(s, BATON_I32, BATON_SUM, a, a, a);
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_start_on(s, NULL));
    support_ok(baton_schedule_start_on(s, NULL));
    support_expect(baton_schedule_wait_on(s, NULL), BATON_ERR_UNSUPPORTED);
    support_ok(baton_schedule_wait(s, -1));
    support_us(baton_schedule_ended_us(s), 2 * kernel_us);
    support_ok(baton_schedule_start(s)); /* destroyed while it runs */
    support_expect(baton_schedule_wait(s, 0), BATON_ERR_TIMEOUT);
    support_ok(baton_schedule_destroy(s));
    support_ok(baton_sim_destroy(sim));
}

static void test_sim_device_is_an_option(void **state)
{
    baton_sim_options_t options = costs(1, true);
    baton_sim_t *sim;
    options.launch_us = -1;
    support_expect(baton_sim_create(&options, &sim), BATON_ERR_INVALID);
    support_says("launch_us");
    options.launch_us = 1;
    options.devices = false;
    support_ok(baton_sim_create(&options, &sim));
    baton_schedule_t *s = support_schedule(baton_sim_group(sim, 0), "none");
    baton_view_t a = on_device(s);
    (void)baton_add_reduce(s, BATON_I32, BATON_SUM, a, a, a);
    support_expect(baton_schedule_commit(s), BATON_ERR_UNSUPPORTED);
    support_ok(baton_schedule_destroy(s));
    support_ok(baton_sim_destroy(sim));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_device_times),
        cmocka_unit_test(test_sim_device_ring),
        cmocka_unit_test(test_sim_device_message),
        cmocka_unit_test(test_sim_device_streams_of_users),
        cmocka_unit_test(test_sim_device_is_an_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
