/* Items: the messages of the simulated network, from a pool that grows. So
   epochs allocate memory here, which real transports must not do. */
#pragma once

#include <assert.h>
#include <baton/transport.h>

/* Stands for no item, or for no index. */
#define BATON__SIM_NONE UINT32_MAX

enum { BATON__SIM_SLAB = 1 << 12 }; /* items in a slab */

enum {
    BATON__SIM_FREE,
    BATON__SIM_QUEUED,       /* the transfer has not begun */
    BATON__SIM_TRANSFERRING, /* the item is on its way */
    /* The receiver has not accepted or dropped the item. */
    BATON__SIM_DELIVERED,
    /* The receiver has accepted or dropped the item; the sender does not know
       yet. */
    BATON__SIM_CONSUMED
};

/* An item has two cache lines. The first has the message and its state, the
   second the data about its transfer. */
typedef struct baton__sim_item {
    /* This field is first, so that the address of a message can be cast to that
       of its item. */
    baton_message_t message;
    unsigned rank : 24; /* the receiver's rank */
    unsigned state : 3;
    unsigned sent : 1; /* the sender was notified that its memory is free */
    unsigned synchronous : 1; /* the sender is notified after the item was
                                 consumed */
    unsigned copied : 1;      /* `data` is a copy, which the item owns */
    /* The sender has withdrawn the item, so it can't be accepted. */
    unsigned withdrawn : 1;
    uint32_t number;
    /* The schedule whose node `node` has sent the item, as in the send's token.
       NULL after the schedule was destroyed, and for notices. */
    _Alignas(64) void *owner;
    uint32_t node;
    uint32_t next; /* the next item of the port's queue or, if this item is
                      free, of the pool's list of free items */
    /* While the item is queued, the earliest time at which its transfer may
       begin. Later, the time from which it occupies the receiver's port. */
    double begin_us;
    double delivery_us;
    char small[32]; /* holds the copy if the data is short */
} baton__sim_item_t;
static_assert(sizeof(void *) != 8 || sizeof(baton__sim_item_t) == 128,
              "an item is two cache lines");

typedef struct baton__sim_pool {
    baton__sim_item_t **slabs;
    uint32_t slab_count;
    /* 1 + the item that was given back last; 0: the list of free items is
       empty */
    uint32_t spare;
    uint32_t item_count; /* items from this index on were never taken */
} baton__sim_pool_t;

static inline baton__sim_item_t *
baton__sim_pool_item(const baton__sim_pool_t *pool, uint32_t index)
{
    return &pool->slabs[index / BATON__SIM_SLAB][index % BATON__SIM_SLAB];
}

/* A pool of zeros is empty. baton__sim_pool_fini frees the pool, and the copies
   of data that its items own. */
void baton__sim_pool_fini(baton__sim_pool_t *pool);

/* baton__sim_pool_take returns the index of a free item, or BATON__SIM_NONE if
   there is no memory. */
uint32_t baton__sim_pool_take(baton__sim_pool_t *pool);
void baton__sim_pool_give(baton__sim_pool_t *pool, uint32_t index);

/* Copies the data of an item that the receiver has not accepted yet, so that
   the sender gets its memory back. Returns false if there is no memory. */
bool baton__sim_item_copy(baton__sim_item_t *item);
