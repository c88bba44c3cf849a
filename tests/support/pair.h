/* Two ranks of a cluster, of which 1 sends a number to 0: the smallest schedule
   that has a message. Failures are cmocka's. */
#ifndef TESTS_SUPPORT_PAIR_H
#define TESTS_SUPPORT_PAIR_H

#include "support/cluster.h"

typedef struct support_pair {
    baton_schedule_t *schedules[2]; /* by rank */
    uint64_t sent, got;
} support_pair_t;

void support_pair_open(support_pair_t *pair, support_cluster_t *cluster,
                       const char *name);
void support_pair_close(support_pair_t *pair);

/* Runs one epoch of rank 1, which sends `value`. */
void support_pair_send(support_pair_t *pair, uint64_t value);

#endif
