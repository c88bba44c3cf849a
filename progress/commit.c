/* How schedules come into an engine, and go. */
#include "progress/sim.h"
#include "progress/verify.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"

#include <sched.h>
#include <stdio.h>

baton_status_t baton_schedule_create(baton_group_t *group, const char *name,
                                     baton_schedule_t **out)
{
    if (group == NULL || name == NULL) {
        return baton__error(BATON_ERR_INVALID, "schedule: it has no %s",
                            group == NULL ? "group" : "name");
    }
    baton_schedule_t *schedule = baton__alloc(1, sizeof *schedule);
    char *copy = baton__copy_string(name);
    if (schedule == NULL || copy == NULL) {
        baton__free(schedule);
        baton__free(copy);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory for schedule \"%s\"", name);
    }
    schedule->group = group;
    schedule->name = copy;
    atomic_init(&schedule->shared.limit, UINT64_MAX);
    baton__engine_enter(group->engine);
    group->schedules++;
    baton__engine_leave(group->engine, BATON__LEAVE_BEHIND);
    *out = schedule;
    return BATON_OK;
}

int baton_schedule_rank(const baton_schedule_t *schedule)
{
    return schedule->group->rank;
}

int baton_schedule_size(const baton_schedule_t *schedule)
{
    return schedule->group->size;
}

const char *baton_schedule_name(const baton_schedule_t *schedule)
{
    return schedule->name;
}

/* After the commit the edges live on as successors, and needs count edges. */
static void settle_graph(baton_schedule_t *schedule,
                         const baton__order_t *order)
{
    for (uint32_t i = 0; i < schedule->count; i++) {
        if (schedule->needs[i] == BATON_NEED_ALL) {
            schedule->needs[i] = order->first[i + 1] - order->first[i];
        }
    }
}

/* Steps, as the driver, until nothing of the schedule is in flight; false after
   `ms` without that. Receives are withdrawn first: what is left are sends. */
static bool drain(baton_schedule_t *schedule, int64_t ms)
{
    baton__stepper_t *stepper = schedule->group->stepper;
    if (schedule->group->engine->sim != NULL) {
        baton__sim_forget(schedule);
        return true;
    }
    uint64_t deadline = baton__clock_ns() + (uint64_t)ms * 1000000u;
    while (schedule->turn.posted > 0 || schedule->turn.runnable ||
           baton__step_has_mail(stepper)) {
        if (!baton__step(stepper, SIZE_MAX)) {
            if (baton__clock_ns() > deadline) {
                return false;
            }
            (void)sched_yield();
        }
    }
    return true;
}

/* Freezes, and takes what the schedule needs of its group: room for its
   messages, and tags. */
static baton_status_t prepare(baton_schedule_t *schedule,
                              const baton__order_t *order)
{
    baton_group_t *group = schedule->group;
    baton_status_t status = BATON_OK;
    if (group->engine->sim != NULL) {
        status = baton__sim_admit(schedule);
    }
    if (status == BATON_OK) {
        status = baton__freeze(schedule, order);
    }
    if (status != BATON_OK) {
        return status;
    }
    int64_t messages = schedule->plan.messages;
    baton__engine_enter(group->engine);
    status = group->transport->reserve(group->endpoint, messages);
    if (status != BATON_OK) {
        status = baton__error(status,
                              "commit of \"%s\" failed: the %s transport has "
                              "no room for %lld more messages",
                              schedule->name, group->transport->name,
                              (long long)messages);
    } else {
        status = baton__assign_tags(schedule);
        if (status != BATON_OK) {
            (void)group->transport->reserve(group->endpoint, -messages);
        }
    }
    baton__engine_leave(group->engine, BATON__LEAVE_BEHIND);
    if (status != BATON_OK) {
        baton__thaw(schedule);
    }
    return status;
}

/* Undoes prepare, and what arming has done of a schedule that could not be
   armed: what met its message before it was withdrawn still comes in. */
static void give_up(baton_schedule_t *schedule)
{
    baton_group_t *group = schedule->group;
    baton__engine_enter(group->engine);
    bool gone = drain(schedule, baton__config_number(BATON__CONFIG_DESTROY_MS));
    atomic_store_explicit(&schedule->shared.status, BATON_OK,
                          memory_order_relaxed);
    baton__return_tags(schedule);
    (void)group->transport->reserve(group->endpoint,
                                    -(int64_t)schedule->plan.messages);
    baton__engine_leave(group->engine, BATON__LEAVE_BEHIND);
    if (!gone) {
        baton__keep_plan(schedule); /* a message is still written into it */
    }
    baton__thaw(schedule);
}

/* Hands the schedule to the driver. */
static baton_status_t admit(baton_schedule_t *schedule,
                            const baton__order_t *order)
{
    baton_engine_t *engine = schedule->group->engine;
    baton__engine_enter(engine);
    baton_status_t status = baton__step_add(schedule->group->stepper, schedule);
    if (status == BATON_OK) {
        settle_graph(schedule, order); /* nothing steps before the next line */
    }
    baton__engine_leave(engine, BATON__LEAVE_BEHIND);
    return status;
}

static baton_status_t commit(baton_schedule_t *schedule, bool verify)
{
    if (schedule->committed) {
        return baton__error(BATON_ERR_STATE,
                            "commit of \"%s\": it is committed already",
                            schedule->name);
    }
    baton__order_t order = {0};
    baton_status_t status = baton__validate(schedule, &order);
    if (status == BATON_OK) {
        status = baton__find_aliases(schedule);
    }
    if (status == BATON_OK) {
        status = baton__check_hazards(schedule, &order);
    }
    if (status == BATON_OK) {
        status = prepare(schedule, &order);
    }
    bool prepared = status == BATON_OK;
    if (verify) {
        /* Also with an error of its own: the others must hear of it. And behind
           all that can fail here for lack of memory. */
        status = baton__verify(schedule, status);
    }
    if (status == BATON_OK) {
        status = admit(schedule, &order);
    }
    if (status == BATON_OK) {
        schedule->committed = true;
        baton__free(schedule->edges);
        baton__free(schedule->drawn_ops);
        baton__free(schedule->drawn_needs);
        schedule->edges = NULL;
        schedule->drawn_ops = NULL;
        schedule->drawn_needs = NULL;
    } else if (prepared) {
        give_up(schedule);
    }
    baton__order_free(&order);
    return status;
}

baton_status_t baton_schedule_commit(baton_schedule_t *schedule)
{
    /* A simulator's groups have no verifier: it compares all ranks itself. */
    return commit(schedule, schedule->group->verifier != NULL);
}

baton_status_t baton__commit_unverified(baton_schedule_t *schedule)
{
    return commit(schedule, false);
}

/* Takes a committed schedule from the driver. */
static bool expel(baton_schedule_t *schedule)
{
    baton_group_t *group = schedule->group;
    baton_engine_t *engine = group->engine;
    int64_t patience_ms = baton__config_number(BATON__CONFIG_DESTROY_MS);
    if (engine->sim != NULL) {
        baton__sim_expel(schedule);
        return true;
    }
    bool ended;
    if (baton_schedule_test(schedule, &ended) == BATON_OK && !ended) {
        int ms = patience_ms > INT32_MAX ? INT32_MAX : (int)patience_ms;
        (void)!baton_schedule_wait(schedule, ms);
    }
    baton__engine_enter(engine);
    (void)baton__error_forward(BATON_ERR_CANCELLED,
                               "the schedule is being destroyed");
    baton__step_fail(&engine->stepper, schedule, BATON_ERR_CANCELLED);
    bool gone = drain(schedule, patience_ms);
    if (gone) {
        baton__step_remove(&engine->stepper, schedule);
        (void)group->transport->reserve(group->endpoint,
                                        -(int64_t)schedule->plan.messages);
    }
    baton__engine_leave(engine, BATON__LEAVE_BEHIND);
    return gone;
}

void baton_schedule_destroy(baton_schedule_t *schedule)
{
    if (schedule == NULL) {
        return;
    }
    baton_group_t *group = schedule->group;
    /* Where all goes well the thread's last error is still the caller's. */
    char before[BATON__MESSAGE_BYTES];
    (void)snprintf(before, sizeof before, "%s", baton_error_message());
    if (schedule->committed && !expel(schedule)) {
        /* A send that no peer takes still reads the memory. Leaking it is the
           one way that is safe; the group will say that it is still there. */
        (void)baton__error(BATON_ERR_TIMEOUT,
                           "destroy of \"%s\": a send has not ended: its "
                           "memory is kept",
                           schedule->name);
        return;
    }
    baton__thaw(schedule);
    (void)baton__error_forward(BATON_OK, before);
    baton__engine_enter(group->engine);
    group->schedules--;
    baton__engine_leave(group->engine, BATON__LEAVE_BEHIND);
    baton__free(schedule->edges);
    baton__free(schedule->needs);
    baton__free(schedule->ops);
    baton__free(schedule->buffers);
    if (schedule->addresses != schedule->few_addresses) {
        baton__free(schedule->addresses);
    }
    baton__free(schedule->name);
    baton__free(schedule);
}

static void put_behind(baton_schedule_t *schedule, uint32_t buffer,
                       void *memory)
{
    schedule->buffers[buffer].memory = memory;
    if (!schedule->group->cost_only) {
        schedule->addresses[buffer] = memory;
    }
}

baton_status_t baton_buffer_rebind(baton_schedule_t *schedule,
                                   baton_buffer_t buffer, void *memory)
{
    if (buffer.index >= schedule->buffer_count ||
        schedule->buffers[buffer.index].scratch) {
        return baton__error(BATON_ERR_INVALID,
                            "rebind in \"%s\": buffer %u is %s", schedule->name,
                            buffer.index,
                            buffer.index >= schedule->buffer_count
                                ? "not one of its buffers"
                                : "scratch, which the schedule owns");
    }
    baton_engine_t *engine = schedule->group->engine;
    /* First the driver: an external epoch may run before commit returns. */
    if (baton__engine_is_mine(engine)) {
        char *before = schedule->buffers[buffer.index].memory;
        put_behind(schedule, buffer.index, memory);
        baton_status_t status = schedule->committed
                                    ? baton__check_alias(schedule, buffer.index)
                                    : BATON_OK;
        if (status != BATON_OK) {
            put_behind(schedule, buffer.index, before);
        }
        return status;
    }
    if (!schedule->committed) {
        put_behind(schedule, buffer.index, memory);
        return BATON_OK;
    }
    baton__engine_enter(engine);
    bool runs = schedule->run.state == BATON__RUN_RUNNING;
    if (!runs) {
        put_behind(schedule, buffer.index, memory);
        schedule->buffers[buffer.index].rebound = true;
        atomic_store_explicit(&schedule->rebound, true, memory_order_relaxed);
    }
    baton__engine_leave(engine, BATON__LEAVE_BEHIND);
    return runs ? baton__error(
                      BATON_ERR_BUSY, "rebind in \"%s\": epoch %llu is running",
                      schedule->name, (unsigned long long)schedule->run.epoch)
                : BATON_OK;
}
