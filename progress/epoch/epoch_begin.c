/* How an epoch begins: by the application's start, or by a peer's activation.
 */
#include "progress/epoch/epoch.h"

#include "progress/epoch/epoch_parts.h"
#include "progress/epoch/queues.h"
#include "progress/state/traced.h"

/* True if a peer has activated the epoch after the last one. */
static bool is_activated(const baton__run_t *run)
{
    const baton__plan_t *plan = run->plan;
    for (uint32_t i = 0; i < plan->armed_count && run->early_count > 0; i++) {
        const baton__op_t *op = &plan->ops[plan->armed[i]];
        const baton_message_t *message = run->early[op->message.ordinal];
        if (message != NULL && message->header.epoch == run->epoch + 1) {
            return true;
        }
    }
    return false;
}

/* An epoch that was started on a user's stream is held until that stream gets
   to the start. Lets the epoch go on earlier, if a peer has activated it and
   the schedule's limit (baton_schedule_limit) allows it. */
static void release_if_activated(baton__task_t *task)
{

    /* Pairs with the store in baton_schedule_limit. */
    if (task->schedule.run.unarmed > 0 &&
        task->schedule.run.epoch <=
            atomic_load_explicit(&task->limit, memory_order_acquire)) {
        task->held = false;
    }
}

void baton__epoch_activate(baton_schedule_t *schedule, uint32_t node,
                           baton_message_t *message)
{
    assert(baton__driven_here(schedule->group));
    const baton_group_t *group = schedule->group;
    const baton_token_t token = {.owner = schedule, .node = node};
    baton__activation_t activation = {0};
    if (message->bytes != sizeof activation) {
        /* Baton sends no activation of another size. */
        group->transport->drop(group->endpoint, message);
    } else if (group->transport->accept(group->endpoint, message, token,
                                        &activation) == BATON_DONE) {
        BATON__TRACED(message, schedule, BATON_TRACE_RECEIVED, node, 0);
        baton__run_activate(&schedule->run, node, activation);
        release_if_activated(baton__task_of(schedule));
    } /* otherwise the sender has withdrawn the message */
}

/* Delivers activations that came early, for the epoch that has just begun. */
static void deliver_activations(baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    for (uint32_t i = 0; i < schedule->plan.armed_count && run->early_count > 0;
         i++) {
        uint32_t node = schedule->plan.armed[i];
        baton_message_t *message =
            baton__epoch_find_early(run, schedule->ops[node].message.ordinal);
        if (message != NULL) {
            baton__epoch_activate(schedule, node, message);
        }
    }
}

/* True if the application has started the running epoch on a stream that has
   not got to the start. */
static bool waits_for_stream(const baton_schedule_t *schedule)
{
    return schedule->offload != NULL &&
           (schedule->offload->waits ||
            baton__queues_waits(schedule, schedule->run.epoch));
}

/* Takes the memory that was bound when the application started the epoch. */
static void take_bindings(baton_schedule_t *schedule, char *const *bound)
{
    bound +=
        schedule->run.epoch % schedule->depth * (size_t)schedule->buffer_count;
    for (uint32_t i = 0;
         i < schedule->buffer_count && !schedule->group->cost_only; i++) {
        if (!schedule->buffers[i].scratch) {
            schedule->addresses[i] = bound[i];
        }
    }
}

void baton__epoch_begin_if_due(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__task_t *task = baton__task_of(schedule);
    baton__run_t *run = &schedule->run;
    uint64_t requested = baton__task_requested(task);
    if (run->phase == BATON__RUN_IDLE) {
        bool internal = requested > run->epoch;
        bool external =
            !internal && is_activated(run) &&
            /* After baton_group_recover was called, peers begin no epochs. */
            baton__member_of(schedule->group)->recovery !=
                BATON__RECOVERY_STOPPING &&
            run->epoch <
                atomic_load_explicit(&task->limit, memory_order_acquire);
        if (!internal && !external) {
            return;
        }
        baton__run_begin(run);
        atomic_store_explicit(&task->busy, true, memory_order_release);
        BATON__TRACED(begin_epoch, schedule,
                      internal && !waits_for_stream(schedule));
        for (uint32_t i = 0; task->unmet > 0; i++) {
            baton__stepper_greet(task, i);
        }
        if (internal && waits_for_stream(schedule)) {
            baton__queues_begin(schedule, false);
        }
        stepper->running++;
        stepper->awaited_bytes += schedule->plan.awaited_bytes;
        if (stepper->hooks->on_epoch_begin != NULL) {
            stepper->hooks->on_epoch_begin(schedule);
        }
        /* baton_schedule_start has checked rebound buffers. But if a peer's
           activation began the epoch, they have not been checked yet. */
        if (task->bindings != NULL) {
            take_bindings(schedule, task->bindings);
        } else if (atomic_load_explicit(&task->rebound, memory_order_relaxed)) {
            baton_status_t status = baton__check_rebound(schedule);
            if (status != BATON_OK) {
                baton__epoch_fail_here(schedule, status);
            }
        }
        if (run->phase == BATON__RUN_RUNNING) {
            deliver_activations(schedule);
        }
    }
    if (run->phase == BATON__RUN_RUNNING) {
        if (requested >= run->epoch && !run->started) {
            if (waits_for_stream(schedule)) {
                baton__queues_begin(schedule, true);
            } else {
                baton__epoch_come(schedule);
            }
        }
        release_if_activated(task); /* the limit may have been raised */
        baton__stepper_add_runnable(schedule);
    } else if (run->phase == BATON__RUN_FAILED) {
        /* Epochs that were started although the schedule has failed will not
           begin, so they count as ended. */
        if (schedule->offload != NULL) {
            baton__queues_raise(schedule, requested);
        }
        baton__epoch_tell_ended(task, task->failing_from);
    }
}
