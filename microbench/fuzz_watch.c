/* Watching a partial all-reduce; see fuzz_watch.h. */
#include "fuzz_watch.h"

#include <inttypes.h>
#include <string.h>

fuzz_task_t *fuzz_watch_building;

/* Of the seat's life. */
static fuzz_round_t *round_of(const fuzz_seat_t *seat, uint64_t epoch)
{
    return fuzz_round(seat->task, fuzz_life(seat), epoch);
}

/* ---- recovery --------------------------------------------------------- */

/* What no epoch has taken stays; it is from before the first step. */
static void keep_pending(fuzz_part_t *part)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < part->given; i++) {
        if (part->gifts[i].epoch == 0) {
            part->gifts[kept++] = (fuzz_gift_t){.step = 1};
        }
    }
    part->given = kept;
    part->taken = 0;
}

static void end_life(fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    uint64_t last = fuzz_last_epoch(seat, part->life);
    if (part->entered > last) {
        for (uint32_t i = 0; i < part->given; i++) {
            if (part->gifts[i].epoch == part->entered) {
                part->gifts[i].epoch = 0;
            }
        }
        fuzz_combine(seat->task->plan, part->pending, part->took);
    }
    if (part->seen > last) {
        fuzz_fail(seat,
                  "conservation: the result of epoch %" PRIu64
                  " was returned, and what it took is pending again",
                  part->seen);
    }
    keep_pending(part);
    part->entered = 0;
    part->left = 0;
    part->seen = 0;
    part->life++;
}

void fuzz_watch_life(fuzz_seat_t *seat)
{
    while (seat->part->life < fuzz_life(seat) &&
           !fuzz_failed(seat->task->world)) {
        end_life(seat);
    }
}

/* ---- both ends -------------------------------------------------------- */

static bool is_met(const fuzz_seat_t *seat, uint64_t epoch, uint32_t arrived)
{
    const fuzz_task_t *task = seat->task;
    const fuzz_task_plan_t *plan = task->plan;
    bool synced = (plan->sync_every != 0 && epoch % plan->sync_every == 0) ||
                  (plan->mode != BATON_CANDIDATES_ANY &&
                   plan->mode_ranks == (uint32_t)fuzz_ranks(task));
    switch (synced ? BATON_FULL : plan->mode) {
    case BATON_SOLO:
    case BATON_CANDIDATES_ANY:
        return arrived > 0;
    case BATON_MAJORITY:
        return fuzz_has_begun(
            task,
            baton_partial_draw(task->world->plan.seed, epoch, fuzz_ranks(task)),
            fuzz_life(seat), epoch);
    case BATON_QUORUM:
    case BATON_CANDIDATES_ALL:
        return arrived >= plan->mode_ranks;
    case BATON_FULL:
        break;
    }
    return seat->step >= epoch;
}

static void check_quorum(fuzz_seat_t *seat, uint64_t epoch)
{
    const fuzz_task_t *task = seat->task;
    int ranks = fuzz_ranks(task);
    int arrived = 0;
    uint32_t life = fuzz_life(seat);
    for (int rank = 0; rank < ranks; rank++) {
        arrived += fuzz_has_begun(task, rank, life, epoch);
    }
    if (!is_met(seat, epoch, (uint32_t)arrived)) {
        fuzz_fail(seat, "quorum: epoch %" PRIu64 " runs, %d ranks have arrived",
                  epoch, arrived);
    }
}

static uint64_t history_of(const fuzz_task_plan_t *plan)
{
    return plan->history != 0             ? plan->history
           : plan->keep == BATON_KEEP_ALL ? 4
                                          : 1;
}

/* At one end or the other. */
static baton_status_t upset(fuzz_seat_t *seat, uint64_t epoch, bool enters)
{
    bool at_enter = fuzz_key(seat->task, seat->rank, epoch) % 2 == 0;
    return at_enter == enters && fuzz_upset_due(seat, epoch) ? FUZZ_UPSET_STATUS
                                                             : BATON_OK;
}

static baton_status_t enter(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    fuzz_seat_t *seat = arg;
    fuzz_part_t *part = seat->part;
    const fuzz_task_plan_t *plan = seat->task->plan;
    fuzz_watch_life(seat);
    if (epoch != part->entered + 1 || epoch > plan->steps) {
        fuzz_fail(seat, "safety: epoch %" PRIu64 " runs after epoch %" PRIu32,
                  epoch, part->entered);
        return BATON_OK;
    }
    part->entered++;
    check_quorum(seat, epoch);
    if (plan->keep == BATON_KEEP_ALL &&
        epoch > seat->waited + history_of(plan)) {
        fuzz_fail(seat,
                  "staleness: epoch %" PRIu64 " runs, step %" PRIu32
                  " has not been seen",
                  epoch, seat->waited + 1);
    }
    size_t at = fuzz_difference(plan, part->pending, part->entering);
    if (at < plan->count) {
        fuzz_fail(seat,
                  "safety: epoch %" PRIu64
                  " does not take what is pending, at element %zu",
                  epoch, at);
    }
    fuzz_round_t *round = round_of(seat, epoch);
    round->entered++;
    round->active += part->taken < part->given;
    while (part->taken < part->given) {
        part->gifts[part->taken++].epoch = (uint32_t)epoch;
    }
    fuzz_combine(plan, round->expected, part->pending);
    memcpy(part->took, part->pending, plan->count * sizeof *part->took);
    memset(part->pending, 0, plan->count * sizeof *part->pending);
    return upset(seat, epoch, true);
}

static baton_status_t leave(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    fuzz_seat_t *seat = arg;
    fuzz_part_t *part = seat->part;
    const fuzz_task_plan_t *plan = seat->task->plan;
    if (epoch != part->left + 1 || epoch != part->entered) {
        fuzz_fail(seat, "safety: epoch %" PRIu64 " ends after epoch %" PRIu32,
                  epoch, part->left);
        return BATON_OK;
    }
    part->left++;
    fuzz_round_t *round = round_of(seat, epoch);
    /* Nothing to reduce, not even a count that rides: nobody waits. */
    bool empty = plan->count == 0 && plan->own_op;
    if (round->entered < fuzz_ranks(seat->task) && !empty) {
        fuzz_fail(seat, "safety: epoch %" PRIu64 " ends with %d ranks in it",
                  epoch, round->entered);
        return BATON_OK;
    }
    size_t bytes = fuzz_bytes(plan);
    if (round->result == NULL) {
        size_t at = fuzz_difference(plan, round->expected, part->leaving);
        if (at < plan->count) {
            fuzz_fail(seat,
                      "safety: the result of epoch %" PRIu64
                      " is not the sum of what was taken, at element %zu",
                      epoch, at);
        }
        round->result = fuzz_alloc(bytes + 1, 1);
        memcpy(round->result, part->leaving, bytes);
    } else if (memcmp(round->result, part->leaving, bytes) != 0) {
        fuzz_fail(seat,
                  "safety: epoch %" PRIu64
                  " has another result on another rank",
                  epoch);
    }
    baton_status_t status = upset(seat, epoch, false);
    part->left -= status != BATON_OK; /* nothing is published */
    return status;
}

void fuzz_watch_inner(baton_schedule_t *s, const baton_allreduce_t *args)
{
    const fuzz_task_plan_t *plan = fuzz_watch_building->plan;
    fuzz_seat_t *seat = &fuzz_watch_building->seats[baton_schedule_rank(s)];
    size_t bytes = args->target.bytes;
    baton_buffer_t entering =
        baton_buffer_bind(s, seat->part->entering, bytes, BATON_MEMORY_HOST);
    baton_buffer_t leaving =
        baton_buffer_bind(s, seat->part->leaving, bytes, BATON_MEMORY_HOST);
    baton_node_t copy_in =
        baton_add_copy(s, baton_view(entering, 0, bytes), args->source);
    baton_node_t entered = baton_add_call(s, enter, seat);
    baton_node_t copy_out =
        baton_add_copy(s, baton_view(leaving, 0, bytes), args->target);
    baton_before(s, copy_in, entered);
    baton_before(s, copy_out, baton_add_call(s, leave, seat));
    baton_allreduce_t inner = *args;
    inner.chunk_bytes = plan->chunk_bytes;
    baton_mark_t inside = baton_schedule_mark(s);
    fuzz_algorithms[plan->algorithm].add(s, &inner);
    baton_enclose(s, inside, entered, copy_out);
}

/* ---- what the application is told ------------------------------------- */

/* The oldest step of which something was in no epoch before this one; 0: all
   was. */
static uint64_t oldest_before(const fuzz_part_t *part, uint64_t epoch)
{
    for (uint32_t i = 0; i < part->given; i++) {
        if (part->gifts[i].epoch == 0 || part->gifts[i].epoch >= epoch) {
            return part->gifts[i].step;
        }
    }
    return 0;
}

/* How many of this step's contributions there were, and how many are in the
   epoch. */
static void count_gifts(const fuzz_part_t *part, uint64_t step, uint64_t epoch,
                        uint32_t *all, uint32_t *inside)
{
    *all = *inside = 0;
    for (uint32_t i = 0; i < part->given; i++) {
        *all += part->gifts[i].step == step;
        *inside += part->gifts[i].step == step && part->gifts[i].epoch == epoch;
    }
}

static void check_claims(fuzz_seat_t *seat, const baton_partial_result_t *seen)
{
    const fuzz_task_plan_t *plan = seat->task->plan;
    const fuzz_part_t *part = seat->part;
    uint32_t all;
    uint32_t inside;
    count_gifts(part, seat->step, seen->epoch, &all, &inside);
    /* Of a step that was split among epochs, or empty, partial.h says less. */
    if (all > 0 && (inside == 0 || inside == all) &&
        seen->included != (inside > 0)) {
        fuzz_fail(seat,
                  "safety: included is %d, %" PRIu32 " of %" PRIu32
                  " contributions are in epoch %" PRIu64,
                  seen->included, inside, all, seen->epoch);
    }
    uint32_t active = round_of(seat, seen->epoch)->active;
    if (seen->active != active) {
        fuzz_fail(seat,
                  "safety: active is %" PRIu32 " in epoch %" PRIu64
                  ", were %" PRIu32,
                  seen->active, seen->epoch, active);
    }
    uint64_t oldest = oldest_before(part, seen->epoch);
    uint64_t age =
        oldest != 0 && oldest < seen->epoch ? seen->epoch - oldest : 0;
    if (seen->staleness != age) {
        fuzz_fail(seat,
                  "staleness is %" PRIu64 " in epoch %" PRIu64 ", was %" PRIu64,
                  seen->staleness, seen->epoch, age);
    }
    if ((plan->mode == BATON_MAJORITY &&
         age >= 2 * (uint64_t)fuzz_ranks(seat->task)) ||
        (plan->keep == BATON_KEEP_ALL && age > history_of(plan)) ||
        (plan->max_staleness != 0 && age > plan->max_staleness) ||
        (plan->mode == BATON_FULL && age > 0)) {
        fuzz_fail(seat,
                  "staleness: %" PRIu64 " in epoch %" PRIu64
                  " is beyond its bound",
                  age, seen->epoch);
    }
}

void fuzz_watch_held(fuzz_seat_t *seat)
{
    const fuzz_part_t *part = seat->part;
    if (part->held != NULL &&
        memcmp(part->held, part->held_as, fuzz_bytes(seat->task->plan)) != 0) {
        fuzz_fail(seat,
                  "safety: the result of epoch %" PRIu64
                  " changed before the next wait",
                  part->held_epoch);
    }
}

void fuzz_watch_result(fuzz_seat_t *seat, const baton_partial_result_t *seen)
{
    fuzz_part_t *part = seat->part;
    const fuzz_task_plan_t *plan = seat->task->plan;
    /* The last epoch that has left is the latest, unless its count of active
       ranks, an all-reduce of its own, is still on the way. */
    uint64_t latest = part->left;
    if (plan->own_op && seen->epoch + 1 == latest) {
        latest = seen->epoch;
    }
    uint64_t right = plan->keep == BATON_KEEP_ALL ? seat->step : latest;
    if (seen->epoch != right || seen->epoch < seat->step) {
        fuzz_fail(seat,
                  "safety: the result is of epoch %" PRIu64 ", not %" PRIu64,
                  seen->epoch, right);
        return;
    }
    part->held = seen->data;
    part->held_epoch = seen->epoch;
    part->held_as = round_of(seat, seen->epoch)->result;
    part->seen = seen->epoch > part->seen ? seen->epoch : part->seen;
    if (memcmp(seen->data, round_of(seat, seen->epoch)->result,
               fuzz_bytes(plan)) != 0) {
        fuzz_fail(seat,
                  "safety: the result of epoch %" PRIu64
                  " is not what was reduced",
                  seen->epoch);
    }
    check_claims(seat, seen);
    fuzz_note(seat->task->world, seen->epoch);
    fuzz_note(seat->task->world, seen->active);
    fuzz_note(seat->task->world, seen->staleness);
}
