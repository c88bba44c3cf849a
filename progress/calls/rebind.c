/* How the buffers of a schedule are bound to other memory. With a depth of 1
   the next epoch uses the new memory at once. With a larger depth epochs may be
   in flight: rebinding then changes only buffers[].memory, which the driver
   does not read, and start copies it for its epoch. */
#include "progress/calls/calls.h"
#include "progress/driving/engine.h"
#include "sched/offload.h"

#include "base/error.h"

static void bind_now(baton_schedule_t *schedule, uint32_t buffer, void *memory)
{
    schedule->buffers[buffer].memory = memory;
    if (schedule->addresses != NULL && !schedule->group->cost_only) {
        schedule->addresses[buffer] = memory;
    }
}

/* Rebinds from a call node of the schedule itself. Which buffers share memory
   is checked at once, since no start follows that could check it. */
static baton_status_t rebind_inside(baton_schedule_t *schedule, uint32_t buffer,
                                    void *memory)
{
    char *before = schedule->buffers[buffer].memory;
    bind_now(schedule, buffer, memory);
    baton_status_t status =
        schedule->committed ? baton__check_alias(schedule, buffer) : BATON_OK;
    if (status == BATON_OK && schedule->committed) {
        status = baton__check_bound(schedule, buffer);
    }
    if (status != BATON_OK) {
        bind_now(schedule, buffer, before);
    }
    return status;
}

/* Makes the next start check the buffer. */
static void note_rebound(baton_schedule_t *schedule, uint32_t buffer)
{
    schedule->buffers[buffer].rebound = true;
    atomic_store_explicit(&baton__task_of(schedule)->rebound, true,
                          memory_order_relaxed);
}

static baton_status_t rebind_between(baton_schedule_t *schedule,
                                     uint32_t buffer, void *memory)
{
    baton_engine_t *engine = schedule->group->engine;
    engine->driver->enter(engine);
    bool runs = baton__epoch_runs(baton__task_of(schedule));
    if (!runs) {
        bind_now(schedule, buffer, memory);
        note_rebound(schedule, buffer);
    }
    engine->driver->leave(engine);
    return runs ? baton__error(
                      BATON_ERR_BUSY,
                      "rebind in \"%s\": epoch %llu is running: wait for it, "
                      "or give the schedule a depth",
                      schedule->name, (unsigned long long)schedule->run.epoch)
                : BATON_OK;
}

static baton_status_t rebind(baton_schedule_t *schedule, uint32_t buffer,
                             void *memory)
{
    if (baton__task_of(schedule)->bindings != NULL && schedule->committed) {
        schedule->buffers[buffer].memory = memory;
        note_rebound(schedule, buffer);
        return BATON_OK;
    }
    /* This is checked before `committed` is read: a peer may activate an epoch,
       whose call nodes then run, before commit returns. */
    if (baton__engine_is_inside(schedule->group->engine) &&
        schedule->group->stepper->issuing == schedule) {
        return rebind_inside(schedule, buffer, memory);
    }
    if (!schedule->committed) {
        bind_now(schedule, buffer, memory);
        return BATON_OK;
    }
    return rebind_between(schedule, buffer, memory);
}

baton_status_t baton_buffer_rebind(baton_schedule_t *schedule,
                                   baton_buffer_t buffer, void *memory)
{
    if (!baton__is_schedule(schedule, __func__)) {
        return baton__error_status();
    }
    if (buffer.index >= schedule->buffer_count ||
        schedule->buffers[buffer.index].scratch) {
        return baton__error(BATON_ERR_INVALID,
                            "rebind in \"%s\": buffer %u is %s", schedule->name,
                            buffer.index,
                            buffer.index >= schedule->buffer_count
                                ? "not one of its buffers"
                                : "scratch, which the schedule owns");
    }
    return rebind(schedule, buffer.index, memory);
}

/* Returns the first buffer that is not scratch and whose field `input` has this
   value. Returns buffer_count if there is none. */
static uint32_t find_bound(const baton_schedule_t *schedule, bool input)
{
    uint32_t i = 0;
    while (
        i < schedule->buffer_count &&
        (schedule->buffers[i].scratch || schedule->buffers[i].input != input)) {
        i++;
    }
    return i;
}

static bool is_missing(const baton_schedule_t *schedule, uint32_t buffer,
                       const void *memory)
{
    return memory == NULL && buffer < schedule->buffer_count &&
           schedule->buffers[buffer].bytes > 0 && !schedule->group->cost_only;
}

/* Checks that the source and the target are given if the schedule has them. If
   the schedule has no source, checks that none is given. */
static baton_status_t check_vectors(const baton_schedule_t *schedule,
                                    uint32_t from, const void *source,
                                    uint32_t to, const void *target)
{
    const char *wrong = NULL;
    if (from == schedule->buffer_count && source != NULL) {
        wrong = "the source must be NULL: the schedule was created in place, "
                "or this rank has no source";
    } else if (is_missing(schedule, from, source)) {
        wrong = "the source is NULL, but the schedule was not created in place";
    } else if (is_missing(schedule, to, target)) {
        wrong = "the target is NULL";
    }
    return wrong != NULL
               ? baton__error(BATON_ERR_INVALID, "rebind in \"%s\": %s",
                              schedule->name, wrong)
               : BATON_OK;
}

baton_status_t baton_schedule_rebind(baton_schedule_t *schedule,
                                     const void *source, void *target)
{
    if (!baton__is_schedule(schedule, __func__)) {
        return baton__error_status();
    }
    uint32_t from = find_bound(schedule, true);
    uint32_t to = find_bound(schedule, false);
    baton_status_t status = check_vectors(schedule, from, source, to, target);
    if (status == BATON_OK && from < schedule->buffer_count) {
        status = rebind(schedule, from, (void *)source);
    }
    return status == BATON_OK && to < schedule->buffer_count
               ? rebind(schedule, to, target)
               : status;
}
