/* Upsets and recoveries; see world.h. A life of the world, on one rank:

       ... upset (somewhere) ... called to recover --> between two lives
                                                             |
       first steps of all tasks <--(baton_group_recover: OK)-+              */
#include "fuzz/world.h"

#include <inttypes.h>

enum { MAX_POLLS = 48 }; /* each twice as late as the one before */

#define FIRST_POLL_US 0.25

static int ranks_of(const fuzz_world_t *world)
{
    return world->plan.model.ranks;
}

static void at(fuzz_world_t *world, double us, baton_sim_fn fn, void *arg)
{
    baton_status_t status =
        baton_sim_at(world->sim, baton_sim_now_us(world->sim) + us, fn, arg);
    if (status != BATON_OK) {
        fuzz_fail(&world->tasks[0].seats[0], "baton_sim_at: %s",
                  baton_error_message());
    }
}

/* ---- what is told ----------------------------------------------------- */

static baton_status_t status_of(const fuzz_upset_t *upset)
{
    return upset->cancels ? BATON_ERR_CANCELLED : FUZZ_UPSET_STATUS;
}

/* Only of the epoch that was upset, or a later one, and in the words of the
   first cause; where recovery has begun, of any. */
bool fuzz_is_upset(const fuzz_seat_t *seat, baton_status_t status)
{
    const fuzz_world_t *world = seat->task->world;
    uint32_t life = fuzz_life(seat);
    const fuzz_upset_t *upset = &world->upsets[life];
    if (world->called[life] > 0 &&
        (status == BATON_ERR_CANCELLED || status == BATON_ERR_FAILED)) {
        return true;
    }
    return upset->happened && upset->task == seat->task->index &&
           seat->step >= upset->epoch &&
           (status == status_of(upset) || status == BATON_ERR_FAILED);
}

bool fuzz_upset_due(fuzz_seat_t *seat, uint64_t epoch)
{
    fuzz_upset_t *upset = &seat->task->world->upsets[fuzz_life(seat)];
    if (!upset->planned || upset->cancels || upset->happened ||
        upset->task != seat->task->index || upset->rank != seat->rank) {
        return false;
    }
    upset->happened = true;
    upset->epoch = epoch;
    return true;
}

uint64_t fuzz_last_epoch(fuzz_seat_t *seat, uint32_t life)
{
    const fuzz_task_t *task = seat->task;
    uint64_t last = 0;
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        if (task->world->places[rank].life <= life) {
            fuzz_fail(seat, "recovery: rank %d has not come", rank);
        }
        uint64_t retired = task->retired[life][rank];
        last = retired > last ? retired : last;
    }
    return last;
}

/* ---- recoveries ------------------------------------------------------- */

/* The last epoch that the rank has completed. Without messages those that
   failed count as well: but the last one is none. */
static uint64_t completed(const fuzz_seat_t *seat)
{
    const baton_schedule_t *schedule = seat->task->rules->schedule(seat);
    uint64_t epoch = baton_schedule_epoch(schedule);
    baton_failure_t failure;
    bool failed = seat->task->plan->kind == FUZZ_LOCAL &&
                  baton_schedule_failure(schedule, &failure) == BATON_OK &&
                  failure.epoch == epoch;
    return failed ? epoch - 1 : epoch;
}

/* From the call to recover on nothing of this life runs on the rank. */
static void end_life(fuzz_place_t *place)
{
    fuzz_world_t *world = place->world;
    for (int i = 0; i < world->plan.task_count; i++) {
        fuzz_task_t *task = &world->tasks[i];
        fuzz_seat_t *seat = &task->seats[place->rank];
        task->retired[place->life][place->rank] = completed(seat);
        seat->phase = FUZZ_RECOVERS;
        seat->step = 0;
        seat->waited = 0;
    }
    place->life++;
    place->recovers = true;
    place->polls = 0;
}

static void begin_life(fuzz_place_t *place)
{
    fuzz_world_t *world = place->world;
    place->recovers = false;
    for (int i = 0; i < world->plan.task_count; i++) {
        fuzz_seat_t *seat = &world->tasks[i].seats[place->rank];
        (void)fuzz_last_epoch(seat, place->life - 1); /* all have come */
        world->tasks[i].rules->recovered(seat);
        fuzz_seat_begin(seat);
    }
    world->back[place->life - 1]++;
    if (world->back[place->life - 1] == (uint32_t)ranks_of(world)) {
        baton_status_t status = fuzz_forecast_upset(world);
        if (status != BATON_OK) {
            fuzz_fail(&world->tasks[0].seats[0], "baton_sim_at: %s",
                      baton_error_message());
        }
    }
}

static void recover(void *arg)
{
    fuzz_place_t *place = arg;
    fuzz_world_t *world = place->world;
    if (fuzz_failed(world)) {
        return;
    }
    bool first = !place->recovers;
    world->called[place->life] += first;
    baton_status_t status =
        baton_group_recover(baton_sim_group(world->sim, place->rank), 0);
    if (first) {
        end_life(place);
    }
    if (status == BATON_OK) {
        begin_life(place);
    } else if (status == BATON_ERR_TIMEOUT && place->polls < MAX_POLLS) {
        at(world, FIRST_POLL_US * (double)(UINT64_C(1) << place->polls),
           recover, place);
        place->polls++;
    } else {
        fuzz_fail(&world->tasks[0].seats[place->rank], "recovery: %s: %s",
                  baton_status_name(status), baton_error_message());
    }
}

static void call_all(fuzz_world_t *world)
{
    for (int rank = 0; rank < ranks_of(world); rank++) {
        at(world, fuzz_real(&world->weather, 4 * world->plan.pause_us), recover,
           &world->places[rank]);
    }
}

/* ---- upsets ----------------------------------------------------------- */

static bool all_committed(const fuzz_world_t *world)
{
    for (int i = 0; i < world->plan.task_count; i++) {
        for (int rank = 0; rank < ranks_of(world); rank++) {
            if (world->tasks[i].seats[rank].phase == FUZZ_ABSENT) {
                return false;
            }
        }
    }
    return true;
}

/* Where only schedules without messages are left nothing goes wrong, but all
   recover. */
static void choose(fuzz_world_t *world, fuzz_upset_t *upset)
{
    upset->planned = true;
    upset->task =
        (int)fuzz_below(&world->weather, (uint64_t)world->plan.task_count);
    upset->rank = (int)fuzz_below(&world->weather, (uint64_t)ranks_of(world));
    fuzz_task_t *task = &world->tasks[upset->task];
    fuzz_seat_t *seat = &task->seats[upset->rank];
    bool local = task->plan->kind == FUZZ_LOCAL;
    upset->cancels = local || (task->rules->cancel != NULL &&
                               fuzz_once_in(&world->weather, 2));
    if (local || !upset->cancels) {
        return;
    }
    baton_status_t status = task->rules->cancel(seat);
    upset->happened = status == BATON_OK;
    upset->epoch = seat->step;
    if (status != BATON_OK && status != BATON_ERR_STATE) {
        fuzz_fail(seat, "cancel: %s", baton_error_message());
    }
}

static void upset(void *arg)
{
    fuzz_world_t *world = arg;
    if (fuzz_failed(world)) {
        return;
    }
    if (!all_committed(world)) {
        at(world, 1 + world->plan.commit_us / 4, upset, world);
        return;
    }
    choose(world, &world->upsets[world->places[0].life]);
    if (world->plan.prompt) {
        call_all(world);
    }
}

baton_status_t fuzz_forecast_upset(fuzz_world_t *world)
{
    return world->places[0].life < world->plan.upsets
               ? baton_sim_at(world->sim,
                              baton_sim_now_us(world->sim) +
                                  world->plan.upset_us,
                              upset, world)
               : BATON_OK;
}

bool fuzz_wants_recovery(const fuzz_world_t *world)
{
    uint32_t life = world->places[0].life;
    return !fuzz_failed(world) && !world->plan.prompt &&
           life < world->plan.upsets && world->upsets[life].planned;
}

/* ---- in peace --------------------------------------------------------- */

/* Whether the seat's schedule has failed, and then as it had to. */
static bool has_failed(fuzz_seat_t *seat, const fuzz_upset_t *upset)
{
    baton_failure_t failure;
    if (baton_schedule_failure(seat->task->rules->schedule(seat), &failure) !=
        BATON_OK) {
        return false;
    }
    if (failure.status != status_of(upset) || failure.rank != upset->rank ||
        failure.epoch != upset->epoch) {
        fuzz_fail(seat,
                  "failure: %s of rank %d in epoch %" PRIu64
                  ", was of rank %d in epoch %" PRIu64 ": %s",
                  baton_status_name(failure.status), failure.rank,
                  failure.epoch, upset->rank, upset->epoch, failure.message);
    }
    return true;
}

/* Who was not upset is done. Who was has failed on all ranks, or, cancelled too
   late, on none. */
static void judge_task(fuzz_task_t *task, const fuzz_upset_t *upset)
{
    bool upsets = upset->happened && upset->task == task->index;
    int failed = 0;
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        fuzz_seat_t *seat = &task->seats[rank];
        if (upsets && has_failed(seat, upset)) {
            failed++;
        } else if (seat->phase != FUZZ_DONE) {
            fuzz_fail(seat, "liveness: it has not failed, and never ends");
        }
    }
    bool none = failed == 0 && upset->cancels;
    if (upsets && failed != fuzz_ranks(task) && !none) {
        fuzz_fail(&task->seats[upset->rank],
                  "failure: %d ranks of %d have failed", failed,
                  fuzz_ranks(task));
    }
}

void fuzz_recover_in_peace(fuzz_world_t *world)
{
    const fuzz_upset_t *upset = &world->upsets[world->places[0].life];
    for (int i = 0; i < world->plan.task_count; i++) {
        judge_task(&world->tasks[i], upset);
    }
    if (!fuzz_failed(world)) {
        call_all(world);
    }
}
