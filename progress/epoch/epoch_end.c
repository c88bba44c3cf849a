/* How the end of any epoch is published, and how a failed epoch ends when none
   of its nodes is in motion (sched/run.h) any more. */
#include "progress/epoch/epoch.h"

#include "progress/epoch/epoch_parts.h"
#include "progress/epoch/queues.h"

/* Raises the schedule's flag, for which streams of the device wait, to the last
   epoch that has ended. That is the last epoch that has retired. If the
   schedule stays failed or is abandoned, it is the last epoch that was started,
   since epochs that have not begun never will. */
static void raise_flag(const baton__task_t *task, uint64_t failed,
                       uint64_t retired)
{
    uint64_t requested = baton__task_requested(task);
    bool all =
        failed != 0 && (baton__task_stays_failed(task) || task->abandoned);
    baton__queues_raise(&task->schedule,
                        all && requested > retired ? requested : retired);
}

static void epoch_end_note_failure(baton__task_t *task, uint64_t epoch)
{
    if (baton__task_make_due(task)) {
        atomic_store_explicit(&task->failures[epoch % task->failure_count],
                              epoch << 8 | (uint8_t)-task->failure.status,
                              memory_order_relaxed);
    }
}

void baton__epoch_publish(baton_schedule_t *schedule, uint64_t failed,
                          uint64_t retired)
{
    assert(baton__driven_here(schedule->group));
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__task_t *task = baton__task_of(schedule);
    /* The stores pair with the loads in follows_another(), epochs.c: either
       that function sees these stores, or the driver's next load of `requested`
       sees the request of that function's caller. */
    if (failed != 0) {
        epoch_end_note_failure(task, failed);
        atomic_store_explicit(&task->failed, failed, memory_order_seq_cst);
    }
    if (schedule->offload != NULL) {
        raise_flag(task, failed, retired);
    }
    atomic_store_explicit(&task->retired, retired, memory_order_seq_cst);
    if (stepper->hooks->on_epoch_end != NULL) {
        stepper->hooks->on_epoch_end(schedule);
    }
}

uint64_t baton__epoch_last_ended(const baton__task_t *task)
{
    const baton__run_t *run = &task->schedule.run;
    uint64_t last = baton__task_retired(task);
    if (run->phase != BATON__RUN_FAILED && !task->abandoned) {
        return last;
    }
    uint64_t requested = baton__task_requested(task);
    last = run->epoch > last ? run->epoch : last;
    return requested > last ? requested : last;
}

void baton__epoch_tell_ended(baton__task_t *task, uint64_t failed)
{
    assert(baton__driven_here(task->schedule.group));
    uint64_t last = task->on_end != NULL ? baton__epoch_last_ended(task) : 0;
    while (task->on_end != NULL && task->ended < last) {
        uint64_t epoch = ++task->ended;
        task->on_end(task->on_end_arg, epoch,
                     failed != 0 && epoch >= failed ? task->failure.status
                                                    : BATON_OK);
    }
}

/* Fails the epochs that were started after a failed one. Returns the last of
   them. */
static uint64_t fail_started(baton__task_t *task)
{
    baton__run_t *run = &task->schedule.run;
    uint64_t requested = baton__task_requested(task);
    while (run->epoch < requested) {
        run->epoch++;
        epoch_end_note_failure(task, run->epoch);
    }
    return run->epoch;
}

void baton__epoch_end_if_drained(baton__task_t *task)
{
    assert(baton__driven_here(task->schedule.group));
    baton_schedule_t *schedule = &task->schedule;
    const baton__run_t *run = &schedule->run;
    if (run->phase != BATON__RUN_DRAINING || baton__task_in_motion(task)) {
        return;
    }
    schedule->group->stepper->draining--;
    const uint64_t first = task->failing_from;
    uint64_t failed = first;
    uint64_t retired = baton__task_retired(task);
    if (baton__task_stays_failed(task)) {
        baton__task_set_phase(task, BATON__RUN_FAILED);
        if (task->on_failure != NULL) {
            task->on_failure(task->on_failure_arg, task->failure.status);
        }
    } else {
        baton__task_set_phase(task, BATON__RUN_IDLE);
        task->failing_from = 0;
        if (schedule->offload != NULL || schedule->depth > 1) {
            epoch_end_note_failure(task, failed);
            failed = fail_started(task);
        }
        retired = run->epoch;
    }
    baton__epoch_publish(schedule, failed, retired);
    baton__epoch_tell_ended(task, first);
    if (run->phase == BATON__RUN_IDLE &&
        baton__task_requested(task) > run->epoch) {
        /* The next step begins the epoch. */
        baton__stepper_add_runnable(schedule);
    }
}

bool baton__epoch_end_in_draining(baton_schedule_t *schedule, uint32_t node)
{
    assert(baton__driven_here(schedule->group));
    baton__task_t *task = baton__task_of(schedule);
    if (!task->abandoned) {
        baton__run_enter(&schedule->run, node, BATON__NODE_IDLE);
        baton__epoch_end_if_drained(task);
    } else if (!baton__task_in_motion(task)) {
        baton__task_free(task);
        return true;
    }
    return false;
}

void baton__epoch_abandon(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__task_t *task = baton__task_of(schedule);
    task->abandoned = true;
    stepper->waited -= schedule->run.waited;
    for (uint32_t i = 0; i < schedule->plan.async_count; i++) {
        uint32_t node = schedule->plan.asyncs[i];
        /* The async nodes of an abandoned schedule are not polled, and their
           handles are invalid. So if an async node is in motion, the schedule
           is never freed. */
        stepper->polled -= schedule->run.state[node] == BATON__NODE_BEGUN &&
                           schedule->ops[node].async_ops->poll != NULL;
    }
    baton__epoch_publish(schedule, task->failing_from,
                         baton__task_retired(task));
    baton__epoch_tell_ended(task, task->failing_from);
}
