/* The step; see step.h. The life of an epoch is here, from mail to retirement:
   lib/sched/run.c has its state, this file connects it to transports. */
#include "progress/step.h"

#include "base/error.h"

#include <stdio.h>

/* Nodes of one schedule that are issued before others get their turn. */
enum { NODES_A_TURN = 1024, COMPLETIONS_A_POLL = 64 };

static void begin_if_due(baton__stepper_t *stepper, baton_schedule_t *schedule);

static void make_runnable(baton__stepper_t *stepper, baton_schedule_t *schedule)
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

static baton__context_t context_of(baton_schedule_t *schedule)
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
       the loads in epoch_ended(), progress/epochs.c. */
    atomic_store_explicit(&schedule->shared.status, status,
                          memory_order_release);
    atomic_store_explicit(&schedule->shared.retired, retired,
                          memory_order_seq_cst);
    if (stepper->on_end != NULL) {
        stepper->on_end(stepper->arg);
    }
}

static void retire(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    baton__run_retire(&schedule->run);
    stepper->running--;
    publish(stepper, schedule, BATON_OK, schedule->run.epoch);
    begin_if_due(stepper, schedule);
}

/* A failed schedule rests when nothing of it is in flight. Without messages no
   peer is in the dark, and it can be started again. */
static void settle(baton__stepper_t *stepper, baton_schedule_t *schedule)
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
    settle(stepper, schedule);
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
static bool issue(baton__stepper_t *stepper, baton_schedule_t *schedule,
                  uint32_t node, const baton__context_t *context)
{
    baton__run_t *run = &schedule->run;
    const baton__op_t *op = &schedule->ops[node];
    baton__issue_fn fn = baton__kinds[op->kind].issue;
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

/* Whether this step may still compute on so much. */
static bool afford(baton__stepper_t *stepper, const baton__op_t *op)
{
    if (op->kind != BATON__REDUCE && op->kind != BATON__COPY) {
        return true;
    }
    if (op->bytes > stepper->bytes_left) {
        return false;
    }
    stepper->bytes_left -= stepper->bytes_left == SIZE_MAX ? 0 : op->bytes;
    return true;
}

static void issue_ready(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    const baton__context_t context = context_of(schedule);
    for (uint32_t i = 0; i < NODES_A_TURN && baton__run_has_ready(run); i++) {
        uint32_t node = run->ready[run->head];
        const baton__op_t *op = &schedule->ops[node];
        if (op->kind == BATON__NOP) {
            (void)baton__run_pop(run);
            baton__run_complete(run, node);
            continue;
        }
        if (!afford(stepper, op)) {
            break;
        }
        (void)baton__run_pop(run);
        if (!baton__run_defer(run, node) &&
            !issue(stepper, schedule, node, &context)) {
            return;
        }
    }
    if (baton__run_has_ready(run)) {
        make_runnable(stepper, schedule);
    } else if (baton__run_through(run)) {
        retire(stepper, schedule);
    }
}

/* One turn for each schedule that is runnable now; those that become so again
   wait for the next step. */
static bool run_ready(baton__stepper_t *stepper)
{
    baton_schedule_t *schedule = stepper->runnable_head;
    stepper->runnable_head = NULL;
    stepper->runnable_tail = NULL;
    bool moved = false;
    while (schedule != NULL) {
        baton_schedule_t *next = schedule->turn.next_runnable;
        uint64_t moves = schedule->run.moves;
        schedule->turn.runnable = false;
        issue_ready(stepper, schedule);
        moved |= schedule->run.moves != moves || !schedule->turn.runnable;
        schedule = next;
    }
    return moved;
}

/* ---- how epochs begin ------------------------------------------------- */

/* Posts an armed receive (again). A failure fails the schedule. */
static bool arm(baton__stepper_t *stepper, baton_schedule_t *schedule,
                uint32_t node)
{
    const baton__context_t context = context_of(schedule);
    return issue(stepper, schedule, node, &context);
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
        if (arrival != BATON__ARRIVAL_HOLD && !arm(stepper, schedule, node)) {
            return;
        }
    }
}

static void begin_if_due(baton__stepper_t *stepper, baton_schedule_t *schedule)
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
    }
    if (run->state == BATON__RUN_RUNNING) {
        if (requested >= run->epoch) {
            baton__run_started(run);
        }
        make_runnable(stepper, schedule);
        deliver_held(stepper, schedule);
    }
}

static void cancel(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    if (schedule->run.state == BATON__RUN_RUNNING) {
        baton__step_fail(stepper, schedule,
                         baton__error_forward(BATON_ERR_CANCELLED,
                                              "the epoch was cancelled"));
    }
}

static bool take_mail(baton__stepper_t *stepper)
{
    if (atomic_load_explicit(&stepper->mail, memory_order_relaxed) == NULL) {
        return false;
    }
    /* Pairs with the push in baton__step_mail. */
    baton_schedule_t *newest =
        atomic_exchange_explicit(&stepper->mail, NULL, memory_order_acquire);
    baton_schedule_t *oldest = NULL;
    while (newest != NULL) {
        baton_schedule_t *next = newest->shared.next_mail;
        newest->shared.next_mail = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        baton_schedule_t *schedule = oldest;
        oldest = schedule->shared.next_mail;
        /* From here on it can be mailed again; what was asked for before is
           read after this. */
        atomic_store_explicit(&schedule->shared.mailed, false,
                              memory_order_seq_cst);
        begin_if_due(stepper, schedule);
        if (atomic_exchange_explicit(&schedule->shared.cancel, false,
                                     memory_order_acquire)) {
            cancel(stepper, schedule);
        }
    }
    return true;
}

void baton__step_mail(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    if (atomic_exchange_explicit(&schedule->shared.mailed, true,
                                 memory_order_seq_cst)) {
        return;
    }
    baton_schedule_t *head =
        atomic_load_explicit(&stepper->mail, memory_order_relaxed);
    do {
        schedule->shared.next_mail = head;
    } while (!atomic_compare_exchange_weak_explicit(
        &stepper->mail, &head, schedule, memory_order_seq_cst,
        memory_order_relaxed));
}

/* ---- completions ------------------------------------------------------ */

static baton_status_t message_error(const baton_schedule_t *schedule,
                                    const baton_completion_t *done)
{
    const baton__op_t *op = &schedule->ops[done->token.node];
    const char *node = baton__node_name(schedule, done->token.node);
    bool receives = op->kind == BATON__RECV || op->kind == BATON__ARMED_RECV;
    if (done->status == BATON_OK && (!receives || done->bytes == op->bytes)) {
        return BATON_OK;
    }
    if (done->status == BATON_OK || done->status == BATON_ERR_MISMATCH) {
        return baton__error(
            BATON_ERR_MISMATCH,
            "\"%s\" epoch %llu failed on rank %d: %s from rank %d, tag %u, "
            "expects %zu bytes and got %s%zu: the ranks' schedules differ "
            "(BATON_VERIFY=1 finds where)",
            schedule->name, (unsigned long long)schedule->run.epoch,
            schedule->group->rank, node, (int)op->peer, op->tag, op->bytes,
            done->status == BATON_OK ? "" : "more than ",
            done->status == BATON_OK ? done->bytes : op->bytes);
    }
    return baton__error(
        done->status,
        "\"%s\" epoch %llu failed on rank %d: %s, rank %d, tag "
        "%u, %zu bytes: %s",
        schedule->name, (unsigned long long)schedule->run.epoch,
        schedule->group->rank, node, (int)op->peer, op->tag, op->bytes,
        done->detail != NULL ? done->detail : baton_status_text(done->status));
}

static void land_armed(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       uint32_t node)
{
    switch (baton__run_arrival(&schedule->run, node)) {
    case BATON__ARRIVAL_NOW:
        baton__run_arrive(&schedule->run, node);
        make_runnable(stepper, schedule);
        (void)arm(stepper, schedule, node);
        break;
    case BATON__ARRIVAL_DROP:
        (void)arm(stepper, schedule, node);
        break;
    case BATON__ARRIVAL_HOLD:
        begin_if_due(stepper, schedule);
        break;
    }
}

static void land_message(baton__stepper_t *stepper, baton_schedule_t *schedule,
                         uint32_t node)
{
    baton__run_t *run = &schedule->run;
    uint32_t before = run->waited;
    bool again;
    bool current = baton__run_landed(run, node, &again);
    stepper->waited -= before - run->waited;
    if (current) {
        baton__run_complete(run, node);
    } else if (again) {
        const baton__context_t context = context_of(schedule);
        (void)issue(stepper, schedule, node, &context);
    }
    /* With ready nodes it gets a turn, without it may be through. */
    if (run->state == BATON__RUN_RUNNING) {
        make_runnable(stepper, schedule);
    }
}

static void land(baton__stepper_t *stepper, const baton_completion_t *done)
{
    baton_schedule_t *schedule = done->token.owner;
    uint32_t node = done->token.node;
    schedule->turn.posted--;
    schedule->group->posted--;
    if (schedule->run.state == BATON__RUN_DRAINING) {
        schedule->run.flight[node] = BATON__NOWHERE;
        settle(stepper, schedule);
        return;
    }
    baton_status_t status = message_error(schedule, done);
    if (status != BATON_OK) {
        schedule->run.flight[node] = BATON__NOWHERE;
        baton__step_fail(stepper, schedule, status);
    } else if (schedule->ops[node].kind == BATON__ARMED_RECV) {
        land_armed(stepper, schedule, node);
    } else {
        land_message(stepper, schedule, node);
    }
}

static bool poll_groups(baton__stepper_t *stepper)
{
    baton_completion_t done[COMPLETIONS_A_POLL];
    bool moved = false;
    for (baton_group_t *group = stepper->groups; group != NULL;
         group = group->next) {
        if (group->posted == 0) {
            continue;
        }
        size_t count =
            group->transport->poll(group->endpoint, done, COMPLETIONS_A_POLL);
        for (size_t i = 0; i < count; i++) {
            land(stepper, &done[i]);
        }
        moved |= count > 0;
    }
    return moved;
}

bool baton__step(baton__stepper_t *stepper, size_t bytes)
{
    stepper->bytes_left = bytes;
    bool moved = take_mail(stepper);
    moved |= run_ready(stepper);
    moved |= poll_groups(stepper);
    return moved;
}

/* ---- coming and going ------------------------------------------------- */

baton_status_t baton__step_add(baton__stepper_t *stepper,
                               baton_schedule_t *schedule)
{
    schedule->turn.next = stepper->schedules;
    stepper->schedules = schedule;
    for (uint32_t i = 0; i < schedule->plan.armed_count; i++) {
        if (!arm(stepper, schedule, schedule->plan.armed[i])) {
            baton__step_remove(stepper, schedule);
            return BATON_ERR_TRANSPORT;
        }
    }
    return BATON_OK;
}

void baton__step_remove(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    baton_schedule_t **link = &stepper->schedules;
    while (*link != schedule) {
        link = &(*link)->turn.next;
    }
    *link = schedule->turn.next;
}
