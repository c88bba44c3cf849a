/* The application's side of an epoch: start, test, cancel. Wait: wait.c. */
#include "progress/engine.h"
#include "progress/sim.h"

#include "base/error.h"

enum {
    START_BYTES = 65536, /* computing that start does itself at most */
    START_STEPS = 16,    /* steps likewise */
    HURRY_NS = 1000000,  /* a start that comes sooner after the last */
};

static uint64_t requested(const baton_schedule_t *schedule)
{
    return atomic_load_explicit(&schedule->shared.requested,
                                memory_order_relaxed);
}

/* Pairs with the stores in publish(), progress/life.c. Without messages a
   failed epoch retires too, and can be followed by another: so that has to be
   seen. */
bool baton__epoch_ended(const baton_schedule_t *schedule)
{
    return atomic_load_explicit(&schedule->shared.retired,
                                memory_order_seq_cst) >= requested(schedule) ||
           (schedule->plan.messages > 0 &&
            atomic_load_explicit(&schedule->shared.status,
                                 memory_order_acquire) != BATON_OK);
}

baton_status_t baton__epoch_outcome(const baton_schedule_t *schedule)
{
    baton_status_t status = (baton_status_t)atomic_load_explicit(
        &schedule->shared.status, memory_order_acquire);
    return status == BATON_OK
               ? BATON_OK
               : baton__error_forward(status, schedule->sentence);
}

uint64_t baton_schedule_epoch(const baton_schedule_t *schedule)
{
    return atomic_load_explicit(&schedule->shared.retired,
                                memory_order_acquire);
}

baton_status_t baton__check_committed(const baton_schedule_t *schedule,
                                      const char *verb)
{
    return schedule->committed
               ? BATON_OK
               : baton__error(BATON_ERR_STATE,
                              "%s of \"%s\": it is not committed", verb,
                              schedule->name);
}

/* Steps while something moves, a bounded while, and leaves. */
static void drive_a_little(baton_engine_t *engine, size_t bytes,
                           baton__leave_t why)
{
    if (!baton__engine_try(engine)) {
        return;
    }
    for (int i = 0; i < START_STEPS && baton__step(&engine->stepper, bytes);
         i++) {
    }
    baton__engine_leave(engine, why);
}

/* What start and others leave in the mailbox reaches the driver: this thread
   steps, or the one that drives finds it, or is woken from a sleep with the
   lock (manual mode). */
static void post(baton_schedule_t *schedule, baton__leave_t why)
{
    baton_engine_t *engine = schedule->group->engine;
    baton__step_mail(schedule->group->stepper, schedule);
    if (engine->sim != NULL) {
        baton__sim_post(schedule->group);
        return;
    }
    if (baton__engine_is_mine(engine)) {
        return; /* from a call node: the step under way takes it */
    }
    drive_a_little(engine, START_BYTES, why);
    if (!engine->threaded && baton__step_has_mail(&engine->stepper)) {
        baton__loop_kick(engine->loop);
    }
}

static baton_status_t check_rebound(baton_schedule_t *schedule)
{
    baton_engine_t *engine = schedule->group->engine;
    bool mine = baton__engine_is_mine(engine);
    if (!mine) {
        baton__engine_enter(engine);
    }
    baton_status_t status = baton__check_rebound(schedule);
    if (!mine) {
        baton__engine_leave(engine, BATON__LEAVE_BEHIND);
    }
    return status == BATON_OK
               ? BATON_OK
               : baton__error(status, "start of %s", baton_error_message());
}

baton_status_t baton_schedule_start(baton_schedule_t *schedule)
{
    baton_status_t status = baton__check_committed(schedule, "start");
    if (status != BATON_OK) {
        return status;
    }
    uint64_t retired =
        atomic_load_explicit(&schedule->shared.retired, memory_order_acquire);
    if (atomic_load_explicit(&schedule->shared.status, memory_order_acquire) !=
        BATON_OK) {
        if (schedule->plan.messages > 0) {
            return baton__error(BATON_ERR_FAILED,
                                "start of \"%s\": it failed before: %s",
                                schedule->name, schedule->sentence);
        }
        atomic_store_explicit(&schedule->shared.status, BATON_OK,
                              memory_order_relaxed);
    }
    if (atomic_load_explicit(&schedule->rebound, memory_order_relaxed)) {
        status = check_rebound(schedule);
        if (status != BATON_OK) {
            return status;
        }
    }
    uint64_t epoch = requested(schedule) + 1;
    if (retired + 1 < epoch) {
        return baton__error(BATON_ERR_BUSY,
                            "start of \"%s\": epoch %llu is still running: "
                            "wait for it",
                            schedule->name, (unsigned long long)epoch - 1);
    }
    /* Pairs with the load in baton__life_begin_if_due(), progress/life.c. */
    atomic_store_explicit(&schedule->shared.requested, epoch,
                          memory_order_release);
    if (retired >= epoch) {
        return BATON_OK; /* the others have run it already */
    }
    uint64_t now = baton__clock_ns();
    baton__leave_t why = BATON__LEAVE_BEHIND;
    if (atomic_load_explicit(&schedule->shared.prompt, memory_order_relaxed)) {
        why = now - schedule->shared.started_ns < HURRY_NS
                  ? BATON__LEAVE_HURRIED
                  : BATON__LEAVE_SOON;
    }
    schedule->shared.started_ns = now;
    post(schedule, why);
    return BATON_OK;
}

baton_status_t baton_schedule_test(baton_schedule_t *schedule, bool *done_out)
{
    baton_status_t status = baton__check_committed(schedule, "test");
    if (status != BATON_OK) {
        return status;
    }
    baton_engine_t *engine = schedule->group->engine;
    if (!baton__epoch_ended(schedule)) {
        if (engine->sim != NULL) {
            status = baton__sim_test(engine->sim);
        } else {
            drive_a_little(engine, SIZE_MAX, BATON__LEAVE_BEHIND);
        }
    }
    if (status != BATON_OK) {
        return status;
    }
    bool ended = baton__epoch_ended(schedule);
    status = ended ? baton__epoch_outcome(schedule) : BATON_OK;
    if (status == BATON_OK) {
        *done_out = ended;
    }
    return status;
}

/* ---- cancel, limit ---------------------------------------------------- */

baton_status_t baton_schedule_cancel(baton_schedule_t *schedule)
{
    baton_status_t status = baton__check_committed(schedule, "cancel");
    if (status != BATON_OK) {
        return status;
    }
    if (baton__epoch_ended(schedule)) {
        return baton__error(BATON_ERR_STATE,
                            "cancel of \"%s\": no epoch is running",
                            schedule->name);
    }
    atomic_store_explicit(&schedule->shared.cancel, requested(schedule),
                          memory_order_release);
    post(schedule, BATON__LEAVE_BEHIND);
    return BATON_OK;
}

void baton_schedule_limit(baton_schedule_t *schedule, uint64_t epoch)
{
    uint64_t now =
        atomic_load_explicit(&schedule->shared.limit, memory_order_relaxed);
    if (now != UINT64_MAX && epoch <= now) {
        return;
    }
    /* Pairs with the load in baton__life_begin_if_due(), progress/life.c. */
    atomic_store_explicit(&schedule->shared.limit, epoch, memory_order_release);
    if (schedule->committed) {
        post(schedule, BATON__LEAVE_BEHIND);
    }
}
