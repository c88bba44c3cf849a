/* How an epoch issues its nodes, step by step, and retires when all that it
   waits for has completed. If a node fails, or no node can fire any more,
   the epoch fails; see epoch_fail.c. */
#include "progress/epoch/epoch.h"

#include "base/error.h"
#include "progress/epoch/arrivals.h"
#include "progress/epoch/epoch_parts.h"
#include "progress/epoch/queues.h"
#include "progress/state/traced.h"

enum {
    /* A call node whose last call took no longer than this is run by any
       driver, a longer one only by a driver that need not return soon. */
    QUICK_CALL_NS = 100000
};

/* Returns the arguments that the functions of all kinds of nodes get. */
static baton__context_t context_of(baton_schedule_t *schedule)
{
    return (baton__context_t){
        .transport = schedule->group->transport,
        .endpoint = schedule->group->endpoint,
        .owner = schedule,
        .address = schedule->addresses,
        .activations = schedule->run.activations,
        .asyncs = schedule->run.asyncs,
        .flip = schedule->plan.flip,
        .header = {.schedule = baton__task_of(schedule)->identity,
                   .epoch = schedule->run.epoch,
                   .incarnation = schedule->group->incarnation}};
}

/* ---- issue --------------------------------------------------------------- */

/* Subtracts `bytes` from the bytes that this step may still compute and copy.
   False if fewer are left. A step of full size that has done nothing yet
   affords any number, since an element may be longer than a step's limit. */
static bool afford(baton__stepper_t *stepper, size_t bytes)
{
    if (bytes > stepper->bytes_left &&
        stepper->bytes_left < BATON__STEP_BYTES) {
        return false;
    }
    if (stepper->bytes_left != SIZE_MAX) {
        stepper->bytes_left -=
            bytes < stepper->bytes_left ? bytes : stepper->bytes_left;
    }
    return true;
}

bool baton__epoch_take_result(baton_schedule_t *schedule, uint32_t node,
                              int result)
{
    assert(baton__driven_here(schedule->group));
    switch (result) {
    case BATON_OK:
        baton__run_complete(&schedule->run, node);
        return true;
    case BATON_SKIP:
        baton__run_skip(&schedule->run, node);
        return true;
    default:
        baton__epoch_fail_at(schedule, node, (baton_status_t)result);
        return false;
    }
}

/* Adds to a count that one thread at a time writes. */
static void epoch_issue_add(_Atomic uint64_t *count, uint64_t more)
{
    uint64_t before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before + more, memory_order_relaxed);
}

static bool issue_send(baton_schedule_t *schedule, uint32_t node,
                       const baton__context_t *context)
{
    baton__task_t *task = baton__task_of(schedule);
    baton__run_t *run = &schedule->run;
    const baton__op_t *op = &schedule->ops[node];
    size_t bytes =
        op->kind == BATON__SEND ? baton__run_bytes(run, op) : op->bytes;
    if (!baton__epoch_has_memory(schedule, node, bytes)) {
        return false;
    }
    BATON__TRACED(message, schedule, BATON_TRACE_SEND, node, bytes);
    int result =
        schedule->group->kinds[op->kind].issue(op, node, context, 0, bytes);
    epoch_issue_add(&task->sent_messages, 1);
    epoch_issue_add(&task->sent_bytes, op->kind == BATON__SEND ? bytes : 0);
    if (result == BATON_OK) {
        baton__run_complete(run, node);
    } else if (result == BATON__PENDING) {
        baton__run_enter(run, node, BATON__NODE_MOVING);
        task->moving++;
    } else {
        baton__epoch_fail_message(schedule, node, (baton_status_t)result, NULL);
    }
    return run->phase == BATON__RUN_RUNNING;
}

/* If a lent operand is in the memory of another process, a part of it is first
   read into memory of this process. Returns the address for that part: in the
   target itself if the reduction does not need the target's old content,
   otherwise in the group's memory for parts. */
static char *part_address(const baton_group_t *group, const baton__op_t *op,
                          const baton__context_t *borrowing, int operand,
                          size_t begin)
{
    int other = BATON__LEFT + BATON__RIGHT - operand;
    char *target = baton__operand(op, BATON__TARGET, borrowing->address);
    return borrowing->lent[other] == NULL &&
                   baton__operand(op, other, borrowing->address) != target
               ? target + begin
               : group->parts + (size_t)operand * BATON__PART_BYTES;
}

/* Reduces a part of operands that are lent messages. False if that failed the
   epoch, or if the reduce has to wait because a message can't be read in place
   any more and is being received (baton__epoch_receive_lent). */
static bool issue_borrower(baton_schedule_t *schedule, uint32_t node,
                           const baton__context_t *context, size_t begin,
                           size_t bytes)
{
    const baton__op_t *op = &schedule->ops[node];
    const baton_group_t *group = schedule->group;
    const baton__plan_t *plan = &schedule->plan;
    baton__context_t borrowing = *context;
    baton_status_t status = BATON_OK;
    for (uint32_t i = baton__epoch_first_loan(plan, node);
         status == BATON_OK && i < plan->loan_count &&
         plan->loans[i].reduce == node;
         i++) {
        const baton_message_t *message = schedule->run.lent[i];
        int operand = plan->loans[i].operand;
        if (message != NULL) {
            char *part = NULL;
            if (message->data == NULL) {
                part = part_address(group, op, &borrowing, operand, begin);
                status = group->transport->read(group->endpoint, message, begin,
                                                bytes, part);
            }
            if (status == BATON_AGAIN) {
                status = baton__epoch_receive_lent(schedule, i);
                if (status == BATON_OK) {
                    return false;
                }
            }
            borrowing.lent[operand] =
                part != NULL ? part : (const char *)message->data + begin;
        }
    }
    if (status != BATON_OK) {
        baton__epoch_fail_at(schedule, node, status);
        return false;
    }
    (void)schedule->group->kinds[op->kind].issue(op, node, &borrowing, begin,
                                                 bytes); /* always BATON_OK */
    return true;
}

/* Called when all data of the node's lent operands has been read. Fails the
   epoch and returns false if the sender of a message may have changed its data
   before they were read. */
static bool borrowed_well(baton_schedule_t *schedule, uint32_t node)
{
    const baton_group_t *group = schedule->group;
    const baton__plan_t *plan = &schedule->plan;
    baton_status_t status = BATON_OK;
    for (uint32_t i = baton__epoch_first_loan(plan, node);
         status == BATON_OK && group->transport->read != NULL &&
         i < plan->loan_count && plan->loans[i].reduce == node;
         i++) {
        const baton_message_t *message = schedule->run.lent[i];
        char none;
        status = message == NULL
                     ? BATON_OK
                     : group->transport->read(group->endpoint, message,
                                              message->bytes, 0, &none);
    }
    if (status != BATON_OK) {
        baton__epoch_fail_at(schedule, node, status);
    }
    return status == BATON_OK;
}

/* Reduces or copies at most a slice of the node. */
static bool compute(baton_schedule_t *schedule, uint32_t node,
                    const baton__context_t *context)
{
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__task_t *task = baton__task_of(schedule);
    baton__run_t *run = &schedule->run;
    const baton__op_t *op = &schedule->ops[node];
    baton__issue_fn issue = schedule->group->kinds[op->kind].issue;
    /* In a simulation this kind of node may have no function; see
       lib/sim/create.c. */
    if (issue == NULL) {
        (void)baton__run_pop(run);
        baton__run_complete(&schedule->run, node);
        return true;
    }
    size_t bytes = baton__run_bytes(run, op);
    size_t element = baton__epoch_element_of(op);
    if (!baton__epoch_is_whole(schedule, node, bytes, element)) {
        return false;
    }
    bool borrows =
        (op->flags & BATON__BORROWS) != 0 && schedule->run.lent_count > 0;
    size_t done = task->slice_done;
    size_t part = bytes - done;
    size_t most = borrows && schedule->group->parts != NULL
                      ? BATON__PART_BYTES
                      : stepper->slice_bytes;
    if (part > most) {
        part = most - most % element;
        part = part > 0 ? part : element;
    }
    if ((done == 0 && !baton__epoch_has_memory(schedule, node, bytes)) ||
        !afford(stepper, part)) {
        return false;
    }
    const uint64_t began_ns =
        part >= BATON__TRACED_BYTES ? baton__traced_begin_work(schedule) : 0;
    if (bytes > 0 && borrows) {
        if (!issue_borrower(schedule, node, context, done, part)) {
            return false;
        }
    } else if (bytes > 0) {
        /* The result is always BATON_OK. */
        (void)issue(op, node, context, done, part);
    }
    BATON__TRACED(work, schedule, node, began_ns);
    if (done + part < bytes) {
        task->slice_done = done + part;
        run->progress_count++;
        return true;
    }
    if (borrows && !borrowed_well(schedule, node)) {
        return false;
    }
    task->slice_done = 0;
    (void)baton__run_pop(run);
    if (borrows) {
        baton__epoch_return_loans(schedule, node);
    }
    baton__run_complete(&schedule->run, node);
    return true;
}

static int run_function(baton_schedule_t *schedule, uint32_t node,
                        const baton__context_t *context)
{
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__op_t *op = &schedule->ops[node];
    baton__issue_fn issue = schedule->group->kinds[op->kind].issue;
    bool timed = stepper->hooks->clock_ns != NULL &&
                 (stepper->leaves_calls || (op->flags & BATON__QUICK) == 0);
    uint64_t began = timed ? stepper->hooks->clock_ns() : 0;
    const uint64_t began_ns = baton__traced_begin_work(schedule);
    if ((op->flags & BATON__QUICK) == 0) {
        baton__stepper_flush(stepper);
    }
    int result =
        issue == NULL ? BATON_OK : issue(op, node, context, 0, op->bytes);
    BATON__TRACED(work, schedule, node, began_ns);
    if (timed) {
        bool quick = stepper->hooks->clock_ns() - began <= QUICK_CALL_NS;
        op->flags = (uint16_t)(quick ? op->flags | BATON__QUICK
                                     : op->flags & ~BATON__QUICK);
    }
    return result;
}

/* Returns true if this thread may run the node's function now. A thread that
   must return soon (stepper.leaves_calls) leaves a function that may take long
   to another thread. */
static bool may_call(baton__stepper_t *stepper, const baton__op_t *op)
{
    bool may = !stepper->leaves_calls || (op->flags & BATON__QUICK) != 0;
    stepper->left_calls |= !may;
    return may;
}

static bool begin_async(baton_schedule_t *schedule, uint32_t node,
                        const baton__context_t *context)
{
    const baton__op_t *op = &schedule->ops[node];
    baton__async_t *async = &schedule->run.asyncs[op->async.ordinal];
    uint64_t generation = 1 + baton__async_generation(atomic_load_explicit(
                                  &async->state, memory_order_relaxed));
    /* Pairs with the exchange in baton_async_complete, which may be called
       before the node's start function has returned. */
    atomic_store_explicit(&async->state,
                          baton__async_state(generation, BATON__ASYNC_BEGUN),
                          memory_order_release);
    int result = run_function(schedule, node, context);
    if (result == BATON__PENDING) {
        baton__run_enter(&schedule->run, node, BATON__NODE_BEGUN);
        baton__task_of(schedule)->begun++;
        schedule->group->stepper->polled += op->async_ops->poll != NULL;
        return true;
    }
    atomic_store_explicit(&async->state,
                          baton__async_state(generation, BATON__ASYNC_IDLE),
                          memory_order_relaxed);
    return baton__epoch_take_result(schedule, node, result);
}

/* Issues the first ready node. False if the node failed the epoch, or has to
   wait for another step. */
static bool issue_next(baton_schedule_t *schedule,
                       const baton__context_t *context)
{
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__run_t *run = &schedule->run;
    uint32_t node = run->ready[run->head];
    const baton__op_t *op = &schedule->ops[node];
    switch ((baton__kind_t)op->kind) {
    case BATON__NOP:
    case BATON__ON_START:
        (void)baton__run_pop(run);
        baton__run_complete(run, node);
        return true;
    case BATON__RECV:
        (void)baton__run_pop(run);
        return baton__epoch_fire_receive(schedule, node);
    case BATON__SEND:
    case BATON__ACTIVATE: {
        if ((op->flags & BATON__INTRODUCED) == 0) {
            (void)baton__run_pop(run);
            return baton__epoch_hold_send(schedule, node);
        }
        size_t copied = baton__run_bytes(run, op);
        if (!afford(stepper,
                    copied <= context->transport->copy_bytes ? copied : 0)) {
            return false;
        }
        (void)baton__run_pop(run);
        return issue_send(schedule, node, context);
    }
    case BATON__REDUCE:
    case BATON__COPY:
    case BATON__DEVICE_CALL:
        return baton__op_offloaded(op)
                   ? baton__queues_issue(schedule, node, context)
                   : compute(schedule, node, context);
    case BATON__CALL:
    case BATON__ASYNC:
        if (!may_call(stepper, op)) {
            return false;
        }
        (void)baton__run_pop(run);
        return op->kind == BATON__ASYNC
                   ? begin_async(schedule, node, context)
                   : baton__epoch_take_result(
                         schedule, node, run_function(schedule, node, context));
    case BATON__ARMED_RECV: /* an armed receive is never ready */
    case BATON__KIND_COUNT:
        break;
    }
    return false;
}

/* Issues up to `nodes` ready nodes, or fewer if one of them has to wait. */
static void issue_ready(baton_schedule_t *schedule, uint32_t nodes)
{
    const baton__task_t *task = baton__task_of(schedule);
    const baton__run_t *run = &schedule->run;
    const baton__context_t context = context_of(schedule);
    while (nodes > 0 && !task->held && task->unlent == 0 &&
           baton__run_has_ready(run) && issue_next(schedule, &context)) {
        nodes--;
    }
}

void baton__epoch_introduce(baton_schedule_t *schedule, uint32_t index)
{
    assert(baton__driven_here(schedule->group));
    const int peer = (int)schedule->plan.peers[index];
    const baton__context_t context = context_of(schedule);
    baton__stepper_meet(baton__task_of(schedule), index, BATON__MET);
    for (uint32_t node = 0; node < schedule->count; node++) {
        baton__op_t *op = &schedule->ops[node];
        if (!baton__op_sends(op) || baton__peer_of(schedule, op) != peer ||
            (op->flags & BATON__INTRODUCED) != 0) {
            continue;
        }
        op->flags |= BATON__INTRODUCED;
        if (schedule->run.phase == BATON__RUN_RUNNING &&
            schedule->run.state[node] == BATON__NODE_HELD) {
            baton__run_enter(&schedule->run, node, BATON__NODE_IDLE);
            (void)issue_send(schedule, node, &context);
            baton__stepper_add_runnable(schedule);
        }
    }
}

/* ---- a step, and the end ------------------------------------------------- */

/* Returns a node that has returned BATON_SKIP, for an error message, or
   BATON__NO_NODE. An epoch may be unable to end because it lacks the branch
   after that node. */
static uint32_t find_skip(const baton_schedule_t *schedule)
{
    for (uint32_t node = 0; node < schedule->count; node++) {
        if (schedule->run.state[node] == BATON__NODE_SKIPPED) {
            return node;
        }
    }
    return BATON__NO_NODE;
}

static void fail_stuck(baton_schedule_t *schedule)
{
    baton__text_t text = BATON__TEXT(BATON__SENTENCE_BYTES);
    uint32_t node = 0;
    while ((schedule->ops[node].flags & BATON__OPTIONAL) != 0 ||
           schedule->run.state[node] != BATON__NODE_IDLE) {
        node++;
    }
    baton__text_add(&text,
                    "\"%s\" epoch %llu can't end on rank %d: %s will not fire",
                    schedule->name, (unsigned long long)schedule->run.epoch,
                    schedule->group->rank, baton__node_name(schedule, node));
    uint32_t call = find_skip(schedule);
    if (call != BATON__NO_NODE) {
        baton__text_add(&text,
                        ": %s skipped (are the nodes after it optional?)",
                        baton__node_name(schedule, call));
    }
    baton__epoch_fail_here(
        schedule, baton__error(BATON_ERR_UNREACHABLE, "%s", text.data));
}

/* Fails an epoch that waits for nothing but optional receives, while a required
   send to a lost peer has not fired: whether or not that send fires, the epoch
   can't end. */
static void fail_if_unsendable(baton_schedule_t *schedule)
{
    const baton__run_t *run = &schedule->run;
    const baton_group_t *group = schedule->group;
    const baton__member_t *member = baton__member_of(group);
    if (run->waited > 0 || !baton__member_has_lost(member)) {
        return;
    }
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        if (op->kind == BATON__SEND && (op->flags & BATON__OPTIONAL) == 0 &&
            run->state[node] == BATON__NODE_IDLE &&
            baton__group_loss(group, baton__peer_of(schedule, op)) != NULL) {
            baton__epoch_fail_lost(schedule, node);
            return;
        }
    }
}

static void retire(baton_schedule_t *schedule)
{
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__task_t *task = baton__task_of(schedule);
    baton__task_set_phase(task, BATON__RUN_IDLE);
    stepper->running--;
    stepper->awaited_bytes -= schedule->plan.awaited_bytes;
    if (schedule->offload != NULL) {
        baton__queues_stop(schedule);
    }
    if (schedule->run.early_count > 0) {
        baton__epoch_drop_up_to(schedule, schedule->run.epoch);
    }
    BATON__TRACED(epoch, schedule, BATON_TRACE_END, BATON_OK);
    baton__epoch_publish(schedule, 0, schedule->run.epoch);
    baton__arrivals_end(task);
    baton__epoch_tell_ended(task, 0);
    baton__epoch_fail_if_due(schedule);
    /* Time may pass before the next start, so the next record must read the
       clock. */
    baton__traced_forget_time(stepper);
    baton__epoch_begin_if_due(schedule);
}

void baton__epoch_advance(baton_schedule_t *schedule, uint32_t nodes)
{
    assert(baton__driven_here(schedule->group));
    baton__stepper_t *stepper = schedule->group->stepper;
    const baton__task_t *task = baton__task_of(schedule);
    const baton__run_t *run = &schedule->run;
    stepper->issuing = schedule;
    issue_ready(schedule, nodes);
    stepper->issuing = NULL;
    if (run->phase == BATON__RUN_RUNNING && schedule->offload != NULL) {
        baton__queues_seal_if_due(schedule);
    }
    if (run->phase == BATON__RUN_IDLE) {
        /* A failed epoch has ended, and the next one may begin. */
        baton__epoch_begin_if_due(schedule);
        return;
    }
    if (run->phase != BATON__RUN_RUNNING || task->held || task->unlent > 0) {
        return;
    }
    bool through = baton__run_is_through(run);
    bool busy = through && stepper->hooks->is_busy != NULL &&
                stepper->hooks->is_busy(schedule);
    if (baton__run_has_ready(run) || busy) {
        baton__stepper_add_runnable(schedule);
    } else if (through) {
        /* The last node may have been a call that cancelled the epoch. */
        if (!baton__epoch_cancel_if_asked(schedule)) {
            retire(schedule);
        }
    } else if (baton__run_is_stuck(run)) {
        fail_stuck(schedule);
    } else {
        fail_if_unsendable(schedule);
    }
}
