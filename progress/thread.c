/* The progress thread: drives what no application thread drives, sleeps
   otherwise. */
#include "progress/engine.h"

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>

/* Drives until there is nothing to do but wait, or an application thread wants
   to: returns for how long to sleep. */
static uint32_t drive(baton_engine_t *engine, bool rang)
{
    baton__stepper_t *stepper = &engine->stepper;
    if (rang) {
        baton__idle_reset(&engine->idle);
    }
    for (;;) {
        baton__pause_t pause = BATON__PAUSE_NONE;
        if (baton__step(stepper, SIZE_MAX)) {
            baton__idle_reset(&engine->idle);
        } else {
            /* Nobody waits for armed receives alone: their bell will do. */
            pause = stepper->waited > 0 ? baton__idle_next(&engine->idle)
                                        : BATON__PAUSE_SLEEP;
        }
        if (atomic_load_explicit(&engine->wanted, memory_order_seq_cst) > 0) {
            break;
        }
        if (pause == BATON__PAUSE_YIELD) {
            baton__engine_unlock(engine);
            (void)sched_yield();
            if (!baton__engine_lock(engine)) {
                atomic_store_explicit(&engine->nap, BATON__NAP_SHORT,
                                      memory_order_seq_cst);
                return BATON__TURN_US;
            }
            baton__idle_yielded(&engine->idle);
            baton__engine_attend(engine);
        } else if (pause == BATON__PAUSE_SLEEP) {
            baton__watchdog(engine);
            if (!baton__engine_rest(engine)) {
                baton__idle_reset(&engine->idle);
                continue;
            }
            uint32_t us = baton__engine_sleep_us(engine);
            if (atomic_exchange_explicit(&engine->relied, false,
                                         memory_order_relaxed) &&
                us > BATON__TURN_US) {
                us = BATON__TURN_US;
            }
            atomic_store_explicit(&engine->nap,
                                  us <= BATON__TURN_US ? BATON__NAP_SHORT
                                                       : BATON__NAP_ASLEEP,
                                  memory_order_seq_cst);
            baton__engine_unlock(engine);
            if (!baton__step_has_mail(stepper) || !baton__engine_lock(engine)) {
                return us;
            }
            baton__engine_attend(engine);
        }
    }
    atomic_store_explicit(&engine->nap, BATON__NAP_SHORT, memory_order_seq_cst);
    baton__engine_unlock(engine);
    return BATON__TURN_US;
}

static void *thread_main(void *arg)
{
    baton_engine_t *engine = arg;
    bool rang = false;
    (void)prctl(PR_SET_NAME, "baton", 0, 0, 0);
    /* The default lets the kernel end a sleep 50 us late. */
    (void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    while (!atomic_load_explicit(&engine->stopping, memory_order_acquire)) {
        uint32_t us = BATON__TURN_US;
        if (rang) {
            atomic_store_explicit(&engine->rung, true, memory_order_seq_cst);
        }
        if (baton__engine_lock(engine)) {
            if (!rang) {
                engine->idle.checked = true;
                baton__engine_awake(engine); /* in case a note was lost */
            }
            baton__engine_attend(engine);
            us = drive(engine, rang);
        } else {
            atomic_store_explicit(&engine->nap, BATON__NAP_SHORT,
                                  memory_order_seq_cst);
        }
        rang = baton__loop_wait(engine->loop, us);
        atomic_store_explicit(&engine->nap, BATON__NAP_AWAKE,
                              memory_order_seq_cst);
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
