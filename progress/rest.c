/* How a driver comes to rest and to sleep; see engine.h and the transport port.
 */
#include "progress/engine.h"

enum {
    /* After a rest: what came from this host is seen at once; Open MPI looks at
       sources between hosts in each 8th poll only. */
    NEAR_POLLS = 1,
    FAR_POLLS = 8,
    /* After what moved last, sleeps for what rings have this end once: another
       thread in MPI may keep a driver from seeing a message (see mpi.c). */
    CHECK_US = 100000
};

void baton__engine_awake(baton_engine_t *engine)
{
    if (!engine->resting) {
        return;
    }
    engine->resting = false;
    for (baton_group_t *g = engine->stepper.groups; g != NULL; g = g->next) {
        g->transport->awake(g->endpoint);
    }
}

/* Whether there is any message to rest for. */
static bool announce_rest(baton_engine_t *engine)
{
    engine->resting = true;
    engine->rest_us = BATON_SLEEP_FOREVER;
    bool posted = false;
    for (baton_group_t *g = engine->stepper.groups; g != NULL; g = g->next) {
        if (g->posted > 0) {
            uint32_t us = g->transport->rest(g->endpoint);
            engine->rest_us = us < engine->rest_us ? us : engine->rest_us;
            posted = true;
        }
    }
    return posted;
}

static bool announce_sleep(baton_engine_t *engine)
{
    bool silent = true;
    for (baton_group_t *g = engine->stepper.groups; g != NULL; g = g->next) {
        silent &= g->posted == 0 || g->transport->sleep(g->endpoint);
    }
    return silent;
}

bool baton__engine_rest(baton_engine_t *engine)
{
    bool posted = announce_rest(engine);
    int polls = engine->rest_us == BATON_SLEEP_FOREVER ? NEAR_POLLS : FAR_POLLS;
    bool moved = false;
    for (int i = 0; i < polls && posted && !moved; i++) {
        moved = baton__step(&engine->stepper, SIZE_MAX);
    }
    if (moved || !announce_sleep(engine)) {
        baton__engine_attend(engine);
        return false;
    }
    return true;
}

void baton__engine_attend(baton_engine_t *engine)
{
    if (engine->idle.crowded) {
        (void)announce_rest(engine);
    } else {
        baton__engine_awake(engine);
    }
}

uint32_t baton__engine_sleep_us(const baton_engine_t *engine)
{
    uint32_t us = engine->rest_us;
    if (engine->stepper.waited > 0) {
        uint32_t idle_us = baton__idle_sleep_us(
            &engine->idle, engine->rest_us == BATON_SLEEP_FOREVER);
        us = idle_us < us ? idle_us : us;
    } else if (!engine->idle.checked && us > CHECK_US) {
        us = CHECK_US;
    }
    if (engine->stepper.groups != NULL) {
        /* For the watchdog: an epoch may begin while the thread sleeps. */
        uint64_t stall_us = (uint64_t)engine->stall_ms * 1000 / 2 + 1;
        us = stall_us < us ? (uint32_t)stall_us : us;
    }
    return us;
}
