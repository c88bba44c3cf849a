/* The life of plain schedules; see plain.h. */
#include "fuzz/plain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static baton_status_t fail_if_upset(void *arg, baton_call_t *call)
{
    return fuzz_upset_due(arg, baton_call_epoch(call)) ? FUZZ_UPSET_STATUS
                                                       : BATON_OK;
}

/* What watches for recoveries stays failed until there is one; a local schedule
   goes on. */
static bool watches(const fuzz_task_t *task)
{
    return (task->plan->watches && task->plan->kind != FUZZ_LOCAL) ||
           fuzz_plains[task->plan->kind]->on_recover != NULL;
}

static void on_recover(void *arg, uint64_t epoch)
{
    fuzz_seat_t *seat = arg;
    /* The rank has been called, so it is in its next life already. */
    uint64_t last = fuzz_last_epoch(seat, fuzz_life(seat) - 1);
    seat->part->recoveries++;
    if (epoch != last || seat->part->recoveries != fuzz_life(seat)) {
        fuzz_fail(seat,
                  "recovery: %" PRIu32 " is told of with epoch %" PRIu64
                  ", the last one was %" PRIu64,
                  seat->part->recoveries, epoch, last);
    }
    const fuzz_plain_t *plain = fuzz_plains[seat->task->plan->kind];
    if (plain->on_recover != NULL) {
        plain->on_recover(seat);
    }
}

/* Attempts tell schedules of one name apart, where all make them in one order.
 */
static void name_of(const fuzz_task_t *task, char *name, size_t bytes)
{
    const char *kind = fuzz_kind_name(task->plan->kind);
    if (task->world->plan.model.introductions) {
        (void)snprintf(name, bytes, "%s %d", kind, task->index);
    } else {
        (void)snprintf(name, bytes, "%s", kind);
    }
}

static baton_status_t commit_seat(fuzz_seat_t *seat)
{
    const fuzz_task_t *task = seat->task;
    char name[32];
    name_of(task, name, sizeof name);
    fuzz_part_t *part = fuzz_alloc(1, sizeof *part);
    seat->part = part;
    part->source = fuzz_alloc(fuzz_bytes(task->plan) + 1, 1);
    part->target = fuzz_alloc(fuzz_bytes(task->plan) + 1, 1);
    part->values = fuzz_alloc(task->plan->count + 1, sizeof *part->values);
    part->heard = fuzz_alloc((size_t)fuzz_ranks(task), sizeof *part->heard);
    baton_status_t status = baton_schedule_create(
        baton_sim_group(task->world->sim, seat->rank), name, &part->schedule);
    if (status != BATON_OK) {
        return status;
    }
    const fuzz_plain_t *plain = fuzz_plains[task->plan->kind];
    plain->build(part->schedule, seat);
    if (task->world->plan.upsets > 0 && !plain->upsets) {
        (void)baton_add_call(part->schedule, fail_if_upset, seat);
    }
    if (watches(task)) {
        baton_schedule_on_recover(part->schedule, on_recover, seat);
    }
    return baton_schedule_commit(part->schedule);
}

static void open_task(fuzz_task_t *task)
{
    (void)task;
}

static const baton_schedule_t *schedule_of(const fuzz_seat_t *seat)
{
    return seat->part->schedule;
}

static baton_status_t cancel(fuzz_seat_t *seat)
{
    return baton_schedule_cancel(seat->part->schedule);
}

static void close_task(fuzz_task_t *task)
{
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        fuzz_part_t *part = task->seats[rank].part;
        if (part != NULL) {
            fuzz_async_close(part);
            (void)!baton_schedule_destroy(part->schedule);
            free(part->source);
            free(part->target);
            free(part->values);
            free(part->heard);
            free(part);
        }
    }
}

static bool prepare(fuzz_seat_t *seat)
{
    fuzz_plains[seat->task->plan->kind]->fill(seat);
    seat->part->cancelled = false;
    return false;
}

static baton_status_t start(fuzz_seat_t *seat)
{
    return baton_schedule_start(seat->part->schedule);
}

/* Only without messages can peers be spared a cancelled epoch. */
static bool cancels(fuzz_seat_t *seat)
{
    return seat->task->plan->kind == FUZZ_LOCAL && !seat->part->cancelled &&
           fuzz_suffers(seat, FUZZ_FAULT_CANCEL) &&
           fuzz_once_in(&seat->random, 4);
}

static bool was_cancelled(const fuzz_seat_t *seat, baton_status_t status)
{
    return status == BATON_ERR_CANCELLED && seat->part->cancelled;
}

static baton_status_t test(fuzz_seat_t *seat, bool *done_out)
{
    baton_schedule_t *schedule = seat->part->schedule;
    if (cancels(seat)) {
        /* It may have ended by now. */
        seat->part->cancelled = baton_schedule_cancel(schedule) == BATON_OK;
    }
    baton_status_t status = baton_schedule_test(schedule, done_out);
    if ((status != BATON_OK || *done_out) && seat->part->open > 0) {
        fuzz_fail(seat, "safety: the epoch has ended, an async node has not");
    }
    *done_out |= was_cancelled(seat, status);
    return was_cancelled(seat, status) ? BATON_OK : status;
}

static baton_status_t wait_for(fuzz_seat_t *seat, int timeout_ms)
{
    return baton_schedule_wait(seat->part->schedule, timeout_ms);
}

static baton_status_t finish(fuzz_seat_t *seat)
{
    baton_status_t status = wait_for(seat, -1);
    if (was_cancelled(seat, status)) {
        return BATON_OK;
    }
    if (status == BATON_OK) {
        fuzz_plains[seat->task->plan->kind]->judge(seat);
    }
    return status;
}

static void recovered(fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    part->cancelled = false;
    memset(part->last_inbox, 0, sizeof part->last_inbox);
    memset(part->inbox, 0, sizeof part->inbox);
    if (part->open > 0) {
        fuzz_fail(seat, "recovery: an async node has not completed");
    }
    if (watches(seat->task) && part->recoveries != fuzz_life(seat)) {
        fuzz_fail(seat, "recovery: its schedule was not told");
    }
}

static void audit(fuzz_task_t *task)
{
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        fuzz_seat_t *seat = &task->seats[rank];
        uint64_t epochs = baton_schedule_epoch(seat->part->schedule);
        if (epochs != task->plan->steps) {
            fuzz_fail(seat, "liveness: %" PRIu64 " epochs have run", epochs);
        }
    }
}

const fuzz_rules_t fuzz_plain_rules = {
    .open = open_task,
    .commit = commit_seat,
    .schedule = schedule_of,
    .cancel = cancel,
    .prepare = prepare,
    .start = start,
    .test = test,
    .finish = finish,
    .wait = wait_for,
    .recovered = recovered,
    .audit = audit,
    .close = close_task,
};
