/* Ranks of one process, each with its own engine and emulated device, and
   helpers for memory there. Failures are cmocka's. */
#pragma once

#include "support/cluster.h"
#include "support/emulated.h"

typedef struct device_cluster {
    support_cluster_t *cluster;
    emulated_t **devices;    /* [size] */
    baton_stream_t *streams; /* [size], a stream of the user for each rank */
} device_cluster_t;

/* Opens the ranks. `variant` is SUPPORT_OWN_ENGINES or SUPPORT_OWN_MANUAL. Rank
   r's device has the seed options->seed + r. */
device_cluster_t *device_cluster_open(int size, int variant,
                                      const emulated_options_t *options);
void device_cluster_close(device_cluster_t *self);

/* Returns a view of a whole new buffer in this device memory. */
baton_view_t device_view(baton_schedule_t *schedule, void *memory,
                         size_t bytes);

/* Work in the user's stream of a rank: copy copies and delay delays.
   synchronise waits for all of it. */
void device_cluster_copy(device_cluster_t *self, int rank, void *target,
                         const void *source, size_t bytes);
void device_cluster_delay(device_cluster_t *self, int rank, int us);
void device_cluster_synchronise(device_cluster_t *self, int rank);

/* Recovers the group on all ranks, each in its own thread. */
void device_cluster_recover(device_cluster_t *self);
