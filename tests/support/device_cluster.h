/* Ranks of one process, each with an engine and an emulated device of its own;
   and what tests do with memory there. Failures are cmocka's. */
#pragma once

#include "support/cluster.h"
#include "support/emulated.h"

typedef struct device_cluster {
    support_cluster_t *cluster;
    emulated_t **devices;    /* by rank */
    baton_stream_t *streams; /* one of a user's, by rank */
} device_cluster_t;

/* variant: SUPPORT_OWN_ENGINES or SUPPORT_OWN_MANUAL. Rank r's device has the
   seed options->seed + r. */
device_cluster_t *device_cluster_open(int size, int variant,
                                      const emulated_options_t *options);
void device_cluster_close(device_cluster_t *self);

/* A buffer bound to this device memory, and a view of all of it. */
baton_view_t device_view(baton_schedule_t *schedule, void *memory,
                         size_t bytes);

/* In the rank's stream of the user: a copy, a delay; and waits until what is in
   it has been done. */
void device_cluster_copy(device_cluster_t *self, int rank, void *target,
                         const void *source, size_t bytes);
void device_cluster_delay(device_cluster_t *self, int rank, int us);
void device_cluster_synchronise(device_cluster_t *self, int rank);

/* Recovers the group on all ranks, each in a thread of its own. */
void device_cluster_recover(device_cluster_t *self);
