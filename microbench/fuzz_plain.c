/* The life of plain schedules; see fuzz_plain.h. */
#include "fuzz_plain.h"

#include <inttypes.h>
#include <stdlib.h>

static baton_status_t open_seat(fuzz_seat_t *seat)
{
    const fuzz_task_t *task = seat->task;
    fuzz_part_t *part = fuzz_alloc(1, sizeof *part);
    seat->part = part;
    part->source = fuzz_alloc(fuzz_bytes(task->plan) + 1, 1);
    part->target = fuzz_alloc(fuzz_bytes(task->plan) + 1, 1);
    part->values = fuzz_alloc(task->plan->count + 1, sizeof *part->values);
    part->heard = fuzz_alloc((size_t)fuzz_ranks(task), sizeof *part->heard);
    baton_status_t status = baton_schedule_create(
        baton_sim_group(task->world->sim, seat->rank),
        fuzz_kind_name(task->plan->kind), &part->schedule);
    if (status == BATON_OK) {
        fuzz_plains[task->plan->kind].build(part->schedule, seat);
        status = baton_schedule_commit(part->schedule);
    }
    return status;
}

static baton_status_t open_task(fuzz_task_t *task)
{
    baton_status_t status = BATON_OK;
    for (int rank = 0; rank < fuzz_ranks(task) && status == BATON_OK; rank++) {
        status = open_seat(&task->seats[rank]);
    }
    return status;
}

static void close_task(fuzz_task_t *task)
{
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        fuzz_part_t *part = task->seats[rank].part;
        if (part != NULL) {
            baton_schedule_destroy(part->schedule);
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
    fuzz_plains[seat->task->plan->kind].fill(seat);
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
        fuzz_plains[seat->task->plan->kind].judge(seat);
    }
    return status;
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
    .prepare = prepare,
    .start = start,
    .test = test,
    .finish = finish,
    .wait = wait_for,
    .audit = audit,
    .close = close_task,
};
