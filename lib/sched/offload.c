/* The device's part of a commit; see offload.h. */
#include "sched/offload.h"

#include "base/alloc.h"
#include "base/error.h"

int baton__offload_queue(const baton_schedule_t *schedule,
                         const baton__op_t *op)
{
    if (op->kind != BATON__COPY) {
        return BATON_DEVICE_WORK;
    }
    const baton__buffer_t *buffers = schedule->buffers;
    if (buffers[op->buffer[BATON__LEFT]].kind == BATON_MEMORY_HOST) {
        return BATON_DEVICE_IN;
    }
    return buffers[op->buffer[BATON__TARGET]].kind == BATON_MEMORY_HOST
               ? BATON_DEVICE_OUT
               : BATON_DEVICE_WORK;
}

/* ---- events ----------------------------------------------------------- */

static bool create_event(const baton__device_t *device, void **out)
{
    return device->port.event_create(device->device, out) == BATON_OK;
}

static void destroy_event(const baton__device_t *device, void *event)
{
    if (event != NULL) {
        device->port.event_destroy(device->device, event);
    }
}

static bool create_events(baton_schedule_t *schedule)
{
    baton__offload_t *offload = schedule->offload;
    bool enough = true;
    for (uint32_t i = 0; i < schedule->count; i++) {
        if (baton__op_offloaded(&schedule->ops[i])) {
            enough =
                enough && create_event(offload->device, &offload->events[i]);
        }
    }
    for (int i = 0; i < BATON__STARTS; i++) {
        enough = enough && create_event(offload->device, &offload->starts[i]);
    }
    return enough;
}

/* ---- the flag --------------------------------------------------------- */

/* Gives the flag back to the device: no further epoch will raise it. */
static void give_flag(baton_schedule_t *schedule)
{
    const baton__offload_t *offload = schedule->offload;
    if (offload->flag == NULL) {
        return;
    }
    baton__flag_give(
        offload->device, offload->flag,
        atomic_load_explicit(&offload->base, memory_order_relaxed) +
            schedule->run.epoch);
}

/* ---- nodes ------------------------------------------------------------ */

/* Lists, for nodes on the device, their predecessors on the device. */
static void list_preds(const baton_schedule_t *schedule,
                       const baton__order_t *order)
{
    const baton__offload_t *offload = schedule->offload;
    const baton__op_t *ops = schedule->ops;
    uint32_t count = 0;
    for (uint32_t node = 0; node < schedule->count; node++) {
        offload->first_pred[node] = count;
        for (uint32_t e = order->first[node]; e < order->first[node + 1]; e++) {
            if (baton__op_offloaded(&ops[node]) &&
                baton__op_offloaded(&ops[order->preds[e]])) {
                offload->preds[count++] = order->preds[e];
            }
        }
    }
    offload->first_pred[schedule->count] = count;
}

static bool create_lists(baton_schedule_t *schedule,
                         const baton__order_t *order)
{
    baton__offload_t *offload = schedule->offload;
    size_t count = schedule->count;
    offload->after = baton__alloc(count, sizeof *offload->after);
    offload->events = baton__alloc(count, sizeof *offload->events);
    offload->first_pred = baton__alloc(count + 1, sizeof(uint32_t));
    offload->preds = baton__alloc(order->first[count], sizeof *offload->preds);
    if (offload->after == NULL || offload->events == NULL ||
        offload->first_pred == NULL || offload->preds == NULL) {
        return false;
    }
    list_preds(schedule, order);
    return true;
}

/* ---- life ------------------------------------------------------------- */

baton_status_t baton__offload_create(baton_schedule_t *schedule,
                                     const baton__order_t *order)
{
    baton__device_t *device = schedule->group->device;
    if (schedule->depth > BATON__STARTS) {
        return BATON__COMMIT_ERROR(
            BATON_ERR_LIMIT, schedule,
            "its depth is %u; in an engine with a device it is at most %d",
            schedule->depth, BATON__STARTS);
    }
    baton__offload_t *offload = baton__alloc(1, sizeof *offload);
    schedule->offload = offload;
    bool enough = offload != NULL;
    if (enough) {
        offload->device = device;
        for (int i = 0; i < BATON_DEVICE_STREAMS; i++) {
            offload->queues[i] =
                (baton__queue_t){BATON__NO_NODE, BATON__NO_NODE};
        }
        enough = create_lists(schedule, order) && create_events(schedule);
    }
    if (enough) {
        offload->flag = baton__flag_take(device);
        enough = offload->flag != NULL;
    }
    if (!enough) {
        baton__offload_destroy(schedule);
        return BATON__COMMIT_ERROR(
            BATON_ERR_NO_MEMORY, schedule,
            "no memory, or no more events of %s, for its %u nodes",
            device->port.name, schedule->count);
    }
    atomic_init(&offload->base, offload->flag->value);
    return BATON_OK;
}

void baton__offload_destroy(baton_schedule_t *schedule)
{
    baton__offload_t *offload = schedule->offload;
    if (offload == NULL) {
        return;
    }
    give_flag(schedule);
    for (uint32_t i = 0; i < schedule->count && offload->events != NULL; i++) {
        destroy_event(offload->device, offload->events[i]);
    }
    for (int i = 0; i < BATON__STARTS; i++) {
        destroy_event(offload->device, offload->starts[i]);
    }
    baton__free(offload->after);
    baton__free(offload->events);
    baton__free(offload->first_pred);
    baton__free(offload->preds);
    baton__free(offload);
    schedule->offload = NULL;
}
