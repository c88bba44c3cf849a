/* How an epoch fails; see epoch.h. */
#include "progress/epoch_parts.h"

#include "base/error.h"

#include <pthread.h>
#include <stdio.h>

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

void baton__epoch_forget_failure(baton_schedule_t *schedule)
{
    (void)pthread_mutex_lock(&failure_lock);
    schedule->shared.last_retired =
        atomic_load_explicit(&schedule->shared.retired, memory_order_relaxed);
    schedule->shared.last_status = schedule->failure.status;
    schedule->failure = (baton__failure_t){0};
    schedule->sentence[0] = '\0';
    (void)pthread_mutex_unlock(&failure_lock);
    /* Before the epochs are counted anew: see outcome_of(),
       epochs.c. */
    atomic_fetch_add_explicit(&schedule->shared.generation, 1,
                              memory_order_seq_cst);
}

baton_status_t baton__epoch_past_outcome(const baton_schedule_t *schedule,
                                         uint64_t epoch)
{
    (void)pthread_mutex_lock(&failure_lock);
    bool completed = epoch <= schedule->shared.last_retired;
    baton_status_t status = schedule->shared.last_status;
    (void)pthread_mutex_unlock(&failure_lock);
    if (completed) {
        return BATON_OK;
    }
    status = status != BATON_OK ? status : BATON_ERR_CANCELLED;
    return baton__error(status,
                        "\"%s\" epoch %llu failed, and its group was recovered "
                        "since: %s",
                        schedule->name, (unsigned long long)epoch,
                        baton_status_text(status));
}

baton__failure_t baton__epoch_failure(const baton_schedule_t *schedule,
                                      char *sentence_out, size_t bytes)
{
    (void)pthread_mutex_lock(&failure_lock);
    const baton__failure_t failure = schedule->failure;
    (void)snprintf(sentence_out, bytes, "%s", schedule->sentence);
    (void)pthread_mutex_unlock(&failure_lock);
    return failure;
}

/* Nothing more is issued; what the transport has not begun to move is taken
   back, what it has stays in motion until it ends. */
static void stop(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    const baton_group_t *group = schedule->group;
    schedule->run.head = schedule->run.tail;
    schedule->turn.slice_done = 0;
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        const baton_token_t token = {schedule, node};
        switch ((baton__node_state_t)schedule->run.state[node]) {
        case BATON__NODE_HELD:
        case BATON__NODE_WAITING:
            baton__epoch_enter(stepper, schedule, node, BATON__NODE_IDLE);
            break;
        case BATON__NODE_MOVING:
            if (baton__op_sends(op) &&
                group->transport->withdraw(group->endpoint, token)) {
                baton__epoch_enter(stepper, schedule, node, BATON__NODE_IDLE);
                schedule->turn.moving--;
            }
            break;
        case BATON__NODE_BEGUN:
            if (op->async_ops->cancel != NULL &&
                baton__epoch_is_open(schedule, node)) {
                op->async_ops->cancel(op->async.argument);
            }
            break;
        case BATON__NODE_IDLE:
        case BATON__NODE_SKIPPED:
        case BATON__NODE_COMPLETED:
            break;
        }
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
        stop(stepper, schedule);
    }
    baton__epoch_drop_early(schedule);
    baton__epoch_settle(stepper, schedule);
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

void baton__epoch_fail_from(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, uint64_t epoch,
                            const baton__failure_t *failure,
                            const char *message)
{
    baton__run_t *run = &schedule->run;
    if (run->phase == BATON__RUN_RECOVERING && failure->final) {
        set_failure(schedule, failure, message); /* that it can't be is news */
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
    baton__epoch_fail_if_due(stepper, schedule);
}

/* Fails the epoch at a node; the error message so far says why. */
void baton__epoch_fail_at(baton__stepper_t *stepper, baton_schedule_t *schedule,
                          uint32_t node, baton_status_t status)
{
    baton__epoch_fail_here(
        stepper, schedule,
        baton__error(status, "\"%s\" epoch %llu failed at %s on rank %d: %s",
                     schedule->name, (unsigned long long)schedule->run.epoch,
                     baton__node_name(schedule, node), schedule->group->rank,
                     baton_error_message()));
}

/* A failure of a peer that this rank had not got to yet, and has now. */
void baton__epoch_fail_if_due(baton__stepper_t *stepper,
                              baton_schedule_t *schedule)
{
    if (schedule->run.phase == BATON__RUN_IDLE && schedule->failing_from != 0 &&
        schedule->failing_from <= schedule->run.epoch + 1) {
        const baton__failure_t failure = schedule->failure;
        baton__epoch_fail(stepper, schedule, &failure, schedule->sentence);
    }
}
