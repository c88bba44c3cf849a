/* How schedules are created, committed and destroyed. */
#include "progress/calls/calls.h"
#include "progress/driving/engine.h"
#include "progress/epoch/arrivals.h"
#include "progress/epoch/epoch.h"
#include "progress/membership/notice.h"
#include "progress/membership/recovery.h"
#include "sched/offload.h"
#include "sched/share.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

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
    size_t task_bytes = engine->driver->task_bytes;
    /* The memory for failures and recoveries is a part of the task's, so that a
       failure or recovery need not allocate any. In simulations whose ranks
       share plans it is allocated when it is needed. */
    baton__later_failure_t *later = NULL;
    size_t failure_bytes =
        group->sharing == NULL ? sizeof *later + 2 * BATON__SENTENCE_BYTES : 0;
    baton__task_t *task =
        baton__alloc(1, task_bytes + failure_bytes + name_bytes);
    /* The attempt is counted even without memory for the schedule, since other
       ranks may have had memory for theirs. */
    engine->driver->enter(engine);
    uint32_t *attempts = baton__group_counter(group, name, 0);
    uint32_t attempt = attempts != NULL ? ++*attempts : 0;
    bool enough = task != NULL && attempt > 0;
    if (enough) {
        char *whole_name = (char *)task + task_bytes + failure_bytes;
        if (failure_bytes > 0) {
            later = (void *)((char *)task + task_bytes);
            later->sentence = (char *)(later + 1);
            task->after_recovery = later;
            task->schedule.sentence = later->sentence + BATON__SENTENCE_BYTES;
        }
        (void)snprintf(whole_name, name_bytes, "%s%s%s", of,
                       group->name != NULL ? "/" : "", name);
        task->magic = BATON__TASK_MAGIC;
        task->attempt = attempt;
        task->identity = baton__identity(name, attempt);
        atomic_init(&task->limit, UINT64_MAX);
        task->schedule.group = group;
        task->schedule.name = whole_name;
        task->schedule.depth = 1;
        baton__step_attach(&task->schedule);
        group->schedules++;
    }
    engine->driver->leave(engine);
    if (!enough) {
        baton__free(task);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory for schedule \"%s\"", name);
    }
    *out = &task->schedule;
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
    if (!baton__is_schedule(schedule, __func__)) {
        return NULL;
    }
    baton_group_t *group = schedule->group;
    /* Pairs with the exchange below, which another thread may have made. */
    baton_op_t *average =
        atomic_load_explicit(&group->average, memory_order_acquire);
    baton_op_t *made = average == NULL ? baton__alloc(1, sizeof *made) : NULL;
    if (made != NULL) {
        *made = *BATON_AVG;
        made->arg = (void *)(uintptr_t)group->size;
        if (atomic_compare_exchange_strong_explicit(&group->average, &average,
                                                    made, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            return made;
        }
        baton__free(made);
    }
    return average;
}

const char *baton_schedule_name(const baton_schedule_t *schedule)
{
    return baton__is_schedule(schedule, __func__) ? schedule->name : "";
}

void baton_schedule_in_order(baton_schedule_t *schedule)
{
    if (baton__is_schedule(schedule, __func__)) {
        baton__task_of(schedule)->in_order = true;
    }
}

/* ---- commit ----------------------------------------------------------- */

/* Reserves capacity in the transport for the messages with each peer, up to the
   first peer for which that fails; with sign -1 releases the capacity. Returns
   the number of peers for which that has succeeded. */
static uint32_t commit_reserve(baton_schedule_t *schedule, uint32_t peers,
                               int sign, baton_status_t *status)
{
    const baton_group_t *group = schedule->group;
    const baton__plan_t *plan = &schedule->plan;
    for (uint32_t i = 0; i < peers && !plan->shared; i++) {
        const uint32_t *from = plan->message_counts[i][0];
        const uint32_t *to = plan->message_counts[i][1];
        *status =
            group->transport->reserve(group->endpoint, (int)plan->peers[i],
                                      sign * ((int64_t)to[0] + to[1]),
                                      sign * ((int64_t)from[0] + from[1]));
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
        status = baton__error(
            BATON_ERR_NO_MEMORY,
            "commit of \"%s\" failed: no memory for another schedule",
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

/* Frees the arrays that the builder has filled: edges, ops and needs. The plan
   has taken their place: it lists each node's successors, and schedule->needs
   is the plan's array now. In that array this replaces BATON_NEED_ALL by the
   node's number of predecessors, since epochs count down from there. In a plan
   that was adopted from another rank this was done before, and `order` is
   empty. */
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

/* The number of failed epochs whose outcomes are stored, for late waits. A
   schedule with a larger depth stores as many as its depth. */
enum { FAILURES = 8 };

/* Gives the task's arrays and its arrivals (epoch/arrivals.h) their places in
   the schedule's annex, a part of the memory of the plan. If the annex is NULL,
   because the plan does not exist yet, only counts the bytes that they take. */
static void lay_out_annex(baton__task_t *task)
{
    baton_schedule_t *schedule = &task->schedule;
    const uint32_t depth = schedule->depth;
    const uint32_t failures = depth > FAILURES ? depth : FAILURES;
    size_t bound = (size_t)schedule->buffer_count * (depth > 1 ? depth : 0);
    bool has_due = schedule->group->sharing == NULL;
    const size_t failure_bytes =
        has_due ? failures * sizeof *task->failures : 0;
    schedule->annex_peer_bytes = has_due ? sizeof *task->due : 0;
    schedule->annex_bytes = failure_bytes + bound * sizeof *task->bindings +
                            baton__arrivals_bytes(schedule);
    if (schedule->annex != NULL) {
        task->failure_count = failures;
        task->failures = has_due ? (void *)schedule->annex : NULL;
        task->due = has_due ? (void *)(task->failures + failures) : NULL;
        char **bindings =
            (void *)(schedule->annex + failure_bytes +
                     schedule->annex_peer_bytes * schedule->plan.peer_count);
        task->bindings = bound > 0 ? bindings : NULL;
        baton__arrivals_open(task, bindings + bound);
    }
}

/* Hands the schedule to the driver. */
static void attach(baton_schedule_t *schedule, const baton__order_t *order)
{
    baton_engine_t *engine = schedule->group->engine;
    engine->driver->enter(engine);
    lay_out_annex(baton__task_of(schedule));
    free_graph(schedule, order);
    schedule->committed = true;
    baton__step_commit(schedule);
    engine->driver->leave(engine);
}

static baton_status_t check_graph(baton_schedule_t *schedule,
                                  baton__order_t *order)
{
    baton_status_t status = baton__validate(schedule, order);
    status = status == BATON_OK ? baton__place(schedule) : status;
    status = status == BATON_OK ? baton__find_aliases(schedule) : status;
    return status == BATON_OK ? baton__check_hazards(schedule, order) : status;
}

static baton_status_t commit_schedule(baton_schedule_t *schedule, bool verify)
{
    if (schedule->committed) {
        return baton__error(BATON_ERR_STATE,
                            "commit of \"%s\": it is committed already: call "
                            "baton_schedule_start next",
                            schedule->name);
    }
    if (baton__engine_is_inside(schedule->group->engine)) {
        return baton__error(BATON_ERR_STATE,
                            "commit of \"%s\": a call node can't commit",
                            schedule->name);
    }
    baton__order_t order = {0};
    lay_out_annex(baton__task_of(schedule));
    baton_status_t status = baton__plan_adopt(schedule);
    if (status == BATON_OK && !schedule->plan.shared) {
        status = check_graph(schedule, &order);
    }
    if (status == BATON_OK) {
        status = commit_prepare(schedule, &order);
    }
    bool prepared = status == BATON_OK;
    if (verify) {
        /* `verify` is called even after an error on this rank, since the other
           ranks must learn of the error. Everything that can fail for lack of
           memory on this rank alone has been done before. */
        status = schedule->group->engine->verification->verify(
            baton__member_of(schedule->group)->verifier, schedule, status);
    }
    if (status == BATON_OK) {
        attach(schedule, &order);
    } else if (prepared) {
        baton_engine_t *engine = schedule->group->engine;
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
    /* A simulator's groups have no verifier: the simulator compares all ranks
       itself. */
    return baton__is_schedule(schedule, __func__)
               ? commit_schedule(schedule,
                                 baton__member_of(schedule->group)->verifier !=
                                     NULL)
               : baton__error_status();
}

baton_status_t baton__commit_unverified(baton_schedule_t *schedule)
{
    baton_engine_t *engine = schedule->group->engine;
    baton_status_t status = commit_schedule(schedule, false);
    if (status == BATON_OK) {
        engine->driver->enter(engine);
        baton__task_of(schedule)->verifies = true;
        schedule->group->schedules--;
        engine->driver->leave(engine);
    }
    return status;
}

/* ---- destroy ---------------------------------------------------------- */

/* True if no epoch runs on this rank, and none is due to begin. */
static bool is_idle(const void *arg)
{
    const baton__task_t *task = arg;
    /* Pairs with the stores in baton__task_set_phase and
       baton__epoch_begin_if_due. */
    return !atomic_load_explicit(&task->busy, memory_order_acquire) &&
           baton__epoch_ended(task, baton__task_requested(task));
}

static bool is_waited_for(const baton__task_t *task)
{
    /* Pairs with the decrements in wait_for and baton_async_complete,
       epochs.c. */
    return atomic_load_explicit(&task->waiters, memory_order_acquire) > 0;
}

/* Steps until no node of the schedule is in motion (sched/run.h) and no thread
   waits for it. False if a node is still in motion at `deadline_ns`. */
static bool commit_drain(const baton__task_t *task, uint64_t deadline_ns)
{
    assert(baton__driven_here(task->schedule.group));
    baton__stepper_t *stepper = task->schedule.group->stepper;
    while (baton__task_in_motion(task) || is_waited_for(task)) {
        if (!baton__step(stepper, BATON__STEP_BYTES)) {
            if (baton__task_in_motion(task) &&
                baton__clock_ns() > deadline_ns) {
                return false;
            }
            (void)sched_yield();
        }
    }
    return true;
}

/* Gives up a schedule that did not end in time. Its waiting threads return, and
   it is freed when none of its nodes is in motion any more. */
static void abandon(baton__task_t *task)
{
    assert(baton__driven_here(task->schedule.group));
    /* Pairs with the load in baton_async_complete: either that call sees this
       store, and does not use the engine, or the loop below waits for it. */
    atomic_store_explicit(&task->orphan, BATON__ORPHAN_MOVES,
                          memory_order_seq_cst);
    baton__epoch_abandon(&task->schedule);
    while (is_waited_for(task)) {
        (void)sched_yield();
    }
}

/* How a committed schedule has left the driver. */
typedef enum detached {
    DETACHED, /* the caller frees the schedule */
    /* the driver sends the last notices about the schedule, and then frees it
     */
    DETACHED_LEAVING,
    /* the driver frees the schedule when no node is in motion */
    DETACHED_ABANDONED
} detached_t;

static detached_t detach(baton__task_t *task)
{
    baton_schedule_t *schedule = &task->schedule;
    baton_group_t *group = schedule->group;
    baton_engine_t *engine = group->engine;
    int64_t patience_ms = baton__config_number(BATON__CONFIG_DESTROY_MS);
    uint64_t deadline_ns = baton__clock_ns() + (uint64_t)patience_ms * 1000000u;
    if (engine->driver->forget == NULL) {
        /* The remaining eighth of the time is for nodes that end only after
           their epoch has been failed, below. */
        int64_t wait_ms = patience_ms - patience_ms / 8;
        (void)engine->driver->wait(
            engine,
            &(baton__wait_t){.condition = is_idle,
                             .arg = task,
                             .timeout_ms = wait_ms > INT32_MAX ? INT32_MAX
                                                               : (int)wait_ms});
    }
    engine->driver->enter(engine);
    /* An epoch may have been started just before the lock was taken. It begins
       here, and is failed below. */
    baton__epoch_begin_if_due(schedule);
    baton__recovery_leave(task);
    const bool has_failed = task->failing_from != 0;
    baton__notice_destroy(schedule);
    if (engine->driver->forget != NULL) {
        engine->driver->forget(schedule);
    }
    bool gone = engine->driver->forget != NULL
                    ? task->begun == 0 && task->queued == 0
                    : commit_drain(task, deadline_ns);
    detached_t detached = DETACHED;
    if (!gone) {
        abandon(task);
        detached = DETACHED_ABANDONED;
    } else if (task->due_count > 0 && engine->driver->forget == NULL) {
        task->leaving = true;
        baton__member_of(group)->leaving++;
        detached = DETACHED_LEAVING;
    }
    baton__notice_record(task, has_failed);
    baton__step_detach(schedule);
    if (gone) {
        commit_give_back(schedule, schedule->plan.peer_count);
    }
    /* the struct of an orphan stays, and must not look committed */
    schedule->committed = false;
    schedule->destroyed = true;
    engine->driver->leave(engine);
    return detached;
}

/* Destroys a schedule whose earlier destroy has timed out. Only `orphan` may be
   read here: the schedule's group and most of its memory may be gone. */
static baton_status_t destroy_orphan(baton__task_t *task)
{
    int orphan = BATON__ORPHAN_ENDED;
    /* Pairs with the exchange in baton__task_free. */
    if (!atomic_compare_exchange_strong_explicit(
            &task->orphan, &orphan, BATON__NO_ORPHAN, memory_order_acquire,
            memory_order_relaxed)) {
        return baton__error(BATON_ERR_TIMEOUT,
                            "destroy: a message or an async node of the "
                            "schedule has not ended since the last call; its "
                            "memory is still in use");
    }
    baton__free_later(task);
    return BATON_OK;
}

baton_status_t baton_schedule_destroy(baton_schedule_t *schedule)
{
    if (schedule == NULL) {
        return BATON_OK;
    }
    baton__task_t *task = baton__task_of(schedule);
    if (atomic_load_explicit(&task->orphan, memory_order_relaxed) !=
        BATON__NO_ORPHAN) {
        return destroy_orphan(task);
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
    /* A success must not change the thread's error message, so the message is
       saved here and restored at the end. */
    char before[BATON__MESSAGE_BYTES];
    (void)snprintf(before, sizeof before, "%s", baton_error_message());
    char name[BATON__SENTENCE_BYTES];
    (void)snprintf(name, sizeof name, "%s", schedule->name);
    bool committed = schedule->committed;
    bool counted = !task->verifies;
    detached_t detached = committed ? detach(task) : DETACHED;
    engine->driver->enter(engine);
    if (!committed) {
        baton__notice_retract(group, task->identity);
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
        baton__task_free(task);
    }
    return baton__error_forward(BATON_OK, before);
}
