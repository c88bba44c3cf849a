/* Ranks of one process, each with its own engine and emulated device, and
   helpers for the devices' memory. Failures are reported to cmocka. */
#pragma once

#include "support/cluster.h"

/* Opens a cluster whose ranks have emulated devices. `variant` is
   SUPPORT_OWN_ENGINES or SUPPORT_OWN_MANUAL. Rank r's device has the seed
   options->seed + r. */
support_cluster_t *device_cluster_open(int size, int variant,
                                       const emulated_options_t *options);

/* Returns a view of a whole new buffer. The buffer is bound to `memory`, which
   is device memory. */
baton_view_t device_view(baton_schedule_t *schedule, void *memory,
                         size_t bytes);

/* Returns a view of a whole new scratch buffer in device memory. */
baton_view_t device_scratch(baton_schedule_t *schedule, size_t bytes);

/* Work in the stream that the user has on a rank's device. device_copy puts a
   copy into the stream, and device_delay a delay of `us` microseconds.
   device_synchronise waits for all work in the stream. */
void device_copy(support_cluster_t *self, int rank, void *target,
                 const void *source, size_t bytes);
void device_delay(support_cluster_t *self, int rank, int us);
void device_synchronise(support_cluster_t *self, int rank);

/* A gate in the stream that the user has on a rank's device. Work that is put
   into the stream after device_gate_close waits until device_gate_open.
   device_gate_destroy opens the gate for good, and frees its flag. */
typedef struct device_gate {
    emulated_t *device;
    baton_stream_t stream;
    void *flag;
    uint64_t closed;
} device_gate_t;
device_gate_t device_gate(support_cluster_t *self, int rank);
void device_gate_close(device_gate_t *gate);
void device_gate_open(const device_gate_t *gate);
void device_gate_destroy(const device_gate_t *gate);
