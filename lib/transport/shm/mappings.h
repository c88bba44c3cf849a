/* The segments of this host's other processes that this process has mapped; see
   segments.h. Only the driver calls these functions. */
#pragma once

#include "transport/shm/segments.h"

typedef struct baton__mapping {
    uint32_t id; /* 0: nothing is mapped here */
    const char *base;
    uint64_t address; /* the segment's address in its owner's memory */
    size_t bytes;
} baton__mapping_t;

typedef struct baton__mappings {
    int socket; /* receives the segments' descriptors; -1: closed */
    int peers;
    const baton__segment_table_t *tables; /* the tables of all processes */
    baton__freed_count_t *freed;
    uint32_t seen; /* the value of freed->count at the last sweep */
    /* The number of segments that are mapped now. If it is 0, a sweep does not
       go through the array, which would take long. */
    uint32_t mapped;
    baton__mapping_t *at; /* indexed by peer and place */
} baton__mappings_t;

/* Opens the socket. Returns BATON_ERR_SYSTEM or BATON_ERR_NO_MEMORY on
   failure. */
baton_status_t baton__mappings_open(baton__mappings_t *self,
                                    const baton__peer_state_t *own,
                                    const baton__segment_table_t *tables,
                                    baton__freed_count_t *freed, int peers);
void baton__mappings_close(baton__mappings_t *self);

/* Returns the address at which this process can read these bytes of a peer's
   segment. Returns NULL if the segment can't be mapped, for example because its
   descriptor could not be received. */
const char *baton__mappings_find(baton__mappings_t *self, int peer, uint32_t id,
                                 uint64_t address, size_t bytes);

/* Unmaps the segments that their owners have freed. */
void baton__mappings_sweep(baton__mappings_t *self);

/* Unmaps all segments. */
void baton__mappings_clear(baton__mappings_t *self);

/* Returns true if a process of this host has freed a segment since the last
   sweep. */
static inline bool baton__mappings_are_stale(const baton__mappings_t *self)
{
    /* Pairs with the addition in segments_drop, segments.c. */
    return atomic_load_explicit(&self->freed->count, memory_order_acquire) !=
           self->seen;
}
