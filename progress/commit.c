/* How groups and schedules come into an engine, and go. */
#include "progress/engine.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"

#include <sched.h>

/* ---- groups ----------------------------------------------------------- */

/* A group's object carries its watch behind it: the group itself belongs to
   lib/transport, which knows no loop. */
typedef struct seat {
    baton_group_t group;
    baton__watch_t *watch;
} seat_t;

baton_status_t baton_group_create(baton_engine_t *engine,
                                  const baton_transport_t *transport,
                                  void *endpoint, int rank, int size,
                                  baton_group_t **out)
{
    if (size < 1 || rank < 0 || rank >= size) {
        return baton__error(BATON_ERR_INVALID,
                            "group: rank %d of %d ranks is no rank", rank,
                            size);
    }
    seat_t *seat = baton__alloc(1, sizeof *seat);
    if (seat == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
    }
    seat->group = (baton_group_t){.engine = engine,
                                  .transport = transport,
                                  .endpoint = endpoint,
                                  .rank = rank,
                                  .size = size};
    baton_status_t status =
        baton__loop_watch(engine->loop, transport, endpoint, &seat->watch);
    if (status != BATON_OK) {
        baton__free(seat);
        return status;
    }
    baton__engine_enter(engine);
    seat->group.next = engine->stepper.groups;
    engine->stepper.groups = &seat->group;
    baton__engine_leave(engine, BATON__LEAVE_BEHIND);
    baton__loop_kick(engine->loop); /* from now on its naps have an end */
    *out = &seat->group;
    return BATON_OK;
}

baton_status_t baton_group_destroy(baton_group_t *group)
{
    if (group == NULL) {
        return BATON_OK;
    }
    baton_engine_t *engine = group->engine;
    seat_t *seat = (seat_t *)group;
    baton__engine_enter(engine);
    uint32_t schedules = group->schedules;
    if (schedules == 0) {
        baton_group_t **link = &engine->stepper.groups;
        while (*link != group) {
            link = &(*link)->next;
        }
        *link = group->next;
    }
    const baton_schedule_t *left = engine->stepper.schedules;
    while (left != NULL && left->group != group) {
        left = left->turn.next;
    }
    baton__engine_leave(engine, BATON__LEAVE_BEHIND);
    if (schedules > 0) {
        return baton__error(BATON_ERR_BUSY,
                            "group (rank %d of %d, %s): %u of its schedules "
                            "still exist, \"%s\" for one: destroy them first",
                            group->rank, group->size, group->transport->name,
                            schedules,
                            left != NULL ? left->name : "(uncommitted)");
    }
    baton__loop_unwatch(seat->watch);
    group->transport->close(group->endpoint);
    baton__free(group->pairs);
    baton__free(seat);
    return BATON_OK;
}

/* ---- schedules -------------------------------------------------------- */

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
static bool drain(baton_engine_t *engine, baton_schedule_t *schedule,
                  int64_t ms)
{
    uint64_t deadline = baton__clock_ns() + (uint64_t)ms * 1000000u;
    while (schedule->turn.posted > 0 || schedule->turn.runnable ||
           baton__step_has_mail(&engine->stepper)) {
        if (!baton__step(&engine->stepper, SIZE_MAX)) {
            if (baton__clock_ns() > deadline) {
                return false;
            }
            (void)sched_yield();
        }
    }
    return true;
}

/* Undoes what arming has done, of a schedule that could not be armed: what met
   its message before it was withdrawn still comes in. */
static void withdraw(baton_schedule_t *schedule)
{
    baton_group_t *group = schedule->group;
    (void)drain(group->engine, schedule,
                baton__config_number(BATON__CONFIG_DESTROY_MS));
    baton__return_tags(schedule);
    atomic_store_explicit(&schedule->shared.status, BATON_OK,
                          memory_order_relaxed);
}

/* Freezes, and hands the schedule to the driver. */
static baton_status_t admit(baton_schedule_t *schedule,
                            const baton__order_t *order)
{
    baton_group_t *group = schedule->group;
    baton_engine_t *engine = group->engine;
    baton_status_t status = baton__freeze(schedule, order);
    if (status != BATON_OK) {
        return status;
    }
    int64_t messages = schedule->plan.messages;
    baton__engine_enter(engine);
    status = group->transport->reserve(group->endpoint, messages);
    if (status != BATON_OK) {
        status = baton__error(status,
                              "commit of \"%s\" failed: the %s transport has "
                              "no room for %lld more messages",
                              schedule->name, group->transport->name,
                              (long long)messages);
    } else {
        status = baton__assign_tags(schedule);
        if (status == BATON_OK) {
            status = baton__step_add(&engine->stepper, schedule);
            if (status != BATON_OK) {
                withdraw(schedule);
            }
        }
        if (status != BATON_OK) {
            (void)group->transport->reserve(group->endpoint, -messages);
        }
    }
    if (status == BATON_OK) {
        settle_graph(schedule, order); /* nothing steps before the next line */
    }
    baton__engine_leave(engine, BATON__LEAVE_BEHIND);
    if (status != BATON_OK) {
        baton__thaw(schedule);
    }
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
        status = baton__check_hazards(schedule, &order);
    }
    if (verify) {
        /* Also with an error of its own: the others must hear of it. */
        status = baton__verify(schedule, status);
    }
    if (status == BATON_OK) {
        status = admit(schedule, &order);
    }
    if (status == BATON_OK) {
        schedule->committed = true;
        baton__free(schedule->edges);
        schedule->edges = NULL;
    }
    baton__order_free(&order);
    return status;
}

baton_status_t baton_schedule_commit(baton_schedule_t *schedule)
{
    return commit(schedule, baton__config_number(BATON__CONFIG_VERIFY) != 0);
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
    bool ended;
    if (baton_schedule_test(schedule, &ended) == BATON_OK && !ended) {
        int ms = patience_ms > INT32_MAX ? INT32_MAX : (int)patience_ms;
        (void)!baton_schedule_wait(schedule, ms);
    }
    baton__engine_enter(engine);
    (void)baton__error_forward(BATON_ERR_CANCELLED,
                               "the schedule is being destroyed");
    baton__step_fail(&engine->stepper, schedule, BATON_ERR_CANCELLED);
    bool gone = drain(engine, schedule, patience_ms);
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
    baton__engine_enter(group->engine);
    group->schedules--;
    baton__engine_leave(group->engine, BATON__LEAVE_BEHIND);
    baton__free(schedule->edges);
    baton__free(schedule->needs);
    baton__free(schedule->ops);
    baton__free(schedule->buffers);
    baton__free(schedule->addresses);
    baton__free(schedule->name);
    baton__free(schedule);
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
    if (baton__engine_is_mine(engine) || !schedule->committed) {
        schedule->addresses[buffer.index] = memory;
        return BATON_OK;
    }
    baton__engine_enter(engine);
    bool runs = schedule->run.state == BATON__RUN_RUNNING;
    if (!runs) {
        schedule->addresses[buffer.index] = memory;
    }
    baton__engine_leave(engine, BATON__LEAVE_BEHIND);
    return runs ? baton__error(
                      BATON_ERR_BUSY, "rebind in \"%s\": epoch %llu is running",
                      schedule->name, (unsigned long long)schedule->run.epoch)
                : BATON_OK;
}
