/* The application waits for an epoch: it drives while that pays, then parks. */
#include "progress/engine.h"
#include "progress/sim.h"

#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <sched.h>

enum {
    PROMPT_NS = 20000,     /* a wait that comes sooner after its start */
    LOOK_NS = 10000000,    /* a parked thread looks itself so often */
    TAKE_OVER_YIELDS = 64, /* tries to become the driver before parking */
};

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
    while (!baton__epoch_ended(schedule)) {
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
    if (!baton__loop_wait(engine->loop, us)) {
        baton__engine_awake(engine); /* in case a note was lost */
    }
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
    while (!baton__epoch_ended(schedule) && error != ETIMEDOUT &&
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
    for (int i = 0;
         i < TAKE_OVER_YIELDS && !taken && !baton__epoch_ended(schedule); i++) {
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

static baton_status_t wait_in_virtual_time(baton_schedule_t *schedule,
                                           int timeout_ms)
{
    baton_sim_t *sim = schedule->group->engine->sim;
    double until_us =
        timeout_ms < 0 ? INFINITY : baton_sim_now_us(sim) + 1000.0 * timeout_ms;
    baton_status_t status = BATON_OK;
    while (status == BATON_OK && !baton__epoch_ended(schedule)) {
        status = baton__sim_pass(sim, until_us, schedule);
    }
    return status == BATON_OK            ? baton__epoch_outcome(schedule)
           : status == BATON_ERR_TIMEOUT ? timed_out(schedule, timeout_ms)
                                         : status;
}

baton_status_t baton_schedule_wait(baton_schedule_t *schedule, int timeout_ms)
{
    baton_status_t status = baton__check_committed(schedule, "wait");
    if (status != BATON_OK || baton__epoch_ended(schedule)) {
        return status != BATON_OK ? status : baton__epoch_outcome(schedule);
    }
    baton_engine_t *engine = schedule->group->engine;
    if (engine->sim != NULL) {
        return wait_in_virtual_time(schedule, timeout_ms);
    }
    uint64_t now = baton__clock_ns();
    uint64_t deadline_ns =
        timeout_ms < 0 ? UINT64_MAX : now + (uint64_t)timeout_ms * 1000000u;
    atomic_store_explicit(&schedule->shared.prompt,
                          now - schedule->shared.started_ns < PROMPT_NS,
                          memory_order_relaxed);
    for (bool first = true; !baton__epoch_ended(schedule); first = false) {
        if (take_over(engine, schedule)) {
            if (first) {
                baton__idle_reset(&engine->idle);
            } else {
                baton__engine_awake(engine);
                baton__engine_attend(engine);
                baton__watchdog(engine);
            }
            drive_until_ended(engine, schedule, deadline_ns);
            bool wanted = is_wanted(engine);
            if (!engine->threaded && !wanted && !baton__epoch_ended(schedule)) {
                sleep_in_loop(engine, deadline_ns);
            }
            baton__engine_leave(engine, baton__epoch_ended(schedule)
                                            ? BATON__LEAVE_BEHIND
                                            : BATON__LEAVE_PARKED);
            if (wanted) {
                (void)sched_yield();
            }
        }
        if (!baton__epoch_ended(schedule)) {
            if (expired(deadline_ns)) {
                return timed_out(schedule, timeout_ms);
            }
            uint64_t look_ns = baton__clock_ns() + LOOK_NS;
            park(engine, schedule,
                 look_ns < deadline_ns ? look_ns : deadline_ns);
        }
    }
    return baton__epoch_outcome(schedule);
}
