/* How schedules are created, committed and destroyed. */
#include "progress/engine.h"
#include "progress/epoch.h"
#include "progress/epochs.h"
#include "progress/notice.h"
#include "progress/recovery.h"
#include "sched/offload.h"
#include "sched/share.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static baton_engine_t *commit_engine_of(const baton_schedule_t *schedule)
{
    return schedule->group->engine;
}

/* ---- create ----------------------------------------------------------- */

baton_status_t baton_schedule_create(baton_group_t *group, const char *name,
                                     baton_schedule_t **out)
{
    if (!baton__is_group(group, __func__) ||
        !baton__is_given(name, true, __func__, "name") ||
        !baton__is_given(out, true, __func__, "out")) {
        return baton__error_status();
    }
    baton_engine_t *engine = group->engine;
    const char *of = group->name != NULL ? group->name : "";
    size_t name_bytes = strlen(of) + 1 + strlen(name) + 1;
    baton_schedule_t *schedule = baton__alloc(1, sizeof *schedule + name_bytes);
    /* The attempt is counted even without memory for the schedule, since other
       ranks may have had memory for theirs. */
    engine->driver->enter(engine);
    uint32_t *attempts = baton__group_counter(group, name, 0);
    uint32_t attempt = attempts != NULL ? ++*attempts : 0;
    bool enough = schedule != NULL && attempt > 0;
    if (enough) {
        schedule->group = group;
        schedule->average = *BATON_AVG;
        schedule->average.arg = (void *)(uintptr_t)group->size;
        schedule->name = (char *)(schedule + 1);
        (void)snprintf((char *)(schedule + 1), name_bytes, "%s%s%s", of,
                       group->name != NULL ? "/" : "", name);
        schedule->attempt = attempt;
        schedule->depth = 1;
        schedule->identity = baton__identity(name, attempt);
        atomic_init(&schedule->shared.limit, UINT64_MAX);
        baton__step_attach(schedule);
        group->schedules++;
    }
    engine->driver->leave(engine);
    if (!enough) {
        baton__free(schedule);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory for schedule \"%s\"", name);
    }
    *out = schedule;
    return BATON_OK;
}

baton_group_t *baton_schedule_group(const baton_schedule_t *schedule)
{
    return baton__is_schedule(schedule, __func__) ? schedule->group : NULL;
}

int baton_schedule_rank(const baton_schedule_t *schedule)
{
    return baton__is_schedule(schedule, __func__) ? schedule->group->rank : -1;
}

int baton_schedule_hosts(const baton_schedule_t *schedule)
{
    if (!baton__is_schedule(schedule, __func__)) {
        return -1;
    }
    int hosts = schedule->group->transport->hosts;
    return hosts > 0 ? hosts : 1;
}

int baton_schedule_host_block(const baton_schedule_t *schedule)
{
    return baton__is_schedule(schedule, __func__)
               ? schedule->group->transport->host_block
               : -1;
}

int baton_schedule_host_of(const baton_schedule_t *schedule, int rank)
{
    if (!baton__is_schedule(schedule, __func__)) {
        return -1;
    }
    const baton_group_t *group = schedule->group;
    if (rank < 0 || rank >= group->size) {
        (void)baton__error(BATON_ERR_INVALID,
                           "%s: rank is %d; allowed: 0 to %d", __func__, rank,
                           group->size - 1);
        return -1;
    }
    return baton__group_host(group, rank);
}

int baton_schedule_processors(const baton_schedule_t *schedule)
{
    return baton__is_schedule(schedule, __func__)
               ? schedule->group->transport->host_processors
               : -1;
}

int baton_schedule_size(const baton_schedule_t *schedule)
{
    return baton__is_schedule(schedule, __func__) ? schedule->group->size : -1;
}

const baton_op_t *baton_schedule_average(const baton_schedule_t *schedule)
{
    return baton__is_schedule(schedule, __func__) ? &schedule->average : NULL;
}

const char *baton_schedule_name(const baton_schedule_t *schedule)
{
    return baton__is_schedule(schedule, __func__) ? schedule->name : "";
}

/* ---- commit ----------------------------------------------------------- */

/* Reserves capacity in the transport for the messages with each peer, up to the
   first peer for which there is none; with sign -1 releases it. Returns for how
   many peers it did. */
static uint32_t commit_reserve(baton_schedule_t *schedule, uint32_t peers,
                               int sign, baton_status_t *status)
{
    const baton_group_t *group = schedule->group;
    const baton__plan_t *plan = &schedule->plan;
    for (uint32_t i = 0; i < peers && !plan->shared; i++) {
        *status =
            group->transport->reserve(group->endpoint, (int)plan->peers[i],
                                      sign * (int64_t)plan->peer_sends[i],
                                      sign * (int64_t)plan->peer_receives[i]);
        if (*status != BATON_OK) {
            return i;
        }
    }
    return peers;
}

static void commit_give_back(baton_schedule_t *schedule, uint32_t peers)
{
    baton_status_t status = BATON_OK;
    (void)commit_reserve(schedule, peers, -1, &status);
}

/* Makes the plan, unless the schedule has one, and reserves a place in the
   group's table and the transport's capacity for its messages. */
static baton_status_t commit_prepare(baton_schedule_t *schedule,
                                     const baton__order_t *order)
{
    baton_group_t *group = schedule->group;
    baton_engine_t *engine = group->engine;
    baton_status_t status = engine->driver->check_memory != NULL
                                ? engine->driver->check_memory(schedule)
                                : BATON_OK;
    if (status == BATON_OK && !schedule->plan.shared) {
        status = baton__plan_create(schedule, order);
    }
    if (status != BATON_OK) {
        baton__plan_destroy(schedule);
        return status;
    }
    engine->driver->enter(engine);
    if (!baton__table_reserve(&group->table, 1)) {
        status = baton__error(BATON_ERR_NO_MEMORY,
                              "commit of \"%s\" failed: no memory for one "
                              "schedule more",
                              schedule->name);
    } else {
        uint32_t done =
            commit_reserve(schedule, schedule->plan.peer_count, 1, &status);
        if (status != BATON_OK) {
            commit_give_back(schedule, done);
            status =
                baton__error(status,
                             "commit of \"%s\" failed: the %s transport "
                             "has no room for its messages with rank %u: "
                             "%s",
                             schedule->name, group->transport->name,
                             schedule->plan.peers[done], baton_error_message());
        }
    }
    engine->driver->leave(engine);
    if (status != BATON_OK) {
        baton__plan_destroy(schedule);
    }
    return status;
}

/* Frees the builder's arrays. After the commit the plan has the edges as
   successors, and `needs` has numbers of edges, as in a shared plan. */
static void free_graph(baton_schedule_t *schedule, const baton__order_t *order)
{
    for (uint32_t i = 0; i < schedule->count && order->first != NULL; i++) {
        if (schedule->needs[i] == BATON_NEED_ALL) {
            schedule->needs[i] = order->first[i + 1] - order->first[i];
        }
    }
    if (!baton__sharing_keep(schedule)) {
        baton__free(schedule->edges);
        baton__free(schedule->built_ops);
        baton__free(schedule->built_needs);
    }
    schedule->edges = NULL;
    schedule->built_ops = NULL;
    schedule->built_needs = NULL;
}

/* Hands the schedule to the driver. */
static void attach(baton_schedule_t *schedule, const baton__order_t *order)
{
    baton_engine_t *engine = commit_engine_of(schedule);
    engine->driver->enter(engine);
    free_graph(schedule, order);
    schedule->committed = true;
    baton__step_commit(schedule);
    engine->driver->leave(engine);
}

static baton_status_t commit_schedule(baton_schedule_t *schedule, bool verify)
{
    if (schedule->committed) {
        return baton__error(BATON_ERR_STATE,
                            "commit of \"%s\": it is committed already: "
                            "baton_schedule_start is next",
                            schedule->name);
    }
    if (baton__engine_is_inside(commit_engine_of(schedule))) {
        return baton__error(BATON_ERR_STATE,
                            "commit of \"%s\": a call node can't commit",
                            schedule->name);
    }
    baton__order_t order = {0};
    bool adopted;
    baton_status_t status = baton__plan_adopt(schedule, &adopted);
    if (status == BATON_OK && !adopted) {
        status = baton__validate(schedule, &order);
    }
    if (status == BATON_OK && !adopted) {
        status = baton__place(schedule);
    }
    if (status == BATON_OK && !adopted) {
        status = baton__find_aliases(schedule);
    }
    if (status == BATON_OK && !adopted) {
        status = baton__check_hazards(schedule, &order);
    }
    if (status == BATON_OK) {
        status = commit_prepare(schedule, &order);
    }
    bool prepared = status == BATON_OK;
    if (verify) {
        /* This is called even after an error on this rank, since the other
           ranks must learn of it; and after all that can fail here for lack of
           memory. */
        status = commit_engine_of(schedule)->verification->verify(
            schedule->group->verifier, schedule, status);
    }
    if (status == BATON_OK) {
        attach(schedule, &order);
    } else if (prepared) {
        baton_engine_t *engine = commit_engine_of(schedule);
        engine->driver->enter(engine);
        commit_give_back(schedule, schedule->plan.peer_count);
        engine->driver->leave(engine);
        baton__plan_destroy(schedule);
    }
    baton__order_free(&order);
    return status;
}

baton_status_t baton_schedule_commit(baton_schedule_t *schedule)
{
    /* A simulator's groups have no verifier: it compares all ranks itself. */
    return baton__is_schedule(schedule, __func__)
               ? commit_schedule(schedule, schedule->group->verifier != NULL)
               : baton__error_status();
}

baton_status_t baton__commit_unverified(baton_schedule_t *schedule)
{
    baton_engine_t *engine = commit_engine_of(schedule);
    baton_status_t status = commit_schedule(schedule, false);
    if (status == BATON_OK) {
        engine->driver->enter(engine);
        schedule->verifies = true;
        schedule->group->schedules--;
        engine->driver->leave(engine);
    }
    return status;
}

/* ---- destroy ---------------------------------------------------------- */

/* True if no epoch runs here, or is due. */
static bool is_idle(const void *arg)
{
    const baton_schedule_t *schedule = arg;
    uint64_t requested =
        atomic_load_explicit(&schedule->shared.requested, memory_order_relaxed);
    baton__run_state_t phase =
        atomic_load_explicit(&schedule->run.phase, memory_order_acquire);
    return phase != BATON__RUN_RUNNING && phase != BATON__RUN_DRAINING &&
           baton__epoch_ended(schedule, requested);
}

static bool is_waited_for(const baton_schedule_t *schedule)
{
    /* Pairs with the decrements in baton_schedule_wait and _async_complete. */
    return atomic_load_explicit(&schedule->shared.waiters,
                                memory_order_acquire) > 0;
}

/* Steps until nothing of the schedule is in motion and no thread waits for it.
   The caller has the driver lock. False if something is still in motion at
   `deadline_ns`. */
static bool commit_drain(const baton_schedule_t *schedule, uint64_t deadline_ns)
{
    baton__stepper_t *stepper = schedule->group->stepper;
    while (baton__schedule_in_motion(schedule) || is_waited_for(schedule)) {
        if (!baton__step(stepper, BATON__STEP_BYTES)) {
            if (baton__schedule_in_motion(schedule) &&
                baton__clock_ns() > deadline_ns) {
                return false;
            }
            (void)sched_yield();
        }
    }
    return true;
}

/* Gives up a schedule that did not end in time. Its waiting threads return; it
   is freed when nothing of it is in motion any more. */
static void abandon(baton_schedule_t *schedule)
{
    /* Pairs with the load in baton_async_complete: either that call sees this
       store, and does not use the engine, or the loop below waits for it. */
    atomic_store_explicit(&schedule->shared.orphan, BATON__ORPHAN_MOVES,
                          memory_order_seq_cst);
    baton__epoch_abandon(schedule);
    while (is_waited_for(schedule)) {
        (void)sched_yield();
    }
}

/* How a committed schedule has left the driver. */
typedef enum detached {
    DETACHED,          /* the caller frees it */
    DETACHED_LEAVING,  /* freed after its notices are sent */
    DETACHED_ABANDONED /* freed when the parts in motion end */
} detached_t;

static detached_t detach(baton_schedule_t *schedule)
{
    baton_group_t *group = schedule->group;
    baton_engine_t *engine = group->engine;
    int64_t patience_ms = baton__config_number(BATON__CONFIG_DESTROY_MS);
    uint64_t deadline_ns = baton__clock_ns() + (uint64_t)patience_ms * 1000000u;
    if (engine->driver->forget == NULL) {
        /* The rest of the time is for parts that end after the cancel. */
        int64_t wait_ms = patience_ms - patience_ms / 8;
        (void)engine->driver->wait(
            engine,
            &(baton__wait_t){.condition = is_idle,
                             .arg = schedule,
                             .timeout_ms = wait_ms > INT32_MAX ? INT32_MAX
                                                               : (int)wait_ms});
    }
    engine->driver->enter(engine);
    baton__epoch_begin_if_due(schedule); /* if it was started just now */
    baton__recovery_leave(schedule);
    const bool has_failed = schedule->failing_from != 0;
    baton__notice_destroy(schedule);
    if (engine->driver->forget != NULL) {
        engine->driver->forget(schedule);
    }
    bool gone = engine->driver->forget != NULL
                    ? schedule->turn.begun == 0 && schedule->turn.queued == 0
                    : commit_drain(schedule, deadline_ns);
    if (!gone) {
        abandon(schedule);
    }
    schedule->notices.leaving = gone && schedule->notices.due_count > 0 &&
                                engine->driver->forget == NULL;
    detached_t detached = !gone                       ? DETACHED_ABANDONED
                          : schedule->notices.leaving ? DETACHED_LEAVING
                                                      : DETACHED;
    group->leaving += schedule->notices.leaving;
    baton__notice_depart(schedule, has_failed);
    baton__step_detach(schedule);
    if (gone) {
        commit_give_back(schedule, schedule->plan.peer_count);
    }
    schedule->committed = false; /* the struct may live on */
    schedule->destroyed = true;
    engine->driver->leave(engine);
    return detached;
}

/* Destroys a schedule whose earlier destroy has timed out. Only `shared.orphan`
   may be read here: the schedule's group and most of its memory may be gone. */
static baton_status_t destroy_orphan(baton_schedule_t *schedule)
{
    int orphan = BATON__ORPHAN_ENDED;
    /* Pairs with the exchange in baton__schedule_free. */
    if (!atomic_compare_exchange_strong_explicit(
            &schedule->shared.orphan, &orphan, BATON__NO_ORPHAN,
            memory_order_acquire, memory_order_relaxed)) {
        return baton__error(BATON_ERR_TIMEOUT,
                            "destroy: a message or an async node of the "
                            "schedule has not ended since the last call; its "
                            "memory is still in use");
    }
    baton__free_later(schedule);
    return BATON_OK;
}

baton_status_t baton_schedule_destroy(baton_schedule_t *schedule)
{
    if (schedule == NULL) {
        return BATON_OK;
    }
    if (atomic_load_explicit(&schedule->shared.orphan, memory_order_relaxed) !=
        BATON__NO_ORPHAN) {
        return destroy_orphan(schedule);
    }
    if (!baton__is_schedule(schedule, __func__)) {
        return baton__error_status();
    }
    baton_group_t *group = schedule->group;
    baton_engine_t *engine = group->engine;
    if (schedule->committed && baton__engine_is_inside(engine)) {
        return baton__error(BATON_ERR_STATE,
                            "destroy of \"%s\": a call node can't destroy",
                            schedule->name);
    }
    /* A success leaves the thread's error message as it is. */
    char before[BATON__MESSAGE_BYTES];
    (void)snprintf(before, sizeof before, "%s", baton_error_message());
    char name[BATON__SENTENCE_BYTES];
    (void)snprintf(name, sizeof name, "%s", schedule->name);
    bool committed = schedule->committed;
    bool counted = !schedule->verifies;
    detached_t detached = committed ? detach(schedule) : DETACHED;
    engine->driver->enter(engine);
    if (!committed) {
        baton__notice_retract(group, schedule->identity);
        baton__step_detach(schedule);
    }
    group->schedules -= counted;
    engine->driver->leave(engine);
    if (detached == DETACHED_ABANDONED) {
        return baton__error(
            BATON_ERR_TIMEOUT,
            "destroy of \"%s\" on rank %d: a message or an async node has not "
            "ended within %lld ms; its memory is still in use",
            name, group->rank,
            (long long)baton__config_number(BATON__CONFIG_DESTROY_MS));
    }
    if (detached == DETACHED) {
        baton__schedule_free(schedule);
    }
    return baton__error_forward(BATON_OK, before);
}
