/* The application of a seat; see world.h. */
#include "fuzz/world.h"

enum { MAX_POLLS = 48 }; /* each twice as late as the one before */

#define FIRST_POLL_US 0.25

/* ---- errors ----------------------------------------------------------- */

bool fuzz_is_consequence(const fuzz_seat_t *seat, baton_status_t status)
{
    const fuzz_world_t *world = seat->task->world;
    fuzz_kind_t kind = seat->task->plan->kind;
    bool killed = world->plan.blow == FUZZ_BLOW_KILL;
    /* A root that gets too few answers. */
    bool unreachable =
        status == BATON_ERR_UNREACHABLE && killed && kind == FUZZ_QUORUM;
    /* Who would have activated an epoch is missed by nobody. */
    bool in_vain = status == BATON_ERR_DEADLOCK && killed &&
                   (kind == FUZZ_PARTIAL || kind == FUZZ_ALARM);
    return world->struck &&
           (status == BATON_ERR_TRANSPORT || status == BATON_ERR_FAILED ||
            unreachable || in_vain);
}

/* Whether a call went well. If not, its application is out, or the world has
   failed. */
static bool went_well(fuzz_seat_t *seat, const char *call,
                      baton_status_t status)
{
    fuzz_world_t *world = seat->task->world;
    if (status == BATON_OK) {
        return !fuzz_failed(world);
    }
    fuzz_note(world, (uint64_t)(uint32_t)status);
    if (fuzz_is_consequence(seat, status)) {
        seat->phase = FUZZ_OUT;
    } else if (fuzz_is_upset(seat, status)) {
        seat->phase = FUZZ_FAILED;
    } else {
        fuzz_fail(seat, "%s: %s: %s", call, baton_status_name(status),
                  baton_error_message());
    }
    return false;
}

/* ---- applications ----------------------------------------------------- */

/* Time until the next action: never beyond the end of all faults. */
static double draw_pause_us(fuzz_seat_t *seat)
{
    const fuzz_world_t *world = seat->task->world;
    double left = world->heal_us - baton_sim_now_us(world->sim);
    double pause = world->plan.pause_us;
    if (world->healed || left <= 0 || fuzz_once_in(&seat->random, 3)) {
        return 0;
    }
    if (fuzz_suffers(seat, FUZZ_FAULT_ABSENT) &&
        fuzz_once_in(&seat->random, 8)) {
        return left;
    }
    if (fuzz_suffers(seat, FUZZ_FAULT_LATE) && fuzz_once_in(&seat->random, 4)) {
        pause *= 8;
    }
    pause = fuzz_real(&seat->random, pause);
    return pause < left ? pause : left;
}

static uint32_t draw_todo(fuzz_seat_t *seat)
{
    if (fuzz_suffers(seat, FUZZ_FAULT_EMPTY) &&
        fuzz_once_in(&seat->random, 4)) {
        return 0;
    }
    if (fuzz_suffers(seat, FUZZ_FAULT_AGAIN) &&
        fuzz_once_in(&seat->random, 2)) {
        return 2 + (uint32_t)fuzz_below(&seat->random, 2);
    }
    return 1;
}

static void act(void *arg);

static void act_after(fuzz_seat_t *seat, double us)
{
    fuzz_world_t *world = seat->task->world;
    fuzz_ticket_t *ticket = &seat->tickets[fuzz_life(seat)];
    *ticket = (fuzz_ticket_t){seat, fuzz_life(seat)};
    baton_status_t status = baton_sim_at(
        world->sim, baton_sim_now_us(world->sim) + us, act, ticket);
    if (status != BATON_OK) {
        fuzz_fail(seat, "baton_sim_at: %s", baton_error_message());
    }
}

void fuzz_seat_begin(fuzz_seat_t *seat)
{
    seat->phase = FUZZ_PREPARES;
    seat->todo = draw_todo(seat);
    act_after(seat, draw_pause_us(seat));
}

/* True when it has started. */
static bool try_start(fuzz_seat_t *seat)
{
    if (seat->task->rules->prepare(seat)) {
        act_after(seat, draw_pause_us(seat));
        return false;
    }
    /* First, since nodes may run before start returns. */
    seat->step++;
    seat->polls = 0;
    seat->phase = FUZZ_WAITS;
    return went_well(seat, "start", seat->task->rules->start(seat));
}

static void end_step(fuzz_seat_t *seat)
{
    fuzz_world_t *world = seat->task->world;
    seat->waited++;
    if (!went_well(seat, "wait", seat->task->rules->finish(seat))) {
        return;
    }
    fuzz_note_real(world, baton_sim_now_us(world->sim));
    if (seat->step == seat->task->plan->steps) {
        seat->phase = FUZZ_DONE;
    } else if (!world->alone) {
        fuzz_seat_begin(seat);
    }
}

static void act(void *arg)
{
    const fuzz_ticket_t *ticket = arg;
    fuzz_seat_t *seat = ticket->seat;
    if (fuzz_failed(seat->task->world) || fuzz_is_dead(seat) ||
        ticket->life != fuzz_life(seat)) {
        return;
    }
    if (seat->phase == FUZZ_PREPARES && !try_start(seat)) {
        return;
    }
    bool done = false;
    if (!went_well(seat, "test", seat->task->rules->test(seat, &done))) {
        return;
    }
    if (done) {
        end_step(seat);
    } else if (seat->polls < MAX_POLLS) {
        /* Who never ends must not keep the world from coming to rest. */
        act_after(seat, FIRST_POLL_US * (double)(UINT64_C(1) << seat->polls));
        seat->polls++;
    }
}
