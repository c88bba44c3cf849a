/* The application's side of an epoch: start, test, wait, cancel. */
#include "progress/calls/calls.h"

#include "base/error.h"
#include "progress/driving/engine.h"
#include "progress/epoch/epoch.h"
#include "progress/state/traced.h"
#include "sched/offload.h"

#include <sched.h>

enum {
    /* A wait counts as BATON__NEXT_WAIT if it follows its start within
       AT_ONCE_NS, and as BATON__NEXT_WAIT_SOON if it does so within SOON_NS. */
    AT_ONCE_NS = 2000,
    SOON_NS = 20000,
    /* How long a wait that has timed out tries to get the driver lock. */
    DESCRIBE_NS = 2000000
};

/* Both loads pair with the stores in baton__epoch_publish(), epoch_end.c. */
bool baton__epoch_ended(const baton__task_t *task, uint64_t epoch)
{
    if (baton__task_retired(task) >= epoch) {
        return true;
    }
    /* If the schedule need not be recovered, its failed epochs retire, and
       later epochs may run. */
    uint64_t failed = atomic_load_explicit(&task->failed, memory_order_acquire);
    return baton__task_stays_failed(task) && failed != 0 && failed <= epoch;
}

/* Returns the outcome of an epoch, given that a later epoch has failed. */
static baton_status_t earlier_outcome(const baton__task_t *task, uint64_t epoch)
{
    uint64_t failure = 0;
    if (task->failures != NULL) {
        failure = atomic_load_explicit(
            &task->failures[epoch % task->failure_count], memory_order_relaxed);
    }
    if (baton__task_stays_failed(task) || failure >> 8 < epoch) {
        return BATON_OK;
    }
    if (failure >> 8 > epoch) {
        return baton__error(BATON_ERR_FAILED,
                            "\"%s\": the outcome of epoch %llu is no longer "
                            "known, because epoch %llu has failed since",
                            task->schedule.name, (unsigned long long)epoch,
                            (unsigned long long)(failure >> 8));
    }
    baton_status_t status = (baton_status_t) - (int)(failure & 0xff);
    return baton__error(status, "\"%s\" epoch %llu failed: %s",
                        task->schedule.name, (unsigned long long)epoch,
                        baton_status_text(status));
}

static baton_status_t epoch_outcome(const baton__task_t *task, uint64_t epoch)
{
    uint64_t failed = atomic_load_explicit(&task->failed, memory_order_acquire);
    if (epoch == 0 || failed == 0) {
        return BATON_OK;
    }
    if (failed > epoch) {
        return earlier_outcome(task, epoch);
    }
    if (failed < epoch && baton__task_retired(task) >= epoch) {
        return BATON_OK;
    }
    char memory[BATON__SENTENCE_BYTES];
    const baton__failure_t failure =
        baton__epoch_failure(task, memory, sizeof memory);
    return baton__error_forward(failure.status, memory);
}

uint64_t baton_schedule_epoch(const baton_schedule_t *schedule)
{
    return baton__is_schedule(schedule, __func__)
               ? baton__task_retired(baton__task_of(schedule))
               : 0;
}

uint64_t baton_schedule_started(const baton_schedule_t *schedule)
{
    return baton__is_schedule(schedule, __func__)
               ? baton__task_requested(baton__task_of(schedule))
               : 0;
}

baton_traffic_t baton_schedule_sent(const baton_schedule_t *schedule)
{
    if (!baton__is_schedule(schedule, __func__)) {
        return (baton_traffic_t){0};
    }
    const baton__task_t *task = baton__task_of(schedule);
    return (baton_traffic_t){
        .messages =
            atomic_load_explicit(&task->sent_messages, memory_order_relaxed),
        .bytes = atomic_load_explicit(&task->sent_bytes, memory_order_relaxed)};
}

baton_status_t baton__check_committed(const baton_schedule_t *schedule,
                                      const char *function)
{
    if (schedule == NULL || !schedule->committed) {
        return baton__is_schedule(schedule, function) && schedule != NULL
                   ? baton__error(BATON_ERR_STATE,
                                  "%s: \"%s\" is not committed: call "
                                  "baton_schedule_commit first",
                                  function, schedule->name)
                   : baton__error_status();
    }
    return baton__process_is_own(function) ? BATON_OK : BATON_ERR_STATE;
}

/* An epoch that was started may not have begun yet. A failed epoch runs until
   none of its nodes is in motion (sched/run.h). */
bool baton__epoch_runs(const baton__task_t *task)
{
    assert(baton__driven_here(task->schedule.group));
    return atomic_load_explicit(&task->busy, memory_order_relaxed) ||
           !baton__epoch_ended(task, baton__task_requested(task));
}

/* ---- start ------------------------------------------------------------ */

/* Checks the buffers that were rebound. With a depth above 1 the driver does
   not read buffers[].memory, so the driver lock is not needed. */
static baton_status_t check_rebound(baton_schedule_t *schedule)
{
    baton_engine_t *engine = schedule->group->engine;
    bool shared = schedule->depth == 1;
    if (shared) {
        engine->driver->enter(engine);
    }
    baton_status_t status = baton__check_rebound(schedule);
    atomic_store_explicit(&baton__task_of(schedule)->rebound,
                          status != BATON_OK, memory_order_relaxed);
    if (shared) {
        engine->driver->leave(engine);
    }
    return status == BATON_OK
               ? BATON_OK
               : baton__error(status, "start of %s", baton_error_message());
}

/* Checks that an epoch may be started. `ahead` is the number of epochs that may
   be in flight before it. */
static baton_status_t check_start(baton__task_t *task, uint64_t epoch,
                                  uint64_t ahead)
{
    baton_schedule_t *schedule = &task->schedule;
    uint64_t failed = atomic_load_explicit(&task->failed, memory_order_acquire);
    uint64_t retired = baton__task_retired(task);
    if (retired >= epoch) {
        return BATON_OK; /* the epoch has run without this rank's start */
    }
    /* If a schedule need not be recovered (baton__task_stays_failed is false),
       its failed epochs retire and do not forbid a start. For a moment
       `retired` may still be below `failed`, since `failed` is published
       first. */
    if (failed != 0 && retired < failed && baton__task_stays_failed(task)) {
        char memory[BATON__SENTENCE_BYTES];
        const baton__failure_t failure =
            baton__epoch_failure(task, memory, sizeof memory);
        bool recovers = !failure.final && failure.status != BATON_ERR_TRANSPORT;
        return baton__error(
            failure.status == BATON_ERR_MISMATCH ? BATON_ERR_MISMATCH
                                                 : BATON_ERR_FAILED,
            "start of \"%s\": it has failed: %s%s", schedule->name, memory,
            recovers ? "; baton_group_recover on all ranks recovers it" : "");
    }
    if (retired + 1 + ahead < epoch) {
        return ahead == 0
                   ? baton__error(BATON_ERR_BUSY,
                                  "start of \"%s\": epoch %llu is still "
                                  "running: wait for it (schedules that have "
                                  "a depth of 2 or more are started ahead)",
                                  schedule->name, (unsigned long long)epoch - 1)
                   : baton__error(BATON_ERR_BUSY,
                                  "start of \"%s\": %llu epochs have been "
                                  "started and not ended: wait for one",
                                  schedule->name,
                                  (unsigned long long)(epoch - retired - 1));
    }
    if (schedule->misused != NULL) {
        return baton__error(
            BATON_ERR_STATE,
            "start of \"%s\": %s was called after its commit and "
            "had no effect: build before it",
            schedule->name, schedule->misused);
    }
    return atomic_load_explicit(&task->rebound, memory_order_relaxed)
               ? check_rebound(schedule)
               : BATON_OK;
}

/* Stores the memory that is bound now, for the driver to use in the epoch. */
static void keep_bindings(const baton__task_t *task, uint64_t epoch)
{
    const baton_schedule_t *schedule = &task->schedule;
    size_t count = schedule->buffer_count;
    char **bound = task->bindings + epoch % schedule->depth * count;
    for (size_t i = 0; i < count && task->bindings != NULL; i++) {
        bound[i] = schedule->buffers[i].memory;
    }
}

/* Publishes that the application has started the epoch, which may begin from
   now on. */
static void request(baton__task_t *task, uint64_t epoch)
{
    BATON__TRACED(start, task);
    atomic_store_explicit(&task->unreported, BATON_OK, memory_order_relaxed);
    /* Both stores pair with the load in baton__task_requested(), task.h. The
       first is sequentially consistent because the driver may get no mail: see
       follows_another(). */
    if (task->schedule.depth > 1) {
        keep_bindings(task, epoch);
        atomic_store_explicit(&task->requested, epoch, memory_order_seq_cst);
    } else {
        atomic_store_explicit(&task->requested, epoch, memory_order_release);
    }
}

/* Called at the end of a start, after `request`. From now on records in the
   trace no longer use the time of the start. */
static void forget_start(baton__task_t *task, uint64_t epoch)
{
    if (atomic_load_explicit(&task->traced_ns, memory_order_relaxed) != 0) {
        baton__traced_forget_start(task, epoch);
    }
}

/* True if an epoch before this one has not ended. When that epoch ends, the
   driver looks for the request of this one, so the driver need not be
   notified. */
static bool follows_another(const baton__task_t *task, uint64_t epoch)
{
    /* Both loads pair with the stores in baton__epoch_publish(),
       epoch_end.c. */
    return task->schedule.depth > 1 &&
           atomic_load_explicit(&task->failed, memory_order_seq_cst) == 0 &&
           baton__task_retired(task) + 1 < epoch;
}

baton_status_t baton_schedule_start(baton_schedule_t *schedule)
{
    baton_status_t status = baton__check_committed(schedule, __func__);
    if (status != BATON_OK) {
        return status;
    }
    baton__task_t *task = baton__task_of(schedule);
    uint64_t epoch = baton__task_requested(task) + 1;
    status = check_start(task, epoch, schedule->depth - 1);
    if (status != BATON_OK) {
        return status;
    }
    if (schedule->offload != NULL) {
        schedule->offload->on[epoch % BATON__STARTS] = false;
    }
    request(task, epoch);
    if (follows_another(task, epoch) ||
        baton_schedule_epoch(schedule) >= epoch) {
        /* In the latter case peers have begun the epoch, and it has retired
           already. */
        forget_start(task, epoch);
        return BATON_OK;
    }
    /* If no thread has waited for the last epoch, earlier waits are no hint
       that a wait will follow this start. */
    bool unwaited =
        atomic_load_explicit(&task->started_ns, memory_order_relaxed) != 0;
    baton__next_t next = unwaited ? BATON__NEXT_WORK
                                  : (baton__next_t)atomic_load_explicit(
                                        &task->expected, memory_order_relaxed);
    bool yields = schedule->group->engine->driver->start(schedule, next);
    forget_start(task, epoch);
    /* A wait soon after `started_ns` is a hint that waits follow their starts
       soon. If the epoch has ended during the start, the wait is no hint,
       unless the start has yielded in place of the wait. */
    bool ended = !yields && baton_schedule_epoch(schedule) >= epoch;
    atomic_store_explicit(&task->started_ns, ended ? 0 : baton__clock_ns(),
                          memory_order_relaxed);
    return BATON_OK;
}

/* ---- the epoch that a wait is for -------------------------------------- */

typedef struct awaited {
    baton__task_t *task;
    uint64_t epoch;
    uint32_t generation;
} awaited_t;

#define LATEST UINT64_MAX /* the epoch that was started last */

static uint32_t generation(const baton__task_t *task)
{
    return atomic_load_explicit(&task->generation, memory_order_seq_cst);
}

/* Finds the epoch that a call is about: `epoch`, or the latest. If `epoch` was
   not started since the last recovery, returns the error of an earlier epoch
   that no call has returned yet, or else BATON_ERR_STATE. The generation is
   read first, so that an epoch that is started after a recovery is not taken
   for one before it. */
static baton_status_t epochs_choose(baton_schedule_t *schedule, uint64_t epoch,
                                    const char *function, awaited_t *out)
{
    baton_status_t status = baton__check_committed(schedule, function);
    if (status != BATON_OK) {
        return status;
    }
    baton__task_t *task = baton__task_of(schedule);
    uint32_t now = generation(task);
    uint64_t last = baton__task_requested(task);
    bool latest = epoch == LATEST;
    *out = (awaited_t){task, latest ? last : epoch, now};
    if (!latest && (epoch < 1 || epoch > last)) {
        status = baton__epoch_unreported(task);
        status = status != BATON_OK
                     ? status
                     : baton__error(BATON_ERR_STATE,
                                    "\"%s\": epoch %llu has not been started; "
                                    "the last one is %llu",
                                    schedule->name, (unsigned long long)epoch,
                                    (unsigned long long)last);
    }
    return status;
}

/* Returns an error if no epoch has been started. After a recovery (the
   generation is not 0) epoch 0 is allowed: the last epoch precedes the
   recovery, and its outcome may not have been read yet. The generation is read
   again here, since a recovery increments it before it sets the epoch back. */
static baton_status_t check_started(const awaited_t *awaited)
{
    if (awaited->epoch != 0 || generation(awaited->task) != 0) {
        return BATON_OK;
    }
    baton_status_t status = check_start(awaited->task, 1, 0);
    return status != BATON_OK /* a start was refused, and the error says why */
               ? status
               : baton__error(BATON_ERR_STATE,
                              "wait for \"%s\": it has not been started: call "
                              "baton_schedule_start first",
                              awaited->task->schedule.name);
}

/* ---- start and wait in the order of a stream -------------------------- */

static baton_status_t check_device(const baton_schedule_t *schedule,
                                   const char *function)
{
    baton_status_t status = baton__check_committed(schedule, function);
    if (status != BATON_OK) {
        return status;
    }
    return schedule->offload != NULL
               ? BATON_OK
               : baton__error(BATON_ERR_UNSUPPORTED,
                              "%s: \"%s\": the engine has no device "
                              "(baton_engine_attach_device)",
                              function, schedule->name);
}

baton_status_t baton_schedule_start_on(baton_schedule_t *schedule,
                                       baton_stream_t stream)
{
    baton_status_t status = check_device(schedule, __func__);
    if (status != BATON_OK) {
        return status;
    }
    baton__task_t *task = baton__task_of(schedule);
    uint64_t epoch = baton__task_requested(task) + 1;
    status = check_start(
        task, epoch,
        (schedule->depth > 1 ? schedule->depth : BATON__STARTS) - 1);
    if (status != BATON_OK) {
        return status;
    }
    baton__offload_t *offload = schedule->offload;
    const baton__device_t *device = offload->device;
    uint64_t slot = epoch % BATON__STARTS;
    status = device->port.record(device->device, stream, offload->starts[slot]);
    if (status != BATON_OK) {
        return baton__error(status, "start of \"%s\" on a stream: %s",
                            schedule->name, baton_error_message());
    }
    offload->on[slot] = true;
    atomic_store_explicit(&offload->awaited, true, memory_order_relaxed);
    request(task, epoch);
    schedule->group->engine->driver->start(schedule, BATON__NEXT_UNKNOWN);
    forget_start(task, epoch);
    return BATON_OK;
}

baton_status_t baton_schedule_wait_on(baton_schedule_t *schedule,
                                      baton_stream_t stream)
{
    awaited_t awaited;
    baton_status_t status = check_device(schedule, __func__);
    if (status == BATON_OK) {
        status = epochs_choose(schedule, LATEST, __func__, &awaited);
    }
    if (status == BATON_OK) {
        status = check_started(&awaited);
    }
    if (status != BATON_OK) {
        return status;
    }
    baton__offload_t *offload = schedule->offload;
    const baton__device_t *device = offload->device;
    atomic_store_explicit(&offload->awaited, true, memory_order_relaxed);
    /* The flag is the word of memory for which the stream waits; its value is
       `base` plus the number of the last epoch that has ended. `base` is read
       first here: a recovery sets `requested` back, and then adds to `base`. So
       their sum is never above the value that the flag will reach. */
    uint64_t base = atomic_load_explicit(&offload->base, memory_order_acquire);
    uint64_t epoch = baton__task_requested(awaited.task);
    status = device->port.await(device->device, stream, offload->flag->word,
                                base + epoch);
    return status == BATON_OK
               ? BATON_OK
               : baton__error(status, "wait for \"%s\" on a stream: %s",
                              schedule->name, baton_error_message());
}

/* ---- test, wait ------------------------------------------------------- */

static bool epochs_has_ended(const void *arg)
{
    const awaited_t *awaited = arg;
    return baton__epoch_ended(awaited->task, awaited->epoch) ||
           generation(awaited->task) != awaited->generation;
}

/* The generation is read last: a recovery increments it before it sets the
   epochs' numbers back. */
static baton_status_t epochs_outcome_of(const awaited_t *awaited)
{
    baton__task_t *task = awaited->task;
    baton_status_t status = epoch_outcome(task, awaited->epoch);
    if (generation(task) != awaited->generation) {
        return baton__epoch_past_outcome(task, awaited->epoch);
    }
    if (status != BATON_OK) {
        atomic_store_explicit(&task->reported, awaited->epoch,
                              memory_order_relaxed);
    }
    return status;
}

static baton_status_t epochs_test(baton_schedule_t *schedule, uint64_t epoch,
                                  bool *done_out, const char *function)
{
    awaited_t awaited;
    baton_status_t status = epochs_choose(schedule, epoch, function, &awaited);
    if (status != BATON_OK ||
        !baton__is_given(done_out, true, function, "done_out")) {
        return status != BATON_OK ? status : BATON_ERR_INVALID;
    }
    baton_engine_t *engine = schedule->group->engine;
    bool ended = epochs_has_ended(&awaited);
    if (ended) {
        status = baton__epoch_unreported(awaited.task);
    }
    /* In an engine without a progress thread peers may have activated a later
       epoch, and wait for this call to make progress. */
    if (!ended || (!engine->threaded && status == BATON_OK)) {
        status = engine->driver->test(engine);
        ended = epochs_has_ended(&awaited);
    }
    if (status == BATON_OK && ended) {
        status = epochs_outcome_of(&awaited);
    }
    if (status == BATON_OK) {
        *done_out = ended;
    }
    return status;
}

baton_status_t baton_schedule_test(baton_schedule_t *schedule, bool *done_out)
{
    return epochs_test(schedule, LATEST, done_out, __func__);
}

baton_status_t baton_schedule_test_epoch(baton_schedule_t *schedule,
                                         uint64_t epoch, bool *done_out)
{
    return epochs_test(schedule, epoch, done_out, __func__);
}

/* Sets an error that describes what the epoch waits for, unless the driver is
   busy for so long that the caller would return late. */
static baton_status_t timed_out(baton_schedule_t *schedule, int timeout_ms)
{
    baton__text_t text = BATON__TEXT(BATON__MESSAGE_BYTES);
    baton_engine_t *engine = schedule->group->engine;
    uint64_t until_ns = baton__clock_ns() + DESCRIBE_NS;
    bool mine = engine->driver->try_enter(engine);
    while (!mine && baton__clock_ns() < until_ns) {
        (void)sched_yield();
        mine = engine->driver->try_enter(engine);
    }
    if (mine) {
        baton__describe_wait(schedule, &text);
        engine->driver->leave(engine);
    } else {
        baton__text_add(&text,
                        "\"%s\" on %s: the engine is busy, for example in a "
                        "call node that takes long",
                        schedule->name, baton__group_place(schedule->group));
    }
    if (timeout_ms > 0) {
        baton__text_add(&text,
                        "\n    (wait gave up after %d ms; the epoch goes on)",
                        timeout_ms);
    }
    return baton__error_forward(BATON_ERR_TIMEOUT, text.data);
}

/* Returns the time, if it was read, or else 0. */
static uint64_t note_wait(baton__task_t *task)
{
    uint64_t started_ns =
        atomic_load_explicit(&task->started_ns, memory_order_relaxed);
    if (started_ns == 0) {
        return 0;
    }
    atomic_store_explicit(&task->started_ns, 0, memory_order_relaxed);
    const uint64_t now_ns = baton__clock_ns();
    uint64_t ns = now_ns - started_ns;
    uint8_t next = BATON__NEXT_WAIT_LATE;
    if (ns < SOON_NS) {
        next = ns < AT_ONCE_NS ? BATON__NEXT_WAIT : BATON__NEXT_WAIT_SOON;
    }
    if (next != atomic_load_explicit(&task->expected, memory_order_relaxed)) {
        atomic_store_explicit(&task->expected, next, memory_order_relaxed);
    }
    return now_ns;
}

static baton_status_t wait_for(baton_schedule_t *schedule, uint64_t epoch,
                               int timeout_ms, baton_turn_fn turn,
                               void *turn_arg, const char *function)
{
    awaited_t awaited;
    baton_status_t status = epochs_choose(schedule, epoch, function, &awaited);
    if (status == BATON_OK && epoch == LATEST) {
        status = check_started(&awaited);
    }
    if (status != BATON_OK) {
        return status;
    }
    baton_engine_t *engine = schedule->group->engine;
    baton__task_t *task = awaited.task;
    const uint64_t noted_ns = note_wait(task);
    if (epochs_has_ended(&awaited)) {
        status = baton__epoch_unreported(task);
        status = status == BATON_OK ? epochs_outcome_of(&awaited) : status;
        BATON__TRACED(wait, task, awaited.epoch, 0, status);
        return status;
    }
    if (baton__engine_is_inside(engine)) {
        return baton__error(BATON_ERR_STATE,
                            "wait for \"%s\": a call node can't wait",
                            schedule->name);
    }
    const uint64_t began_ns = noted_ns != 0 ? noted_ns : baton__traced_begin();
    atomic_fetch_add_explicit(&task->waiters, 1, memory_order_relaxed);
    const baton__wait_t wait = {.condition = epochs_has_ended,
                                .arg = &awaited,
                                .schedule = schedule,
                                .timeout_ms = timeout_ms,
                                .interruptible = true,
                                .turn = turn,
                                .turn_arg = turn_arg};
    status = engine->driver->wait(engine, &wait);
    if (status == BATON_OK) {
        status = epochs_outcome_of(&awaited);
    } else if (status == BATON_ERR_TIMEOUT) {
        status = timed_out(schedule, timeout_ms);
    }
    BATON__TRACED(wait, task, awaited.epoch, began_ns, status);
    /* Pairs with the load in is_waited_for(), commit.c: after this the schedule
       may be freed. */
    atomic_fetch_sub_explicit(&task->waiters, 1, memory_order_release);
    return status;
}

baton_status_t baton_schedule_wait(baton_schedule_t *schedule, int timeout_ms)
{
    return wait_for(schedule, LATEST, timeout_ms, NULL, NULL, __func__);
}

baton_status_t baton_schedule_run(baton_schedule_t *schedule, int timeout_ms)
{
    baton_status_t status = baton__check_committed(schedule, __func__);
    if (status == BATON_OK) {
        status = baton_schedule_start(schedule);
    }
    return status == BATON_OK ? baton_schedule_wait(schedule, timeout_ms)
                              : status;
}

baton_status_t baton_schedule_wait_epoch(baton_schedule_t *schedule,
                                         uint64_t epoch, int timeout_ms)
{
    return wait_for(schedule, epoch, timeout_ms, NULL, NULL, __func__);
}

baton_status_t baton_schedule_wait_with(baton_schedule_t *schedule,
                                        uint64_t epoch, int timeout_ms,
                                        baton_turn_fn fn, void *arg)
{
    return fn == NULL
               ? baton__error(BATON_ERR_INVALID, "%s: fn is NULL", __func__)
               : wait_for(schedule, epoch == 0 ? LATEST : epoch, timeout_ms, fn,
                          arg, __func__);
}

/* ---- cancel, limit ---------------------------------------------------- */

baton_status_t baton_schedule_cancel(baton_schedule_t *schedule)
{
    baton_status_t status = baton__check_committed(schedule, __func__);
    if (status != BATON_OK) {
        return status;
    }
    baton__task_t *task = baton__task_of(schedule);
    uint64_t epoch = baton__task_requested(task);
    if (baton__epoch_ended(task, epoch)) {
        return baton__error(BATON_ERR_STATE,
                            "cancel of \"%s\": no epoch is running",
                            schedule->name);
    }
    atomic_store_explicit(&task->cancel, epoch, memory_order_release);
    schedule->group->engine->driver->start(schedule, BATON__NEXT_UNKNOWN);
    return BATON_OK;
}

void baton_schedule_limit(baton_schedule_t *schedule, uint64_t epoch)
{
    if (!baton__is_schedule(schedule, __func__)) {
        return;
    }
    baton__task_t *task = baton__task_of(schedule);
    uint64_t now = atomic_load_explicit(&task->limit, memory_order_relaxed);
    if (now != UINT64_MAX && epoch <= now) {
        return;
    }
    /* Pairs with the loads in baton__epoch_begin_if_due() and
       release_if_activated(), epoch_begin.c. */
    atomic_store_explicit(&task->limit, epoch, memory_order_release);
    if (schedule->committed) {
        schedule->group->engine->driver->start(schedule, BATON__NEXT_UNKNOWN);
    }
}

/* ---- async nodes ------------------------------------------------------ */

baton_status_t baton_async_complete(baton_async_t async, baton_status_t status)
{
    baton__async_t *record = async.record;
    if (record == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "baton_async_complete: the handle is invalid");
    }
    if (!baton__process_is_own(__func__)) {
        return BATON_ERR_STATE;
    }
    int code = (int)status;
    if (code <= -BATON__ASYNC_DONE || code >= BATON__ASYNC_DONE) {
        code = BATON_ERR_INVALID;
    }
    uint64_t begun = baton__async_state(async.turn, BATON__ASYNC_BEGUN);
    uint64_t done = baton__async_state(async.turn, BATON__ASYNC_DONE + code);
    baton_schedule_t *schedule = record->owner;
    baton__task_t *task = baton__task_of(schedule);
    /* Destroy does not free the schedule while this count is not 0. */
    atomic_fetch_add_explicit(&task->waiters, 1, memory_order_seq_cst);
    /* Pairs with the loads of the state in epoch_arrive.c: the driver that
       takes the status sees everything that was written before this call. */
    bool completed = atomic_compare_exchange_strong_explicit(
        &record->state, &begun, done, memory_order_acq_rel,
        memory_order_relaxed);
    if (completed &&
        atomic_load_explicit(&task->orphan, memory_order_seq_cst) ==
            BATON__NO_ORPHAN) {
        schedule->group->engine->driver->start(schedule, BATON__NEXT_UNKNOWN);
    }
    atomic_fetch_sub_explicit(&task->waiters, 1, memory_order_release);
    return completed ? BATON_OK
                     : baton__error(BATON_ERR_STATE,
                                    "baton_async_complete: the node has "
                                    "completed already, or was not begun");
}

void baton_schedule_on_end(baton_schedule_t *schedule, baton_end_fn fn,
                           void *arg)
{
    if (!baton__is_schedule(schedule, __func__)) {
        return;
    }
    baton__task_t *task = baton__task_of(schedule);
    const baton__driver_t *driver = schedule->group->engine->driver;
    driver->enter(schedule->group->engine);
    task->on_end = fn;
    task->on_end_arg = arg;
    task->ended = baton__epoch_last_ended(task);
    driver->leave(schedule->group->engine);
}
