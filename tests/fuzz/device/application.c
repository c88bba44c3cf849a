/* The application of a rank: it builds, starts, waits, compares, and does what
   the world's fault asks of it. */
#include "fuzz/device/world.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* ---- waiting ----------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* Lets an engine without a thread make progress. */
static void drive(const world_rank_t *rank)
{
    if (rank->world->plan->manual) {
        (void)baton_engine_step(rank->engine);
    }
    (void)sched_yield();
}

/* Waits until what is in the stream now has been done; or will not be, since
   the stream has failed, which the result says. */
static baton_status_t synchronise(world_run_t *run)
{
    world_rank_t *rank = run->rank;
    const baton_device_port_t *port = emulated_port(rank->device);
    int64_t until = now_ms() + WORLD_WAIT_MS;
    void *event = NULL;
    if (!world_ok(rank, "event", port->event_create(rank->device, &event))) {
        return BATON_ERR_NO_MEMORY;
    }
    /* The call that a test made fail may be this one; not the next. */
    if (port->record(rank->device, run->stream, event) != BATON_OK) {
        (void)world_ok(rank, "record",
                       port->record(rank->device, run->stream, event));
    }
    baton_status_t status;
    while ((status = port->query(rank->device, event)) == BATON_AGAIN) {
        drive(rank);
        if (now_ms() > until || world_failed(rank->world)) {
            world_fail(rank->world,
                       "program %d, rank %d: its stream does not go on",
                       run->index, rank->rank);
            return BATON_ERR_TIMEOUT; /* the event is still in use */
        }
    }
    port->event_destroy(rank->device, event);
    return status;
}

/* A call for the program failed, which a fault may explain. */
static void give_up(world_run_t *run, const char *call, baton_status_t status)
{
    world_t *world = run->rank->world;
    run->failed = true;
    if (!world_may_fail(world) || status == BATON_ERR_TIMEOUT) {
        world_fail(world, "program %d, rank %d, epoch %llu: %s: %s: %s",
                   run->index, run->rank->rank,
                   (unsigned long long)run->started, call,
                   baton_status_name(status), baton_error_message());
    }
}

/* Where the world has failed already nobody need wait to the end. */
static baton_status_t wait_for(world_run_t *run)
{
    int64_t until = now_ms() + WORLD_WAIT_MS;
    baton_status_t status;
    do {
        status = baton_schedule_wait(run->schedule, 1000);
    } while (status == BATON_ERR_TIMEOUT && now_ms() < until &&
             !world_failed(run->rank->world));
    return status;
}

static baton_status_t await_end(world_run_t *run)
{
    if (!fuzz_once_in(&run->rank->random, 3)) {
        return wait_for(run);
    }
    int64_t until = now_ms() + WORLD_WAIT_MS;
    bool done = false;
    baton_status_t status = BATON_OK;
    while (status == BATON_OK && !done) {
        status = baton_schedule_test(run->schedule, &done);
        (void)sched_yield();
        bool late = now_ms() > until || world_failed(run->rank->world);
        if (status == BATON_OK && !done && late) {
            return baton_schedule_wait(run->schedule, 0);
        }
    }
    return status;
}

/* ---- what an epoch has left -------------------------------------------- */

/* What the user's stream has found behind the epochs. */
static void compare_found(world_run_t *run)
{
    const world_rank_t *rank = run->rank;
    for (uint64_t epoch = run->settled + 1; epoch <= run->started; epoch++) {
        const unsigned char *right =
            rank->world->expected[run->index][epoch].slots[rank->rank][0];
        if (run->looks[epoch] && memcmp(run->found[epoch], right,
                                        world_slot_bytes(run->program)) != 0) {
            world_fail(rank->world,
                       "program %d, rank %d: what a stream found behind epoch "
                       "%llu is wrong",
                       run->index, rank->rank, (unsigned long long)epoch);
        }
    }
}

/* Waits for all epochs that were started. Where a peer may begin the next one,
   nothing is compared before the last. */
static void settle(world_run_t *run)
{
    if (run->failed || run->settled == run->started) {
        return;
    }
    baton_status_t status = await_end(run);
    if (status != BATON_OK) {
        give_up(run, "wait", status);
        if (status != BATON_ERR_TIMEOUT) {
            world_scribble(run);
        }
        return;
    }
    status = synchronise(run);
    if (status != BATON_OK && !world_may_fail(run->rank->world)) {
        give_up(run, "stream", status);
    }
    /* A stream that has failed has not brought what it was to. */
    run->blind = run->blind || status != BATON_OK;
    if (!run->blind) {
        compare_found(run);
    }
    run->settled = run->started;
    if (!run->blind && (!run->program->activates ||
                        run->settled == run->rank->world->plan->epochs)) {
        world_compare(run, run->settled);
    }
}

/* ---- starting ---------------------------------------------------------- */

static bool went_well(world_run_t *run, const char *call, baton_status_t status)
{
    if (status != BATON_OK) {
        give_up(run, call, status);
    }
    return status == BATON_OK;
}

/* Whether a call failed because it put something into a stream when that was
   made to fail: nothing has happened then, and it is made again. */
static bool was_refused(const world_run_t *run, baton_status_t status)
{
    return status == BATON_ERR_SYSTEM &&
           run->rank->world->plan->fault == FAULT_SUBMIT;
}

static baton_status_t copy_in_stream(world_run_t *run, void *target,
                                     const void *source)
{
    emulated_t *device = run->rank->device;
    const baton_device_port_t *port = emulated_port(device);
    size_t bytes = world_slot_bytes(run->program);
    baton_status_t status =
        port->copy(device, run->stream, target, source, bytes);
    return was_refused(run, status)
               ? port->copy(device, run->stream, target, source, bytes)
               : status;
}

static bool start_directly(world_run_t *run, uint64_t epoch)
{
    settle(run);
    if (run->failed) {
        return false;
    }
    if (run->rank->world->plan->inputs) {
        emulated_write(run->rank->device, run->memory[0], run->inputs[epoch],
                       world_slot_bytes(run->program));
    }
    return went_well(run, "start", baton_schedule_start(run->schedule));
}

/* Behind the epochs before it, for which the stream waits. */
static bool start_on_stream(world_run_t *run, uint64_t epoch)
{
    world_rank_t *rank = run->rank;
    bool may_delay = rank->world->plan->fault != FAULT_SUBMIT;
    if (may_delay && fuzz_once_in(&rank->random, 4)) {
        emulated_delay(rank->device, run->stream,
                       (int)fuzz_below(&rank->random, 300));
    }
    if (rank->world->plan->inputs &&
        !went_well(run, "copy in",
                   copy_in_stream(run, run->memory[0], run->inputs[epoch]))) {
        return false;
    }
    baton_status_t status = baton_schedule_start_on(run->schedule, run->stream);
    if (was_refused(run, status)) {
        status = baton_schedule_start_on(run->schedule, run->stream);
    }
    return went_well(run, "start_on", status);
}

static void put_behind(world_run_t *run, uint64_t epoch)
{
    baton_status_t status = baton_schedule_wait_on(run->schedule, run->stream);
    if (was_refused(run, status)) {
        status = baton_schedule_wait_on(run->schedule, run->stream);
    }
    if (!went_well(run, "wait_on", status)) {
        return;
    }
    run->looks[epoch] =
        !run->program->activates && fuzz_once_in(&run->rank->random, 2) &&
        went_well(run, "copy out",
                  copy_in_stream(run, run->found[epoch], run->memory[0]));
}

/* ---- faults ------------------------------------------------------------ */

static void destroy(world_run_t *run)
{
    run->failed = true;
    (void)world_ok(run->rank, "destroy", baton_schedule_destroy(run->schedule));
    run->schedule = NULL;
    (void)synchronise(run);
}

static void leave(world_rank_t *rank)
{
    for (int i = 0; i < rank->world->plan->program_count; i++) {
        if (rank->runs[i].schedule != NULL) {
            destroy(&rank->runs[i]);
        }
    }
    (void)world_ok(rank, "group destroy", baton_group_destroy(rank->group));
    rank->group = NULL;
}

static void cause_fault(world_run_t *run, uint64_t epoch)
{
    world_rank_t *rank = run->rank;
    const world_plan_t *plan = rank->world->plan;
    if (rank->world->life > 0 || plan->victim != rank->rank ||
        plan->fault_program != run->index || plan->fault_epoch != epoch) {
        return;
    }
    baton_status_t status = BATON_OK;
    switch (plan->fault) {
    case FAULT_WORK:
        emulated_fail_work(rank->device, plan->countdown);
        break;
    case FAULT_SUBMIT:
        emulated_fail_submit(rank->device, plan->countdown);
        break;
    case FAULT_CANCEL:
        status = baton_schedule_cancel(run->schedule);
        if (status != BATON_ERR_STATE) { /* it has ended */
            (void)world_ok(rank, "cancel", status);
        }
        break;
    case FAULT_DESTROY:
        destroy(run);
        break;
    case FAULT_LEAVE:
        leave(rank);
        break;
    case FAULT_NONE:
    case FAULT_NODE:
    case WORLD_FAULTS:
        break;
    }
}

/* ---- a life ------------------------------------------------------------ */

/* A schedule without messages goes on with its next epoch when one has failed,
   so each has to be waited for. */
static bool is_local(const world_run_t *run)
{
    const world_program_t *program = run->program;
    bool local = !program->activates || program->ranks == 1;
    for (int i = 0; i < program->step_count; i++) {
        const world_step_t *step = &program->steps[i];
        bool is_message =
            step->kind == STEP_MESSAGE || step->kind == STEP_LENGTH;
        local &= !is_message || (step->rank != run->rank->rank &&
                                 step->peer != run->rank->rank);
    }
    return local;
}

static void run_epoch(world_run_t *run, uint64_t epoch)
{
    if (run->failed || world_failed(run->rank->world)) {
        return;
    }
    bool started = fuzz_once_in(&run->rank->random, 2)
                       ? start_directly(run, epoch)
                       : start_on_stream(run, epoch);
    if (!started) {
        return;
    }
    run->started = epoch;
    put_behind(run, epoch);
    cause_fault(run, epoch);
    bool must = world_may_fail(run->rank->world) && is_local(run);
    if (must || fuzz_once_in(&run->rank->random, 3)) {
        settle(run);
    }
}

/* A commit for which the device lacks memory leaves nothing behind. */
static void fail_commit(world_run_t *run)
{
    world_rank_t *rank = run->rank;
    emulated_fail_allocate(rank->device, 1 + (int)fuzz_below(&rank->random, 3));
    emulated_counters_t before = emulated_counters(rank->device);
    baton_status_t status = baton_schedule_commit(run->schedule);
    emulated_counters_t after = emulated_counters(rank->device);
    emulated_fail_allocate(rank->device, 0);
    if (status == BATON_OK) {
        return;
    }
    if (status != BATON_ERR_NO_MEMORY || after.allocated != before.allocated ||
        after.events != before.events) {
        world_fail(rank->world, "rank %d: a commit that failed: %s: %s",
                   rank->rank, baton_status_name(status),
                   baton_error_message());
    }
    (void)world_ok(rank, "commit", baton_schedule_commit(run->schedule));
}

static void make(world_run_t *run)
{
    world_rank_t *rank = run->rank;
    const world_plan_t *plan = rank->world->plan;
    char name[16];
    (void)snprintf(name, sizeof name, "program %d", run->index);
    if (!world_ok(rank, "create",
                  baton_schedule_create(rank->group, name, &run->schedule))) {
        return;
    }
    world_build(run);
    if (plan->few_allocations) {
        fail_commit(run);
    } else {
        (void)world_ok(rank, "commit", baton_schedule_commit(run->schedule));
    }
}

/* In the first life all is new. In the second one schedules are, if one was
   destroyed; else the group recovers. */
static void prepare(world_rank_t *rank)
{
    const world_plan_t *plan = rank->world->plan;
    bool recovers = rank->world->life > 0 && plan->fault != FAULT_DESTROY;
    if (recovers) {
        (void)world_ok(rank, "recover",
                       baton_group_recover(rank->group, WORLD_WAIT_MS));
        return;
    }
    for (int i = 0; i < plan->program_count; i++) {
        if (rank->runs[i].schedule != NULL) {
            destroy(&rank->runs[i]);
            rank->runs[i].failed = false;
        }
    }
    for (int i = 0; i < plan->program_count; i++) {
        make(&rank->runs[i]);
    }
}

static bool is_last_life(const world_t *world)
{
    world_fault_t fault = world->plan->fault;
    return world->life > 0 || fault == FAULT_NONE || fault == FAULT_LEAVE;
}

/* The failure may have been told by a start: its epoch may not have ended. */
static void end_failed(world_run_t *run)
{
    if (!run->failed || run->scribbled || run->schedule == NULL) {
        return;
    }
    baton_status_t status = wait_for(run);
    if (status == BATON_ERR_TIMEOUT) {
        give_up(run, "wait", status);
    } else {
        world_scribble(run);
    }
}

/* Waits until all ranks have got here. */
static void meet(world_rank_t *rank, atomic_int *away)
{
    (void)atomic_fetch_sub(away, 1);
    while (atomic_load(away) > 0) {
        drive(rank);
    }
}

/* In the end schedules are destroyed, but not before peers have known them. */
void world_live(world_rank_t *rank)
{
    world_t *world = rank->world;
    const world_plan_t *plan = world->plan;
    prepare(rank);
    for (uint64_t epoch = 1; epoch <= plan->epochs; epoch++) {
        for (int i = 0; i < plan->program_count; i++) {
            run_epoch(&rank->runs[i], epoch);
        }
    }
    for (int i = 0; i < plan->program_count; i++) {
        settle(&rank->runs[i]);
        if (rank->runs[i].schedule != NULL) {
            (void)synchronise(&rank->runs[i]);
        }
    }
    for (int i = 0; i < plan->program_count; i++) {
        end_failed(&rank->runs[i]);
    }
    meet(rank, &world->working);
    for (int i = 0; i < plan->program_count; i++) {
        if (rank->runs[i].scribbled) {
            world_compare_scribble(&rank->runs[i]);
        }
    }
    for (int i = 0; i < plan->program_count && is_last_life(world); i++) {
        if (rank->runs[i].schedule != NULL) {
            destroy(&rank->runs[i]);
        }
    }
    meet(rank, &world->staying);
}
