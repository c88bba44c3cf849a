/* The device of an engine, as its groups and schedules see it: the port, and
   flags, which are words in pinned memory that streams wait for. */
#pragma once

#include <baton/device.h>
#include <pthread.h>
#include <stdatomic.h>

/* A flag that was some schedule's goes on with the next one's: streams may
   still wait for what the flag has long passed. */
typedef struct baton__flag {
    struct baton__flag *next; /* of those that no schedule has */
    uint64_t *word;
    uint64_t value; /* that it has reached then */
} baton__flag_t;

struct baton__flags;

typedef struct baton__device {
    baton_device_port_t port;
    void *device;

    pthread_mutex_t lock;     /* of what follows */
    baton__flag_t *unused;    /* flags that no schedule has */
    struct baton__flags *all; /* in pieces of pinned memory */
} baton__device_t;

/* Takes a flag that no schedule has; NULL without memory. Allocates only when
   more are in use than ever before, in pieces. */
baton__flag_t *baton__flag_take(baton__device_t *device);

/* Gives it back. No epoch will raise it: it gets the value that it is to have
   reached, and whoever waits for it goes on. */
void baton__flag_give(baton__device_t *device, baton__flag_t *flag,
                      uint64_t value);

/* The host raises the flag. */
void baton__flag_raise(const baton__flag_t *flag, uint64_t value);

/* Frees all flags. Nothing that raises one is in a stream; streams of users
   that wait for one go on. */
void baton__flags_free(baton__device_t *device);
