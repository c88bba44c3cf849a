/* Opening, closing and driving an engine; see engine.h. */
#include "progress/engine.h"
#include "progress/sim.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"

#include <sched.h>
#include <string.h>

/* Steps that leaving takes over from late comers. */
enum { LEAVE_STEPS = 64 };

static _Thread_local const baton_engine_t *driven;

bool baton__engine_is_mine(const baton_engine_t *engine)
{
    if (engine->sim != NULL) {
        return engine->sim->stepping != NULL;
    }
    const baton_engine_t *each = driven;
    while (each != NULL && each != engine) {
        each = each->outer;
    }
    return each != NULL;
}

bool baton__engine_has_thread(const baton_engine_t *engine)
{
    return engine->threaded;
}

/* ---- who drives ------------------------------------------------------- */

bool baton__engine_lock(baton_engine_t *engine)
{
    /* Pairs with the store in unlock: the last driver's writes are seen. The
       load is sequentially consistent too: one that read an old value would let
       mail and lock pass each other (see baton__engine_leave). */
    if (atomic_load_explicit(&engine->driving, memory_order_seq_cst) ||
        atomic_exchange_explicit(&engine->driving, true,
                                 memory_order_seq_cst)) {
        return false;
    }
    engine->outer = driven;
    driven = engine;
    if (atomic_load_explicit(&engine->rung, memory_order_relaxed)) {
        atomic_store_explicit(&engine->rung, false, memory_order_relaxed);
    }
    return true;
}

void baton__engine_unlock(baton_engine_t *engine)
{
    driven = engine->outer;
    atomic_store_explicit(&engine->driving, false, memory_order_seq_cst);
}

bool baton__engine_try(baton_engine_t *engine)
{
    if (!baton__engine_lock(engine)) {
        return false;
    }
    baton__engine_attend(engine);
    return true;
}

void baton__engine_enter(baton_engine_t *engine)
{
    atomic_fetch_add_explicit(&engine->wanted, 1, memory_order_seq_cst);
    while (!baton__engine_try(engine)) {
        if (!engine->threaded) {
            /* The driver may sleep in the loop with the lock. */
            baton__loop_kick(engine->loop);
        }
        (void)sched_yield();
    }
    atomic_fetch_sub_explicit(&engine->wanted, 1, memory_order_seq_cst);
}

static void wake_parked(baton_engine_t *engine)
{
    /* Pairs with the increment in park(), progress/wait.c: either that thread
       sees what was published before this, or it is counted here. */
    if (atomic_load_explicit(&engine->parked, memory_order_seq_cst) > 0) {
        (void)pthread_mutex_lock(&engine->park_lock);
        (void)pthread_cond_broadcast(&engine->park);
        (void)pthread_mutex_unlock(&engine->park_lock);
    }
}

static void on_end(baton_schedule_t *schedule)
{
    wake_parked(schedule->group->engine);
}

/* Prepares to leave: whether the thread must be kicked. */
static bool hand_over(baton_engine_t *engine, baton__leave_t why)
{
    const baton__stepper_t *stepper = &engine->stepper;
    if (stepper->runnable_head != NULL) {
        return true;
    }
    if (stepper->waited > 0 && why >= BATON__LEAVE_SOON) {
        /* The store pairs with the exchange in thread.c: a nap that was relied
           on is followed by another short one. */
        atomic_store_explicit(&engine->relied, true, memory_order_relaxed);
        bool naps = atomic_load_explicit(&engine->nap, memory_order_seq_cst) ==
                    BATON__NAP_SHORT;
        if (naps || why == BATON__LEAVE_HURRIED) {
            return !naps;
        }
    }
    int steps = 0;
    while (!baton__engine_rest(engine)) {
        if (++steps == LEAVE_STEPS) {
            return true;
        }
    }
    return stepper->runnable_head != NULL ||
           (engine->rest_us != BATON_SLEEP_FOREVER &&
            (stepper->waited > 0 ||
             atomic_load_explicit(&engine->nap, memory_order_seq_cst) ==
                 BATON__NAP_ASLEEP));
}

void baton__engine_leave(baton_engine_t *engine, baton__leave_t why)
{
    bool kick = false;
    for (int steps = 0;; steps++) {
        kick = engine->threaded && hand_over(engine, why);
        baton__engine_unlock(engine);
        /* Mail that came after the last step, from one who could not drive, or
           a ring. The store in unlock and these loads pair with the push and
           the try in post(), progress/epochs.c, and with those in thread_main:
           one of the two sees the other. */
        if (!baton__step_has_mail(&engine->stepper) &&
            !atomic_load_explicit(&engine->rung, memory_order_seq_cst)) {
            break;
        }
        if (steps >= LEAVE_STEPS || !baton__engine_try(engine)) {
            kick = true;
            break;
        }
        (void)baton__step(&engine->stepper, SIZE_MAX);
    }
    if (!engine->threaded) {
        wake_parked(engine); /* one of them drives now */
    } else if (kick) {
        baton__loop_kick(engine->loop);
    }
}

bool baton_engine_step(baton_engine_t *engine)
{
    if (!baton__engine_try(engine)) {
        return false;
    }
    bool moved = baton__step(&engine->stepper, SIZE_MAX);
    baton__engine_leave(engine, BATON__LEAVE_SOON);
    return moved;
}

/* ---- opening and closing ---------------------------------------------- */

static baton_status_t choose_mode(const baton_engine_options_t *options,
                                  bool *threaded)
{
    switch (options->progress) {
    case BATON_PROGRESS_THREAD:
        *threaded = true;
        return BATON_OK;
    case BATON_PROGRESS_MANUAL:
        *threaded = false;
        return BATON_OK;
    case BATON_PROGRESS_DEFAULT:
        *threaded = baton__config_number(BATON__CONFIG_PROGRESS) == 0;
        return BATON_OK;
    }
    return baton__error(BATON_ERR_INVALID,
                        "engine options: progress is %d, which is no mode",
                        (int)options->progress);
}

static bool has_one_processor(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
}

static void dispose(baton_engine_t *engine)
{
    baton__loop_close(engine->loop);
    (void)pthread_cond_destroy(&engine->park);
    (void)pthread_mutex_destroy(&engine->park_lock);
    baton__free(engine);
}

baton_status_t baton_engine_open(const baton_engine_options_t *options,
                                 baton_engine_t **out)
{
    const baton_engine_options_t defaults = BATON_ENGINE_OPTIONS;
    options = options != NULL ? options : &defaults;
    bool threaded = false;
    if (options->size != sizeof *options) {
        return baton__error(BATON_ERR_INVALID,
                            "engine options: size is %zu, expected %zu: "
                            "initialise with BATON_ENGINE_OPTIONS",
                            options->size, sizeof *options);
    }
    baton_status_t status = baton__config_load();
    if (status == BATON_OK) {
        status = choose_mode(options, &threaded);
    }
    if (status != BATON_OK) {
        return status;
    }
    baton_engine_t *engine = baton__alloc(1, sizeof *engine);
    if (engine == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for an engine");
    }
    engine->threaded = threaded;
    engine->alone = has_one_processor();
    engine->stall_ms =
        options->stall_ms != 0
            ? options->stall_ms
            : (uint32_t)baton__config_number(BATON__CONFIG_STALL_MS);
    engine->stepper.on_end = on_end;
    baton__idle_init(&engine->idle, engine->alone);
    (void)pthread_mutex_init(&engine->park_lock, NULL);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&engine->park, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    status = baton__loop_open(&engine->loop);
    if (status == BATON_OK && threaded) {
        const char *placement =
            options->placement != NULL
                ? options->placement
                : baton__config_text(BATON__CONFIG_PLACEMENT);
        status = baton__thread_start(engine, placement);
    }
    if (status != BATON_OK) {
        dispose(engine);
        return status;
    }
    *out = engine;
    return BATON_OK;
}

baton_status_t baton_engine_close(baton_engine_t *engine)
{
    if (engine == NULL) {
        return BATON_OK;
    }
    if (engine->stepper.groups != NULL) {
        return baton__error(BATON_ERR_BUSY,
                            "the engine still has a group (rank %d of %d, %s): "
                            "destroy its groups first",
                            engine->stepper.groups->rank,
                            engine->stepper.groups->size,
                            engine->stepper.groups->transport->name);
    }
    if (engine->threaded) {
        baton__thread_stop(engine);
    }
    dispose(engine);
    return BATON_OK;
}
