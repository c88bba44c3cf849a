/* The step; see step.h. */
#include "progress/step.h"

#include "base/error.h"
#include "base/float_mode.h"
#include "progress/life.h"

/* Nodes of one schedule that are issued before others get their turn. */
enum { NODES_A_TURN = 1024, COMPLETIONS_A_POLL = 64 };

/* ---- issuing ---------------------------------------------------------- */

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
    const baton__context_t context = baton__life_context(schedule);
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
            !baton__life_issue(stepper, schedule, node, &context)) {
            return;
        }
    }
    bool through = baton__run_through(run);
    bool busy =
        through && stepper->is_busy != NULL && stepper->is_busy(schedule);
    if (baton__run_has_ready(run) || busy) {
        baton__life_runnable(stepper, schedule);
    } else if (through) {
        baton__life_retire(stepper, schedule);
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
        (void)atomic_exchange_explicit(&schedule->shared.mailed, false,
                                       memory_order_seq_cst);
        baton__life_begin_if_due(stepper, schedule);
        uint64_t cancelled = atomic_exchange_explicit(&schedule->shared.cancel,
                                                      0, memory_order_acquire);
        if (cancelled != 0 && cancelled == schedule->run.epoch) {
            baton__life_cancel(stepper, schedule);
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
    bool receives = op->kind == BATON__RECV || op->kind == BATON__ARMED_RECV;
    if (done->status == BATON_OK && (!receives || done->bytes == op->bytes)) {
        return BATON_OK;
    }
    const char *node = baton__node_name(schedule, done->token.node);
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
        baton__life_runnable(stepper, schedule);
        (void)baton__life_arm(stepper, schedule, node);
        break;
    case BATON__ARRIVAL_DROP:
        (void)baton__life_arm(stepper, schedule, node);
        break;
    case BATON__ARRIVAL_HOLD:
        baton__life_begin_if_due(stepper, schedule);
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
        const baton__context_t context = baton__life_context(schedule);
        (void)baton__life_issue(stepper, schedule, node, &context);
    }
    /* With ready nodes it gets a turn, without it may be through. */
    if (run->state == BATON__RUN_RUNNING) {
        baton__life_runnable(stepper, schedule);
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
        baton__life_settle(stepper, schedule);
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
    baton__float_mode_t mode = baton__float_mode_enter();
    stepper->bytes_left = bytes;
    bool moved = take_mail(stepper);
    moved |= run_ready(stepper);
    moved |= poll_groups(stepper);
    baton__float_mode_leave(mode);
    return moved;
}

/* ---- coming and going ------------------------------------------------- */

baton_status_t baton__step_add(baton__stepper_t *stepper,
                               baton_schedule_t *schedule)
{
    schedule->notes.next = stepper->schedules;
    stepper->schedules = schedule;
    for (uint32_t i = 0; i < schedule->plan.armed_count; i++) {
        if (!baton__life_arm(stepper, schedule, schedule->plan.armed[i])) {
            baton__step_remove(stepper, schedule);
            return (baton_status_t)atomic_load_explicit(
                &schedule->shared.status, memory_order_relaxed);
        }
    }
    return BATON_OK;
}

void baton__step_forget(baton__stepper_t *stepper,
                        const baton_schedule_t *schedule)
{
    baton_schedule_t *each = stepper->runnable_head;
    stepper->runnable_head = NULL;
    stepper->runnable_tail = NULL;
    while (each != NULL) {
        baton_schedule_t *next = each->turn.next_runnable;
        each->turn.runnable = false;
        if (each != schedule) {
            baton__life_runnable(stepper, each);
        }
        each = next;
    }
    each = atomic_load_explicit(&stepper->mail, memory_order_relaxed);
    if (each == schedule) {
        atomic_store_explicit(&stepper->mail, schedule->shared.next_mail,
                              memory_order_relaxed);
        return;
    }
    while (each != NULL && each->shared.next_mail != schedule) {
        each = each->shared.next_mail;
    }
    if (each != NULL) {
        each->shared.next_mail = schedule->shared.next_mail;
    }
}

void baton__step_remove(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    baton_schedule_t **link = &stepper->schedules;
    while (*link != schedule) {
        link = &(*link)->notes.next;
    }
    *link = schedule->notes.next;
}
