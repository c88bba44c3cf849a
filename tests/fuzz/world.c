/* A world's life: create, run, heal, judge, destroy; see world.h. */
#include "fuzz/world.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    STREAM_WEATHER = 4,
    STREAM_SEATS = 16,
    CHANGES = 4,     /* of the weather */
    PATIENCE_MS = 50 /* virtual ones */
};

void *fuzz_alloc(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL) {
        (void)fprintf(stderr, "fuzz: no memory for %zu x %zu bytes\n", count,
                      size);
        exit(EXIT_FAILURE);
    }
    return memory;
}

uint64_t fuzz_key(const fuzz_task_t *task, int rank, uint64_t number)
{
    fuzz_random_t random =
        fuzz_stream(task->world->plan.seed,
                    (number * FUZZ_RANKS + (uint64_t)rank) * FUZZ_TASKS +
                        (uint64_t)task->index);
    return fuzz_next(&random);
}

/* FNV-1a, a word at a time. */
void fuzz_note(fuzz_world_t *world, uint64_t what)
{
    world->digest = (world->digest ^ what) * UINT64_C(1099511628211);
}

void fuzz_note_real(fuzz_world_t *world, double what)
{
    uint64_t bits;
    memcpy(&bits, &what, sizeof bits);
    fuzz_note(world, bits);
}

static void trace(void *arg, const baton_sim_event_t *event)
{
    fuzz_world_t *world = arg;
    fuzz_note(world, (uint64_t)event->what << 32 | (uint32_t)event->rank);
    fuzz_note(world, (uint64_t)event->node << 32 | (uint32_t)event->peer);
    fuzz_note(world, event->bytes);
    fuzz_note(world, event->epoch);
    fuzz_note_real(world, event->begin_us);
    fuzz_note_real(world, event->end_us);
}

/* ---- failures --------------------------------------------------------- */

void fuzz_fail(fuzz_seat_t *seat, const char *format, ...)
{
    fuzz_world_t *world = seat->task->world;
    char what[FUZZ_FAILURE_BYTES / 2];
    va_list args;
    va_start(args, format);
    /* clang-tidy 14 loses sight of va_start here. */
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!fuzz_failed(world)) {
        (void)snprintf(world->failure, sizeof world->failure,
                       "task %d (%s), rank %d, life %u, step %u: %s",
                       seat->task->index,
                       fuzz_kind_name(seat->task->plan->kind), seat->rank,
                       fuzz_life(seat), seat->step, what);
    }
}

static void fail(fuzz_world_t *world, const char *doing, baton_status_t status)
{
    if (!fuzz_failed(world)) {
        (void)snprintf(world->failure, sizeof world->failure, "%s: %s: %s",
                       doing, baton_status_name(status), baton_error_message());
    }
}

static void allowed(fuzz_world_t *world, baton_status_t status)
{
    if (status != BATON_OK) {
        fail(world, "a fault was refused", status);
    }
}

/* ---- weather ---------------------------------------------------------- */

static void change_weather(void *arg)
{
    fuzz_world_t *world = arg;
    const fuzz_plan_t *plan = &world->plan;
    if (world->healed) {
        return;
    }
    if (fuzz_has(plan, FUZZ_FAULT_LAG)) {
        allowed(world,
                baton_sim_set_lag(world->sim, fuzz_plan_lag(&world->weather,
                                                            plan->pause_us)));
    }
    if (fuzz_has(plan, FUZZ_FAULT_SLOW)) {
        uint64_t rank =
            fuzz_below(&world->weather, (uint64_t)plan->model.ranks);
        allowed(world,
                baton_sim_set_speed(world->sim, (int)rank,
                                    0.01 + fuzz_real(&world->weather, 1)));
    }
}

static void strike(void *arg)
{
    fuzz_world_t *world = arg;
    const fuzz_plan_t *plan = &world->plan;
    world->struck = true;
    if (plan->blow == FUZZ_BLOW_KILL) {
        allowed(world, baton_sim_kill(world->sim, plan->victim));
    } else {
        allowed(world,
                baton_sim_fail_send(world->sim, plan->victim, plan->blow_at));
    }
}

static void heal(fuzz_world_t *world)
{
    world->healed = true;
    allowed(world, baton_sim_set_lag(world->sim, (baton_distribution_t){0}));
    for (int rank = 0; rank < world->plan.model.ranks; rank++) {
        allowed(world, baton_sim_set_speed(world->sim, rank, 1));
    }
}

/* All that will happen to the world from now on. */
static baton_status_t forecast(fuzz_world_t *world)
{
    const fuzz_plan_t *plan = &world->plan;
    double now = baton_sim_now_us(world->sim);
    baton_status_t status = BATON_OK;
    world->heal_us = now + plan->heal_us;
    for (int i = 0; i < CHANGES && status == BATON_OK; i++) {
        status = baton_sim_at(world->sim, now + i * plan->heal_us / CHANGES,
                              change_weather, world);
    }
    if (status == BATON_OK && plan->blow != FUZZ_BLOW_NONE) {
        status = baton_sim_at(world->sim, now + plan->blow_us, strike, world);
    }
    return status == BATON_OK ? fuzz_forecast_upset(world) : status;
}

/* ---- running ---------------------------------------------------------- */

/* A solo epoch that one rank begins: P - 1 messages activate the others, the
   binomial tree has 2(P - 1). */
static void play_alone(fuzz_world_t *world)
{
    fuzz_task_t *task = &world->tasks[0];
    int ranks = fuzz_ranks(task);
    fuzz_seat_t *seat =
        &task->seats[fuzz_below(&world->weather, (uint64_t)ranks)];
    world->alone = true;
    fuzz_seat_begin(seat);
    baton_status_t status = baton_sim_run(world->sim, -1);
    world->alone = false;
    uint64_t messages = baton_sim_totals(world->sim).messages;
    if (status != BATON_OK) {
        fail(world, "liveness: one rank alone", status);
    } else if (messages != 3 * (uint64_t)(ranks - 1)) {
        fuzz_fail(seat, "cost: %llu messages among %d ranks",
                  (unsigned long long)messages, ranks);
    }
}

static void begin_all(fuzz_world_t *world)
{
    for (int i = 0; i < world->plan.task_count; i++) {
        for (int rank = 0; rank < world->plan.model.ranks; rank++) {
            fuzz_seat_t *seat = &world->tasks[i].seats[rank];
            if (seat->phase != FUZZ_ABSENT && seat->phase != FUZZ_DONE) {
                fuzz_seat_begin(seat);
            }
        }
    }
}

/* Whether all seats have taken all their steps. */
static bool all_done(fuzz_world_t *world, fuzz_seat_t **who_not)
{
    for (int i = 0; i < world->plan.task_count; i++) {
        for (int rank = 0; rank < world->plan.model.ranks; rank++) {
            *who_not = &world->tasks[i].seats[rank];
            if ((*who_not)->phase != FUZZ_DONE) {
                return false;
            }
        }
    }
    return true;
}

static void judge_healed(fuzz_world_t *world, baton_status_t status)
{
    fuzz_seat_t *seat;
    if (status != BATON_OK) {
        fail(world, "liveness: after all faults have ended", status);
    } else if (!all_done(world, &seat)) {
        fuzz_fail(seat, "liveness: it never ends");
    }
}

/* Who still waits gets an error, and in bounded time. A dead rank's epoch may
   have ended before it died: of that one only the time counts. */
static void settle(fuzz_seat_t *seat)
{
    fuzz_world_t *world = seat->task->world;
    int timeout_ms = fuzz_once_in(&seat->random, 2) ? -1 : PATIENCE_MS;
    baton_status_t status = seat->task->rules->wait(seat, timeout_ms);
    fuzz_note(world, (uint64_t)(uint32_t)status);
    if (!fuzz_is_consequence(seat, status) && !fuzz_is_dead(seat) &&
        !(status == BATON_ERR_TIMEOUT && timeout_ms >= 0)) {
        fuzz_fail(seat, "it waits for ever, and is told: %s: %s",
                  baton_status_name(status), baton_error_message());
    }
}

static void judge_struck(fuzz_world_t *world, baton_status_t status)
{
    if (status != BATON_OK && status != BATON_ERR_DEADLOCK) {
        fail(world, "after the blow", status);
    }
    if (status == BATON_ERR_DEADLOCK &&
        strstr(baton_error_message(), "rank") == NULL) {
        fail(world, "no rank is named", status);
    }
    for (int i = 0; i < world->plan.task_count; i++) {
        for (int rank = 0; rank < world->plan.model.ranks; rank++) {
            fuzz_seat_t *seat = &world->tasks[i].seats[rank];
            if (seat->phase == FUZZ_WAITS) {
                settle(seat);
            }
        }
    }
}

static void play(fuzz_world_t *world)
{
    if (world->plan.lone) {
        play_alone(world);
    }
    baton_status_t status = forecast(world);
    if (status != BATON_OK) {
        fail(world, "baton_sim_at", status);
        return;
    }
    begin_all(world);
    status = baton_sim_run(world->sim, world->heal_us);
    if (status == BATON_OK || status == BATON_ERR_TIMEOUT) {
        heal(world);
        status = baton_sim_run(world->sim, -1);
    }
    while (status == BATON_OK && fuzz_wants_recovery(world)) {
        fuzz_recover_in_peace(world);
        status = baton_sim_run(world->sim, -1);
    }
    if (world->struck) {
        judge_struck(world, status);
    } else {
        judge_healed(world, status);
    }
    fuzz_seat_t *seat;
    for (int i = 0; i < world->plan.task_count; i++) {
        if (!fuzz_failed(world) && all_done(world, &seat)) {
            world->tasks[i].rules->audit(&world->tasks[i]);
        }
    }
}

/* ---- life ------------------------------------------------------------- */

static baton_status_t commit(fuzz_seat_t *seat)
{
    baton_status_t status = seat->task->rules->commit(seat);
    seat->phase = status == BATON_OK ? FUZZ_PREPARES : FUZZ_ABSENT;
    return status;
}

/* A rank commits one of its schedules, and begins at once. */
static void commit_late(void *arg)
{
    fuzz_seat_t *seat = arg;
    if (fuzz_failed(seat->task->world) || fuzz_is_dead(seat)) {
        return;
    }
    baton_status_t status = commit(seat);
    if (status != BATON_OK) {
        fail(seat->task->world, "building", status);
    } else {
        fuzz_seat_begin(seat);
    }
}

static baton_status_t commit_task(fuzz_task_t *task)
{
    fuzz_world_t *world = task->world;
    baton_status_t status = BATON_OK;
    for (int rank = 0; rank < fuzz_ranks(task) && status == BATON_OK; rank++) {
        fuzz_seat_t *seat = &task->seats[rank];
        double at_us = fuzz_real(&world->weather, world->plan.commit_us);
        status = world->plan.model.introductions
                     ? baton_sim_at(world->sim, at_us, commit_late, seat)
                     : commit(seat);
    }
    return status;
}

static baton_status_t open_tasks(fuzz_world_t *world)
{
    baton_status_t status = BATON_OK;
    for (int rank = 0; rank < world->plan.model.ranks; rank++) {
        world->places[rank] = (fuzz_place_t){.world = world, .rank = rank};
    }
    for (int i = 0; i < world->plan.task_count && status == BATON_OK; i++) {
        fuzz_task_t *task = &world->tasks[i];
        task->world = world;
        task->index = i;
        task->plan = &world->plan.tasks[i];
        task->rules = task->plan->kind == FUZZ_PARTIAL ? &fuzz_partial_rules
                                                       : &fuzz_plain_rules;
        for (int rank = 0; rank < world->plan.model.ranks; rank++) {
            uint64_t stream =
                STREAM_SEATS + (uint64_t)rank * FUZZ_TASKS + (uint64_t)i;
            task->seats[rank].task = task;
            task->seats[rank].rank = rank;
            task->seats[rank].random = fuzz_stream(world->plan.seed, stream);
        }
        task->rules->open(task);
        status = commit_task(task);
    }
    return status;
}

static void close_world(fuzz_world_t *world)
{
    for (int i = 0; i < world->plan.task_count; i++) {
        if (world->tasks[i].rules != NULL) {
            world->tasks[i].rules->close(&world->tasks[i]);
        }
    }
    baton_status_t status = baton_sim_destroy(world->sim);
    if (status != BATON_OK) {
        fail(world, "baton_sim_destroy", status);
    }
}

fuzz_outcome_t fuzz_run(uint64_t seed)
{
    fuzz_world_t *world = fuzz_alloc(1, sizeof *world);
    world->plan = fuzz_plan_draw(seed);
    world->weather = fuzz_stream(seed, STREAM_WEATHER);
    world->heal_us = world->plan.heal_us;
    baton_status_t status = baton_sim_create(&world->plan.model, &world->sim);
    if (status != BATON_OK) {
        fail(world, "baton_sim_create", status);
    } else {
        baton_sim_trace(world->sim, trace, world);
        status = open_tasks(world);
        if (status != BATON_OK) {
            fail(world, "building", status);
        } else {
            play(world);
        }
    }
    fuzz_outcome_t outcome = {0};
    if (world->sim != NULL) {
        outcome.messages = baton_sim_totals(world->sim).messages;
        close_world(world);
    }
    outcome.passed = !fuzz_failed(world);
    outcome.digest = world->digest;
    memcpy(outcome.failure, world->failure, sizeof outcome.failure);
    free(world);
    return outcome;
}
