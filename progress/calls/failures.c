/* Functions that an application calls after a failure, or in preparation for
   one. They say how a schedule failed, recover a group, and make a group of
   survivors. */
#include "progress/calls/calls.h"

#include "base/alloc.h"
#include "base/error.h"
#include "progress/driving/engine.h"
#include "progress/epoch/epoch.h"
#include "progress/membership/recovery.h"
#include "progress/membership/shrink.h"

baton_status_t baton_schedule_failure(const baton_schedule_t *schedule,
                                      baton_failure_t *out)
{
    baton_status_t status = baton__check_committed(schedule, __func__);
    if (status != BATON_OK || !baton__is_given(out, true, __func__, "out")) {
        return baton__error_status();
    }
    const baton__task_t *task = baton__task_of(schedule);
    if (atomic_load_explicit(&task->failed, memory_order_acquire) == 0) {
        /* This status is an answer and no failure, so it is not logged. */
        return baton_error_set(BATON_ERR_STATE, "\"%s\" has not failed",
                               schedule->name);
    }
    const baton__failure_t failure =
        baton__epoch_failure(task, out->message, sizeof out->message);
    out->status = failure.status;
    out->rank = failure.rank;
    out->epoch = failure.epoch;
    return BATON_OK;
}

void baton_schedule_on_recover(baton_schedule_t *schedule, baton_recover_fn fn,
                               void *arg)
{
    if (baton__graph_open(schedule, __func__)) {
        baton__task_of(schedule)->on_recover = fn;
        baton__task_of(schedule)->on_recover_arg = arg;
    }
}

void baton_schedule_on_failure(baton_schedule_t *schedule, baton_failed_fn fn,
                               void *arg)
{
    if (baton__graph_open(schedule, __func__)) {
        baton__task_of(schedule)->on_failure = fn;
        baton__task_of(schedule)->on_failure_arg = arg;
    }
}

/* ---- recovery ---------------------------------------------------------- */

/* Returns a schedule that could not be recovered, or NULL. (A schedule that was
   recovered may already have failed again, if a peer's recovery returned
   sooner.) */
static const baton_schedule_t *find_failed(const baton_group_t *group)
{
    assert(baton__driven_here(group));
    baton__task_t *t = NULL;
    while (baton__member_of(group)->unrecovered > 0 &&
           (t = baton__stepper_next(group, t))) {
        if (t->schedule.run.phase == BATON__RUN_FAILED && t->failure.final) {
            return &t->schedule;
        }
    }
    return NULL;
}

static baton_status_t recovered(baton_group_t *group)
{
    baton__member_t *member = baton__member_of(group);
    baton_engine_t *engine = group->engine;
    baton_status_t status = BATON_OK;
    engine->driver->enter(engine);
    if (member->recovery == BATON__RECOVERY_OVER) {
        baton__group_set_recovery(group, BATON__RECOVERY_NONE);
    }
    const baton_schedule_t *failed = find_failed(group);
    if (member->first.detail != NULL) {
        status =
            baton__error(BATON_ERR_TRANSPORT,
                         "recovery on %s: %s is gone (baton_group_shrink makes "
                         "a group without it)",
                         baton__group_place(group),
                         baton__group_rank_text(group, member->first.peer));
    } else if (failed != NULL) {
        status = baton__error(BATON_ERR_FAILED,
                              "recovery on %s: \"%s\" can't be "
                              "recovered: %s",
                              baton__group_place(group), failed->name,
                              baton__schedule_sentence(failed));
    }
    engine->driver->leave(engine);
    return status;
}

/* Sets the error of a recovery that timed out. The message names the rank that
   the recovery waits for. */
static baton_status_t not_recovered(baton_group_t *group, int timeout_ms)
{
    baton_engine_t *engine = group->engine;
    engine->driver->enter(engine);
    int rank = baton__recovery_awaits(group);
    engine->driver->leave(engine);
    if (rank < 0) {
        return baton__error(BATON_ERR_TIMEOUT,
                            "recovery on %s: messages or async "
                            "nodes of this rank have not ended after %d ms",
                            baton__group_place(group), timeout_ms);
    }
    return baton_error_set(
        BATON_ERR_TIMEOUT,
        "recovery on %s: %s has not called baton_group_recover within %d ms, "
        "or waits for another rank",
        baton__group_place(group), baton__group_rank_text(group, rank),
        timeout_ms);
}

baton_status_t baton_group_recover(baton_group_t *group, int timeout_ms)
{
    if (!baton__is_group(group, __func__)) {
        return baton__error_status();
    }
    baton_engine_t *engine = group->engine;
    baton__member_t *member = baton__member_of(group);
    if (baton__engine_is_inside(engine)) {
        return baton__error(
            BATON_ERR_STATE,
            "recovery on %s: a call node can't recover its group",
            baton__group_place(group));
    }
    engine->driver->enter(engine);
    if (member->recovery == BATON__RECOVERY_NONE &&
        member->first.detail == NULL) {
        baton__recovery_begin(group);
        if (engine->driver->recover != NULL) {
            engine->driver->recover(group);
        }
    }
    engine->driver->leave(engine);
    baton_status_t status =
        baton__group_wait(group, baton__group_is_recovered, timeout_ms, true);
    if (status == BATON_OK) {
        return recovered(group);
    }
    return status == BATON_ERR_TIMEOUT ? not_recovered(group, timeout_ms)
                                       : status;
}

/* ---- survivors ---------------------------------------------------------- */

static bool is_agreed(const void *arg)
{
    return baton__shrink_state(arg) != BATON__SHRINK_ASKING;
}

/* Sets the error of a shrink that timed out, or that this rank can't take part
   in, because its side has no majority or others have excluded this rank. */
static baton_status_t not_agreed(baton_group_t *group, int timeout_ms)
{
    baton_engine_t *engine = group->engine;
    engine->driver->enter(engine);
    baton__shrinking_t state = baton__shrink_state(group);
    int count = 0;
    int rank = -1;
    if (state == BATON__SHRINK_MINORITY) {
        rank = baton__shrink_unreached(group, &count);
    } else if (state != BATON__SHRINK_EXCLUDED) {
        rank = baton__shrink_awaits(group, 0);
    }
    const baton__loss_t first = baton__member_of(group)->first;
    const char *why = first.peer == rank ? first.detail : NULL;
    engine->driver->leave(engine);
    if (state == BATON__SHRINK_MINORITY) {
        return baton__error(
            BATON_ERR_TRANSPORT,
            "shrink on %s: partition: %d rank%s, the lowest of which is "
            "%s%s%s%s, can't be reached, and may go on without this side, "
            "which has no majority and must not go on (see BATON_MINORITY)",
            baton__group_place(group), count, count == 1 ? "" : "s",
            baton__group_rank_text(group, rank), why == NULL ? "" : " (",
            why == NULL ? "" : why, why == NULL ? "" : ")");
    }
    if (state == BATON__SHRINK_EXCLUDED) {
        return baton__error(BATON_ERR_TRANSPORT,
                            "shrink on %s: other ranks have lost "
                            "this one, and go on without it",
                            baton__group_place(group));
    }
    return baton_error_set(BATON_ERR_TIMEOUT,
                           "shrink on %s: %s has not called baton_group_shrink "
                           "within %d ms, or waits for another rank",
                           baton__group_place(group),
                           rank < 0 ? "a rank out of reach"
                                    : baton__group_rank_text(group, rank),
                           timeout_ms);
}

static baton_status_t make_survivors(baton_group_t *group, baton_group_t **out)
{
    int *ranks = baton__alloc((size_t)group->size, sizeof *ranks);
    if (ranks == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
    }
    int count = baton__shrink_survivors(group, ranks);
    baton_status_t status = baton__create_subset(
        group, baton__shrink_number(group), true, ranks, count, out);
    if (status != BATON_OK) {
        baton__free(ranks);
        return status;
    }
    group->engine->driver->enter(group->engine);
    baton__shrink_end(group);
    group->engine->driver->leave(group->engine);
    return BATON_OK;
}

baton_status_t baton_group_shrink(baton_group_t *group, int timeout_ms,
                                  baton_group_t **survivors_out)
{
    if (!baton__is_group(group, __func__) ||
        !baton__is_given(survivors_out, true, __func__, "survivors_out")) {
        return baton__error_status();
    }
    if (group->borrowed) {
        return baton__error(BATON_ERR_UNSUPPORTED,
                            "shrink on %s: a group of the simulator "
                            "can't shrink; make a simulator of fewer ranks",
                            baton__group_place(group));
    }
    baton_engine_t *engine = group->engine;
    if (baton__engine_is_inside(engine)) {
        return baton__error(BATON_ERR_STATE,
                            "shrink on %s: a call node can't shrink its group",
                            baton__group_place(group));
    }
    engine->driver->enter(engine);
    baton_status_t status = baton__shrink_begin(group);
    engine->driver->leave(engine);
    if (status == BATON_OK) {
        status = baton__group_wait(group, is_agreed, timeout_ms, true);
    }
    if (status != BATON_OK && status != BATON_ERR_TIMEOUT) {
        return status;
    }
    return baton__shrink_state(group) == BATON__SHRINK_AGREED
               ? make_survivors(group, survivors_out)
               : not_agreed(group, timeout_ms);
}
