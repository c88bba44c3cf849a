/* The simulator's pool of items, and the tables of what waits for its match. */
#include "transport/sim_net.h"

#include "base/alloc.h"

/* ---- the pool --------------------------------------------------------- */

static bool add_slab(baton__sim_net_t *net)
{
    uint32_t slabs = net->slab_count;
    if (slabs == BATON__SIM_NONE / BATON__SIM_SLAB) {
        return false; /* no more numbers for items */
    }
    if (slabs == net->slab_capacity) {
        uint32_t room = slabs * 2 + 1;
        baton__sim_item_t **grown =
            baton__grow(net->slabs, slabs, room, sizeof *grown);
        if (grown != NULL) {
            net->slabs = grown;
        }
        uint32_t *spare =
            baton__grow(net->spare, (size_t)slabs * BATON__SIM_SLAB,
                        (size_t)room * BATON__SIM_SLAB, sizeof *spare);
        if (spare != NULL) {
            net->spare = spare;
        }
        if (grown == NULL || spare == NULL) {
            return false;
        }
        net->slab_capacity = room;
    }
    net->slabs[slabs] = baton__alloc(BATON__SIM_SLAB, sizeof **net->slabs);
    if (net->slabs[slabs] == NULL) {
        return false;
    }
    net->slab_count++;
    /* The first are on top, so that a rank's items lie side by side. */
    uint32_t end = net->slab_count * BATON__SIM_SLAB;
    for (uint32_t i = 0; i < BATON__SIM_SLAB; i++) {
        net->spare[net->spare_count++] = end - 1 - i;
    }
    return true;
}

uint32_t baton__sim_item_take(baton__sim_net_t *net)
{
    enum { AHEAD = 8 };
    if (net->spare_count == 0 && !add_slab(net)) {
        net->failed = true; /* or one rank fails, and others wait for it */
        return BATON__SIM_NONE;
    }
    if (net->spare_count > AHEAD) {
        uint32_t soon = net->spare[net->spare_count - 1 - AHEAD];
        __builtin_prefetch(baton__sim_item(net, soon), 1);
    }
    return net->spare[--net->spare_count];
}

void baton__sim_item_give(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *item = baton__sim_item(net, index);
    if (item->kept && item->data != item->small) {
        baton__free(item->data);
    }
    item->kept = false;
    item->state = BATON__SIM_FREE;
    net->spare[net->spare_count++] = index;
}

/* ---- tables ----------------------------------------------------------- */

static uint32_t *bucket_of(const baton__sim_port_t *port, uint32_t peer,
                           uint32_t tag)
{
    uint64_t key = (uint64_t)peer << 32 | tag;
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
    /* By the upper bits, which depend on all of the key. */
    return &port->buckets[(hash >> 32) * port->bucket_count >> 32];
}

uint32_t baton__sim_table_take(baton__sim_port_t *port, bool receive,
                               uint32_t peer, uint32_t tag)
{
    uint32_t *link = bucket_of(port, peer, tag);
    while (*link != BATON__SIM_NONE) {
        uint32_t index = *link;
        baton__sim_item_t *item = baton__sim_item(port->net, index);
        if (item->tag == tag && item->peer == peer &&
            (item->state == BATON__SIM_RECEIVE) == receive) {
            *link = item->next;
            return index;
        }
        link = &item->next;
    }
    return BATON__SIM_NONE;
}

void baton__sim_table_fetch(const baton__sim_port_t *port, uint32_t peer,
                            uint32_t tag)
{
    __builtin_prefetch(bucket_of(port, peer, tag));
}

void baton__sim_table_fetch_head(const baton__sim_port_t *port, uint32_t peer,
                                 uint32_t tag)
{
    uint32_t head = *bucket_of(port, peer, tag);
    if (head != BATON__SIM_NONE) {
        __builtin_prefetch(baton__sim_item(port->net, head), 1);
    }
}

void baton__sim_table_append(baton__sim_port_t *port, uint32_t index)
{
    baton__sim_item_t *item = baton__sim_item(port->net, index);
    uint32_t *link = bucket_of(port, item->peer, item->tag);
    while (*link != BATON__SIM_NONE) {
        link = &baton__sim_item(port->net, *link)->next;
    }
    item->next = BATON__SIM_NONE;
    *link = index;
}

bool baton__sim_table_remove(baton__sim_port_t *port, uint32_t index)
{
    const baton__sim_item_t *item = baton__sim_item(port->net, index);
    uint32_t *link = bucket_of(port, item->peer, item->tag);
    while (*link != BATON__SIM_NONE && *link != index) {
        link = &baton__sim_item(port->net, *link)->next;
    }
    if (*link == BATON__SIM_NONE) {
        return false;
    }
    *link = item->next;
    return true;
}

/* A bucket for each message, at least; items of one key stay in order, since
   they all come from one old bucket. */
baton_status_t baton__sim_table_reserve(baton__sim_port_t *port)
{
    uint32_t count = port->bucket_count;
    while ((int64_t)count < port->reserved && count < 1u << 30) {
        count *= 2;
    }
    if (count == port->bucket_count) {
        return BATON_OK;
    }
    uint32_t *buckets = baton__alloc(count, sizeof *buckets);
    if (buckets == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    uint32_t *old = port->buckets;
    uint32_t old_count = port->bucket_count;
    for (uint32_t i = 0; i < count; i++) {
        buckets[i] = BATON__SIM_NONE;
    }
    port->buckets = buckets;
    port->bucket_count = count;
    for (uint32_t i = 0; i < old_count; i++) {
        uint32_t next;
        for (uint32_t at = old[i]; at != BATON__SIM_NONE; at = next) {
            next = baton__sim_item(port->net, at)->next;
            baton__sim_table_append(port, at);
        }
    }
    if (old != &port->bucket) {
        baton__free(old);
    }
    return BATON_OK;
}
