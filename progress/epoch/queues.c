/* How an epoch's nodes run on the device; see queues.h.

   An epoch that was started on a user's stream is held until that stream's
   event is done: until then none of the epoch's nodes are put into the device's
   streams. All schedules share these streams, so nodes of other schedules, put
   there after a waiting one, would wait, too, although the user's stream may
   itself be waiting for just these nodes. */
#include "progress/epoch/queues.h"

#include "base/error.h"
#include "progress/epoch/epoch.h"
#include "progress/epoch/epoch_parts.h"

/* ---- a node into a stream --------------------------------------------- */

static baton_status_t queues_issue_reduce(const baton__op_t *op,
                                          const baton__context_t *context,
                                          const baton__device_t *device,
                                          baton_stream_t stream, size_t bytes)
{
    baton_dtype_t dtype = (baton_dtype_t)op->dtype;
    return device->port.reduce(
        device->device, stream, op->reduction, dtype,
        baton__operand(op, BATON__TARGET, context->address),
        baton__operand(op, BATON__LEFT, context->address),
        baton__operand(op, BATON__RIGHT, context->address),
        bytes / baton_op_element_bytes(op->reduction, dtype));
}

static baton_status_t issue_call(const baton__op_t *op, uint32_t node,
                                 const baton__context_t *context,
                                 baton_stream_t stream)
{
    baton_call_t call = {.owner = context->owner, .node = node};
    if (op->device_call == NULL) {
        /* If the graph is only simulated, the node has no function. */
        return BATON_OK;
    }
    return (baton_status_t)baton__op_outcome(
        op, &call, op->device_call(op->argument, &call, stream));
}

/* Puts the node's operation into the stream, on `bytes` of its operands. */
static baton_status_t issue(const baton__op_t *op, uint32_t node,
                            const baton__context_t *context,
                            const baton__device_t *device,
                            baton_stream_t stream, size_t bytes)
{
    if (op->kind == BATON__DEVICE_CALL) {
        return issue_call(op, node, context, stream);
    }
    if (bytes == 0) {
        return BATON_OK; /* an empty node only keeps the order */
    }
    return op->kind == BATON__REDUCE
               ? queues_issue_reduce(op, context, device, stream, bytes)
               : device->port.copy(
                     device->device, stream,
                     baton__operand(op, BATON__TARGET, context->address),
                     baton__operand(op, BATON__LEFT, context->address), bytes);
}

/* Has the queue's stream follow the events of the node's predecessors that are
   in other streams. */
static baton_status_t queues_follow(const baton_schedule_t *schedule,
                                    uint32_t node, const baton__queue_t *queue)
{
    const baton__offload_t *offload = schedule->offload;
    const baton__device_t *device = offload->device;
    baton_status_t status = BATON_OK;
    for (uint32_t i = offload->first_pred[node];
         i < offload->first_pred[node + 1] && status == BATON_OK; i++) {
        uint32_t pred = offload->preds[i];
        const baton__op_t *op = &schedule->ops[pred];
        if (schedule->run.state[pred] == BATON__NODE_QUEUED &&
            &offload->queues[baton__offload_queue(schedule, op)] != queue) {
            status = device->port.follow(
                device->device, baton__queues_stream_of(offload, queue),
                offload->events[pred]);
        }
    }
    return status;
}

static void queues_append(baton_schedule_t *schedule, baton__queue_t *queue,
                          uint32_t node)
{
    baton__offload_t *offload = schedule->offload;
    offload->after[node] = BATON__NO_NODE;
    if (queue->last == BATON__NO_NODE) {
        queue->first = node;
    } else {
        offload->after[queue->last] = node;
    }
    queue->last = node;
    baton__task_of(schedule)->queued++;
    offload->required +=
        (schedule->ops[node].flags & BATON__OPTIONAL) == 0 ? 1 : 0;
}

/* Puts the node and its event into the stream. */
static baton_status_t queues_put(const baton__context_t *context,
                                 baton_schedule_t *schedule,
                                 baton__queue_t *queue, uint32_t node,
                                 size_t bytes)
{
    baton__offload_t *offload = schedule->offload;
    const baton__device_t *device = offload->device;
    const baton__op_t *op = &schedule->ops[node];
    baton_stream_t stream = baton__queues_stream_of(offload, queue);
    baton_status_t status = queues_follow(schedule, node, queue);
    if (status == BATON_OK) {
        status = issue(op, node, context, device, stream, bytes);
    }
    if (status != BATON_OK) {
        return status;
    }
    queues_append(schedule, queue, node);
    return baton__queues_record(offload, queue);
}

/* Returns BATON_OK if the node's event is done, BATON_AGAIN if it is not. */
static baton_status_t query(const baton__offload_t *offload, uint32_t node)
{
    const baton__device_t *device = offload->device;
    return device->port.query(device->device, offload->events[node]);
}

static bool has_failed(baton_status_t status)
{
    return status != BATON_OK && status != BATON_AGAIN;
}

/* Returns true if a predecessor of the node is still in a stream. If `failed`,
   returns true only if such a predecessor has failed there. */
static bool comes_after_queued(const baton_schedule_t *schedule, uint32_t node,
                               bool failed)
{
    const baton__offload_t *offload = schedule->offload;
    for (uint32_t i = offload->first_pred[node];
         i < offload->first_pred[node + 1]; i++) {
        uint32_t pred = offload->preds[i];
        if (schedule->run.state[pred] == BATON__NODE_QUEUED &&
            (!failed || has_failed(query(offload, pred)))) {
            return true;
        }
    }
    return false;
}

bool baton__queues_issue(baton_schedule_t *schedule, uint32_t node,
                         const baton__context_t *context)
{
    assert(baton__driven_here(schedule->group));
    baton__offload_t *offload = schedule->offload;
    const baton__op_t *op = &schedule->ops[node];
    size_t bytes = baton__run_bytes(&schedule->run, op);
    (void)baton__run_pop(&schedule->run);
    if (!baton__epoch_can_compute(schedule, node, bytes)) {
        return false;
    }
    if (bytes == 0 && op->kind != BATON__DEVICE_CALL &&
        !comes_after_queued(schedule, node, false)) {
        baton__run_complete(&schedule->run, node);
        return true;
    }
    baton__queue_t *queue =
        &offload->queues[baton__offload_queue(schedule, op)];
    baton_status_t status = queues_put(context, schedule, queue, node, bytes);
    /* The node is in the stream, even if its event could not be recorded. */
    if (queue->last == node) {
        baton__queues_list(schedule);
        baton__run_queue(&schedule->run, node);
    }
    if (status != BATON_OK) {
        baton__epoch_fail_at(schedule, node, status);
        return false;
    }
    return true;
}

/* ---- the seal --------------------------------------------------------- */

/* True if a node in the queue has a successor that the CPU executes, or a
   successor in another queue that is known to be done. (The driver queries one
   queue after the other, so it may learn that the successor is done before it
   learns that the node is done.) */
static bool leads_to_host(const baton_schedule_t *schedule,
                          const baton__queue_t *queue)
{
    const baton__plan_t *plan = &schedule->plan;
    for (uint32_t node = queue->first; node != BATON__NO_NODE;
         node = schedule->offload->after[node]) {
        const baton__op_t *op = &schedule->ops[node];
        for (uint32_t i = op->first_successor; i < op[1].first_successor; i++) {
            uint32_t next = plan->successors[i];
            if (!baton__op_offloaded(&schedule->ops[next]) ||
                schedule->run.state[next] == BATON__NODE_COMPLETED) {
                return true;
            }
        }
    }
    return false;
}

/* True if the epoch ends when the streams have done their nodes: all remaining
   nodes are in streams, and none of them has a successor that the CPU
   executes. */
static bool is_all_queued(const baton_schedule_t *schedule)
{
    const uint32_t queued = baton__task_of(schedule)->queued;
    const baton__run_t *run = &schedule->run;
    const baton__offload_t *offload = schedule->offload;
    if (queued == 0 || baton__run_has_ready(run) || run->waited != queued ||
        run->required_left != offload->required ||
        (!run->started && run->plan->on_start_count > 0)) {
        return false;
    }
    for (int i = 0; i < BATON_DEVICE_STREAMS; i++) {
        if (leads_to_host(schedule, &offload->queues[i])) {
            return false;
        }
    }
    return true;
}

/* Has the stream of `joint`, the last queue that has nodes, follow the other
   streams and then raise the flag. The event of the last node in `joint` is
   recorded again after that, so that the flag has been raised when the epoch is
   seen to have ended. */
static baton_status_t seal(baton_schedule_t *schedule,
                           const baton__queue_t *joint)
{
    baton__offload_t *offload = schedule->offload;
    const baton__device_t *device = offload->device;
    baton_stream_t stream = baton__queues_stream_of(offload, joint);
    baton_status_t status = BATON_OK;
    for (const baton__queue_t *queue = offload->queues;
         queue < joint && status == BATON_OK; queue++) {
        if (queue->first != BATON__NO_NODE) {
            status = device->port.follow(device->device, stream,
                                         offload->events[queue->last]);
        }
    }
    if (status == BATON_OK) {
        status = device->port.raise(
            device->device, stream, offload->flag->word,
            atomic_load_explicit(&offload->base, memory_order_relaxed) +
                schedule->run.epoch);
    }
    offload->sealed = status == BATON_OK;
    return status == BATON_OK ? baton__queues_record(offload, joint) : status;
}

void baton__queues_seal_if_due(baton_schedule_t *schedule)
{
    const baton__offload_t *offload = schedule->offload;
    if (!atomic_load_explicit(&offload->awaited, memory_order_relaxed) ||
        offload->sealed || !is_all_queued(schedule)) {
        return;
    }
    const baton__queue_t *joint = &offload->queues[BATON_DEVICE_STREAMS - 1];
    while (joint->first == BATON__NO_NODE) {
        joint--;
    }
    baton_status_t status = seal(schedule, joint);
    if (status != BATON_OK) {
        baton__epoch_fail_at(schedule, joint->last, status);
    }
}

/* ---- starts in the order of a stream ---------------------------------- */

/* Queries whether the user's stream has got to the start. If it has, this
   rank's part in the epoch begins; if the stream has failed, the epoch fails.
   Returns false if neither is so. */
static bool poll_start(baton_schedule_t *schedule)
{
    const baton__offload_t *offload = schedule->offload;
    const baton__device_t *device = offload->device;
    baton_status_t status = device->port.query(
        device->device, offload->starts[schedule->run.epoch % BATON__STARTS]);
    if (status == BATON_AGAIN) {
        return false;
    }
    if (status == BATON_OK) {
        baton__queues_forget_start(schedule);
        baton__epoch_come(schedule);
        baton__stepper_add_runnable(schedule);
        return true;
    }
    baton__epoch_fail_here(
        schedule,
        baton__error(status,
                     "\"%s\" epoch %llu failed on rank %d: the stream that it "
                     "was started on has failed: %s",
                     schedule->name, (unsigned long long)schedule->run.epoch,
                     schedule->group->rank, baton_error_message()));
    return true;
}

/* ---- queued nodes that have ended ------------------------------------- */

/* Removes the oldest node from the queue and completes it. Returns true if that
   has freed the schedule: an abandoned schedule is freed when none of its nodes
   is in motion any more. */
static bool take_done(baton_schedule_t *schedule, baton__queue_t *queue)
{
    baton__offload_t *offload = schedule->offload;
    uint32_t node = queue->first;
    queue->first = offload->after[node];
    if (queue->first == BATON__NO_NODE) {
        queue->last = BATON__NO_NODE;
    }
    baton__task_of(schedule)->queued--;
    offload->required -=
        (schedule->ops[node].flags & BATON__OPTIONAL) == 0 ? 1 : 0;
    if (schedule->run.phase == BATON__RUN_DRAINING) {
        return baton__epoch_end_in_draining(schedule, node);
    }
    baton__run_complete_queued(&schedule->run, node);
    baton__stepper_add_runnable(schedule);
    return false;
}

/* Returns the node that caused a failure that was found at the node `found`. A
   stream that follows a failed stream fails, too, so several queues may have
   failed nodes, some of them only since they were queried. The cause is the
   first failed node of a queue that follows no failed queue. A queue follows
   those in which its nodes have predecessors. The last queue that has nodes may
   follow all others, too; see seal(). */
static uint32_t queues_find_cause(const baton_schedule_t *schedule,
                                  uint32_t found, baton_status_t *status)
{
    const baton__offload_t *offload = schedule->offload;
    for (int i = 0; i < BATON_DEVICE_STREAMS; i++) {
        uint32_t node = offload->queues[i].first;
        baton_status_t now = BATON_OK;
        while (node != BATON__NO_NODE &&
               !has_failed(now = query(offload, node))) {
            node = offload->after[node];
        }
        if (node != BATON__NO_NODE &&
            !comes_after_queued(schedule, node, true)) {
            *status = now;
            return node;
        }
    }
    return found;
}

/* True if the device has done the work of the queue's oldest node. In an epoch
   that has failed, an error of the query counts as done, too: the device will
   report nothing more of this node. In a running epoch such an error fails the
   epoch. */
static bool is_done(baton_schedule_t *schedule, const baton__queue_t *queue)
{
    const baton__offload_t *offload = schedule->offload;
    baton_status_t status = query(offload, queue->first);
    if (has_failed(status) && schedule->run.phase != BATON__RUN_DRAINING) {
        uint32_t cause = queues_find_cause(schedule, queue->first, &status);
        baton__epoch_fail_at(schedule, cause, status);
    }
    return status != BATON_AGAIN;
}

/* Completes the nodes of one queue, the oldest first, as long as the device has
   done their work. Sets *moved to true if it completes any. Returns true if
   that has freed the schedule, as take_done says. */
static bool queues_advance(baton_schedule_t *schedule, baton__queue_t *queue,
                           bool *moved)
{
    while (queue->first != BATON__NO_NODE && is_done(schedule, queue)) {
        *moved = true;
        if (take_done(schedule, queue)) {
            return true;
        }
    }
    return false;
}

/* Calls queues_advance for each of the schedule's queues. Returns true, without
   looking at the remaining queues, if that has freed the schedule. */
static bool poll_queues(baton_schedule_t *schedule, bool *moved)
{
    for (int i = 0; i < BATON_DEVICE_STREAMS; i++) {
        if (baton__task_of(schedule)->queued > 0 &&
            queues_advance(schedule, &schedule->offload->queues[i], moved)) {
            return true;
        }
    }
    return false;
}

bool baton__queues_poll(baton__stepper_t *stepper)
{
    assert(baton__stepper_driven_here(stepper));
    bool moved = false;
    baton_schedule_t *next = stepper->offloads;
    stepper->offloads = NULL;
    while (next != NULL) {
        baton_schedule_t *schedule = next;
        next = schedule->offload->next;
        schedule->offload->listed = false;
        if (schedule->offload->waits) {
            moved |= poll_start(schedule);
        }
        if (!poll_queues(schedule, &moved) &&
            (baton__task_of(schedule)->queued > 0 ||
             schedule->offload->waits)) {
            baton__queues_list(schedule);
        }
    }
    return moved;
}

void baton__queues_forget(const baton_group_t *group,
                          const baton_schedule_t *only)
{
    baton_schedule_t **link = &group->stepper->offloads;
    while (*link != NULL) {
        baton_schedule_t *schedule = *link;
        if (schedule == only || (only == NULL && schedule->group == group)) {
            *link = schedule->offload->next;
            schedule->offload->listed = false;
        } else {
            link = &schedule->offload->next;
        }
    }
}
