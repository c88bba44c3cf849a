/* How groups are created, destroyed and recovered. */
#include "progress/engine.h"
#include "progress/epoch.h"
#include "progress/epochs.h"
#include "progress/notice.h"
#include "progress/queues.h"
#include "progress/recovery.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"
#include "base/options.h"
#include "transport/staged/staged.h"

enum { EARLY = 32 }; /* hellos that are kept without an allocation */

/* A group with its watch: the group itself belongs to lib/transport, which
   knows no event loop. */
typedef struct watched_group {
    baton_group_t group;
    baton__watch_t *watch;
    baton_transport_t given;     /* a copy */
    baton_transport_t transport; /* in use: the same, or one around it that can
                                    carry messages of device memory */
} watched_group_t;

static void link_group(baton_group_t *group)
{
    baton_engine_t *engine = group->engine;
    const baton_transport_t *transport = group->transport;
    engine->driver->enter(engine);
    group->next = engine->stepper.groups;
    engine->stepper.groups = group;
    if (transport->host_processors > 0 &&
        transport->host_ranks > transport->host_processors) {
        baton__idle_share(&engine->idle);
    }
    engine->driver->leave(engine);
}

static void unlink_group(baton_group_t *group)
{
    baton_engine_t *engine = group->engine;
    engine->driver->enter(engine);
    baton_group_t **link = &engine->stepper.groups;
    while (*link != group) {
        link = &(*link)->next;
    }
    *link = group->next;
    baton__queues_forget(&engine->stepper, group, NULL);
    engine->driver->leave(engine);
}

static void free_group(watched_group_t *watched)
{
    baton__group_fini(&watched->group);
    baton__free(watched->group.parts);
    baton__free(watched);
}

static baton_status_t read_transport(const baton_transport_t *given,
                                     baton_transport_t *out)
{
    baton_status_t status = baton__options_read(
        out, sizeof *out, given, "group: transport", "BATON_TRANSPORT");
    if (status != BATON_OK) {
        return status;
    }
    if (out->reserve == NULL || out->send == NULL || out->notify == NULL ||
        out->withdraw == NULL || out->poll == NULL || out->accept == NULL ||
        out->drop == NULL || out->descriptor == NULL || out->drain == NULL ||
        out->arm == NULL || out->disarm == NULL || out->close == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "group: a function of transport \"%s\" is NULL",
                            out->name != NULL ? out->name : "?");
    }
    if ((out->allocate == NULL) != (out->release == NULL)) {
        return baton__error(
            BATON_ERR_INVALID,
            "group: of allocate and release transport \"%s\" has "
            "one only",
            out->name != NULL ? out->name : "?");
    }
    return BATON_OK;
}

/* Messages of an engine with a device go through a transport around the given
   one. disclose: the given endpoint is the caller's again. */
static baton_status_t enclose(const baton__device_t *device,
                              watched_group_t *watched, void **endpoint,
                              int rank, int size)
{
    const baton_transport_t *around = &watched->given;
    baton_status_t status =
        device == NULL ? BATON_OK
                       : baton__staged_open(&watched->given, *endpoint, rank,
                                            size, &device->port, device->device,
                                            &around, endpoint);
    watched->transport = *around;
    return status;
}

static void disclose(const watched_group_t *watched)
{
    if (watched->group.device != NULL) {
        baton__staged_undo(watched->group.endpoint);
    }
}

static baton_status_t reserve(baton_group_t *group)
{
    bool reads = group->transport->read != NULL;
    if (reads) {
        group->parts = baton__alloc(BATON__OPERANDS, BATON__PART_BYTES);
    }
    group->early = baton__alloc(EARLY, sizeof *group->early);
    group->early_room = EARLY;
    return group->early != NULL && (group->parts != NULL || !reads)
               ? BATON_OK
               : baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
}

baton_status_t baton_group_create(baton_engine_t *engine,
                                  const baton_transport_t *transport,
                                  void *endpoint, int rank, int size,
                                  baton_group_t **out)
{
    if (engine == NULL || transport == NULL || out == NULL) {
        return baton__error(BATON_ERR_INVALID, "baton_group_create: %s is NULL",
                            engine == NULL      ? "engine"
                            : transport == NULL ? "transport"
                                                : "out");
    }
    if (size < 1 || rank < 0 || rank >= size) {
        return baton__error(BATON_ERR_INVALID,
                            "group: rank %d of %d ranks is no rank", rank,
                            size);
    }
    watched_group_t *watched = baton__alloc(1, sizeof *watched);
    if (watched == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
    }
    baton_status_t status = read_transport(transport, &watched->given);
    if (status == BATON_OK) {
        status = enclose(engine->device, watched, &endpoint, rank, size);
    }
    if (status != BATON_OK) {
        baton__free(watched);
        return status;
    }
    watched->group = (baton_group_t){.engine = engine,
                                     .stepper = &engine->stepper,
                                     .kinds = baton__kinds,
                                     .device = engine->device,
                                     .transport = &watched->transport,
                                     .endpoint = endpoint,
                                     .introduces = true,
                                     .unknown_peer = -1,
                                     .rank = rank,
                                     .size = size};
    const baton__watched_t descriptors = {.name = watched->transport.name,
                                          .object = endpoint,
                                          .descriptor =
                                              watched->transport.descriptor,
                                          .drain = watched->transport.drain};
    status = reserve(&watched->group);
    if (status == BATON_OK) {
        status = baton__event_loop_watch(engine->event_loop, &descriptors,
                                         &watched->watch);
    }
    if (status != BATON_OK) {
        disclose(watched);
        free_group(watched);
        return status;
    }
    link_group(&watched->group);
    if (engine->verification != NULL &&
        (watched->transport.verify ||
         baton__config_number(BATON__CONFIG_VERIFY) != 0)) {
        status = engine->verification->create(&watched->group,
                                              &watched->group.verifier);
    }
    if (status != BATON_OK) {
        unlink_group(&watched->group);
        baton__event_loop_unwatch(watched->watch);
        disclose(watched);
        free_group(watched);
        return status;
    }
    *out = &watched->group;
    return BATON_OK;
}

/* BATON_ERR_BUSY names a schedule, or counts what was allocated and not freed.
 */
static baton_status_t check_empty(const baton_group_t *group)
{
    baton_engine_t *engine = group->engine;
    engine->driver->enter(engine);
    uint32_t schedules = group->schedules;
    const baton_schedule_t *left = engine->stepper.schedules;
    while (left != NULL && (left->group != group || left->verifies)) {
        left = left->notices.next;
    }
    uint32_t blocks = 0;
    for (const baton__memory_t *m = group->memory; m != NULL; m = m->next) {
        blocks++;
    }
    engine->driver->leave(engine);
    if (schedules == 0 && blocks > 0) {
        return baton__error(BATON_ERR_BUSY,
                            "group (rank %d of %d, %s): %u blocks of "
                            "baton_memory_alloc still exist: free them first",
                            group->rank, group->size, group->transport->name,
                            blocks);
    }
    return schedules == 0
               ? BATON_OK
               : baton__error(BATON_ERR_BUSY,
                              "group (rank %d of %d, %s): %u of its schedules "
                              "still exist, \"%s\" for one: destroy them first",
                              group->rank, group->size, group->transport->name,
                              schedules,
                              left != NULL ? left->name : "(uncommitted)");
}

static bool is_recovered(const void *arg)
{
    const baton_group_t *group = arg;
    return atomic_load_explicit(&group->recovery_left, memory_order_seq_cst) ==
           0;
}

/* The group's last steps are ordinary ones; see recovery.h. */
static void part(baton_group_t *group)
{
    baton_engine_t *engine = group->engine;
    int ms = (int)baton__config_number(BATON__CONFIG_DESTROY_MS);
    engine->driver->enter(engine);
    baton__notice_retract(group, 0);
    baton__recovery_part(group->stepper, group);
    engine->driver->leave(engine);
    (void)engine->driver->wait(engine, is_recovered, group, NULL, ms);
    engine->driver->enter(engine);
    baton__notice_give_up(group->stepper, group);
    group->all_lost = true; /* nobody is waited for any more */
    (void)baton__recovery_advance(group->stepper);
    engine->driver->leave(engine);
}

baton_status_t baton_group_destroy(baton_group_t *group)
{
    if (group == NULL) {
        return BATON_OK;
    }
    if (group->borrowed) {
        return baton__error(BATON_ERR_STATE,
                            "group (rank %d of %d, %s): it is the simulator's, "
                            "and goes with it",
                            group->rank, group->size, group->transport->name);
    }
    if (baton__engine_is_inside(group->engine)) {
        return baton__error(BATON_ERR_STATE,
                            "group (rank %d of %d, %s): a call node can't "
                            "destroy it",
                            group->rank, group->size, group->transport->name);
    }
    watched_group_t *watched = (watched_group_t *)group;
    baton_status_t status = check_empty(group);
    if (status != BATON_OK) {
        return status;
    }
    if (group->verifier != NULL) {
        group->engine->verification->destroy(group->verifier);
        group->verifier = NULL;
    }
    part(group);
    unlink_group(group);
    baton__event_loop_unwatch(watched->watch);
    group->transport->close(group->endpoint);
    free_group(watched);
    return BATON_OK;
}

/* ---- failure and recovery --------------------------------------------- */

baton_status_t baton_schedule_failure(const baton_schedule_t *schedule,
                                      baton_failure_t *out)
{
    baton_status_t status = baton__check_committed(schedule, __func__);
    if (status != BATON_OK) {
        return status;
    }
    if (out == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: out is NULL", __func__);
    }
    if (atomic_load_explicit(&schedule->shared.failed, memory_order_acquire) ==
        0) {
        /* An answer, and nothing for the log. */
        return baton_error_set(BATON_ERR_STATE, "\"%s\" has not failed",
                               schedule->name);
    }
    const baton__failure_t failure =
        baton__epoch_failure(schedule, out->message, sizeof out->message);
    out->status = failure.status;
    out->rank = failure.rank;
    out->epoch = failure.epoch;
    return BATON_OK;
}

void baton_schedule_on_recover(baton_schedule_t *schedule, baton_recover_fn fn,
                               void *arg)
{
    if (baton__graph_open(schedule, __func__)) {
        schedule->on_recover = fn;
        schedule->on_recover_arg = arg;
    }
}

/* A schedule that could not be recovered, or NULL. The driver's. (One that was
   recovered may have failed again, if a peer returned sooner.) */
static const baton_schedule_t *find_failed(const baton_group_t *group)
{
    const baton_schedule_t *s =
        group->unrecovered > 0 ? group->stepper->schedules : NULL;
    while (s != NULL &&
           (s->group != group || s->run.phase != BATON__RUN_FAILED ||
            !s->failure.final)) {
        s = s->notices.next;
    }
    return s;
}

static baton_status_t recovered(baton_group_t *group)
{
    baton_engine_t *engine = group->engine;
    baton_status_t status = BATON_OK;
    engine->driver->enter(engine);
    if (group->recovery == BATON__RECOVERY_OVER) {
        baton__group_set_recovery(group, BATON__RECOVERY_NONE);
    }
    const baton_schedule_t *failed = find_failed(group);
    if (group->all_lost || group->lost_count > 0) {
        status = baton__error(BATON_ERR_TRANSPORT,
                              "recovery on rank %d of %d: rank %d is gone",
                              group->rank, group->size,
                              group->lost_count > 0 ? group->lost[0].peer : 0);
    } else if (failed != NULL) {
        status = baton__error(BATON_ERR_FAILED,
                              "recovery on rank %d of %d: \"%s\" can't be "
                              "recovered: %s",
                              group->rank, group->size, failed->name,
                              failed->sentence);
    }
    engine->driver->leave(engine);
    return status;
}

/* Says which rank the recovery waits for. */
static baton_status_t not_recovered(baton_group_t *group, int timeout_ms)
{
    baton_engine_t *engine = group->engine;
    engine->driver->enter(engine);
    int rank = baton__recovery_awaits(group->stepper, group);
    engine->driver->leave(engine);
    if (rank < 0) {
        return baton__error(BATON_ERR_TIMEOUT,
                            "recovery on rank %d of %d: messages or async "
                            "nodes of this rank have not ended after %d ms",
                            group->rank, group->size, timeout_ms);
    }
    return baton_error_set(BATON_ERR_TIMEOUT,
                           "recovery on rank %d of %d: rank %d has not come "
                           "within %d ms, or waits for another",
                           group->rank, group->size, rank, timeout_ms);
}

baton_status_t baton_group_recover(baton_group_t *group, int timeout_ms)
{
    if (group == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: group is NULL", __func__);
    }
    baton_engine_t *engine = group->engine;
    if (baton__engine_is_inside(engine)) {
        return baton__error(BATON_ERR_STATE,
                            "recovery on rank %d of %d: not in a call node",
                            group->rank, group->size);
    }
    engine->driver->enter(engine);
    if (group->recovery == BATON__RECOVERY_NONE && !group->all_lost &&
        group->lost_count == 0) {
        baton__recovery_begin(group->stepper, group);
        if (engine->driver->recover != NULL) {
            engine->driver->recover(group);
        }
    }
    engine->driver->leave(engine);
    baton_status_t status =
        engine->driver->wait(engine, is_recovered, group, NULL, timeout_ms);
    return status == BATON_OK            ? recovered(group)
           : status == BATON_ERR_TIMEOUT ? not_recovered(group, timeout_ms)
                                         : status;
}
