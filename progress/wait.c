/* An application thread waits: it drives while that pays, then parks. */
#include "progress/engine.h"

#include "base/error.h"

#include <errno.h>
#include <sched.h>

enum {
    LOOK_NS = 10000000,    /* a parked thread looks itself so often */
    TAKE_OVER_YIELDS = 64, /* tries to become the driver before parking */
};

typedef struct waiter {
    baton_engine_t *engine;
    baton__condition_fn condition;
    const void *arg;
    uint64_t deadline_ns; /* UINT64_MAX: none */
} waiter_t;

static bool is_true(const waiter_t *waiter)
{
    return waiter->condition(waiter->arg);
}

static bool is_late(const waiter_t *waiter)
{
    return waiter->deadline_ns != UINT64_MAX &&
           baton__clock_ns() >= waiter->deadline_ns;
}

/* Manual mode: whether enter() waits for the lock, which a driver that waits
   would otherwise take again and again. */
static bool is_wanted(const baton_engine_t *engine)
{
    return !engine->threaded &&
           atomic_load_explicit(&engine->wanted, memory_order_relaxed) > 0;
}

/* The driver steps until the condition is true, or it is better to sleep. Who
   has to be back at a certain time does not run calls that may take long, if
   there is a thread that can. */
static void drive(const waiter_t *waiter)
{
    baton_engine_t *engine = waiter->engine;
    baton__stepper_t *stepper = &engine->stepper;
    bool timed = waiter->deadline_ns != UINT64_MAX;
    stepper->leaves_calls = timed && engine->threaded;
    while (!is_true(waiter)) {
        bool moved = baton__step(stepper, BATON__STEP_BYTES);
        if (moved) {
            baton__idle_reset(&engine->idle);
        }
        bool due = moved || baton__step_is_due(stepper);
        if (stepper->left_calls || is_wanted(engine) ||
            (timed && due && is_late(waiter))) {
            break;
        }
        if (due) {
            continue;
        }
        baton__pause_t pause = baton__idle_next(&engine->idle, true);
        if (pause == BATON__PAUSE_SLEEP) {
            break;
        }
        if (pause == BATON__PAUSE_YIELD) {
            baton__idle_yield(&engine->idle);
            if (is_late(waiter)) {
                break;
            }
        }
    }
    stepper->leaves_calls = false;
}

/* Manual mode: the driver sleeps in the loop itself. */
static void sleep_in_loop(const waiter_t *waiter)
{
    baton_engine_t *engine = waiter->engine;
    baton__watchdog(engine);
    if (baton__step_is_due(&engine->stepper) || !baton__engine_arm(engine)) {
        return;
    }
    uint32_t us = baton__engine_sleep_us(engine);
    if (waiter->deadline_ns != UINT64_MAX) {
        uint64_t now = baton__clock_ns();
        uint64_t left = waiter->deadline_ns > now
                            ? (waiter->deadline_ns - now) / 1000 + 1
                            : 0;
        us = left < us ? (uint32_t)left : us;
    }
    if (us > 0) {
        baton__loop_set_timer(engine->loop, us);
        (void)baton__loop_wait(engine->loop);
    }
    baton__engine_disarm(engine);
}

/* Blocks until the condition is true, somebody must drive (manual mode), or
   `until_ns`. */
static void park(const waiter_t *waiter, uint64_t until_ns)
{
    baton_engine_t *engine = waiter->engine;
    struct timespec until = {(time_t)(until_ns / 1000000000u),
                             (long)(until_ns % 1000000000u)};
    (void)pthread_mutex_lock(&engine->park_lock);
    /* Pairs with the load in wake_parked(), engine.c. */
    atomic_fetch_add_explicit(&engine->parked, 1, memory_order_seq_cst);
    int error = 0;
    while (!is_true(waiter) && error != ETIMEDOUT &&
           (engine->threaded ||
            atomic_load_explicit(&engine->driving, memory_order_seq_cst))) {
        error =
            pthread_cond_timedwait(&engine->park, &engine->park_lock, &until);
    }
    atomic_fetch_sub_explicit(&engine->parked, 1, memory_order_seq_cst);
    (void)pthread_mutex_unlock(&engine->park_lock);
}

/* Gets the driver lock from a progress thread that is polling. */
static bool take_over(const waiter_t *waiter)
{
    baton_engine_t *engine = waiter->engine;
    if (baton__engine_try(engine)) {
        return true;
    }
    bool taken = false;
    if (!engine->threaded) {
        return false; /* who drives is an application thread, and drives all */
    }
    atomic_fetch_add_explicit(&engine->wanted, 1, memory_order_seq_cst);
    for (int i = 0; i < TAKE_OVER_YIELDS && !taken && !is_true(waiter); i++) {
        (void)sched_yield();
        taken = baton__engine_try(engine);
    }
    atomic_fetch_sub_explicit(&engine->wanted, 1, memory_order_seq_cst);
    return taken;
}

/* Drives for a while: true when it has. */
static bool drive_for_a_while(const waiter_t *waiter, bool first)
{
    baton_engine_t *engine = waiter->engine;
    if (!take_over(waiter)) {
        return false;
    }
    if (first) {
        baton__idle_reset(&engine->idle);
    } else {
        baton__watchdog(engine);
    }
    drive(waiter);
    bool wanted = is_wanted(engine);
    if (!engine->threaded && !wanted && !is_true(waiter)) {
        sleep_in_loop(waiter);
    }
    return true;
}

baton_status_t baton__engine_wait(baton_engine_t *engine,
                                  baton__condition_fn condition,
                                  const void *arg,
                                  const baton_schedule_t *schedule,
                                  int timeout_ms, baton__leave_t why)
{
    const waiter_t waiter = {
        engine, condition, arg,
        timeout_ms < 0 ? UINT64_MAX
                       : baton__clock_ns() + (uint64_t)timeout_ms * 1000000u};
    (void)schedule;
    for (bool first = true; !is_true(&waiter); first = false) {
        if (drive_for_a_while(&waiter, first)) {
            bool wanted = is_wanted(engine);
            baton__engine_leave(engine,
                                is_true(&waiter) ? why : BATON__LEAVE_PARKED);
            if (wanted) {
                (void)sched_yield();
            }
        }
        if (!is_true(&waiter)) {
            if (is_late(&waiter)) {
                return BATON_ERR_TIMEOUT;
            }
            uint64_t look_ns = baton__clock_ns() + LOOK_NS;
            park(&waiter,
                 look_ns < waiter.deadline_ns ? look_ns : waiter.deadline_ns);
        }
    }
    return BATON_OK;
}
