/* How an epoch fails: no more nodes are issued, and peers are notified. */
#include "progress/epoch/epoch.h"

#include "base/alloc.h"
#include "base/error.h"
#include "progress/epoch/arrivals.h"
#include "progress/epoch/epoch_parts.h"
#include "progress/epoch/queues.h"
#include "progress/state/traced.h"

#include <stdio.h>

/* ---- fail ---------------------------------------------------------------- */

/* Guards the failures of all schedules, which their drivers write and any
   thread reads. */
static pthread_mutex_t failure_lock = PTHREAD_MUTEX_INITIALIZER;

static void set_failure(baton_schedule_t *schedule,
                        const baton__failure_t *failure, const char *message)
{
    (void)pthread_mutex_lock(&failure_lock);
    baton__task_of(schedule)->failure = *failure;
    baton__sentence_set(&schedule->sentence, message);
    (void)pthread_mutex_unlock(&failure_lock);
}

/* Empties the ready queue, withdraws sends and posted receives that the
   transport has not begun to move, and asks async nodes to cancel. All other
   nodes in motion remain so until they end. Gives lent messages back, since
   their senders may free the data after the epoch's end. */
static void epoch_fail_stop(baton_schedule_t *schedule)
{
    const baton_group_t *group = schedule->group;
    baton__task_t *task = baton__task_of(schedule);
    schedule->run.head = schedule->run.tail;
    task->slice_done = 0;
    task->unlent = 0;
    baton__epoch_return_all_loans(schedule);
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        const baton_token_t token = {.owner = schedule, .node = node};
        switch ((baton__node_state_t)schedule->run.state[node]) {
        case BATON__NODE_WAITING:
            if ((op->flags & BATON__POSTS) != 0 &&
                !group->transport->withdraw_receive(
                    group->endpoint, token, baton__peer_of(schedule, op))) {
                baton__run_enter(&schedule->run, node, BATON__NODE_MOVING);
                task->moving++;
                break;
            }
            baton__run_enter(&schedule->run, node, BATON__NODE_IDLE);
            break;
        case BATON__NODE_HELD:
            baton__run_enter(&schedule->run, node, BATON__NODE_IDLE);
            break;
        case BATON__NODE_MOVING:
            if (baton__op_sends(op) &&
                group->transport->withdraw(group->endpoint, token)) {
                baton__run_enter(&schedule->run, node, BATON__NODE_IDLE);
                task->moving--;
            }
            break;
        case BATON__NODE_BEGUN:
            if (op->async_ops->cancel != NULL &&
                baton__epoch_is_open(schedule, node)) {
                op->async_ops->cancel(op->async.argument);
            }
            break;
        case BATON__NODE_QUEUED: /* stays in motion until the device is done */
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

void baton__epoch_fail(baton_schedule_t *schedule,
                       const baton__failure_t *failure, const char *message)
{
    assert(baton__driven_here(schedule->group));
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__task_t *task = baton__task_of(schedule);
    baton__run_t *run = &schedule->run;
    bool running = run->phase == BATON__RUN_RUNNING;
    if (!running && run->phase != BATON__RUN_IDLE) {
        return;
    }
    set_failure(schedule, failure, message);
    task->failing_from = running ? run->epoch : run->epoch + 1;
    for (uint32_t i = 0; i < schedule->plan.peer_count; i++) {
        if (baton__task_acquaintance(task, i) != BATON__UNMET) {
            baton__stepper_tell(task, i, BATON__TELL_FAILURE);
        }
    }
    baton__task_set_phase(task, BATON__RUN_DRAINING);
    stepper->draining++;
    if (running) {
        stepper->running--;
        stepper->awaited_bytes -= schedule->plan.awaited_bytes;
        baton__arrivals_fail(task);
        if (baton__trace_is_on()) {
            baton__traced_forget_time(stepper);
            baton__traced_epoch(schedule, BATON_TRACE_END, failure->status);
        }
        epoch_fail_stop(schedule);
    }
    baton__epoch_drop_up_to(schedule, UINT64_MAX);
    baton__epoch_end_if_drained(task);
}

void baton__epoch_fail_here(baton_schedule_t *schedule, baton_status_t status)
{
    const baton__run_t *run = &schedule->run;
    const baton__failure_t failure = {.status = status,
                                      .rank = schedule->group->rank,
                                      .epoch = run->phase == BATON__RUN_RUNNING
                                                   ? run->epoch
                                                   : run->epoch + 1};
    baton__epoch_fail(schedule, &failure, baton_error_message());
}

/* Returns the text that names this rank in error messages. These messages are
   sent to other ranks, too. */
static const char *own_text(const baton_group_t *group)
{
    return baton__group_rank_text(group, group->rank);
}

bool baton__epoch_cancel_if_asked(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    _Atomic uint64_t *asked = &baton__task_of(schedule)->cancel;
    if (atomic_load_explicit(asked, memory_order_relaxed) == 0) {
        return false;
    }
    /* Pairs with the store in baton_schedule_cancel. */
    uint64_t cancelled =
        atomic_exchange_explicit(asked, 0, memory_order_acquire);
    if (cancelled < schedule->run.epoch ||
        schedule->run.phase != BATON__RUN_RUNNING) {
        return false;
    }
    baton__text_t text = BATON__TEXT(BATON__SENTENCE_BYTES);
    baton__text_add(&text, "\"%s\" epoch %llu was cancelled on %s",
                    schedule->name, (unsigned long long)schedule->run.epoch,
                    own_text(schedule->group));
    baton__epoch_fail_here(
        schedule, baton__error_forward(BATON_ERR_CANCELLED, text.data));
    return true;
}

void baton__epoch_fail_at(baton_schedule_t *schedule, uint32_t node,
                          baton_status_t status)
{
    baton__epoch_fail_here(
        schedule,
        baton__error(status, "\"%.128s\" epoch %llu failed at %s on %s: %s",
                     schedule->name, (unsigned long long)schedule->run.epoch,
                     baton__node_name(schedule, node),
                     own_text(schedule->group), baton_error_message()));
}

bool baton__epoch_has_memory(baton_schedule_t *schedule, uint32_t node,
                             size_t bytes)
{
    const baton__op_t *op = &schedule->ops[node];
    if (bytes == 0 || schedule->group->cost_only) {
        return true;
    }
    for (int i = 0; i < BATON__OPERANDS; i++) {
        if (baton__op_uses(op, i) &&
            schedule->addresses[op->buffer[i]] == NULL) {
            (void)baton__error(BATON_ERR_INVALID,
                               "no memory is bound to buffer %u, and the node "
                               "uses %zu bytes of it: bind memory with "
                               "baton_buffer_rebind",
                               op->buffer[i], bytes);
            baton__epoch_fail_at(schedule, node, BATON_ERR_INVALID);
            return false;
        }
    }
    return true;
}

bool baton__epoch_is_whole(baton_schedule_t *schedule, uint32_t node,
                           size_t bytes, size_t element)
{
    if (bytes % element == 0) {
        return true;
    }
    (void)baton__error(
        BATON_ERR_INVALID,
        "its length is %zu bytes, not a whole number of elements of %zu bytes",
        bytes, element);
    baton__epoch_fail_at(schedule, node, BATON_ERR_INVALID);
    return false;
}

size_t baton__epoch_element_of(const baton__op_t *op)
{
    return op->kind == BATON__REDUCE
               ? baton_op_element_bytes(op->reduction, (baton_dtype_t)op->dtype)
               : 1;
}

bool baton__epoch_can_compute(baton_schedule_t *schedule, uint32_t node,
                              size_t bytes)
{
    return baton__epoch_is_whole(
               schedule, node, bytes,
               baton__epoch_element_of(&schedule->ops[node])) &&
           baton__epoch_has_memory(schedule, node, bytes);
}

void baton__epoch_fail_recovered(baton_schedule_t *schedule, uint64_t epoch,
                                 const baton__failure_t *failure,
                                 const char *message)
{
    assert(baton__driven_here(schedule->group));
    baton__task_t *task = baton__task_of(schedule);
    if (task->after_recovery == NULL &&
        (task->after_recovery =
             baton__alloc(1, sizeof *task->after_recovery)) == NULL) {
        /* Without memory to record this failure, the schedule can't be
           recovered. */
        baton__failure_t final = *failure;
        final.final = true;
        set_failure(schedule, &final, message);
        return;
    }
    baton__later_failure_t *later = task->after_recovery;
    if (later->failing_from == 0 || epoch < later->failing_from) {
        later->failure = *failure;
        later->failing_from = epoch;
        baton__sentence_set(&later->sentence, message);
    }
}

void baton__epoch_fail_from(baton_schedule_t *schedule, uint64_t epoch,
                            const baton__failure_t *failure,
                            const char *message)
{
    assert(baton__driven_here(schedule->group));
    baton__task_t *task = baton__task_of(schedule);
    baton__run_t *run = &schedule->run;
    if (run->phase == BATON__RUN_RECOVERING && failure->final) {
        /* A schedule can't be recovered from a final failure. */
        set_failure(schedule, failure, message);
    }
    if (run->phase == BATON__RUN_RECOVERING && !failure->final) {
        baton__epoch_fail_recovered(schedule, epoch, failure, message);
    }
    if (run->phase != BATON__RUN_IDLE && run->phase != BATON__RUN_RUNNING) {
        baton__failure_t same = task->failure;
        same.final |= failure->final;
        set_failure(schedule, &same, baton__schedule_sentence(schedule));
        return;
    }
    if (run->phase == BATON__RUN_RUNNING && run->epoch >= epoch) {
        baton__epoch_fail(schedule, failure, message);
        return;
    }
    if (task->failing_from == 0 || epoch < task->failing_from) {
        set_failure(schedule, failure, message);
        task->failing_from = epoch;
    }
    baton__epoch_fail_if_due(schedule);
}

void baton__epoch_fail_if_due(baton_schedule_t *schedule)
{
    const baton__task_t *task = baton__task_of(schedule);
    if (schedule->run.phase == BATON__RUN_IDLE && task->failing_from != 0 &&
        task->failing_from <= schedule->run.epoch + 1) {
        const baton__failure_t failure = task->failure;
        baton__epoch_fail(schedule, &failure,
                          baton__schedule_sentence(schedule));
    }
}

/* ---- the failure, for other threads -------------------------------------- */

baton__failure_t baton__epoch_failure(const baton__task_t *task,
                                      char *sentence_out, size_t bytes)
{
    (void)pthread_mutex_lock(&failure_lock);
    const baton__failure_t failure = task->failure;
    (void)snprintf(sentence_out, bytes, "%s",
                   baton__schedule_sentence(&task->schedule));
    (void)pthread_mutex_unlock(&failure_lock);
    return failure;
}

void baton__epoch_forget_failure(baton__task_t *task)
{
    assert(baton__driven_here(task->schedule.group));
    uint64_t retired = baton__task_retired(task);
    uint64_t requested = baton__task_requested(task);
    uint64_t failed = atomic_load_explicit(&task->failed, memory_order_relaxed);
    if (failed != 0 && failed == retired) {
        retired--; /* the failed epoch has retired, and `retired` counts it */
    }
    (void)pthread_mutex_lock(&failure_lock);
    task->last_retired = retired;
    task->last_status = task->failure.status != BATON_OK ? task->failure.status
                                                         : BATON_ERR_CANCELLED;
    if (requested > retired &&
        atomic_exchange_explicit(&task->reported, 0, memory_order_relaxed) !=
            requested) {
        atomic_store_explicit(&task->unreported, task->last_status,
                              memory_order_relaxed);
    }
    /* The generation changes before the failure is forgotten and the epochs'
       numbers change: a thread that finds no failure any more, or another
       number, also finds another generation; see epochs_outcome_of, epochs.c.
     */
    atomic_fetch_add_explicit(&task->generation, 1, memory_order_seq_cst);
    task->failure = (baton__failure_t){0};
    baton__sentence_set(&task->schedule.sentence, "");
    (void)pthread_mutex_unlock(&failure_lock);
}

static baton_status_t fail_recovered(const baton__task_t *task,
                                     baton_status_t status)
{
    return baton__error(status,
                        "\"%s\": the epoch that was started last has failed, "
                        "and its group was recovered since: %s",
                        task->schedule.name, baton_status_text(status));
}

baton_status_t baton__epoch_unreported(const baton__task_t *task)
{
    baton_status_t status = (baton_status_t)atomic_load_explicit(
        &task->unreported, memory_order_relaxed);
    return status == BATON_OK ? BATON_OK : fail_recovered(task, status);
}

baton_status_t baton__epoch_past_outcome(const baton__task_t *task,
                                         uint64_t epoch)
{
    (void)pthread_mutex_lock(&failure_lock);
    bool completed = epoch <= task->last_retired;
    baton_status_t status = task->last_status;
    (void)pthread_mutex_unlock(&failure_lock);
    return completed ? BATON_OK : fail_recovered(task, status);
}
