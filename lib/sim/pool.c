/* The simulator's pool of items. */
#include "sim/net.h"

#include "base/alloc.h"

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
        const baton__sim_item_t *item = baton__sim_item(net, soon);
        __builtin_prefetch(item, 1);
        __builtin_prefetch((const char *)item + 64, 1);
    }
    uint32_t index = net->spare[--net->spare_count];
    if (index >= net->item_count) {
        net->item_count = index + 1;
    }
    return index;
}

void baton__sim_item_give(baton__sim_net_t *net, uint32_t index)
{
    baton__sim_item_t *item = baton__sim_item(net, index);
    if (item->kept && item->message.data != item->small) {
        baton__free((void *)(uintptr_t)item->message.data);
    }
    item->kept = false;
    item->state = BATON__SIM_FREE;
    net->spare[net->spare_count++] = index;
}
