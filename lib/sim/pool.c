#include "sim/pool.h"

#include "base/alloc.h"

#include <string.h>

static bool grow_arrays(baton__sim_pool_t *pool)
{
    uint32_t slabs = pool->slab_count;
    uint32_t capacity = slabs * 2 + 1;
    baton__sim_item_t **grown =
        baton__grow(pool->slabs, slabs, capacity, sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    pool->slabs = grown;
    uint32_t *spare =
        baton__grow(pool->spare, (size_t)slabs * BATON__SIM_SLAB,
                    (size_t)capacity * BATON__SIM_SLAB, sizeof *spare);
    if (spare == NULL) {
        return false;
    }
    pool->spare = spare;
    pool->slab_capacity = capacity;
    return true;
}

static bool add_slab(baton__sim_pool_t *pool)
{
    uint32_t slabs = pool->slab_count;
    if (slabs == BATON__SIM_NONE / BATON__SIM_SLAB) {
        return false; /* items have run out of numbers */
    }
    if (slabs == pool->slab_capacity && !grow_arrays(pool)) {
        return false;
    }
    pool->slabs[slabs] = baton__alloc(BATON__SIM_SLAB, sizeof **pool->slabs);
    if (pool->slabs[slabs] == NULL) {
        return false;
    }
    pool->slab_count++;
    /* The lowest indices are on top, so that a rank's items are adjacent. */
    uint32_t end = pool->slab_count * BATON__SIM_SLAB;
    for (uint32_t i = 0; i < BATON__SIM_SLAB; i++) {
        pool->spare[pool->spare_count++] = end - 1 - i;
    }
    return true;
}

uint32_t baton__sim_pool_take(baton__sim_pool_t *pool)
{
    if (pool->spare_count == 0 && !add_slab(pool)) {
        return BATON__SIM_NONE;
    }
    uint32_t index = pool->spare[--pool->spare_count];
    if (index >= pool->item_count) {
        pool->item_count = index + 1;
    }
    return index;
}

bool baton__sim_item_copy(baton__sim_item_t *item)
{
    baton_message_t *message = &item->message;
    if (message->data == NULL || message->bytes == 0 || item->copied) {
        return true;
    }
    char *memory = message->bytes <= sizeof item->small
                       ? item->small
                       : baton__alloc(message->bytes, 1);
    if (memory == NULL) {
        return false;
    }
    memcpy(memory, message->data, message->bytes);
    message->data = memory;
    item->copied = true;
    return true;
}

static void free_copy(const baton__sim_item_t *item)
{
    if (item->copied && item->message.data != item->small) {
        baton__free((void *)(uintptr_t)item->message.data);
    }
}

void baton__sim_pool_give(baton__sim_pool_t *pool, uint32_t index)
{
    baton__sim_item_t *item = baton__sim_pool_item(pool, index);
    free_copy(item);
    item->copied = false;
    item->state = BATON__SIM_FREE;
    pool->spare[pool->spare_count++] = index;
}

void baton__sim_pool_fini(baton__sim_pool_t *pool)
{
    for (uint32_t index = 0; index < pool->item_count; index++) {
        free_copy(baton__sim_pool_item(pool, index));
    }
    for (uint32_t slab = 0; slab < pool->slab_count; slab++) {
        baton__free(pool->slabs[slab]);
    }
    baton__free(pool->slabs);
    baton__free(pool->spare);
}
