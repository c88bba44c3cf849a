/* Memory for users, out of a group's transport; see baton/memory.h. The group
   lists what it has given, under the driver lock: so a wrong pointer is an
   error and not a crash. */
#include "progress/engine.h"

#include "base/alloc.h"
#include "base/error.h"

#include <baton/memory.h>
#include <baton/transport.h>

/* Ordinary memory where the transport has none to share. */
static bool allocate(const baton_group_t *group, size_t bytes,
                     baton__memory_t *out)
{
    const baton_transport_t *transport = group->transport;
    out->address = transport->allocate != NULL
                       ? transport->allocate(group->endpoint, bytes)
                       : NULL;
    out->shared = out->address != NULL;
    if (!out->shared) {
        out->address = baton__alloc(bytes, 1);
    }
    return out->address != NULL;
}

baton_status_t baton_memory_alloc(baton_group_t *group, size_t bytes,
                                  void **out)
{
    if (group == NULL || out == NULL || bytes == 0) {
        return baton__error(BATON_ERR_INVALID, "%s: %s", __func__,
                            group == NULL ? "group is NULL"
                            : out == NULL ? "out is NULL"
                                          : "bytes is 0, must be at least 1");
    }
    baton__memory_t *block = baton__alloc(1, sizeof *block);
    if (block == NULL || !allocate(group, bytes, block)) {
        baton__free(block);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "%s: no memory for %zu bytes on rank %d of %d",
                            __func__, bytes, group->rank, group->size);
    }
    baton_engine_t *engine = group->engine;
    engine->driver->enter(engine);
    block->next = group->memory;
    group->memory = block;
    engine->driver->leave(engine);
    *out = block->address;
    return BATON_OK;
}

/* Takes the block off the group's list; NULL if it is not there. */
static baton__memory_t *take(baton_group_t *group, const void *memory)
{
    baton_engine_t *engine = group->engine;
    engine->driver->enter(engine);
    baton__memory_t **link = &group->memory;
    while (*link != NULL && (*link)->address != memory) {
        link = &(*link)->next;
    }
    baton__memory_t *block = *link;
    if (block != NULL) {
        *link = block->next;
    }
    engine->driver->leave(engine);
    return block;
}

baton_status_t baton_memory_free(baton_group_t *group, void *memory)
{
    if (memory == NULL) {
        return BATON_OK;
    }
    if (group == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: group is NULL", __func__);
    }
    baton__memory_t *block = take(group, memory);
    if (block == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: %p is not memory of this group (rank %d of "
                            "%d, %s): baton_memory_alloc has not given it, or "
                            "it was freed already",
                            __func__, memory, group->rank, group->size,
                            group->transport->name);
    }
    if (block->shared) {
        group->transport->release(group->endpoint, memory);
    } else {
        baton__free(memory);
    }
    baton__free(block);
    return BATON_OK;
}
