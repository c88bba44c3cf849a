#include "sim/pool.h"

#include "base/alloc.h"

#include <string.h>

static bool add_slab(baton__sim_pool_t *pool)
{
    uint32_t slabs = pool->slab_count;
    if (slabs == BATON__SIM_NONE / BATON__SIM_SLAB) {
        return false; /* all numbers that an item can have are in use */
    }
    if (!baton__extend(&pool->slabs, slabs, slabs + 1, sizeof *pool->slabs)) {
        return false;
    }
    pool->slabs[slabs] = baton__alloc(BATON__SIM_SLAB, sizeof **pool->slabs);
    pool->slab_count += pool->slabs[slabs] != NULL;
    return pool->slabs[slabs] != NULL;
}

uint32_t baton__sim_pool_take(baton__sim_pool_t *pool)
{
    if (pool->spare != 0) {
        uint32_t index = pool->spare - 1;
        pool->spare = baton__sim_pool_item(pool, index)->next;
        return index;
    }
    return pool->item_count < pool->slab_count * BATON__SIM_SLAB ||
                   add_slab(pool)
               ? pool->item_count++
               : BATON__SIM_NONE;
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
    item->next = pool->spare;
    pool->spare = index + 1;
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
}
