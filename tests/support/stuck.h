/* Simulated schedules that deadlock or do not match, and their error
   messages. */
#pragma once

#include "support/cluster.h"
#include <baton/sim.h>

#define STUCK_BYTES 8

/* Opens a simulator. `sync` becomes the option sync_bytes. */
baton_sim_t *stuck_open(int ranks, size_t sync);

/* Expects that `actual` is `expected`, and that the error message is exactly
   this one. */
void stuck_says(baton_status_t actual, baton_status_t expected,
                const char *text);

/* Add a node for a message of STUCK_BYTES in new scratch memory. */
baton_node_t stuck_send(baton_schedule_t *schedule, int peer);
baton_node_t stuck_recv(baton_schedule_t *schedule, int peer);

/* A builder for two ranks. Both send first, so the epoch ends only if messages
   are buffered. */
void stuck_head_to_head(void *arg, baton_schedule_t *schedule);

/* A builder: each rank receives from the rank on its left before it sends to
   the rank on its right. If `arg` is not NULL, the schedule also has a chain of
   `*arg` nops. */
void stuck_ring(void *arg, baton_schedule_t *schedule);

/* A builder: rank 0 sends `*arg` messages to rank 1, which has only one
   receive. */
void stuck_build_sends(void *arg, baton_schedule_t *schedule);

extern const baton_async_ops_t stuck_completes_at_once;

/* A mistake that BATON_VERIFY=1 finds. Rank k commits a schedule that has the
   k-th character of `names` as its name. The commit must fail on all ranks,
   with this status and reason. */
typedef struct stuck_refusal {
    int ranks;
    const char *names;
    baton_sim_build_fn build;
    void *arg;
    baton_status_t status;
    const char *text;
} stuck_refusal_t;
extern const stuck_refusal_t stuck_refusals[];
extern const size_t stuck_refusal_count;

/* Builds and commits the schedule of a refusal, on a rank of a group that
   verifies commits. Returns false if a commit has not failed as it should. Then
   baton_error_message says how it ended. */
bool stuck_refuse(baton_group_t *group, const stuck_refusal_t *refusal);

/* Fixtures of a test. With them, new groups verify their commits. */
int stuck_verify_on(void **state);
int stuck_verify_off(void **state);
