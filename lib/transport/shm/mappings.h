/* The segments of other processes of this host that this one has mapped; see
   segments.h. All functions are the driver's, but for address. */
#pragma once

#include "transport/shm/segments.h"

#include <sys/socket.h>
#include <sys/un.h>

typedef struct baton__mapping {
    uint32_t id; /* 0: none */
    const char *base;
    uint64_t address; /* in its owner */
    size_t bytes;
} baton__mapping_t;

typedef struct baton__mappings {
    int socket; /* on which descriptors come; -1: closed */
    int peers;
    const baton__segment_table_t *tables; /* of all processes */
    baton__freed_count_t *freed;
    uint32_t seen;        /* of the count of freed segments */
    uint32_t mapped;      /* of these, all of which take long to look at */
    baton__mapping_t *at; /* by peer and place */
} baton__mappings_t;

/* Opens the socket. BATON_ERR_SYSTEM, _NO_MEMORY. */
baton_status_t baton__mappings_open(baton__mappings_t *self,
                                    const baton__peer_state_t *own,
                                    const baton__segment_table_t *tables,
                                    baton__freed_count_t *freed, int peers);
void baton__mappings_close(baton__mappings_t *self);

/* Where these bytes of a peer's segment can be read here; NULL if it can't be
   mapped, for want of descriptors, say. */
const char *baton__mappings_find(baton__mappings_t *self, int peer, uint32_t id,
                                 uint64_t address, size_t bytes);

/* Unmaps what its owners have freed; or all. */
void baton__mappings_sweep(baton__mappings_t *self);
void baton__mappings_clear(baton__mappings_t *self);

static inline bool baton__mappings_are_stale(const baton__mappings_t *self)
{
    /* Pairs with the addition in drop(), segments.c. */
    return atomic_load_explicit(&self->freed->count, memory_order_acquire) !=
           self->seen;
}
