/* Basic operations on the state of a schedule's queues. None of them fails an
   epoch, so epoch_fail.c and epoch_end.c may call them; see queues.h. */
#include "progress/epoch/queues.h"

void baton__queues_list(baton_schedule_t *schedule)
{
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__offload_t *offload = schedule->offload;
    if (!offload->listed) {
        offload->listed = true;
        offload->next = stepper->offloads;
        stepper->offloads = schedule;
    }
}

baton_stream_t baton__queues_stream_of(const baton__offload_t *offload,
                                       const baton__queue_t *queue)
{
    return offload->device->port.streams[queue - offload->queues];
}

baton_status_t baton__queues_record(const baton__offload_t *offload,
                                    const baton__queue_t *queue)
{
    const baton__device_t *device = offload->device;
    return device->port.record(device->device,
                               baton__queues_stream_of(offload, queue),
                               offload->events[queue->last]);
}

/* ---- starts in the order of a stream ---------------------------------- */

bool baton__queues_waits(const baton_schedule_t *schedule, uint64_t epoch)
{
    const baton__offload_t *offload = schedule->offload;
    const baton__device_t *device = offload->device;
    uint64_t slot = epoch % BATON__STARTS;
    return offload->on[slot] &&
           device->port.query(device->device, offload->starts[slot]) !=
               BATON_OK;
}

void baton__queues_begin(baton_schedule_t *schedule, bool external)
{
    assert(baton__driven_here(schedule->group));
    baton__offload_t *offload = schedule->offload;
    if (offload->waits) {
        return;
    }
    offload->waits = true;
    schedule->group->stepper->starts++;
    baton__task_of(schedule)->held = !external;
    baton__queues_list(schedule);
}

void baton__queues_forget_start(baton_schedule_t *schedule)
{
    baton__offload_t *offload = schedule->offload;
    schedule->group->stepper->starts -= offload->waits;
    offload->waits = false;
    baton__task_of(schedule)->held = false;
}

/* ---- the end ------------------------------------------------------------ */

void baton__queues_stop(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    baton__offload_t *offload = schedule->offload;
    baton__queues_forget_start(schedule);
    offload->sealed = false;
    for (int i = 0; i < BATON_DEVICE_STREAMS; i++) {
        if (offload->queues[i].last != BATON__NO_NODE) {
            /* Records the event again, because the driver must be able to query
               it. The epoch may have failed because the event could not be
               recorded. */
            (void)baton__queues_record(offload, &offload->queues[i]);
        }
    }
}

void baton__queues_raise(const baton_schedule_t *schedule, uint64_t epoch)
{
    const baton__offload_t *offload = schedule->offload;
    baton__flag_raise(
        offload->flag,
        atomic_load_explicit(&offload->base, memory_order_relaxed) + epoch);
}
