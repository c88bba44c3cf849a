/* An engine's device, as its groups and schedules use it: the port (the table
   of the device's functions, baton/device.h), and flags. A flag is a word in
   pinned memory; streams wait until it reaches a value. */
#pragma once

#include <baton/device.h>
#include <pthread.h>
#include <stdatomic.h>

/* A flag whose schedule has ended is used again by another schedule. Its value
   only grows, because streams may still wait for values that it has long
   passed. */
typedef struct baton__flag {
    struct baton__flag *next; /* the next flag in the list of unused ones */
    uint64_t *word;
    uint64_t value; /* the value that the flag had when it was given back */
} baton__flag_t;

struct baton__flags;

typedef struct baton__device {
    baton_device_port_t port;
    void *device;

    pthread_mutex_t lock; /* protects the fields that follow */
    baton__flag_t *unused;
    struct baton__flags *all; /* all pieces of pinned memory with flags */
} baton__device_t;

/* Takes an unused flag. If there is none, allocates another piece of flags;
   returns NULL if there is no memory for that. */
baton__flag_t *baton__flag_take(baton__device_t *device);

/* Gives back a flag that no epoch will raise any more. Raises the flag to
   `value`, so that all streams that wait for it go on. */
void baton__flag_give(baton__device_t *device, baton__flag_t *flag,
                      uint64_t value);

/* Raises the flag on the host, unless it already has this value or a higher
   one. */
void baton__flag_raise(const baton__flag_t *flag, uint64_t value);

/* Frees all flags. No stream may contain work that raises a flag. Streams of
   users that wait for a flag go on. */
void baton__flags_free(baton__device_t *device);
