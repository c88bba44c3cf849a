/* Schedules in a simulator that can't end, or can't meet, and what is said. */
#ifndef TESTS_SUPPORT_STUCK_H
#define TESTS_SUPPORT_STUCK_H

#include "support/cluster.h"

#define STUCK_BYTES 8

/* `sync` is the simulator's sync_bytes. */
baton_sim_t *stuck_open(int ranks, size_t sync);

/* Exactly this. */
void stuck_says(baton_status_t actual, baton_status_t expected,
                const char *text);

/* Builds "x" on all ranks, runs an epoch, and expects a deadlock and to hear
   this. */
void stuck_build(int ranks, size_t sync, baton_sim_build_fn build,
                 const char *text);

/* Nodes for messages of STUCK_BYTES, with memory of their own. */
baton_node_t stuck_send(baton_schedule_t *schedule, int peer);
baton_node_t stuck_recv(baton_schedule_t *schedule, int peer);

/* A builder: each rank waits for the next one, and passes that on to the one
   before. arg: a stuck_last_fn that adds to what the last rank has, which is
   node 0, its send; or NULL. */
typedef void (*stuck_last_fn)(baton_schedule_t *schedule);
void stuck_chain(void *arg, baton_schedule_t *schedule);

/* A builder for two ranks: both send first, which is fine for messages that are
   buffered. */
void stuck_head_to_head(void *arg, baton_schedule_t *schedule);

/* Fixtures of a test: groups that it makes verify their commits. */
int stuck_verify_on(void **state);
int stuck_verify_off(void **state);

#endif
