/* How an epoch takes events from outside: messages and activations arrive, and
   transfers and async nodes complete. */
#include "progress/epoch/epoch.h"

#include "base/error.h"
#include "progress/epoch/epoch_parts.h"
#include "progress/state/traced.h"
#include "sched/offload.h"

/* ---- messages ------------------------------------------------------------ */

static void deliver_to(baton_schedule_t *schedule, uint32_t node,
                       baton_message_t *message)
{
    baton__run_t *run = &schedule->run;
    const baton__op_t *op = &schedule->ops[node];
    const baton_group_t *group = schedule->group;
    baton__when_t when =
        run->phase == BATON__RUN_RECOVERING
            ? BATON__WHEN_LATER
            : baton__run_when_of(run, node, message->header.epoch);
    /* When an epoch is sealed all its remaining nodes are in streams, and a
       user's stream may already have gone on after them. So a message for the
       epoch comes too late. */
    if (when == BATON__WHEN_NOW && schedule->offload != NULL &&
        schedule->offload->sealed) {
        when = BATON__WHEN_PAST;
    }
    switch (when) {
    case BATON__WHEN_PAST:
        group->transport->drop(group->endpoint, message);
        break;
    case BATON__WHEN_NOW:
        if (op->kind == BATON__ARMED_RECV) {
            baton__epoch_activate(schedule, node, message);
        } else {
            (void)baton__epoch_take_message(schedule, node, message);
        }
        baton__stepper_add_runnable(schedule);
        break;
    case BATON__WHEN_LATER:
        if (!baton__epoch_keep_early(run, op->message.ordinal, message)) {
            group->transport->drop(group->endpoint, message);
            baton__epoch_fail_here(
                schedule, baton__error(BATON_ERR_NO_MEMORY,
                                       "\"%s\": no memory for early messages",
                                       schedule->name));
        } else if (op->kind == BATON__ARMED_RECV) {
            baton__traced_forget_time(group->stepper);
            baton__epoch_begin_if_due(schedule);
        } else if (run->phase == BATON__RUN_RUNNING &&
                   baton__epoch_is_left_out(schedule, node)) {
            baton__epoch_fail_left_out(schedule, node);
        }
        break;
    }
}

void baton__epoch_deliver(baton_group_t *group, baton_message_t *message)
{
    assert(baton__driven_here(group));
    const baton_header_t *header = &message->header;
    baton_schedule_t *schedule = baton__group_find(group, header->schedule);
    if (schedule == NULL || header->incarnation != group->incarnation ||
        schedule->run.phase == BATON__RUN_DRAINING ||
        schedule->run.phase == BATON__RUN_FAILED) {
        group->transport->drop(group->endpoint, message);
        return;
    }
    uint32_t node =
        baton__plan_receiver(&schedule->plan, message->peer, header->tag,
                             header->kind == BATON__MESSAGE_ACTIVATION);
    if (node == BATON__NO_NODE) {
        int peer = message->peer;
        uint32_t tag = header->tag;
        group->transport->drop(group->endpoint, message);
        baton__epoch_fail_here(
            schedule,
            baton__error(BATON_ERR_MISMATCH,
                         "\"%s\" failed on rank %d: %s has sent a message "
                         "with tag %u, and there is no receive for it: the "
                         "ranks' schedules differ (BATON_VERIFY=1 finds where)",
                         schedule->name, group->rank,
                         baton__group_rank_text(group, peer), tag));
        return;
    }
    deliver_to(schedule, node, message);
}

/* ---- completions --------------------------------------------------------- */

void baton__epoch_complete_transfer(const baton_event_t *event)
{
    baton_schedule_t *schedule = event->token.owner;
    assert(baton__driven_here(schedule->group));
    baton__task_t *task = baton__task_of(schedule);
    uint32_t node = event->token.node;
    /* The node was withdrawn when an earlier event of the same poll failed the
       epoch. */
    if (schedule->run.state[node] == BATON__NODE_IDLE) {
        return;
    }
    /* `moving` does not count posted receives into which the sender writes:
       their state is WAITING until they complete. */
    task->moving -= schedule->run.state[node] == BATON__NODE_MOVING;
    if (schedule->run.phase == BATON__RUN_DRAINING) {
        (void)baton__epoch_end_in_draining(schedule, node);
        return;
    }
    if (event->status == BATON_OK && task->unlent == node + 1) {
        task->unlent = 0;
        baton__run_enter(&schedule->run, node, BATON__NODE_COMPLETED);
    } else if (event->status == BATON_OK) {
        BATON__TRACED(message, schedule,
                      event->kind == BATON_EVENT_SENT ? BATON_TRACE_SENT
                                                      : BATON_TRACE_RECEIVED,
                      node,
                      baton__run_bytes(&schedule->run, &schedule->ops[node]));
        baton__run_complete(&schedule->run, node);
    } else if (event->status == BATON_ERR_CANCELLED &&
               event->kind == BATON_EVENT_RECEIVED) {
        baton__run_enter(&schedule->run, node, BATON__NODE_WAITING);
    } else {
        baton__run_enter(&schedule->run, node, BATON__NODE_IDLE);
        baton__epoch_fail_message(schedule, node, event->status, event->detail);
        return;
    }
    baton__stepper_add_runnable(schedule);
}

/* Called when an async node has completed, with success or not. */
static void end_async(baton_schedule_t *schedule, uint32_t node, int status)
{
    const baton__op_t *op = &schedule->ops[node];
    baton__task_t *task = baton__task_of(schedule);
    baton__async_t *async = &schedule->run.asyncs[op->async.ordinal];
    uint64_t generation = baton__async_generation(
        atomic_load_explicit(&async->state, memory_order_relaxed));
    atomic_store_explicit(&async->state,
                          baton__async_state(generation, BATON__ASYNC_IDLE),
                          memory_order_relaxed);
    task->begun--;
    schedule->group->stepper->polled -=
        op->async_ops->poll != NULL && !task->abandoned;
    if (schedule->run.phase == BATON__RUN_DRAINING) {
        (void)baton__epoch_end_in_draining(schedule, node);
        return;
    }
    baton__run_enter(&schedule->run, node, BATON__NODE_IDLE);
    if (status != BATON_OK && status != BATON_SKIP) {
        const int completed = status;
        status = baton__failure_of(completed);
        (void)baton__error((baton_status_t)status, "it completed with %d, %s",
                           completed,
                           baton_status_name((baton_status_t)status));
    }
    (void)baton__epoch_take_result(schedule, node, status);
    baton__stepper_add_runnable(schedule);
}

void baton__epoch_collect_asyncs(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    /* The last async node that ends may free an abandoned schedule, so the loop
       does not read the schedule after that. */
    uint32_t left = baton__task_of(schedule)->begun;
    for (uint32_t i = 0; left > 0; i++) {
        uint32_t node = schedule->plan.asyncs[i];
        if (schedule->run.state[node] != BATON__NODE_BEGUN) {
            continue;
        }
        left--;
        /* Pairs with the exchange in baton_async_complete. */
        int what = baton__async_what(atomic_load_explicit(
            &schedule->run.asyncs[i].state, memory_order_acquire));
        if (what != BATON__ASYNC_BEGUN) {
            end_async(schedule, node, what - BATON__ASYNC_DONE);
        }
    }
}

bool baton__epoch_poll_asyncs(baton_schedule_t *schedule)
{
    bool moved = false;
    for (uint32_t i = 0; i < schedule->plan.async_count; i++) {
        uint32_t node = schedule->plan.asyncs[i];
        const baton__op_t *op = &schedule->ops[node];
        if (schedule->run.state[node] != BATON__NODE_BEGUN ||
            op->async_ops->poll == NULL ||
            !baton__epoch_is_open(schedule, node)) {
            continue;
        }
        baton_status_t status = op->async_ops->poll(op->async.argument);
        if (status == BATON_AGAIN) {
            continue;
        }
        end_async(schedule, node, status);
        moved = true;
    }
    return moved;
}
