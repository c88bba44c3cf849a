#include "support/stuck.h"
#include "support/cmocka.h"

#include "base/config.h"

#include <baton/sim.h>
#include <stdlib.h>

baton_sim_t *stuck_open(int ranks, size_t sync)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = ranks;
    options.link.alpha_us = 1.0;
    options.sync_bytes = sync;
    baton_sim_t *sim;
    support_ok(baton_sim_create(&options, &sim));
    return sim;
}

void stuck_says(baton_status_t actual, baton_status_t expected,
                const char *text)
{
    support_expect(actual, expected);
    assert_string_equal(baton_error_message(), text);
}

static baton_view_t place(baton_schedule_t *schedule)
{
    return support_scratch(schedule, STUCK_BYTES);
}

baton_node_t stuck_send(baton_schedule_t *schedule, int peer)
{
    return baton_add_send(schedule, peer, place(schedule));
}

baton_node_t stuck_recv(baton_schedule_t *schedule, int peer)
{
    return baton_add_recv(schedule, peer, place(schedule));
}

void stuck_head_to_head(void *arg, baton_schedule_t *schedule)
{
    int peer = 1 - baton_schedule_rank(schedule);
    baton_node_t send = stuck_send(schedule, peer);
    baton_before(schedule, send, stuck_recv(schedule, peer));
}

int stuck_verify_on(void **state)
{
    baton__config_forget();
    return setenv("BATON_VERIFY", "1", 1);
}

int stuck_verify_off(void **state)
{
    baton__config_forget();
    return unsetenv("BATON_VERIFY");
}
