/* Memory for users, from a group's transport; see baton/memory.h. The group
   keeps a list of allocated blocks, guarded by the driver lock, so that freeing
   a wrong pointer is an error and not a crash. */
#include "progress/driving/engine.h"

#include "base/alloc.h"
#include "base/available.h"
#include "base/error.h"
#include "progress/calls/calls.h"

#include <baton/memory.h>

/* Takes ordinary memory if the transport has no shared memory to give. */
static bool progress_memory_allocate(const baton_group_t *group, size_t bytes,
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
    if (!baton__is_group(group, __func__) ||
        !baton__is_given(out, true, __func__, "out")) {
        return baton__error_status();
    }
    if (bytes == 0) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: bytes is 0, must be at least 1", __func__);
    }
    baton__memory_t *block = baton__alloc(1, sizeof *block);
    if (block == NULL || !progress_memory_allocate(group, bytes, block)) {
        baton__free(block);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "%s: no memory for %zu bytes on %s: %zu are "
                            "available",
                            __func__, bytes, baton__group_place(group),
                            baton__available_memory(""));
    }
    baton_engine_t *engine = group->engine;
    engine->driver->enter(engine);
    block->bytes = bytes;
    block->next = group->memory;
    group->memory = block;
    engine->driver->leave(engine);
    *out = block->address;
    return BATON_OK;
}

static bool overlaps(const baton__memory_t *block, const char *memory,
                     size_t bytes)
{
    const char *begin = block->address;
    return memory != NULL && bytes > 0 && memory < begin + block->bytes &&
           begin < memory + bytes;
}

/* True if a buffer is bound to memory in the block: for the epoch that runs, or
   for one that was started and has its own binding. */
static bool is_bound_to(const baton__task_t *task, uint32_t buffer,
                        const baton__memory_t *block)
{
    const baton_schedule_t *s = &task->schedule;
    const size_t bytes = s->buffers[buffer].bytes;
    const uint64_t requested = baton__task_requested(task);
    bool bound = (task->bindings == NULL || s->run.phase != BATON__RUN_IDLE) &&
                 overlaps(block, s->addresses[buffer], bytes);
    for (uint64_t epoch = s->run.epoch + 1;
         task->bindings != NULL && epoch <= requested; epoch++) {
        char *const *of = task->bindings + epoch % s->depth * s->buffer_count;
        bound |= overlaps(block, of[buffer], bytes);
    }
    return bound;
}

/* Returns a schedule whose started epochs use the block, or NULL. */
static const baton_schedule_t *
progress_memory_find_user(const baton_group_t *group,
                          const baton__memory_t *block)
{
    const baton__task_t *task = group->stepper->tasks;
    for (; task != NULL; task = task->next) {
        const baton_schedule_t *s = &task->schedule;
        for (uint32_t i = 0; baton__epoch_runs(task) && i < s->buffer_count;
             i++) {
            if (!s->buffers[i].scratch && is_bound_to(task, i, block)) {
                return s;
            }
        }
    }
    return NULL;
}

/* Removes the block at `memory` from the group's list, and returns it. Returns
   NULL, with an error in *status, if there is no such block, or if it is in
   use. */
static baton__memory_t *progress_memory_take(baton_group_t *group,
                                             const void *memory,
                                             baton_status_t *status)
{
    baton_engine_t *engine = group->engine;
    engine->driver->enter(engine);
    baton__memory_t **link = &group->memory;
    while (*link != NULL && (*link)->address != memory) {
        link = &(*link)->next;
    }
    baton__memory_t *block = *link;
    const baton_schedule_t *user =
        block != NULL ? progress_memory_find_user(group, block) : NULL;
    if (block == NULL) {
        *status = baton__error(
            BATON_ERR_INVALID,
            "baton_memory_free: %p is not memory of this group (%s, %s): "
            "baton_memory_alloc did not return it, or it was freed already",
            memory, baton__group_place(group), group->transport->name);
    } else if (user != NULL) {
        *status = baton__error(
            BATON_ERR_BUSY,
            "baton_memory_free: %p is bound to a buffer of \"%s\", whose epoch "
            "%llu is running: wait for it",
            memory, user->name, (unsigned long long)user->run.epoch);
        block = NULL;
    } else {
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
    baton_status_t status = BATON_OK;
    baton__memory_t *block = baton__is_group(group, __func__)
                                 ? progress_memory_take(group, memory, &status)
                                 : NULL;
    if (block == NULL) {
        return status != BATON_OK ? status : baton__error_status();
    }
    if (block->shared) {
        group->transport->release(group->endpoint, memory);
    } else {
        baton__free(memory);
    }
    baton__free(block);
    return BATON_OK;
}

static bool progress_memory_is_shared(const baton_group_t *group,
                                      const char *address)
{
    const baton__memory_t *block = group->memory;
    while (block != NULL &&
           (!block->shared || address < (const char *)block->address ||
            address >= (const char *)block->address + block->bytes)) {
        block = block->next;
    }
    return block != NULL || (group->root != NULL &&
                             progress_memory_is_shared(group->root, address));
}

bool baton_view_is_private(const baton_schedule_t *schedule, baton_view_t view)
{
    if (!baton__is_schedule(schedule, __func__) ||
        view.buffer.index >= schedule->buffer_count ||
        schedule->buffers[view.buffer.index].scratch) {
        return false;
    }
    const baton_group_t *group = schedule->group;
    if (group->borrowed || group->device != NULL ||
        group->transport->allocate == NULL) {
        return false;
    }
    const char *address = baton_view_address(schedule, view);
    baton_engine_t *engine = group->engine;
    engine->driver->enter(engine);
    bool shared = address != NULL && progress_memory_is_shared(group, address);
    engine->driver->leave(engine);
    return !shared;
}
