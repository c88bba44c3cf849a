/* One rank with an emulated device, as its user sees it: two streams, a gate in
   the first, two vectors in device memory. Failures are cmocka's. */
#ifndef TESTS_SUPPORT_DEVICE_USER_H
#define TESTS_SUPPORT_DEVICE_USER_H

#include "support/device_cluster.h"

enum { USER_COUNT = 500, USER_BYTES = USER_COUNT * sizeof(int32_t) };

typedef struct user {
    device_cluster_t *ranks;
    emulated_t *device;
    const baton_device_port_t *port;
    baton_stream_t stream, other;
    void *gate; /* a flag */
    uint64_t closed;
    int32_t *a, *b; /* device memory, of USER_COUNT elements each */
} user_t;

/* variant: SUPPORT_OWN_ENGINES or SUPPORT_OWN_MANUAL. */
user_t user_open(int variant);
user_t user_open_with(int variant, const emulated_options_t *options);

void user_close(user_t *user);

/* Calls fn for each variant. */
void user_for_each(void (*fn)(user_t *user));

/* Nothing goes on in the user's stream between these. */
void user_close_gate(user_t *user);
void user_open_gate(user_t *user);

/* Copies USER_BYTES in the user's stream. */
void user_copy(user_t *user, void *target, const void *source);

/* from, from + 1, ... */
void user_fill(int32_t *data, int32_t from);

/* Commits the schedule for a + a --> b. */
baton_schedule_t *user_double(const user_t *user, baton_schedule_t *schedule);

#endif
