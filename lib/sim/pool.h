/* Items: the messages of the simulated network, taken from a pool that grows.

   Here epochs do allocate, which the transport port forbids to transports that
   run them for real. */
#pragma once

#include <assert.h>
#include <baton/transport.h>
#include <stdbool.h>
#include <stdint.h>

/* No item, or no other index. */
#define BATON__SIM_NONE UINT32_MAX

enum { BATON__SIM_SLAB = 1 << 12 }; /* items in a slab */

enum {
    BATON__SIM_FREE,
    BATON__SIM_QUEUED,       /* its transfer has not begun */
    BATON__SIM_TRANSFERRING, /* it is on its way */
    BATON__SIM_DELIVERED,    /* the receiver has not accepted or dropped it */
    BATON__SIM_CONSUMED      /* it has; the sender is still to be notified */
};

/* Two cache lines; the second holds what the payload needs. */
typedef struct baton__sim_item {
    baton_message_t message; /* first: messages are items */
    unsigned rank : 24;      /* the receiver */
    unsigned state : 3;
    unsigned sent : 1;        /* its sender has been notified */
    unsigned synchronous : 1; /* its sender is notified when it is consumed */
    unsigned copied : 1;      /* its data is a copy that the item owns */
    unsigned withdrawn : 1;   /* by its sender: it can't be accepted */
    uint32_t number;
    /* With `node`, the sender's token; NULL when no owner is left. */
    _Alignas(64) void *owner;
    uint32_t node;
    uint32_t next; /* in a port's queue, or as the pool's `spare` */
    /* While it is queued, the earliest time at which its transfer may begin;
       then the time at which the transfer began at the receiver. */
    double begin_us;
    double delivery_us;
    char small[32]; /* holds the copy of short data */
} baton__sim_item_t;
static_assert(sizeof(void *) != 8 || sizeof(baton__sim_item_t) == 128,
              "an item is two cache lines");

typedef struct baton__sim_pool {
    baton__sim_item_t **slabs;
    uint32_t slab_count;
    uint32_t spare;      /* 1 and the item that was given back last; or 0 */
    uint32_t item_count; /* items from this index on were never taken */
} baton__sim_pool_t;

static inline baton__sim_item_t *
baton__sim_pool_item(const baton__sim_pool_t *pool, uint32_t index)
{
    return &pool->slabs[index / BATON__SIM_SLAB][index % BATON__SIM_SLAB];
}

/* {0} is an empty pool. Frees it with all data that its items have copied. */
void baton__sim_pool_fini(baton__sim_pool_t *pool);

/* Returns BATON__SIM_NONE when there is no memory. */
uint32_t baton__sim_pool_take(baton__sim_pool_t *pool);
void baton__sim_pool_give(baton__sim_pool_t *pool, uint32_t index);

/* Copies the data that the receiver has not accepted yet, so that the sender
   may have its memory back. Returns false when there is no memory. */
bool baton__sim_item_copy(baton__sim_item_t *item);
