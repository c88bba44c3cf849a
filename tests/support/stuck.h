/* Simulated schedules that deadlock or do not match, and their messages. */
#pragma once

#include "support/cluster.h"
#include <baton/sim.h>

#define STUCK_BYTES 8

/* `sync` is the simulator's sync_bytes. */
baton_sim_t *stuck_open(int ranks, size_t sync);

/* Expects this status, and exactly this message. */
void stuck_says(baton_status_t actual, baton_status_t expected,
                const char *text);

/* Nodes for messages of STUCK_BYTES in new scratch. */
baton_node_t stuck_send(baton_schedule_t *schedule, int peer);
baton_node_t stuck_recv(baton_schedule_t *schedule, int peer);

/* A builder for two ranks that both send first. It ends only if messages are
   buffered. */
void stuck_head_to_head(void *arg, baton_schedule_t *schedule);

/* Fixtures of a test, whose new groups verify their commits. */
int stuck_verify_on(void **state);
int stuck_verify_off(void **state);
