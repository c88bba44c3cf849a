/* The life of an epoch on one rank, from top to bottom: it begins, issues its
   nodes, takes what arrives, and retires; or it fails, and retires once nothing
   of it is in motion. See epoch.h. */
#include "progress/epoch.h"

#include "base/error.h"
#include "progress/epoch_parts.h"
#include "progress/queues.h"
#include "sched/offload.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    /* A call that took no longer than this is run by any driver; a longer one
       by a driver that is not expected back at a certain time. */
    QUICK_CALL_NS = 100000
};

/* What the later stages of that life do for the earlier ones. Those that return
   a bool return false when they failed the epoch. */
static baton_message_t *find_early(baton__run_t *run, uint32_t ordinal);
static void activate(baton_schedule_t *schedule, uint32_t node,
                     baton_message_t *message);
static void release_if_activated(baton_schedule_t *schedule);
static bool fire_receive(baton__stepper_t *stepper, baton_schedule_t *schedule,
                         uint32_t node);
static bool hold_send(baton__stepper_t *stepper, baton_schedule_t *schedule,
                      uint32_t node);
static uint32_t first_loan(const baton__plan_t *plan, uint32_t reduce);
static void return_loans(baton_schedule_t *schedule, uint32_t reduce);
static void fail_at(baton__stepper_t *stepper, baton_schedule_t *schedule,
                    uint32_t node, baton_status_t status);
static void fail_stuck(baton__stepper_t *stepper, baton_schedule_t *schedule);
static void fail_if_unsendable(baton__stepper_t *stepper,
                               baton_schedule_t *schedule);
static void fail_if_due(baton__stepper_t *stepper, baton_schedule_t *schedule);
static bool end_in_draining(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, uint32_t node);
static void end_if_drained(baton__stepper_t *stepper,
                           baton_schedule_t *schedule);
static void retire(baton__stepper_t *stepper, baton_schedule_t *schedule);

/* What the functions of nodes are given. */
static baton__context_t context_of(baton_schedule_t *schedule)
{
    return (baton__context_t){
        .transport = schedule->group->transport,
        .endpoint = schedule->group->endpoint,
        .owner = schedule,
        .address = schedule->addresses,
        .activations = schedule->run.activations,
        .asyncs = schedule->run.asyncs,
        .header = {.schedule = schedule->identity,
                   .epoch = schedule->run.epoch,
                   .incarnation = schedule->group->incarnation},
    };
}

/* Changes of the run's state that keep the stepper's count of awaited nodes. */
static void enter(baton__stepper_t *stepper, baton_schedule_t *schedule,
                  uint32_t node, baton__node_state_t state)
{
    uint32_t before = schedule->run.waited;
    baton__run_enter(&schedule->run, node, state);
    stepper->waited += schedule->run.waited - before;
}

static void complete(baton__stepper_t *stepper, baton_schedule_t *schedule,
                     uint32_t node)
{
    uint32_t before = schedule->run.waited;
    baton__run_complete(&schedule->run, node);
    stepper->waited += schedule->run.waited - before;
}

static void skip(baton__stepper_t *stepper, baton_schedule_t *schedule,
                 uint32_t node)
{
    uint32_t before = schedule->run.waited;
    baton__run_skip(&schedule->run, node);
    stepper->waited += schedule->run.waited - before;
}

void baton__epoch_complete(baton__stepper_t *stepper,
                           baton_schedule_t *schedule, uint32_t node)
{
    complete(stepper, schedule, node);
}

void baton__epoch_queue(baton__stepper_t *stepper, baton_schedule_t *schedule,
                        uint32_t node)
{
    uint32_t before = schedule->run.waited;
    baton__run_queue(&schedule->run, node);
    stepper->waited += schedule->run.waited - before;
}

void baton__epoch_complete_queued(baton__stepper_t *stepper,
                                  baton_schedule_t *schedule, uint32_t node)
{
    uint32_t before = schedule->run.waited;
    baton__run_complete_queued(&schedule->run, node);
    stepper->waited += schedule->run.waited - before;
}

/* ---- begin ------------------------------------------------------------- */

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

/* From the call to recover until this rank has joined the recovery, peers
   begin no epoch here any more. */
static bool is_called(const baton_group_t *group)
{
    return group->recovering && !group->came;
}

/* Delivers activations that came early, for the epoch that has just begun. */
static void deliver_activations(baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    for (uint32_t i = 0; i < schedule->plan.armed_count && run->early_count > 0;
         i++) {
        uint32_t node = schedule->plan.armed[i];
        baton_message_t *message =
            find_early(run, schedule->ops[node].message.ordinal);
        if (message != NULL) {
            activate(schedule, node, message);
        }
    }
}

/* True if the running epoch's start, which the application has called, is one
   in the order of a stream. */
static bool waits_for_stream(const baton_schedule_t *schedule)
{
    return schedule->offload != NULL &&
           baton__queues_waits(schedule, schedule->run.epoch);
}

void baton__epoch_begin_if_due(baton__stepper_t *stepper,
                               baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    /* Pairs with the store in baton_schedule_start. */
    uint64_t requested =
        atomic_load_explicit(&schedule->shared.requested, memory_order_acquire);
    if (run->phase == BATON__RUN_IDLE) {
        bool internal = requested > run->epoch;
        bool external =
            !internal && is_activated(run) && !is_called(schedule->group) &&
            run->epoch < atomic_load_explicit(&schedule->shared.limit,
                                              memory_order_acquire);
        if (!internal && !external) {
            return;
        }
        baton__run_begin(run);
        if (internal && waits_for_stream(schedule)) {
            baton__queues_begin(stepper, schedule, false);
        }
        atomic_store_explicit(&schedule->shared.running, true,
                              memory_order_relaxed);
        stepper->running++;
        stepper->awaited_bytes += schedule->plan.awaited_bytes;
        if (stepper->on_begin != NULL) {
            stepper->on_begin(schedule);
        }
        /* baton_schedule_start has checked this; a peer's activation has not.
         */
        if (atomic_load_explicit(&schedule->rebound, memory_order_relaxed)) {
            baton_status_t status = baton__check_rebound(schedule);
            if (status != BATON_OK) {
                baton__epoch_fail_here(stepper, schedule, status);
            }
        }
        if (run->phase == BATON__RUN_RUNNING) {
            deliver_activations(schedule);
        }
    }
    if (run->phase == BATON__RUN_RUNNING) {
        if (requested >= run->epoch && !run->started) {
            if (waits_for_stream(schedule)) {
                baton__queues_begin(stepper, schedule, true);
            } else {
                baton__run_started(run);
            }
        }
        release_if_activated(schedule); /* the limit may have been raised */
        baton__stepper_add_runnable(stepper, schedule);
    } else if (run->phase == BATON__RUN_FAILED && schedule->offload != NULL) {
        /* What was started while it failed will not begin. */
        baton__queues_raise(schedule, requested);
    }
}

/* ---- issue ------------------------------------------------------------- */

/* True if memory is bound to all operands of the node; else fails the epoch. */
static bool has_memory(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       uint32_t node, size_t bytes)
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
            fail_at(stepper, schedule, node, BATON_ERR_INVALID);
            return false;
        }
    }
    return true;
}

/* Fails the epoch if the bytes that a node works on are no whole number of
   elements. */
static bool is_whole(baton__stepper_t *stepper, baton_schedule_t *schedule,
                     uint32_t node, size_t bytes, size_t element)
{
    if (bytes % element == 0) {
        return true;
    }
    (void)baton__error(BATON_ERR_INVALID,
                       "its length is %zu bytes, which are no whole number "
                       "of elements of %zu bytes",
                       bytes, element);
    fail_at(stepper, schedule, node, BATON_ERR_INVALID);
    return false;
}

static size_t element_of(const baton__op_t *op)
{
    return op->kind == BATON__REDUCE
               ? baton_op_element_bytes(op->reduction, (baton_dtype_t)op->dtype)
               : 1;
}

bool baton__epoch_can_compute(baton__stepper_t *stepper,
                              baton_schedule_t *schedule, uint32_t node,
                              size_t bytes)
{
    return is_whole(stepper, schedule, node, bytes,
                    element_of(&schedule->ops[node])) &&
           has_memory(stepper, schedule, node, bytes);
}

/* Takes `bytes` from what this step may still compute and copy. A step that has
   done nothing yet affords anything, such as an element longer than its limit.
 */
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

/* Handles what issuing a node returned; false when it failed the epoch. */
static bool take_outcome(baton__stepper_t *stepper, baton_schedule_t *schedule,
                         uint32_t node, int outcome)
{
    switch (outcome) {
    case BATON_OK:
        complete(stepper, schedule, node);
        return true;
    case BATON_SKIP:
        skip(stepper, schedule, node);
        return true;
    default:
        fail_at(stepper, schedule, node, (baton_status_t)outcome);
        return false;
    }
}

/* Adds to a count that one thread at a time writes. */
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
    if (!has_memory(stepper, schedule, node, bytes)) {
        return false;
    }
    int outcome =
        schedule->group->kinds[op->kind].issue(op, node, context, 0, bytes);
    add(&schedule->shared.sent_messages, 1);
    add(&schedule->shared.sent_bytes, op->kind == BATON__SEND ? bytes : 0);
    if (outcome == BATON__PENDING) {
        enter(stepper, schedule, node, BATON__NODE_MOVING);
        schedule->turn.moving++;
        return true;
    }
    return take_outcome(stepper, schedule, node, outcome);
}

/* The part of a lent message from `begin` on, for an operand; NULL: it could
   not be read. */
static const char *part_of(const baton_group_t *group,
                           const baton_message_t *message, int operand,
                           size_t begin, size_t bytes, baton_status_t *status)
{
    if (message->data != NULL) {
        return (const char *)message->data + begin;
    }
    char *part = group->parts + (size_t)operand * BATON__PART_BYTES;
    *status =
        group->transport->read(group->endpoint, message, begin, bytes, part);
    return *status == BATON_OK ? part : NULL;
}

/* Reduces a part of what was lent; false when that failed the epoch. */
static bool issue_borrower(baton__stepper_t *stepper,
                           baton_schedule_t *schedule, uint32_t node,
                           const baton__context_t *context, size_t begin,
                           size_t bytes)
{
    const baton__op_t *op = &schedule->ops[node];
    const baton__plan_t *plan = &schedule->plan;
    baton__context_t borrowing = *context;
    baton_status_t status = BATON_OK;
    for (uint32_t i = first_loan(plan, node);
         status == BATON_OK && i < plan->loan_count &&
         plan->loans[i].reduce == node;
         i++) {
        const baton_message_t *message = schedule->run.lent[i];
        int operand = plan->loans[i].operand;
        if (message != NULL) {
            borrowing.lent[operand] = part_of(schedule->group, message, operand,
                                              begin, bytes, &status);
        }
    }
    if (status != BATON_OK) {
        fail_at(stepper, schedule, node, status);
        return false;
    }
    (void)schedule->group->kinds[op->kind].issue(op, node, &borrowing, begin,
                                                 bytes); /* BATON_OK */
    return true;
}

/* Reduces or copies at most a slice of the node. */
static bool compute(baton__stepper_t *stepper, baton_schedule_t *schedule,
                    uint32_t node, const baton__context_t *context)
{
    baton__run_t *run = &schedule->run;
    const baton__op_t *op = &schedule->ops[node];
    baton__issue_fn issue = schedule->group->kinds[op->kind].issue;
    if (issue == NULL) { /* see lib/sim/simulate_graphs.c */
        (void)baton__run_pop(run);
        complete(stepper, schedule, node);
        return true;
    }
    size_t bytes = baton__run_bytes(run, op);
    size_t element = element_of(op);
    if (!is_whole(stepper, schedule, node, bytes, element)) {
        return false;
    }
    bool borrows =
        (op->flags & BATON__BORROWS) != 0 && schedule->run.lent_count > 0;
    size_t done = schedule->turn.slice_done;
    size_t part = bytes - done;
    size_t most = borrows && schedule->group->parts != NULL
                      ? BATON__PART_BYTES
                      : stepper->slice_bytes;
    if (part > most) {
        part = most - most % element;
        part = part > 0 ? part : element;
    }
    if ((done == 0 && !has_memory(stepper, schedule, node, bytes)) ||
        !afford(stepper, part)) {
        return false;
    }
    if (bytes > 0 && borrows) {
        if (!issue_borrower(stepper, schedule, node, context, done, part)) {
            return false;
        }
    } else if (bytes > 0) {
        (void)issue(op, node, context, done, part); /* always BATON_OK */
    }
    if (done + part < bytes) {
        schedule->turn.slice_done = done + part;
        return true;
    }
    schedule->turn.slice_done = 0;
    (void)baton__run_pop(run);
    if (borrows) {
        return_loans(schedule, node);
    }
    complete(stepper, schedule, node);
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

/* True if this driver may run the node's function: one that may take long is
   left to a driver that is not expected back at a certain time. */
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
        enter(stepper, schedule, node, BATON__NODE_BEGUN);
        schedule->turn.begun++;
        stepper->polled += op->async_ops->poll != NULL;
        return true;
    }
    atomic_store_explicit(&async->state,
                          baton__async_state(turn, BATON__ASYNC_IDLE),
                          memory_order_relaxed);
    return take_outcome(stepper, schedule, node, outcome);
}

/* Issues the first ready node. False when the turn is over: the node failed the
   epoch, or has to wait for another step. */
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
        return fire_receive(stepper, schedule, node);
    case BATON__SEND:
    case BATON__ACTIVATE: {
        if ((op->flags & BATON__INTRODUCED) == 0) {
            (void)baton__run_pop(run);
            return hold_send(stepper, schedule, node);
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
    case BATON__DEVICE_CALL:
        return baton__op_offloaded(op)
                   ? baton__queues_issue(stepper, schedule, node, context)
                   : compute(stepper, schedule, node, context);
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

/* Issues up to `nodes` ready nodes, until one ends the turn. */
static void issue_ready(baton__stepper_t *stepper, baton_schedule_t *schedule,
                        uint32_t nodes)
{
    const baton__run_t *run = &schedule->run;
    const baton__context_t context = context_of(schedule);
    if (schedule->turn.held) {
        baton__queues_issue_held(stepper, schedule, &context);
        return;
    }
    while (nodes > 0 && baton__run_has_ready(run) &&
           issue_next(stepper, schedule, &context)) {
        nodes--;
    }
}

void baton__epoch_turn(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       uint32_t nodes)
{
    baton__run_t *run = &schedule->run;
    issue_ready(stepper, schedule, nodes);
    if (run->phase == BATON__RUN_RUNNING && schedule->offload != NULL) {
        baton__queues_end_turn(stepper, schedule);
    }
    if (run->phase != BATON__RUN_RUNNING || schedule->turn.held) {
        return;
    }
    bool through = baton__run_is_through(run);
    bool busy =
        through && stepper->is_busy != NULL && stepper->is_busy(schedule);
    if (baton__run_has_ready(run) || busy) {
        baton__stepper_add_runnable(stepper, schedule);
    } else if (through) {
        retire(stepper, schedule);
    } else if (baton__run_is_stuck(run)) {
        fail_stuck(stepper, schedule);
    } else {
        fail_if_unsendable(stepper, schedule);
    }
}

void baton__epoch_introduce(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, int peer)
{
    const baton__context_t context = context_of(schedule);
    for (uint32_t node = 0; node < schedule->count; node++) {
        baton__op_t *op = &schedule->ops[node];
        if (!baton__op_sends(op) || op->peer != peer ||
            (op->flags & BATON__INTRODUCED) != 0) {
            continue;
        }
        op->flags |= BATON__INTRODUCED;
        if (schedule->run.phase == BATON__RUN_RUNNING &&
            schedule->run.state[node] == BATON__NODE_HELD) {
            enter(stepper, schedule, node, BATON__NODE_IDLE);
            (void)issue_send(stepper, schedule, node, &context);
            baton__stepper_add_runnable(stepper, schedule);
        }
    }
}

/* ---- arrive: messages -------------------------------------------------- */

static void fail_mismatch(baton__stepper_t *stepper, baton_schedule_t *schedule,
                          uint32_t node, size_t bytes)
{
    const baton__op_t *op = &schedule->ops[node];
    bool up_to = op->length != BATON__NO_LENGTH;
    baton__epoch_fail_here(
        stepper, schedule,
        baton__error(BATON_ERR_MISMATCH,
                     "\"%s\" epoch %llu failed on rank %d: %s from rank %d, "
                     "tag %u, expects %s%zu bytes and got %zu: the ranks' "
                     "schedules differ (BATON_VERIFY=1 finds where)",
                     schedule->name, (unsigned long long)schedule->run.epoch,
                     schedule->group->rank, baton__node_name(schedule, node),
                     (int)op->peer, op->message.tag, up_to ? "up to " : "",
                     op->bytes, bytes));
}

/* Below this a copy costs less than a loan (lib/sched/loans.h). */
enum { LEND_BYTES = 1024 };

/* The plan's first loan to a reduce; or where it would be. */
static uint32_t first_loan(const baton__plan_t *plan, uint32_t reduce)
{
    uint32_t low = 0;
    uint32_t high = plan->loan_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->loans[middle].reduce < reduce) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Whether an element fits into the room for parts of messages. */
static bool fits_part(const baton__op_t *reduce)
{
    return baton_op_element_bytes(reduce->reduction,
                                  (baton_dtype_t)reduce->dtype) <=
           BATON__PART_BYTES;
}

/* Lends a receive's message to the reduce behind it, which then reads it where
   it lies. Only if that reduce waits for nothing else: the message's send may
   not end before it is dropped, and the sender might have to end it before it
   does what the reduce still waits for. BATON_DONE: the receive is complete.
   BATON_AGAIN: the message is to be accepted. Or an error. */
static baton_status_t lend(baton_schedule_t *schedule, uint32_t node,
                           baton_message_t *message)
{
    const baton_group_t *group = schedule->group;
    const baton__op_t *op = &schedule->ops[node];
    baton__run_t *run = &schedule->run;
    if (op->message.loan == 0 || message->bytes < LEND_BYTES) {
        return BATON_AGAIN;
    }
    size_t loan = op->message.loan - 1;
    uint32_t reduce = schedule->plan.loans[loan].reduce;
    if (run->left[reduce] != 1) {
        return BATON_AGAIN;
    }
    if (!fits_part(&schedule->ops[reduce])) {
        return BATON_AGAIN;
    }
    baton_status_t status = group->transport->lend(group->endpoint, message);
    if (status == BATON_DONE) {
        run->lent[loan] = message;
        run->lent_count++;
    }
    return status;
}

static void return_loan(baton_schedule_t *schedule, uint32_t loan)
{
    baton_message_t *message = schedule->run.lent[loan];
    if (message != NULL) {
        const baton_group_t *group = schedule->group;
        schedule->run.lent[loan] = NULL;
        schedule->run.lent_count--;
        group->transport->drop(group->endpoint, message);
    }
}

/* The reduce has read what it was lent. */
static void return_loans(baton_schedule_t *schedule, uint32_t reduce)
{
    const baton__plan_t *plan = &schedule->plan;
    for (uint32_t i = first_loan(plan, reduce);
         i < plan->loan_count && plan->loans[i].reduce == reduce; i++) {
        return_loan(schedule, i);
    }
}

static void return_all_loans(baton_schedule_t *schedule)
{
    for (uint32_t i = 0; schedule->run.lent_count > 0; i++) {
        return_loan(schedule, i);
    }
}

/* A waiting receive takes its message; false when that failed the epoch. */
static bool take_message(baton__stepper_t *stepper, baton_schedule_t *schedule,
                         uint32_t node, baton_message_t *message)
{
    const baton_group_t *group = schedule->group;
    const baton__op_t *op = &schedule->ops[node];
    size_t bytes = message->bytes;
    bool up_to = op->length != BATON__NO_LENGTH;
    if (up_to ? bytes > op->bytes : bytes != op->bytes) {
        group->transport->drop(group->endpoint, message);
        fail_mismatch(stepper, schedule, node, bytes);
        return false;
    }
    if (!has_memory(stepper, schedule, node, bytes)) {
        group->transport->drop(group->endpoint, message);
        return false;
    }
    if (up_to) {
        schedule->run.lengths[op->length] = bytes;
    }
    const baton_token_t token = {schedule, node, baton__op_memory(op)};
    char *target = baton__operand(op, BATON__TARGET, schedule->addresses);
    baton_status_t status = lend(schedule, node, message);
    if (status == BATON_AGAIN) {
        status =
            group->transport->accept(group->endpoint, message, token, target);
    }
    switch ((int)status) {
    case BATON_DONE:
        complete(stepper, schedule, node);
        break;
    case BATON_OK:
        enter(stepper, schedule, node, BATON__NODE_MOVING);
        schedule->turn.moving++;
        break;
    case BATON_ERR_CANCELLED:
        break; /* the sender's epoch has failed, and it will tell us */
    default:
        (void)baton__error(status,
                           "the %s transport could not take a message of %zu "
                           "bytes from rank %d: %s",
                           group->transport->name, bytes, (int)op->peer,
                           baton_status_text(status));
        fail_at(stepper, schedule, node, status);
        return false;
    }
    return true;
}

/* Takes the message of the running epoch that arrived before its receive fired;
   NULL if there is none. */
static baton_message_t *find_early(baton__run_t *run, uint32_t ordinal)
{
    baton_message_t **link = &run->early[ordinal];
    baton_message_t *message = *link;
    if (message == NULL || message->header.epoch != run->epoch) {
        return NULL;
    }
    *link = message->next;
    run->early_count--;
    return message;
}

/* Keeps a message that its receive does not wait for yet, in order of epochs.
 */
static void keep_early(baton__run_t *run, uint32_t ordinal,
                       baton_message_t *message)
{
    baton_message_t **link = &run->early[ordinal];
    while (*link != NULL && (*link)->header.epoch <= message->header.epoch) {
        link = &(*link)->next;
    }
    message->next = *link;
    *link = message;
    run->early_count++;
}

/* Drops early messages of epochs up to this one. */
static void drop_up_to(baton_schedule_t *schedule, uint64_t epoch)
{
    baton__run_t *run = &schedule->run;
    const baton_group_t *group = schedule->group;
    for (uint32_t i = 0; i < schedule->plan.receive_count && run->early_count;
         i++) {
        baton_message_t **link = &run->early[i];
        while (*link != NULL && (*link)->header.epoch <= epoch) {
            baton_message_t *message = *link;
            *link = message->next;
            run->early_count--;
            group->transport->drop(group->endpoint, message);
        }
    }
}

void baton__epoch_drop_early(baton_schedule_t *schedule)
{
    drop_up_to(schedule, UINT64_MAX);
}

/* True if a receive that the epoch waits for has a message of a later epoch:
   the peer has ended the running one without its send, on a branch not taken.
 */
static bool is_left_out(const baton_schedule_t *schedule, uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    return (op->flags & BATON__OPTIONAL) == 0 &&
           !schedule->group->transport->unordered &&
           schedule->run.state[node] == BATON__NODE_WAITING &&
           schedule->run.early[op->message.ordinal] != NULL;
}

static void fail_left_out(baton__stepper_t *stepper, baton_schedule_t *schedule,
                          uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    baton__epoch_fail_here(
        stepper, schedule,
        baton__error(
            BATON_ERR_MISMATCH,
            "\"%s\" epoch %llu failed on rank %d: %s waits for a message that "
            "rank %d has not sent: it is in epoch %llu already (is its send "
            "behind a branch that it did not take, and the receive not "
            "optional?)",
            schedule->name, (unsigned long long)schedule->run.epoch,
            schedule->group->rank, baton__node_name(schedule, node),
            (int)op->peer,
            (unsigned long long)schedule->run.early[op->message.ordinal]
                ->header.epoch));
}

static void fail_lost(baton__stepper_t *stepper, baton_schedule_t *schedule,
                      uint32_t node, baton_status_t status, const char *detail)
{
    const baton__op_t *op = &schedule->ops[node];
    (void)baton__error(status, "rank %d is gone: %s", (int)op->peer,
                       detail != NULL ? detail : baton_status_text(status));
    fail_at(stepper, schedule, node, status);
}

/* A receive fires; false when that failed the epoch. */
static bool fire_receive(baton__stepper_t *stepper, baton_schedule_t *schedule,
                         uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    baton_message_t *message = find_early(&schedule->run, op->message.ordinal);
    if (message == NULL &&
        baton__group_has_lost(schedule->group, (int)op->peer)) {
        if ((op->flags & BATON__OPTIONAL) != 0) {
            return true; /* as if the message never came */
        }
        fail_lost(stepper, schedule, node, BATON_ERR_TRANSPORT, NULL);
        return false;
    }
    enter(stepper, schedule, node, BATON__NODE_WAITING);
    if (message != NULL) {
        return take_message(stepper, schedule, node, message);
    }
    if (is_left_out(schedule, node)) {
        fail_left_out(stepper, schedule, node);
        return false;
    }
    return true;
}

/* What waits for this rank's stream need not, once a peer has activated the
   epoch and the limit allows it. */
static void release_if_activated(baton_schedule_t *schedule)
{
    /* Pairs with the store in baton_schedule_limit. */
    if (schedule->run.unarmed > 0 &&
        schedule->run.epoch <= atomic_load_explicit(&schedule->shared.limit,
                                                    memory_order_acquire)) {
        baton__queues_release(schedule);
    }
}

/* An activation counts for its armed receive. */
static void activate(baton_schedule_t *schedule, uint32_t node,
                     baton_message_t *message)
{
    const baton_group_t *group = schedule->group;
    const baton_token_t token = {schedule, node, BATON_MEMORY_HOST};
    baton__activation_t activation = {0};
    if (message->bytes != sizeof activation) {
        group->transport->drop(group->endpoint, message); /* not from Baton */
    } else if (group->transport->accept(group->endpoint, message, token,
                                        &activation) == BATON_DONE) {
        baton__run_activate(&schedule->run, node, activation);
        release_if_activated(schedule);
    } /* else the sender has withdrawn it */
}

/* What comes for an epoch of which all that is left is in streams comes too
   late: a stream of the user may have gone on behind it. */
static bool is_sealed(const baton_schedule_t *schedule)
{
    return schedule->offload != NULL && schedule->offload->sealed;
}

static void deliver_to(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       uint32_t node, baton_message_t *message)
{
    baton__run_t *run = &schedule->run;
    const baton__op_t *op = &schedule->ops[node];
    const baton_group_t *group = schedule->group;
    baton__turn_t turn =
        run->phase == BATON__RUN_RECOVERING
            ? BATON__TURN_LATER
            : baton__run_turn_of(run, node, message->header.epoch);
    if (turn == BATON__TURN_NOW && is_sealed(schedule)) {
        turn = BATON__TURN_PAST;
    }
    switch (turn) {
    case BATON__TURN_PAST:
        group->transport->drop(group->endpoint, message);
        break;
    case BATON__TURN_NOW:
        if (op->kind == BATON__ARMED_RECV) {
            activate(schedule, node, message);
        } else {
            (void)take_message(stepper, schedule, node, message);
        }
        baton__stepper_add_runnable(stepper, schedule);
        break;
    case BATON__TURN_LATER:
        keep_early(run, op->message.ordinal, message);
        if (op->kind == BATON__ARMED_RECV) {
            baton__epoch_begin_if_due(stepper, schedule);
        } else if (run->phase == BATON__RUN_RUNNING &&
                   is_left_out(schedule, node)) {
            fail_left_out(stepper, schedule, node);
        }
        break;
    }
}

void baton__epoch_deliver(baton__stepper_t *stepper, baton_group_t *group,
                          baton_message_t *message)
{
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
            stepper, schedule,
            baton__error(BATON_ERR_MISMATCH,
                         "\"%s\" failed on rank %d: rank %d has sent a message "
                         "with tag %u, and there is no receive for it: the "
                         "ranks' schedules differ (BATON_VERIFY=1 finds where)",
                         schedule->name, group->rank, peer, tag));
        return;
    }
    deliver_to(stepper, schedule, node, message);
}

/* Holds back a send whose peer has not committed the schedule yet; a peer that
   is lost never will. False when that failed the epoch. */
static bool hold_send(baton__stepper_t *stepper, baton_schedule_t *schedule,
                      uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    if (!baton__group_has_lost(schedule->group, (int)op->peer)) {
        enter(stepper, schedule, node, BATON__NODE_HELD);
        return true;
    }
    if ((op->flags & BATON__OPTIONAL) != 0) {
        return true; /* as if it had not fired */
    }
    fail_lost(stepper, schedule, node, BATON_ERR_TRANSPORT, NULL);
    return false;
}

/* ---- arrive: the loss of a peer ---------------------------------------- */

static void lose_in(baton__stepper_t *stepper, baton_schedule_t *schedule,
                    int peer, baton_status_t status, const char *detail)
{
    baton__run_t *run = &schedule->run;
    for (uint32_t node = 0;
         node < schedule->count && run->phase == BATON__RUN_RUNNING; node++) {
        const baton__op_t *op = &schedule->ops[node];
        uint8_t state = run->state[node];
        if (!baton__kinds[op->kind].message || op->peer != peer ||
            (state != BATON__NODE_WAITING && state != BATON__NODE_HELD)) {
            continue;
        }
        if ((op->flags & BATON__OPTIONAL) != 0) {
            enter(stepper, schedule, node, BATON__NODE_IDLE);
        } else {
            fail_lost(stepper, schedule, node, status, detail);
        }
    }
    if (run->phase == BATON__RUN_RUNNING) {
        baton__stepper_add_runnable(stepper, schedule); /* it may be stuck */
    }
}

/* Fails an epoch that waits for nothing but optional receives, while a required
   send to a peer that is lost has not fired: whether it would or not, the epoch
   can't end. */
static void fail_if_unsendable(baton__stepper_t *stepper,
                               baton_schedule_t *schedule)
{
    const baton__run_t *run = &schedule->run;
    const baton_group_t *group = schedule->group;
    if (run->waited > 0 || (!group->all_lost && group->lost_count == 0)) {
        return;
    }
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        if (op->kind == BATON__SEND && (op->flags & BATON__OPTIONAL) == 0 &&
            run->state[node] == BATON__NODE_IDLE &&
            baton__group_has_lost(group, (int)op->peer)) {
            fail_lost(stepper, schedule, node, BATON_ERR_TRANSPORT, NULL);
            return;
        }
    }
}

void baton__epoch_lose_peer(baton__stepper_t *stepper, baton_group_t *group,
                            int peer, baton_status_t status, const char *detail)
{
    baton__group_lose(group, peer);
    for (baton_schedule_t *s = stepper->schedules; s != NULL;
         s = s->notices.next) {
        if (s->group == group) {
            lose_in(stepper, s, peer, status, detail);
        }
    }
}

/* ---- arrive: completions ----------------------------------------------- */

void baton__epoch_complete_transfer(baton__stepper_t *stepper,
                                    const baton_event_t *event)
{
    baton_schedule_t *schedule = event->token.owner;
    uint32_t node = event->token.node;
    schedule->turn.moving--;
    if (schedule->run.phase == BATON__RUN_DRAINING) {
        (void)end_in_draining(stepper, schedule, node);
        return;
    }
    if (event->status == BATON_OK) {
        complete(stepper, schedule, node);
    } else if (event->status == BATON_ERR_CANCELLED &&
               event->kind == BATON_EVENT_RECEIVED) {
        enter(stepper, schedule, node, BATON__NODE_WAITING);
    } else {
        const baton__op_t *op = &schedule->ops[node];
        enter(stepper, schedule, node, BATON__NODE_IDLE);
        (void)baton__error(event->status, "rank %d, tag %u, %zu bytes: %s",
                           (int)op->peer, op->message.tag, op->bytes,
                           event->detail != NULL
                               ? event->detail
                               : baton_status_text(event->status));
        fail_at(stepper, schedule, node, event->status);
        return;
    }
    baton__stepper_add_runnable(stepper, schedule);
}

/* An async node has completed, with success or not. */
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
        (void)end_in_draining(stepper, schedule, node);
        return;
    }
    enter(stepper, schedule, node, BATON__NODE_IDLE);
    if (status != BATON_OK && status != BATON_SKIP) {
        const int completed = status;
        status = baton__failure_of(completed);
        (void)baton__error((baton_status_t)status, "it completed with %d, %s",
                           completed,
                           baton_status_name((baton_status_t)status));
    }
    (void)take_outcome(stepper, schedule, node, status);
    baton__stepper_add_runnable(stepper, schedule);
}

/* True if an async node that was begun has not been completed elsewhere. */
static bool is_open(const baton_schedule_t *schedule, uint32_t node)
{
    const baton__async_t *async =
        &schedule->run.asyncs[schedule->ops[node].async.ordinal];
    return baton__async_what(atomic_load_explicit(
               &async->state, memory_order_relaxed)) == BATON__ASYNC_BEGUN;
}

void baton__epoch_collect_asyncs(baton__stepper_t *stepper,
                                 baton_schedule_t *schedule)
{
    /* The schedule may be freed with its last async node. */
    uint32_t left = schedule->turn.begun;
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

bool baton__epoch_poll_asyncs(baton__stepper_t *stepper,
                              baton_schedule_t *schedule)
{
    bool moved = false;
    for (uint32_t i = 0; i < schedule->plan.async_count; i++) {
        uint32_t node = schedule->plan.asyncs[i];
        const baton__op_t *op = &schedule->ops[node];
        if (schedule->run.state[node] != BATON__NODE_BEGUN ||
            op->async_ops->poll == NULL || !is_open(schedule, node)) {
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

/* ---- fail -------------------------------------------------------------- */

/* Guards the failures of all schedules, which their drivers write and any
   thread reads. */
static pthread_mutex_t failure_lock = PTHREAD_MUTEX_INITIALIZER;

static void set_failure(baton_schedule_t *schedule,
                        const baton__failure_t *failure, const char *message)
{
    (void)pthread_mutex_lock(&failure_lock);
    schedule->failure = *failure;
    if (message != schedule->sentence) {
        (void)snprintf(schedule->sentence, sizeof schedule->sentence, "%s",
                       message);
    }
    (void)pthread_mutex_unlock(&failure_lock);
}

/* Issues nothing more. Takes back what the transport has not begun to move; the
   rest stays in motion until it ends. What was lent is given back: from the end
   of the epoch on its sender may free it. */
static void stop(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    const baton_group_t *group = schedule->group;
    schedule->run.head = schedule->run.tail;
    schedule->turn.slice_done = 0;
    return_all_loans(schedule);
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        const baton_token_t token = {schedule, node, baton__op_memory(op)};
        switch ((baton__node_state_t)schedule->run.state[node]) {
        case BATON__NODE_HELD:
        case BATON__NODE_WAITING:
            enter(stepper, schedule, node, BATON__NODE_IDLE);
            break;
        case BATON__NODE_MOVING:
            if (baton__op_sends(op) &&
                group->transport->withdraw(group->endpoint, token)) {
                enter(stepper, schedule, node, BATON__NODE_IDLE);
                schedule->turn.moving--;
            }
            break;
        case BATON__NODE_BEGUN:
            if (op->async_ops->cancel != NULL && is_open(schedule, node)) {
                op->async_ops->cancel(op->async.argument);
            }
            break;
        case BATON__NODE_QUEUED: /* until the device has done it */
        case BATON__NODE_IDLE:
        case BATON__NODE_SKIPPED:
        case BATON__NODE_COMPLETED:
            break;
        }
    }
    if (schedule->offload != NULL) {
        baton__queues_stop(schedule);
    }
}

void baton__epoch_fail(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       const baton__failure_t *failure, const char *message)
{
    baton__run_t *run = &schedule->run;
    bool running = run->phase == BATON__RUN_RUNNING;
    if (!running && run->phase != BATON__RUN_IDLE) {
        return;
    }
    set_failure(schedule, failure, message);
    schedule->failing_from = running ? run->epoch : run->epoch + 1;
    for (uint32_t i = 0; i < schedule->plan.peer_count; i++) {
        baton__stepper_tell(stepper, schedule, i, BATON__TELL_FAILURE);
    }
    baton__run_set_phase(run, BATON__RUN_DRAINING);
    stepper->draining++;
    if (running) {
        stepper->running--;
        stepper->awaited_bytes -= schedule->plan.awaited_bytes;
        stop(stepper, schedule);
    }
    baton__epoch_drop_early(schedule);
    end_if_drained(stepper, schedule);
}

void baton__epoch_fail_here(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, baton_status_t status)
{
    const baton__run_t *run = &schedule->run;
    const baton__failure_t failure = {.status = status,
                                      .rank = schedule->group->rank,
                                      .epoch = run->phase == BATON__RUN_RUNNING
                                                   ? run->epoch
                                                   : run->epoch + 1};
    baton__epoch_fail(stepper, schedule, &failure, baton_error_message());
}

/* Fails the epoch at a node; this thread's error message says why. */
static void fail_at(baton__stepper_t *stepper, baton_schedule_t *schedule,
                    uint32_t node, baton_status_t status)
{
    baton__epoch_fail_here(
        stepper, schedule,
        baton__error(status, "\"%s\" epoch %llu failed at %s on rank %d: %s",
                     schedule->name, (unsigned long long)schedule->run.epoch,
                     baton__node_name(schedule, node), schedule->group->rank,
                     baton_error_message()));
}

void baton__epoch_fail_at(baton__stepper_t *stepper, baton_schedule_t *schedule,
                          uint32_t node, baton_status_t status)
{
    fail_at(stepper, schedule, node, status);
}

/* The node that skipped the branch that the epoch lacks; BATON__NO_NODE if none
   skipped. */
static uint32_t find_skip(const baton_schedule_t *schedule)
{
    for (uint32_t node = 0; node < schedule->count; node++) {
        if (schedule->run.state[node] == BATON__NODE_SKIPPED) {
            return node;
        }
    }
    return BATON__NO_NODE;
}

static void fail_stuck(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    char memory[BATON__SENTENCE_BYTES];
    baton__text_t text = {memory, sizeof memory, 0};
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
                        ": %s skipped (is what lies behind it optional?)",
                        baton__node_name(schedule, call));
    }
    baton__epoch_fail_here(stepper, schedule,
                           baton__error(BATON_ERR_UNREACHABLE, "%s", memory));
}

void baton__epoch_fail_from(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, uint64_t epoch,
                            const baton__failure_t *failure,
                            const char *message)
{
    baton__run_t *run = &schedule->run;
    if (run->phase == BATON__RUN_RECOVERING && failure->final) {
        set_failure(schedule, failure, message); /* it can't be recovered */
    }
    if (run->phase != BATON__RUN_IDLE && run->phase != BATON__RUN_RUNNING) {
        baton__failure_t same = schedule->failure;
        same.final |= failure->final;
        set_failure(schedule, &same, schedule->sentence);
        return;
    }
    if (run->phase == BATON__RUN_RUNNING && run->epoch >= epoch) {
        baton__epoch_fail(stepper, schedule, failure, message);
        return;
    }
    if (schedule->failing_from == 0 || epoch < schedule->failing_from) {
        set_failure(schedule, failure, message);
        schedule->failing_from = epoch;
    }
    fail_if_due(stepper, schedule);
}

/* Fails the epoch that a peer's failure has named, once this rank gets to it.
 */
static void fail_if_due(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    if (schedule->run.phase == BATON__RUN_IDLE && schedule->failing_from != 0 &&
        schedule->failing_from <= schedule->run.epoch + 1) {
        const baton__failure_t failure = schedule->failure;
        baton__epoch_fail(stepper, schedule, &failure, schedule->sentence);
    }
}

/* ---- retire ------------------------------------------------------------ */

/* The flag reaches the number of the last epoch that has ended: if a failed one
   stays so, or the schedule is abandoned, all that were started have. Else one
   that is started now begins. */
static void raise_flag(const baton_schedule_t *schedule, uint64_t failed,
                       uint64_t retired)
{
    uint64_t requested =
        atomic_load_explicit(&schedule->shared.requested, memory_order_acquire);
    bool all = failed != 0 && (baton__schedule_stays_failed(schedule) ||
                               schedule->turn.abandoned);
    baton__queues_raise(schedule,
                        all && requested > retired ? requested : retired);
}

/* Both stores pair with the loads in baton__epoch_ended(), epochs.c. */
static void publish(baton__stepper_t *stepper, baton_schedule_t *schedule,
                    uint64_t failed, uint64_t retired)
{
    if (failed != 0) {
        atomic_store_explicit(
            &schedule->shared.failures[failed % BATON__FAILURES],
            failed << 8 | (uint8_t)-schedule->failure.status,
            memory_order_relaxed);
        atomic_store_explicit(&schedule->shared.failed, failed,
                              memory_order_release);
    }
    if (schedule->offload != NULL) {
        raise_flag(schedule, failed, retired);
    }
    atomic_store_explicit(&schedule->shared.running, false,
                          memory_order_release);
    atomic_store_explicit(&schedule->shared.retired, retired,
                          memory_order_seq_cst);
    if (stepper->on_end != NULL) {
        stepper->on_end(schedule);
    }
}

static void retire(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    baton__run_retire(&schedule->run);
    stepper->running--;
    stepper->awaited_bytes -= schedule->plan.awaited_bytes;
    if (schedule->offload != NULL) {
        baton__queues_stop(schedule);
    }
    if (schedule->run.early_count > 0) {
        drop_up_to(schedule, schedule->run.epoch);
    }
    publish(stepper, schedule, 0, schedule->run.epoch);
    fail_if_due(stepper, schedule);
    baton__epoch_begin_if_due(stepper, schedule);
}

/* Epochs that were started on streams behind one that has failed fail with it.
   Returns the last one. */
static uint64_t fail_started(baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    uint64_t requested =
        atomic_load_explicit(&schedule->shared.requested, memory_order_acquire);
    while (run->epoch < requested) {
        run->epoch++;
        atomic_store_explicit(
            &schedule->shared.failures[run->epoch % BATON__FAILURES],
            run->epoch << 8 | (uint8_t)-schedule->failure.status,
            memory_order_relaxed);
    }
    return run->epoch;
}

/* Ends a failed epoch once nothing of it is in motion: from here on its memory
   is the caller's. */
static void end_if_drained(baton__stepper_t *stepper,
                           baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    if (run->phase != BATON__RUN_DRAINING || schedule->turn.moving > 0 ||
        schedule->turn.begun > 0 || schedule->turn.queued > 0) {
        return;
    }
    stepper->draining--;
    uint64_t failed = schedule->failing_from;
    uint64_t retired =
        atomic_load_explicit(&schedule->shared.retired, memory_order_relaxed);
    if (baton__schedule_stays_failed(schedule)) {
        baton__run_set_phase(run, BATON__RUN_FAILED);
    } else {
        baton__run_set_phase(run, BATON__RUN_IDLE);
        schedule->failing_from = 0;
        if (schedule->offload != NULL) {
            atomic_store_explicit(
                &schedule->shared.failures[failed % BATON__FAILURES],
                failed << 8 | (uint8_t)-schedule->failure.status,
                memory_order_relaxed);
            failed = fail_started(schedule);
        }
        retired = run->epoch;
    }
    publish(stepper, schedule, failed, retired);
}

/* A node of a failed epoch is no longer in motion. */
static bool end_in_draining(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, uint32_t node)
{
    if (!schedule->turn.abandoned) {
        enter(stepper, schedule, node, BATON__NODE_IDLE);
        end_if_drained(stepper, schedule);
    } else if (schedule->turn.moving == 0 && schedule->turn.begun == 0 &&
               schedule->turn.queued == 0) {
        baton__schedule_free(schedule);
        return true;
    }
    return false;
}

bool baton__epoch_end_in_draining(baton__stepper_t *stepper,
                                  baton_schedule_t *schedule, uint32_t node)
{
    return end_in_draining(stepper, schedule, node);
}

void baton__epoch_abandon(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    schedule->turn.abandoned = true;
    stepper->waited -= schedule->run.waited;
    for (uint32_t i = 0; i < schedule->plan.async_count; i++) {
        uint32_t node = schedule->plan.asyncs[i];
        /* These are polled no more; they are never freed. */
        stepper->polled -= schedule->run.state[node] == BATON__NODE_BEGUN &&
                           schedule->ops[node].async_ops->poll != NULL;
    }
    publish(
        stepper, schedule, schedule->failing_from,
        atomic_load_explicit(&schedule->shared.retired, memory_order_relaxed));
}

/* ---- what other threads ask -------------------------------------------- */

baton__failure_t baton__epoch_failure(const baton_schedule_t *schedule,
                                      char *sentence_out, size_t bytes)
{
    (void)pthread_mutex_lock(&failure_lock);
    const baton__failure_t failure = schedule->failure;
    (void)snprintf(sentence_out, bytes, "%s", schedule->sentence);
    (void)pthread_mutex_unlock(&failure_lock);
    return failure;
}

void baton__epoch_forget_failure(baton_schedule_t *schedule)
{
    uint64_t retired =
        atomic_load_explicit(&schedule->shared.retired, memory_order_relaxed);
    uint64_t requested =
        atomic_load_explicit(&schedule->shared.requested, memory_order_relaxed);
    uint64_t failed =
        atomic_load_explicit(&schedule->shared.failed, memory_order_relaxed);
    if (failed != 0 && failed == retired) {
        retired--; /* of a schedule that does not stay failed */
    }
    (void)pthread_mutex_lock(&failure_lock);
    schedule->shared.last_retired = retired;
    schedule->shared.last_status = schedule->failure.status != BATON_OK
                                       ? schedule->failure.status
                                       : BATON_ERR_CANCELLED;
    if (requested > retired &&
        atomic_exchange_explicit(&schedule->shared.reported, 0,
                                 memory_order_relaxed) != requested) {
        atomic_store_explicit(&schedule->shared.unreported,
                              schedule->shared.last_status,
                              memory_order_relaxed);
    }
    schedule->failure = (baton__failure_t){0};
    schedule->sentence[0] = '\0';
    (void)pthread_mutex_unlock(&failure_lock);
    /* Before epochs are numbered anew: see outcome_of(), epochs.c. */
    atomic_fetch_add_explicit(&schedule->shared.generation, 1,
                              memory_order_seq_cst);
}

static baton_status_t fail_recovered(const baton_schedule_t *schedule,
                                     baton_status_t status)
{
    return baton__error(status,
                        "\"%s\": the epoch that was started last has failed, "
                        "and its group was recovered since: %s",
                        schedule->name, baton_status_text(status));
}

baton_status_t baton__epoch_unreported(const baton_schedule_t *schedule)
{
    baton_status_t status = (baton_status_t)atomic_load_explicit(
        &schedule->shared.unreported, memory_order_relaxed);
    return status == BATON_OK ? BATON_OK : fail_recovered(schedule, status);
}

baton_status_t baton__epoch_past_outcome(const baton_schedule_t *schedule,
                                         uint64_t epoch)
{
    (void)pthread_mutex_lock(&failure_lock);
    bool completed = epoch <= schedule->shared.last_retired;
    baton_status_t status = schedule->shared.last_status;
    (void)pthread_mutex_unlock(&failure_lock);
    return completed ? BATON_OK : fail_recovered(schedule, status);
}
