/* How an epoch's nodes are issued; see epoch.h. */
#include "progress/epoch_parts.h"
#include "progress/step.h"

#include "base/error.h"

enum {
    /* A call that took no longer than this is run by whoever drives; others by
       drivers that nobody expects back at a certain time. */
    QUICK_CALL_NS = 100000
};

/* Whether memory is bound to what the node works on; fails the epoch where it
   is not. */
bool baton__epoch_has_memory(baton__stepper_t *stepper,
                             baton_schedule_t *schedule, uint32_t node,
                             size_t bytes)
{
    const baton__op_t *op = &schedule->ops[node];
    const baton__kind_info_t *kind = &baton__kinds[op->kind];
    if (bytes == 0 || schedule->group->cost_only) {
        return true;
    }
    for (int i = 0; i < BATON__OPERANDS; i++) {
        if (((kind->reads | kind->writes) >> i & 1) != 0 &&
            schedule->addresses[op->buffer[i]] == NULL) {
            (void)baton__error(BATON_ERR_INVALID,
                               "no memory is bound to buffer %u, of which it "
                               "uses %zu bytes",
                               op->buffer[i], bytes);
            baton__epoch_fail_at(stepper, schedule, node, BATON_ERR_INVALID);
            return false;
        }
    }
    return true;
}

/* Takes `bytes` from what this step may still compute and copy. A whole step's
   worth is enough for anything, such as an element longer than that. */
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

/* What came of issuing a node: false when it failed the epoch. */
static bool take_outcome(baton__stepper_t *stepper, baton_schedule_t *schedule,
                         uint32_t node, int outcome)
{
    switch (outcome) {
    case BATON_OK:
        baton__epoch_complete(stepper, schedule, node);
        return true;
    case BATON_SKIP:
        baton__epoch_skip(stepper, schedule, node);
        return true;
    default:
        baton__epoch_fail_at(stepper, schedule, node, (baton_status_t)outcome);
        return false;
    }
}

/* To a count that one thread at a time writes. */
static void add(_Atomic uint64_t *count, uint64_t more)
{
    uint64_t before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before + more, memory_order_relaxed);
}

static bool issue_send(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       uint32_t node, const baton__context_t *context)
{
    baton__run_t *run = &schedule->run;
    const baton__op_t *op = &schedule->ops[node];
    size_t bytes =
        op->kind == BATON__SEND ? baton__run_bytes(run, op) : op->bytes;
    if (!baton__epoch_has_memory(stepper, schedule, node, bytes)) {
        return false;
    }
    int outcome =
        schedule->group->kinds[op->kind].issue(op, node, context, 0, bytes);
    add(&schedule->shared.sent_messages, 1);
    add(&schedule->shared.sent_bytes, op->kind == BATON__SEND ? bytes : 0);
    if (outcome == BATON__PENDING) {
        baton__epoch_enter(stepper, schedule, node, BATON__NODE_MOVING);
        schedule->turn.moving++;
        return true;
    }
    return take_outcome(stepper, schedule, node, outcome);
}

/* Reduces or copies, at most a slice of it. */
static bool compute(baton__stepper_t *stepper, baton_schedule_t *schedule,
                    uint32_t node, const baton__context_t *context)
{
    baton__run_t *run = &schedule->run;
    const baton__op_t *op = &schedule->ops[node];
    baton__issue_fn issue = schedule->group->kinds[op->kind].issue;
    if (issue == NULL) { /* of a graph without reductions; see verify_judge.c */
        (void)baton__run_pop(run);
        baton__epoch_complete(stepper, schedule, node);
        return true;
    }
    size_t bytes = baton__run_bytes(run, op);
    size_t element =
        op->kind == BATON__REDUCE
            ? baton_op_element_bytes(op->reduction, (baton_dtype_t)op->dtype)
            : 1;
    if (bytes % element != 0) {
        (void)baton__error(BATON_ERR_INVALID,
                           "its length is %zu bytes, which are no whole number "
                           "of elements of %zu bytes",
                           bytes, element);
        baton__epoch_fail_at(stepper, schedule, node, BATON_ERR_INVALID);
        return false;
    }
    size_t done = schedule->turn.slice_done;
    size_t part = bytes - done;
    if (part > stepper->slice_bytes) {
        part = stepper->slice_bytes - stepper->slice_bytes % element;
        part = part > 0 ? part : element;
    }
    if ((done == 0 &&
         !baton__epoch_has_memory(stepper, schedule, node, bytes)) ||
        !afford(stepper, part)) {
        return false;
    }
    if (bytes > 0) {
        (void)issue(op, node, context, done, part); /* always BATON_OK */
    }
    if (done + part < bytes) {
        schedule->turn.slice_done = done + part;
        return true;
    }
    schedule->turn.slice_done = 0;
    (void)baton__run_pop(run);
    baton__epoch_complete(stepper, schedule, node);
    return true;
}

static int run_function(baton__stepper_t *stepper, baton_schedule_t *schedule,
                        uint32_t node, const baton__context_t *context)
{
    baton__op_t *op = &schedule->ops[node];
    baton__issue_fn issue = schedule->group->kinds[op->kind].issue;
    bool timed = stepper->clock_ns != NULL &&
                 (stepper->leaves_calls || (op->flags & BATON__QUICK) == 0);
    uint64_t began = timed ? stepper->clock_ns() : 0;
    int outcome =
        issue == NULL ? BATON_OK : issue(op, node, context, 0, op->bytes);
    if (timed) {
        bool quick = stepper->clock_ns() - began <= QUICK_CALL_NS;
        op->flags = (uint16_t)(quick ? op->flags | BATON__QUICK
                                     : op->flags & ~BATON__QUICK);
    }
    return outcome;
}

/* Whether this driver may run the node's function: one that may take long is
   left to a driver that nobody expects back. */
static bool may_call(baton__stepper_t *stepper, const baton__op_t *op)
{
    bool may = !stepper->leaves_calls || (op->flags & BATON__QUICK) != 0;
    stepper->left_calls |= !may;
    return may;
}

static bool begin_async(baton__stepper_t *stepper, baton_schedule_t *schedule,
                        uint32_t node, const baton__context_t *context)
{
    const baton__op_t *op = &schedule->ops[node];
    baton__async_t *async = &schedule->run.asyncs[op->async.ordinal];
    uint64_t turn = 1 + baton__async_turn(atomic_load_explicit(
                            &async->state, memory_order_relaxed));
    /* Pairs with the exchange in baton_async_complete: it may be called before
       start has returned. */
    atomic_store_explicit(&async->state,
                          baton__async_state(turn, BATON__ASYNC_BEGUN),
                          memory_order_release);
    int outcome = run_function(stepper, schedule, node, context);
    if (outcome == BATON__PENDING) {
        baton__epoch_enter(stepper, schedule, node, BATON__NODE_BEGUN);
        schedule->turn.begun++;
        stepper->polled += op->async_ops->poll != NULL;
        return true;
    }
    atomic_store_explicit(&async->state,
                          baton__async_state(turn, BATON__ASYNC_IDLE),
                          memory_order_relaxed);
    return take_outcome(stepper, schedule, node, outcome);
}

/* Issues the node that is ready first: false when the turn is over, since it
   failed the epoch, or has to wait for another step. */
static bool issue_next(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       const baton__context_t *context)
{
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
        return baton__epoch_fire_receive(stepper, schedule, node);
    case BATON__SEND:
    case BATON__ACTIVATE: {
        if ((op->flags & BATON__INTRODUCED) == 0) {
            (void)baton__run_pop(run);
            return baton__epoch_hold_send(stepper, schedule, node);
        }
        size_t copied = baton__run_bytes(run, op);
        if (!afford(stepper,
                    copied <= context->transport->copy_bytes ? copied : 0)) {
            return false;
        }
        (void)baton__run_pop(run);
        return issue_send(stepper, schedule, node, context);
    }
    case BATON__REDUCE:
    case BATON__COPY:
        return compute(stepper, schedule, node, context);
    case BATON__CALL:
        if (!may_call(stepper, op)) {
            return false;
        }
        (void)baton__run_pop(run);
        return take_outcome(stepper, schedule, node,
                            run_function(stepper, schedule, node, context));
    case BATON__ASYNC:
        if (!may_call(stepper, op)) {
            return false;
        }
        (void)baton__run_pop(run);
        return begin_async(stepper, schedule, node, context);
    case BATON__ARMED_RECV: /* never ready */
    case BATON__KIND_COUNT:
        break;
    }
    return false;
}

void baton__epoch_issue(baton__stepper_t *stepper, baton_schedule_t *schedule,
                        uint32_t nodes)
{
    const baton__run_t *run = &schedule->run;
    const baton__context_t context = baton__epoch_context(schedule);
    while (nodes > 0 && baton__run_has_ready(run) &&
           issue_next(stepper, schedule, &context)) {
        nodes--;
    }
}

void baton__epoch_introduce(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, int peer)
{
    const baton__context_t context = baton__epoch_context(schedule);
    for (uint32_t node = 0; node < schedule->count; node++) {
        baton__op_t *op = &schedule->ops[node];
        if (!baton__op_sends(op) || op->peer != peer ||
            (op->flags & BATON__INTRODUCED) != 0) {
            continue;
        }
        op->flags |= BATON__INTRODUCED;
        if (schedule->run.phase == BATON__RUN_RUNNING &&
            schedule->run.state[node] == BATON__NODE_HELD) {
            baton__epoch_enter(stepper, schedule, node, BATON__NODE_IDLE);
            (void)issue_send(stepper, schedule, node, &context);
            baton__stepper_add_runnable(stepper, schedule);
        }
    }
}

/* ---- async nodes ------------------------------------------------------ */

/* An async node has completed, one way or the other. */
static void end_async(baton__stepper_t *stepper, baton_schedule_t *schedule,
                      uint32_t node, int status)
{
    const baton__op_t *op = &schedule->ops[node];
    baton__async_t *async = &schedule->run.asyncs[op->async.ordinal];
    uint64_t turn = baton__async_turn(
        atomic_load_explicit(&async->state, memory_order_relaxed));
    atomic_store_explicit(&async->state,
                          baton__async_state(turn, BATON__ASYNC_IDLE),
                          memory_order_relaxed);
    schedule->turn.begun--;
    stepper->polled -= op->async_ops->poll != NULL && !schedule->turn.abandoned;
    if (schedule->run.phase == BATON__RUN_DRAINING) {
        baton__epoch_end_draining(stepper, schedule, node);
        return;
    }
    baton__epoch_enter(stepper, schedule, node, BATON__NODE_IDLE);
    if (status != BATON_OK && status != BATON_SKIP) {
        status = status < 0 ? status : BATON_ERR_INVALID;
        (void)baton__error((baton_status_t)status, "it completed with %s",
                           baton_status_name((baton_status_t)status));
    }
    (void)take_outcome(stepper, schedule, node, status);
    baton__stepper_add_runnable(stepper, schedule);
}

void baton__epoch_collect(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    uint32_t left = schedule->turn.begun; /* with the last it may be freed */
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
            end_async(stepper, schedule, node, what - BATON__ASYNC_DONE);
        }
    }
}

bool baton__epoch_ask(baton__stepper_t *stepper, baton_schedule_t *schedule)
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
        end_async(stepper, schedule, node, status);
        moved = true;
    }
    return moved;
}
