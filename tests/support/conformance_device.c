#include "support/conformance_device.h"

#include "base/config.h"
#include "support/random.h"
#include "transport/staged/staged.h"

#include <stdlib.h>

const conformance_staging_t conformance_stagings[CONFORMANCE_STAGINGS] = {
    {"staged_blocks", "4096", "2", 4, false, false},
    {"staged_no_handles", "16384", "3", 3, true, true},
    {"staged_mixed", "65536", "4", 2, true, false},
};

typedef struct staged_rank {
    const conformance_staging_t *staging;
    emulated_t *device;
} staged_rank_t;

static emulated_t *device_of(const conformance_rank_t *self)
{
    const staged_rank_t *staged = self->device_handle;
    return staged->device;
}

static bool chooses(const conformance_rank_t *self, uint32_t node, bool sends)
{
    const staged_rank_t *staged = self->device_handle;
    support_random_t random = support_random(
        self->seed, node * 64 + (uint32_t)self->rank * 2 + sends);
    return support_random_below(&random, 4) < staged->staging->share;
}

static void *allocate(const conformance_rank_t *self, size_t bytes)
{
    return emulated_allocate(device_of(self), bytes);
}

static void release(const conformance_rank_t *self, void *memory)
{
    emulated_release(device_of(self), memory);
}

static void read_device(const conformance_rank_t *self, void *host,
                        const void *memory, size_t bytes)
{
    emulated_read(device_of(self), host, memory, bytes);
}

static void write_device(const conformance_rank_t *self, void *memory,
                         const void *host, size_t bytes)
{
    emulated_write(device_of(self), memory, host, bytes);
}

static const conformance_device_t functions = {chooses, allocate, release,
                                               read_device, write_device};

static void set_variables(const conformance_staging_t *staging)
{
    setenv("BATON_DEVICE_BLOCK", staging->block, 1);
    setenv("BATON_DEVICE_BUFFERS", staging->buffers, 1);
    setenv("BATON_DEVICE_DIRECT", staging->direct ? "1" : "0", 1);
    baton__config_forget();
}

bool conformance_stage(conformance_rank_t *rank,
                       const conformance_staging_t *staging)
{
    const emulated_options_t options = {.seed =
                                            rank->seed + (uint64_t)rank->rank,
                                        .delay_us = 5,
                                        .workers = 1,
                                        .no_handles = staging->no_handles};
    staged_rank_t *staged = calloc(1, sizeof *staged);
    if (staged == NULL) {
        return false;
    }
    staged->staging = staging;
    staged->device = emulated_open(&options);
    rank->device = &functions;
    rank->device_handle = staged;
    rank->allocates = rank->allocates || staging->share % 4 != 0;
    set_variables(staging);
    return baton__staged_open(rank->transport, rank->endpoint, rank->rank,
                              rank->size, emulated_port(staged->device),
                              staged->device, &rank->transport,
                              &rank->endpoint) == BATON_OK;
}

const char *conformance_close_device(conformance_rank_t *rank)
{
    staged_rank_t *staged = rank->device_handle;
    emulated_counters_t counters = emulated_counters(staged->device);
    bool direct = staged->staging->direct && !staged->staging->no_handles;
    emulated_port(staged->device)->close(staged->device);
    free(staged);
    rank->device = NULL;
    rank->device_handle = NULL;
    return counters.allocated > 0            ? "memory was not released"
           : counters.events > 0             ? "events were not destroyed"
           : counters.unpinned > 0           ? "copies of ordinary memory"
           : counters.foreign > 0 && !direct ? "copies between devices"
                                             : NULL;
}
