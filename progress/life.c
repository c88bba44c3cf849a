/* The life of an epoch; see life.h. lib/sched/run.c has its state, this file
   connects it to transports and to who waits. */
#include "progress/life.h"

#include "base/error.h"

#include <stdio.h>

void baton__life_runnable(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    if (schedule->turn.runnable) {
        return;
    }
    schedule->turn.runnable = true;
    schedule->turn.next_runnable = NULL;
    if (stepper->runnable_head == NULL) {
        stepper->runnable_head = schedule;
    } else {
        stepper->runnable_tail->turn.next_runnable = schedule;
    }
    stepper->runnable_tail = schedule;
}

baton__context_t baton__life_context(baton_schedule_t *schedule)
{
    return (baton__context_t){
        .transport = schedule->group->transport,
        .endpoint = schedule->group->endpoint,
        .owner = schedule,
        .address = schedule->addresses,
        .headers = schedule->run.headers,
        .epoch = schedule->run.epoch,
    };
}

/* ---- how epochs end --------------------------------------------------- */

static void publish(baton__stepper_t *stepper, baton_schedule_t *schedule,
                    baton_status_t status, uint64_t retired)
{
    /* The status first: who sees the epoch retired must see how. Both pair with
       the loads in baton__epoch_ended(). */
    atomic_store_explicit(&schedule->shared.status, status,
                          memory_order_release);
    atomic_store_explicit(&schedule->shared.retired, retired,
                          memory_order_seq_cst);
    if (stepper->on_end != NULL) {
        stepper->on_end(schedule);
    }
}

void baton__life_retire(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    baton__run_retire(&schedule->run);
    stepper->running--;
    publish(stepper, schedule, BATON_OK, schedule->run.epoch);
    baton__life_begin_if_due(stepper, schedule);
}

/* A failed schedule rests when nothing of it is in flight. Without messages no
   peer is in the dark, and it can be started again. */
void baton__life_settle(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    if (run->state != BATON__RUN_DRAINING || schedule->turn.posted > 0) {
        return;
    }
    if (schedule->plan.messages > 0) {
        baton__run_enter(run, BATON__RUN_FAILED);
        return;
    }
    baton__run_enter(run, BATON__RUN_IDLE);
    publish(
        stepper, schedule,
        atomic_load_explicit(&schedule->shared.status, memory_order_relaxed),
        run->epoch);
}

static void withdraw_receives(baton_schedule_t *schedule)
{
    const baton_group_t *group = schedule->group;
    for (uint32_t node = 0; node < schedule->count; node++) {
        uint8_t *flight = &schedule->run.flight[node];
        uint8_t kind = schedule->ops[node].kind;
        baton_token_t token = {schedule, node};
        if (*flight == BATON__HELD) {
            *flight = BATON__NOWHERE;
        } else if (*flight != BATON__NOWHERE &&
                   (kind == BATON__RECV || kind == BATON__ARMED_RECV) &&
                   group->transport->withdraw(group->endpoint, token)) {
            *flight = BATON__NOWHERE;
            schedule->turn.posted--;
            schedule->group->posted--;
        }
    }
}

void baton__step_fail(baton__stepper_t *stepper, baton_schedule_t *schedule,
                      baton_status_t status)
{
    baton__run_t *run = &schedule->run;
    if (run->state != BATON__RUN_IDLE && run->state != BATON__RUN_RUNNING) {
        return;
    }
    if (run->state == BATON__RUN_RUNNING) {
        stepper->running--;
    }
    stepper->waited -= run->waited;
    run->waited = 0;
    run->head = run->tail;
    baton__run_enter(run, BATON__RUN_DRAINING);
    (void)snprintf(schedule->sentence, sizeof schedule->sentence, "%s",
                   baton_error_message());
    withdraw_receives(schedule);
    publish(
        stepper, schedule, status,
        atomic_load_explicit(&schedule->shared.retired, memory_order_relaxed));
    baton__life_settle(stepper, schedule);
}

/* ---- issuing ---------------------------------------------------------- */

/* A message went out or was awaited: it is counted where it is looked for. */
static void count_posted(baton__stepper_t *stepper, baton_schedule_t *schedule,
                         uint32_t node)
{
    uint32_t before = schedule->run.waited;
    baton__run_posted(&schedule->run, node);
    stepper->waited += schedule->run.waited - before;
    schedule->turn.posted++;
    schedule->group->posted++;
}

/* Issues a node: false when that failed the epoch. */
bool baton__life_issue(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       uint32_t node, const baton__context_t *context)
{
    baton__run_t *run = &schedule->run;
    const baton__op_t *op = &schedule->ops[node];
    baton__issue_fn fn = schedule->group->kinds[op->kind].issue;
    int outcome = fn == NULL ? BATON_OK : fn(op, node, context);
    switch (outcome) {
    case BATON_OK:
        baton__run_complete(run, node);
        return true;
    case BATON__PENDING:
        count_posted(stepper, schedule, node);
        return true;
    case BATON_SKIP:
        baton__run_skip(run, node);
        return true;
    default:
        baton__step_fail(
            stepper, schedule,
            baton__error((baton_status_t)outcome,
                         "\"%s\" epoch %llu failed at %s on rank "
                         "%d: %s",
                         schedule->name, (unsigned long long)context->epoch,
                         baton__node_name(schedule, node),
                         schedule->group->rank, baton_error_message()));
        return false;
    }
}

/* ---- how epochs begin ------------------------------------------------- */

/* Posts an armed receive (again). A failure fails the schedule. */
bool baton__life_arm(baton__stepper_t *stepper, baton_schedule_t *schedule,
                     uint32_t node)
{
    const baton__context_t context = baton__life_context(schedule);
    return baton__life_issue(stepper, schedule, node, &context);
}

/* Delivers the kept headers that the epoch's begin has made current. */
static void deliver_held(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    for (uint32_t i = 0; i < schedule->plan.armed_count; i++) {
        uint32_t node = schedule->plan.armed[i];
        if (run->flight[node] != BATON__HELD) {
            continue;
        }
        baton__arrival_t arrival = baton__run_arrival(run, node);
        if (arrival == BATON__ARRIVAL_NOW) {
            baton__run_arrive(run, node);
        }
        if (arrival != BATON__ARRIVAL_HOLD &&
            !baton__life_arm(stepper, schedule, node)) {
            return;
        }
    }
}

void baton__life_begin_if_due(baton__stepper_t *stepper,
                              baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    /* Pairs with the store in baton_schedule_start. */
    uint64_t requested =
        atomic_load_explicit(&schedule->shared.requested, memory_order_acquire);
    if (run->state == BATON__RUN_IDLE) {
        bool internal = requested > run->epoch;
        bool external =
            !internal && baton__run_activated(run) &&
            run->epoch < atomic_load_explicit(&schedule->shared.limit,
                                              memory_order_acquire);
        if (!internal && !external) {
            return;
        }
        baton__run_begin(run);
        stepper->running++;
        if (stepper->on_begin != NULL) {
            stepper->on_begin(schedule);
        }
        /* Start has looked already, but nobody has where peers begin it. */
        if (atomic_load_explicit(&schedule->rebound, memory_order_relaxed)) {
            baton_status_t status = baton__check_rebound(schedule);
            if (status != BATON_OK) {
                baton__step_fail(stepper, schedule, status);
            }
        }
    }
    if (run->state == BATON__RUN_RUNNING) {
        if (requested >= run->epoch) {
            baton__run_started(run);
        }
        baton__life_runnable(stepper, schedule);
        deliver_held(stepper, schedule);
    }
}

void baton__life_cancel(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    if (schedule->run.state == BATON__RUN_RUNNING) {
        baton__step_fail(stepper, schedule,
                         baton__error_forward(BATON_ERR_CANCELLED,
                                              "the epoch was cancelled"));
    }
}
