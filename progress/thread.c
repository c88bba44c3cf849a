/* The progress thread: drives what no application thread drives, sleeps
   otherwise. */
#include "progress/engine.h"

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>

enum { FRESH_NS = 40000 };

static void set_wait_mode(baton_engine_t *engine, baton__wait_mode_t mode)
{
    atomic_store_explicit(&engine->wait_mode, mode, memory_order_seq_cst);
}

/* Somebody relied on a short wait, since the last time. */
static bool was_expected(baton_engine_t *engine)
{
    return atomic_load_explicit(&engine->expected, memory_order_seq_cst) &&
           atomic_exchange_explicit(&engine->expected, false,
                                    memory_order_seq_cst);
}

/* The application has come back each time it was expected: the next short wait
   is twice as long as the last, up to BATON__SHORT_MAX_US. Returns for how long
   to sleep. */
static uint32_t wait_shortly(baton_engine_t *engine)
{
    uint32_t us = engine->short_us;
    set_wait_mode(engine, us == BATON__SHORT_US ? BATON__WAIT_SHORT
                                                : BATON__WAIT_TRUSTING);
    engine->short_us = us < BATON__SHORT_MAX_US ? us * 2 : us;
    return us;
}

/* Another thread drives: it tells this one when it leaves work behind, or does
   not because it relies on a short wait. Returns for how long to sleep; 0: the
   driver has gone meanwhile. */
static uint32_t let_drive(baton_engine_t *engine)
{
    if (was_expected(engine)) {
        return wait_shortly(engine);
    }
    set_wait_mode(engine, BATON__WAIT_LONG);
    /* Pairs with waits_long(), engine.c. */
    return atomic_load_explicit(&engine->driving, memory_order_seq_cst)
               ? BATON_SLEEP_FOREVER
               : 0;
}

/* Gives the driver lock away while it yields: false if another thread has it
   then. */
static bool yield(baton_engine_t *engine)
{
    baton__engine_unlock(engine);
    (void)sched_yield();
    if (!baton__engine_lock(engine)) {
        return false;
    }
    baton__idle_yielded(&engine->idle);
    baton__engine_disarm(engine);
    return true;
}

/* Arms, and leaves to sleep: true. False: there is something to do. */
static bool leave_to_sleep(baton_engine_t *engine, uint32_t *us_out)
{
    baton__watchdog(engine);
    if (!baton__engine_arm(engine)) {
        return false;
    }
    uint32_t us = baton__engine_sleep_us(engine);
    engine->short_us = BATON__SHORT_US;
    if (was_expected(engine) && us > BATON__SHORT_US) {
        us = BATON__SHORT_US;
    }
    set_wait_mode(engine,
                  us <= BATON__SHORT_US ? BATON__WAIT_SHORT : BATON__WAIT_LONG);
    baton__engine_unlock(engine);
    *us_out = us;
    /* Mail that came before the mode was seen: see baton__engine_leave. */
    if (!baton__step_has_mail(&engine->stepper) ||
        !baton__engine_lock(engine)) {
        return true;
    }
    baton__engine_disarm(engine);
    return false;
}

/* Drives until there is nothing to do but wait, or an application thread wants
   to: returns for how long to sleep. */
static uint32_t drive(baton_engine_t *engine, bool woken)
{
    baton__stepper_t *stepper = &engine->stepper;
    if (woken) {
        baton__idle_reset(&engine->idle);
    }
    for (;;) {
        baton__pause_t pause = BATON__PAUSE_NONE;
        if (baton__step(stepper, BATON__STEP_BYTES)) {
            baton__idle_reset(&engine->idle);
        } else if (!baton__step_is_due(stepper)) {
            /* Nobody waits for armed receives alone: they wake it. */
            pause = baton__idle_next(&engine->idle, stepper->waited > 0);
        }
        if (atomic_load_explicit(&engine->wanted, memory_order_seq_cst) > 0) {
            break;
        }
        if (pause == BATON__PAUSE_YIELD && !yield(engine)) {
            return let_drive(engine);
        }
        if (pause == BATON__PAUSE_SLEEP) {
            uint32_t us;
            if (leave_to_sleep(engine, &us)) {
                return us;
            }
            baton__idle_reset(&engine->idle);
        }
    }
    /* Who wants to drive may have no reason to any more. */
    set_wait_mode(engine, BATON__WAIT_SHORT);
    baton__engine_unlock(engine);
    return BATON__SHORT_US;
}

/* The application has only just started an epoch, and is expected back: if it
   comes it had better not meet this thread. */
static bool is_active(const baton_engine_t *engine)
{
    uint64_t started_ns =
        atomic_load_explicit(&engine->started_ns, memory_order_relaxed);
    return started_ns != 0 && baton__clock_ns() - started_ns < FRESH_NS;
}

/* Whether to wait shortly once more, and leave the engine to the application:
   not when a message has come, which it may have parked for. */
static bool is_left_alone(baton_engine_t *engine, baton__wakeup_t wakeup)
{
    return wakeup != BATON__WAKEUP_MESSAGE && is_active(engine) &&
           (wakeup == BATON__WAKEUP_TIMER || was_expected(engine));
}

static baton__wakeup_t wait_for(baton_engine_t *engine, uint32_t us)
{
    baton__loop_set_timer(engine->loop, us);
    /* Pairs with the exchange in watch_shortly(), engine.c: it is seen here, or
       sets the timer after it was set above. */
    if (us > BATON__SHORT_US &&
        atomic_load_explicit(&engine->wait_mode, memory_order_seq_cst) ==
            BATON__WAIT_SHORT) {
        baton__loop_set_timer(engine->loop, BATON__SHORT_US);
    }
    return baton__loop_wait(engine->loop);
}

static void *thread_main(void *arg)
{
    baton_engine_t *engine = arg;
    baton__wakeup_t wakeup = BATON__WAKEUP_KICK;
    (void)prctl(PR_SET_NAME, "baton", 0, 0, 0);
    /* The default lets the kernel end a sleep 50 us late. */
    (void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    while (!atomic_load_explicit(&engine->stopping, memory_order_acquire)) {
        bool woken = wakeup == BATON__WAKEUP_MESSAGE;
        if (woken) {
            atomic_store_explicit(&engine->woken, true, memory_order_seq_cst);
        }
        uint32_t us = is_left_alone(engine, wakeup) ? wait_shortly(engine)
                      : baton__engine_try(engine)   ? drive(engine, woken)
                                                    : let_drive(engine);
        wakeup = us > 0 ? wait_for(engine, us) : BATON__WAKEUP_KICK;
        set_wait_mode(engine, BATON__WAIT_NONE);
    }
    return NULL;
}

void baton__thread_stop(baton_engine_t *engine)
{
    atomic_store_explicit(&engine->stopping, true, memory_order_release);
    baton__loop_kick(engine->loop);
    (void)pthread_join(engine->thread, NULL);
}

baton_status_t baton__thread_start(baton_engine_t *engine,
                                   const char *placement)
{
    int error = pthread_create(&engine->thread, NULL, thread_main, engine);
    if (error != 0) {
        return baton__error(BATON_ERR_SYSTEM, "no progress thread: %s",
                            strerror(error));
    }
    baton_status_t status = baton__place_thread(engine->thread, placement);
    if (status != BATON_OK) {
        baton__thread_stop(engine);
    }
    return status;
}
