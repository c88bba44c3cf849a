/* What the driver does for epochs of captured schedules; see captured.h.

       start_on: launch, event --+                         on the user's thread
                                 +--> begin --> query .. --> complete --> retire
       start ----- begin: launch, event --+                the driver's

   An epoch that fails takes those with it that have been launched behind it,
   and drains until the last of them has been done: its event is behind all. */
#include "progress/captured.h"

#include "base/error.h"
#include "progress/epoch.h"
#include "progress/epoch_parts.h"
#include "progress/queues.h"
#include "sched/capture.h"
#include "sched/offload.h"

/* ---- begin -------------------------------------------------------------- */

static void *event_of(const baton__offload_t *offload, uint64_t epoch)
{
    return offload->starts[epoch % BATON__STARTS];
}

/* Launches the epoch in a stream of the device where nothing waits for one of
   the user. */
static baton_status_t launch(baton_schedule_t *schedule)
{
    baton__offload_t *offload = schedule->offload;
    baton__device_t *device = offload->device;
    int stream = baton__queues_choose_stream(schedule, false);
    assert(stream >= 0); /* one is always left for those that don't wait */
    bool raise = atomic_load_explicit(&offload->awaited, memory_order_relaxed);
    baton_status_t status = baton__capture_launch(
        schedule, device->streams[stream], schedule->run.epoch, raise);
    if (status == BATON_OK) {
        offload->launched_in = stream;
        device->users[stream]++;
    }
    return status;
}

/* The epoch was launched in a stream of the user, of which the device's
   descriptor does not tell: one of the device's waits for the event. For the
   driver's sleep alone: without it a timer wakes it. */
static void watch_user_stream(const baton__offload_t *offload, uint64_t epoch)
{
    const baton__device_t *device = offload->device;
    if (device->waits_in_stream) {
        (void)device->port.follow(device->device,
                                  device->streams[device->work_end],
                                  event_of(offload, epoch));
    }
}

void baton__captured_begin(baton__stepper_t *stepper,
                           baton_schedule_t *schedule)
{
    baton__offload_t *offload = schedule->offload;
    uint64_t epoch = schedule->run.epoch;
    offload->watched = epoch;
    if (baton__queues_waits(schedule, epoch)) {
        offload->launched_in = -1;
        stepper->starts++;
        watch_user_stream(offload, epoch);
    } else {
        baton_status_t status = launch(schedule);
        if (status != BATON_OK) {
            offload->drained = epoch;
            baton__epoch_fail_here(
                stepper, schedule,
                baton__error(status,
                             "\"%s\" epoch %llu failed on rank %d: it could "
                             "not be launched: %s",
                             schedule->name, (unsigned long long)epoch,
                             schedule->group->rank, baton_error_message()));
            return;
        }
    }
    baton__epoch_queue_all(stepper, schedule);
    baton__queues_list(stepper, schedule);
}

/* ---- what has been done -------------------------------------------------- */

/* The epoch's place in a stream is free again. */
static void leave(baton__stepper_t *stepper, const baton_schedule_t *schedule)
{
    const baton__offload_t *offload = schedule->offload;
    if (offload->launched_in >= 0) {
        offload->device->users[offload->launched_in]--;
    } else {
        stepper->starts--;
    }
}

static void fail(baton__stepper_t *stepper, baton_schedule_t *schedule,
                 baton_status_t status)
{
    uint32_t last = schedule->count > 0 ? schedule->count - 1 : 0;
    if (last == 0 && schedule->count > 0) {
        baton__epoch_fail_at(stepper, schedule, 0, status);
        return;
    }
    baton__epoch_fail_here(
        stepper, schedule,
        baton__error(
            status,
            "\"%s\" epoch %llu failed on rank %d: one of its %u nodes "
            "that were launched as one, %s to %s, or what was ahead "
            "of them in their stream: %s",
            schedule->name, (unsigned long long)schedule->run.epoch,
            schedule->group->rank, schedule->count,
            schedule->count > 0 ? baton__node_name(schedule, 0) : "none",
            schedule->count > 0 ? baton__node_name(schedule, last) : "none",
            baton_error_message()));
}

/* All that was asked for by now, and has been launched therefore, fails with
   the epoch. */
static bool drain(baton__stepper_t *stepper, baton_schedule_t *schedule,
                  bool *moved)
{
    baton__offload_t *offload = schedule->offload;
    const baton__device_t *device = offload->device;
    uint64_t last =
        atomic_load_explicit(&schedule->shared.requested, memory_order_acquire);
    if (device->port.query(device->device, event_of(offload, last)) ==
        BATON_AGAIN) {
        if (offload->watched != last) {
            watch_user_stream(offload, last);
            offload->watched = last;
            *moved = true; /* else the driver may sleep, armed before this */
        }
        return false;
    }
    /* Also if the device has failed: then it does no more of it. */
    *moved = true;
    offload->drained = last;
    leave(stepper, schedule);
    return baton__epoch_end_all_in_draining(stepper, schedule);
}

bool baton__captured_poll(baton__stepper_t *stepper, baton_schedule_t *schedule,
                          bool *moved)
{
    const baton__offload_t *offload = schedule->offload;
    const baton__device_t *device = offload->device;
    if (schedule->turn.queued == 0) {
        return false;
    }
    if (schedule->run.phase == BATON__RUN_DRAINING) {
        return drain(stepper, schedule, moved);
    }
    baton_status_t status = device->port.query(
        device->device, event_of(offload, schedule->run.epoch));
    if (status == BATON_AGAIN) {
        return false;
    }
    *moved = true;
    if (status != BATON_OK) {
        fail(stepper, schedule, status);
        return false;
    }
    leave(stepper, schedule);
    baton__epoch_complete_all(stepper, schedule);
    /* At once: a cancel that came before would fail an epoch that has been
       done, and none of those that have been launched behind it. */
    baton__epoch_turn(stepper, schedule, 0);
    return false;
}
