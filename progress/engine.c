/* Opening, closing and driving an engine; see engine.h. */
#include "progress/engine.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/config_check.h"
#include "base/error.h"

#include <sched.h>
#include <string.h>

enum {
    LEAVE_STEPS = 64, /* that leaving takes over from late comers */
    START_NODES = 64, /* that start issues itself */
    START_BYTES = 4096,
    TEST_STEPS = 16,
    /* Armed, and nothing comes: when to look all the same. Nothing is known to
       need it but a message that another thread in MPI keeps back. */
    CHECK_US = 1000000,
    ASK_US = 1000 /* at least so often for what nothing tells of */
};

static _Thread_local const baton_engine_t *driven;

static bool is_inside(const baton_engine_t *engine)
{
    const baton_engine_t *each = driven;
    while (each != NULL && each != engine) {
        each = each->outer;
    }
    return each != NULL;
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
    if (atomic_load_explicit(&engine->woken, memory_order_relaxed)) {
        atomic_store_explicit(&engine->woken, false, memory_order_relaxed);
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
    baton__engine_disarm(engine);
    return true;
}

void baton__engine_disarm(baton_engine_t *engine)
{
    if (!engine->armed) {
        return;
    }
    engine->armed = false;
    for (baton_group_t *g = engine->stepper.groups; g != NULL; g = g->next) {
        g->transport->disarm(g->endpoint);
    }
}

bool baton__engine_arm(baton_engine_t *engine)
{
    engine->armed = true;
    engine->armed_us = BATON_SLEEP_FOREVER;
    for (baton_group_t *g = engine->stepper.groups; g != NULL; g = g->next) {
        uint32_t us = BATON_SLEEP_FOREVER;
        if (!g->transport->arm(g->endpoint, &us)) {
            baton__engine_disarm(engine);
            return false;
        }
        engine->armed_us = us < engine->armed_us ? us : engine->armed_us;
    }
    return true;
}

uint32_t baton__engine_sleep_us(const baton_engine_t *engine)
{
    const baton__stepper_t *stepper = &engine->stepper;
    uint32_t us = engine->armed_us < CHECK_US ? engine->armed_us : CHECK_US;
    bool asks = stepper->polled > 0 || baton__stepper_has_notices(stepper) ||
                stepper->recovering > 0;
    if (asks && us > ASK_US) {
        us = ASK_US;
    }
    if (asks || engine->armed_us != BATON_SLEEP_FOREVER) {
        uint32_t idle_us = baton__idle_sleep_us(&engine->idle);
        us = idle_us < us ? idle_us : us;
    }
    if (stepper->groups != NULL) {
        /* For the watchdog: an epoch may begin while the thread sleeps. */
        uint64_t stall_us = (uint64_t)engine->stall_ms * 1000 / 2 + 1;
        us = stall_us < us ? (uint32_t)stall_us : us;
    }
    return us;
}

static void wake_parked(baton_engine_t *engine)
{
    /* Pairs with the increment in park(), wait.c: either that thread sees what
       was published before this, or it is counted here. */
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

static void on_recovered(baton_group_t *group)
{
    wake_parked(group->engine);
}

typedef enum handover {
    TAKEN_CARE_OF,
    KICK,         /* the thread must be told */
    KICK_IF_LONG, /* unless it looks by itself soon */
    WATCH         /* it has to look soon by itself */
} handover_t;

/* A step of who is about to leave: a call that may take long is the thread's.
 */
static void step_leaving(baton_engine_t *engine)
{
    engine->stepper.leaves_calls = engine->threaded;
    (void)baton__step(&engine->stepper, BATON__STEP_BYTES);
    engine->stepper.leaves_calls = false;
}

/* Prepares to leave. */
static handover_t hand_over(baton_engine_t *engine, baton__leave_t why)
{
    const baton__stepper_t *stepper = &engine->stepper;
    if (why == BATON__LEAVE_SOON) {
        /* The thread that looks now sees this, or that nobody drives. Pairs
           with the exchange in thread.c. */
        atomic_store_explicit(&engine->expected, true, memory_order_seq_cst);
        /* Nothing is armed: peers would ring in each such moment. */
        return WATCH;
    }
    for (int steps = 0; !baton__engine_arm(engine); steps++) {
        if (steps == LEAVE_STEPS || stepper->runnable_head != NULL) {
            return KICK;
        }
        step_leaving(engine);
    }
    /* What armed descriptors don't tell of. */
    if (stepper->runnable_head != NULL || baton__stepper_has_notices(stepper) ||
        stepper->polled > 0 || stepper->recovering > 0) {
        return KICK;
    }
    if (engine->armed_us == BATON_SLEEP_FOREVER) {
        return TAKEN_CARE_OF;
    }
    return stepper->waited > 0 ? KICK : KICK_IF_LONG;
}

/* Whether the thread sleeps for longer than a short wait, after the driver lock
   was given away. Pairs with the store of the mode in thread.c, which is
   followed by another look at the lock: one of the two sees the other. */
static bool waits_long(const baton_engine_t *engine)
{
    return atomic_load_explicit(&engine->wait_mode, memory_order_seq_cst) >=
           BATON__WAIT_TRUSTING;
}

/* Has the thread look in a short while, and goes on undisturbed until then. One
   that has no end to its sleep gets one: no kick, which would have it meet the
   application at once. */
static void watch_shortly(baton_engine_t *engine)
{
    int expected = BATON__WAIT_LONG;
    if (atomic_load_explicit(&engine->wait_mode, memory_order_seq_cst) ==
            expected &&
        atomic_compare_exchange_strong_explicit(
            &engine->wait_mode, &expected, BATON__WAIT_SHORT,
            memory_order_seq_cst, memory_order_seq_cst)) {
        baton__loop_shorten(engine->loop, BATON__SHORT_US);
    }
}

void baton__engine_leave(baton_engine_t *engine, baton__leave_t why)
{
    handover_t handover = TAKEN_CARE_OF;
    for (int steps = 0;; steps++) {
        if (engine->threaded) {
            handover = hand_over(engine, why);
        }
        baton__engine_unlock(engine);
        /* Mail that came after the last step, from one who could not drive, or
           a wake-up. The store in unlock and these loads pair with the push and
           the try in start(), and with those in thread.c: one of the two sees
           the other. */
        if (!baton__step_has_mail(&engine->stepper) &&
            !atomic_load_explicit(&engine->woken, memory_order_seq_cst)) {
            break;
        }
        if (steps >= LEAVE_STEPS || !baton__engine_try(engine)) {
            handover = KICK;
            break;
        }
        step_leaving(engine);
    }
    if (!engine->threaded) {
        wake_parked(engine); /* one of them drives now */
    } else if (handover == WATCH) {
        watch_shortly(engine);
    } else if (handover == KICK ||
               (handover == KICK_IF_LONG && waits_long(engine))) {
        baton__loop_kick(engine->loop);
    }
}

/* ---- the driver's table ----------------------------------------------- */

static void enter(baton_engine_t *engine)
{
    if (is_inside(engine)) {
        engine->nested++;
        return;
    }
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

static bool try_enter(baton_engine_t *engine)
{
    return baton__engine_try(engine);
}

static void leave(baton_engine_t *engine)
{
    if (engine->nested > 0) {
        engine->nested--;
        return;
    }
    baton__engine_leave(engine, BATON__LEAVE_AWAY);
}

/* Mail reaches the driver: this thread steps, or the one that drives finds it,
   or is woken from a sleep with the lock (manual mode). */
static void start(baton_schedule_t *schedule, baton__leave_t why)
{
    baton_engine_t *engine = schedule->group->engine;
    baton__step_mail(&engine->stepper, schedule);
    if (is_inside(engine)) {
        return; /* from a call node: the step under way takes it */
    }
    if (baton__engine_try(engine)) {
        engine->stepper.leaves_calls = engine->threaded;
        baton__step_start(&engine->stepper, schedule, START_NODES, START_BYTES);
        engine->stepper.leaves_calls = false;
        baton__engine_leave(engine, why);
    }
    if (!engine->threaded && baton__step_has_mail(&engine->stepper)) {
        baton__loop_kick(engine->loop);
    }
}

static void post(baton_schedule_t *schedule)
{
    start(schedule, BATON__LEAVE_AWAY);
}

static baton_status_t test(baton_engine_t *engine)
{
    if (!is_inside(engine) && baton__engine_try(engine)) {
        engine->stepper.leaves_calls = engine->threaded;
        for (int i = 0;
             i < TEST_STEPS && baton__step(&engine->stepper, BATON__STEP_BYTES);
             i++) {
        }
        engine->stepper.leaves_calls = false;
        baton__engine_leave(engine, BATON__LEAVE_AWAY);
    }
    return BATON_OK;
}

const baton__driver_t baton__real_driver = {
    .is_inside = is_inside,
    .enter = enter,
    .try_enter = try_enter,
    .leave = leave,
    .start = start,
    .post = post,
    .test = test,
    .wait = baton__engine_wait,
};

bool baton_engine_step(baton_engine_t *engine)
{
    if (engine == NULL) {
        (void)baton__error(BATON_ERR_INVALID, "%s: engine is NULL", __func__);
        return false;
    }
    if (is_inside(engine) || !baton__engine_try(engine)) {
        return false;
    }
    bool moved = baton__step(&engine->stepper, BATON__STEP_BYTES);
    moved |= baton__step_is_due(&engine->stepper);
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

static void init_stepper(baton__stepper_t *stepper)
{
    stepper->on_end = on_end;
    stepper->on_recovered = on_recovered;
    stepper->clock_ns = baton__clock_ns;
    stepper->slice_bytes = BATON__SLICE_BYTES;
}

static baton_status_t check_options(const baton_engine_options_t *options,
                                    baton_engine_t **out)
{
    if (out == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "baton_engine_open: out is NULL");
    }
    if (options->size != sizeof *options) {
        return baton__error(BATON_ERR_INVALID,
                            "engine options: size is %zu, expected %zu: "
                            "initialise with BATON_ENGINE_OPTIONS",
                            options->size, sizeof *options);
    }
    return baton__config_check();
}

baton_status_t baton__engine_open(const baton_engine_options_t *options,
                                  const baton__verification_t *verification,
                                  baton_engine_t **out)
{
    const baton_engine_options_t defaults = BATON_ENGINE_OPTIONS;
    options = options != NULL ? options : &defaults;
    bool threaded = false;
    baton_status_t status = check_options(options, out);
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
    engine->driver = &baton__real_driver;
    engine->verification = verification;
    engine->threaded = threaded;
    engine->alone = has_one_processor();
    engine->short_us = BATON__SHORT_US;
    engine->stall_ms =
        options->stall_ms != 0
            ? options->stall_ms
            : (uint32_t)baton__config_number(BATON__CONFIG_STALL_MS);
    init_stepper(&engine->stepper);
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
    if (baton__engine_is_inside(engine)) {
        return baton__error(BATON_ERR_STATE,
                            "the engine can't be closed from a call node");
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

baton_progress_t baton_engine_progress(const baton_engine_t *engine)
{
    if (engine == NULL) {
        (void)baton__error(BATON_ERR_INVALID, "%s: engine is NULL", __func__);
        return BATON_PROGRESS_DEFAULT;
    }
    return engine->threaded ? BATON_PROGRESS_THREAD : BATON_PROGRESS_MANUAL;
}
