/* The application's side of an epoch: start, test, wait, cancel. */
#include "progress/engine.h"

#include "base/error.h"

#include <errno.h>
#include <sched.h>

enum {
    START_BYTES = 65536,   /* computing that start does itself at most */
    START_STEPS = 16,      /* steps likewise */
    PROMPT_NS = 20000,     /* a wait that comes sooner after its start */
    HURRY_NS = 1000000,    /* a start that comes sooner after the last */
    LOOK_NS = 10000000,    /* a parked thread looks itself so often */
    TAKE_OVER_YIELDS = 64, /* tries to become the driver before parking */
};

static uint64_t requested(const baton_schedule_t *schedule)
{
    return atomic_load_explicit(&schedule->shared.requested,
                                memory_order_relaxed);
}

/* Whether the last started epoch is over, one way or the other. Pairs with the
   stores in publish(), progress/life.c. Without messages a failed epoch retires
   too, and can be followed by another: so that has to be seen. */
static bool epoch_ended(const baton_schedule_t *schedule)
{
    return atomic_load_explicit(&schedule->shared.retired,
                                memory_order_seq_cst) >= requested(schedule) ||
           (schedule->plan.messages > 0 &&
            atomic_load_explicit(&schedule->shared.status,
                                 memory_order_acquire) != BATON_OK);
}

static baton_status_t outcome(const baton_schedule_t *schedule)
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

static baton_status_t check_committed(const baton_schedule_t *schedule,
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
    baton__step_mail(&engine->stepper, schedule);
    if (baton__engine_is_mine(engine)) {
        return; /* from a call node: the step under way takes it */
    }
    drive_a_little(engine, START_BYTES, why);
    if (!engine->threaded && baton__step_has_mail(&engine->stepper)) {
        baton__loop_kick(engine->loop);
    }
}

baton_status_t baton_schedule_start(baton_schedule_t *schedule)
{
    baton_status_t status = check_committed(schedule, "start");
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
    baton_status_t status = check_committed(schedule, "test");
    if (status != BATON_OK) {
        return status;
    }
    if (!epoch_ended(schedule)) {
        drive_a_little(schedule->group->engine, SIZE_MAX, BATON__LEAVE_BEHIND);
    }
    bool ended = epoch_ended(schedule);
    status = ended ? outcome(schedule) : BATON_OK;
    if (status == BATON_OK) {
        *done_out = ended;
    }
    return status;
}

/* ---- wait ------------------------------------------------------------- */

static bool expired(uint64_t deadline_ns)
{
    return deadline_ns != UINT64_MAX && baton__clock_ns() >= deadline_ns;
}

/* Manual mode: whether baton__engine_enter waits for the lock, which a driver
   that waits would otherwise take again and again. */
static bool is_wanted(const baton_engine_t *engine)
{
    return !engine->threaded &&
           atomic_load_explicit(&engine->wanted, memory_order_relaxed) > 0;
}

/* The driver steps until the epoch has ended, or it is better to sleep. */
static void drive_until_ended(baton_engine_t *engine,
                              const baton_schedule_t *schedule,
                              uint64_t deadline_ns)
{
    while (!epoch_ended(schedule)) {
        if (baton__step(&engine->stepper, SIZE_MAX)) {
            baton__idle_reset(&engine->idle);
            continue;
        }
        if (is_wanted(engine)) {
            return;
        }
        switch (baton__idle_next(&engine->idle)) {
        case BATON__PAUSE_NONE:
            break;
        case BATON__PAUSE_YIELD:
            baton__idle_yield(&engine->idle);
            if (expired(deadline_ns)) {
                return;
            }
            break;
        case BATON__PAUSE_SLEEP:
            return;
        }
    }
}

/* Manual mode: the driver sleeps in the loop itself. */
static void sleep_in_loop(baton_engine_t *engine, uint64_t deadline_ns)
{
    baton__watchdog(engine);
    if (!baton__engine_rest(engine)) {
        return;
    }
    uint32_t us = baton__engine_sleep_us(engine);
    if (deadline_ns != UINT64_MAX) {
        uint64_t now = baton__clock_ns();
        uint64_t left = deadline_ns > now ? (deadline_ns - now) / 1000 + 1 : 0;
        us = left < us ? (uint32_t)left : us;
    }
    (void)baton__loop_wait(engine->loop, us);
}

/* Blocks until the epoch has ended, somebody must drive (manual mode), or
   `until_ns`. */
static void park(baton_engine_t *engine, const baton_schedule_t *schedule,
                 uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / 1000000000u),
                             (long)(until_ns % 1000000000u)};
    (void)pthread_mutex_lock(&engine->park_lock);
    /* Pairs with the load in wake_parked(), progress/engine.c. */
    atomic_fetch_add_explicit(&engine->parked, 1, memory_order_seq_cst);
    int error = 0;
    while (!epoch_ended(schedule) && error != ETIMEDOUT &&
           (engine->threaded ||
            atomic_load_explicit(&engine->driving, memory_order_seq_cst))) {
        error =
            pthread_cond_timedwait(&engine->park, &engine->park_lock, &until);
    }
    atomic_fetch_sub_explicit(&engine->parked, 1, memory_order_seq_cst);
    (void)pthread_mutex_unlock(&engine->park_lock);
}

/* Gets the driver lock from a progress thread that is polling. */
static bool take_over(baton_engine_t *engine, const baton_schedule_t *schedule)
{
    if (baton__engine_try(engine)) {
        return true;
    }
    bool taken = false;
    if (!engine->threaded) {
        return false; /* who drives is an application thread, and drives all */
    }
    atomic_fetch_add_explicit(&engine->wanted, 1, memory_order_seq_cst);
    for (int i = 0; i < TAKE_OVER_YIELDS && !taken && !epoch_ended(schedule);
         i++) {
        (void)sched_yield();
        taken = baton__engine_try(engine);
    }
    atomic_fetch_sub_explicit(&engine->wanted, 1, memory_order_seq_cst);
    return taken;
}

static baton_status_t timed_out(baton_schedule_t *schedule, int timeout_ms)
{
    char memory[BATON__MESSAGE_BYTES];
    baton__text_t text = {memory, sizeof memory, 0};
    baton_engine_t *engine = schedule->group->engine;
    baton__engine_enter(engine);
    baton__describe_wait(schedule, &text);
    baton__engine_leave(engine, BATON__LEAVE_BEHIND);
    return baton__error_forward(
        BATON_ERR_TIMEOUT,
        (baton__text_add(&text,
                         "\n    (wait gave up after %d ms; the epoch "
                         "goes on)",
                         timeout_ms),
         memory));
}

baton_status_t baton_schedule_wait(baton_schedule_t *schedule, int timeout_ms)
{
    baton_status_t status = check_committed(schedule, "wait");
    if (status != BATON_OK || epoch_ended(schedule)) {
        return status != BATON_OK ? status : outcome(schedule);
    }
    baton_engine_t *engine = schedule->group->engine;
    uint64_t now = baton__clock_ns();
    uint64_t deadline_ns =
        timeout_ms < 0 ? UINT64_MAX : now + (uint64_t)timeout_ms * 1000000u;
    atomic_store_explicit(&schedule->shared.prompt,
                          now - schedule->shared.started_ns < PROMPT_NS,
                          memory_order_relaxed);
    for (bool first = true; !epoch_ended(schedule); first = false) {
        if (take_over(engine, schedule)) {
            if (first) {
                baton__idle_reset(&engine->idle);
            } else {
                baton__watchdog(engine);
            }
            drive_until_ended(engine, schedule, deadline_ns);
            bool wanted = is_wanted(engine);
            if (!engine->threaded && !wanted && !epoch_ended(schedule)) {
                sleep_in_loop(engine, deadline_ns);
            }
            baton__engine_leave(engine, epoch_ended(schedule)
                                            ? BATON__LEAVE_BEHIND
                                            : BATON__LEAVE_PARKED);
            if (wanted) {
                (void)sched_yield();
            }
        }
        if (!epoch_ended(schedule)) {
            if (expired(deadline_ns)) {
                return timed_out(schedule, timeout_ms);
            }
            uint64_t look_ns = baton__clock_ns() + LOOK_NS;
            park(engine, schedule,
                 look_ns < deadline_ns ? look_ns : deadline_ns);
        }
    }
    return outcome(schedule);
}

/* ---- cancel, limit ---------------------------------------------------- */

baton_status_t baton_schedule_cancel(baton_schedule_t *schedule)
{
    baton_status_t status = check_committed(schedule, "cancel");
    if (status != BATON_OK) {
        return status;
    }
    if (epoch_ended(schedule)) {
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
