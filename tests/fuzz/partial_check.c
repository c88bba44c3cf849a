/* The checks of a partial all-reduce; see partial_check.h. */
#include "fuzz/partial_check.h"

#include <inttypes.h>
#include <string.h>

fuzz_task_t *fuzz_partial_building;

static fuzz_epoch_t *record_of(const fuzz_participant_t *participant,
                               uint64_t epoch)
{
    return fuzz_epoch_of(participant->task, fuzz_incarnation(participant),
                         epoch);
}

/* ---- recovery --------------------------------------------------------- */

/* Contributions that no epoch has taken stay. They count as made for step 1 of
   the new incarnation. */
static void keep_pending(fuzz_state_t *state)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < state->contributed; i++) {
        if (state->contributions[i].epoch == 0) {
            state->contributions[kept++] = (fuzz_contribution_t){.step = 1};
        }
    }
    state->contributed = kept;
    state->taken = 0;
}

static void leave_incarnation(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    uint64_t last = fuzz_last_epoch(participant, state->incarnation);
    if (state->entered > last) {
        for (uint32_t i = 0; i < state->contributed; i++) {
            if (state->contributions[i].epoch == state->entered) {
                state->contributions[i].epoch = 0;
            }
        }
        fuzz_combine(participant->task->plan, state->pending, state->took);
    }
    if (state->seen > last) {
        fuzz_fail(participant,
                  "conservation: the result of epoch %" PRIu64
                  " was returned, and what it took is pending again",
                  state->seen);
    }
    keep_pending(state);
    state->entered = 0;
    state->left = 0;
    state->seen = 0;
    state->incarnation++;
}

void fuzz_partial_catch_up(fuzz_participant_t *participant)
{
    while (participant->state->incarnation < fuzz_incarnation(participant) &&
           !fuzz_failed(participant->task->cluster)) {
        leave_incarnation(participant);
    }
}

/* ---- both ends -------------------------------------------------------- */

/* Whether so many arrivals allow the epoch to run. */
static bool may_run(const fuzz_participant_t *participant, uint64_t epoch,
                    uint32_t arrived)
{
    const fuzz_task_t *task = participant->task;
    const fuzz_task_plan_t *plan = task->plan;
    int ranks = fuzz_ranks(task);
    bool synced = (plan->sync_every != 0 && epoch % plan->sync_every == 0) ||
                  (plan->mode != BATON_CANDIDATES_ANY &&
                   plan->mode_ranks == (uint32_t)ranks);
    switch (synced ? BATON_FULL : plan->mode) {
    case BATON_SOLO:
    case BATON_CANDIDATES_ANY:
        return arrived > 0;
    case BATON_MAJORITY:
        return fuzz_has_begun(
            task, baton_partial_elect(task->cluster->plan.seed, epoch, ranks),
            fuzz_incarnation(participant), epoch);
    case BATON_QUORUM:
    case BATON_CANDIDATES_ALL:
        return arrived >= plan->mode_ranks;
    case BATON_FULL:
        break;
    }
    return participant->step >= epoch;
}

/* Whether this rank, which has started the epoch, enters it at once. */
static bool enters_at_start(const fuzz_participant_t *participant,
                            uint64_t epoch)
{
    const fuzz_task_plan_t *plan = participant->task->plan;
    uint32_t ranks = (uint32_t)fuzz_ranks(participant->task);
    bool some = plan->mode == BATON_CANDIDATES_ANY && plan->mode_ranks > 1 &&
                plan->mode_ranks < ranks;
    return !some && fuzz_has_begun(participant->task, participant->rank,
                                   fuzz_incarnation(participant), epoch);
}

static void check_quorum(fuzz_participant_t *participant, uint64_t epoch)
{
    const fuzz_task_t *task = participant->task;
    int ranks = fuzz_ranks(task);
    int arrived = 0;
    uint32_t incarnation = fuzz_incarnation(participant);
    for (int rank = 0; rank < ranks; rank++) {
        arrived += fuzz_has_begun(task, rank, incarnation, epoch);
    }
    if (!may_run(participant, epoch, (uint32_t)arrived)) {
        fuzz_fail(participant,
                  "quorum: epoch %" PRIu64 " runs, %d ranks have arrived",
                  epoch, arrived);
    }
}

static uint64_t history_of(const fuzz_task_plan_t *plan)
{
    return plan->history != 0             ? plan->history
           : plan->keep == BATON_KEEP_ALL ? 4
                                          : 1;
}

/* The node that is made to fail is at one end or at the other. */
static baton_status_t injection(fuzz_participant_t *participant, uint64_t epoch,
                                bool enters)
{
    bool at_enter =
        fuzz_key(participant->task, participant->rank, epoch) % 2 == 0;
    return at_enter == enters && fuzz_injection_due(participant, epoch)
               ? FUZZ_INJECTED_STATUS
               : BATON_OK;
}

static baton_status_t enter(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    fuzz_participant_t *participant = arg;
    fuzz_state_t *state = participant->state;
    const fuzz_task_plan_t *plan = participant->task->plan;
    fuzz_partial_catch_up(participant);
    if (epoch != state->entered + 1 || epoch > plan->steps) {
        fuzz_fail(participant,
                  "safety: epoch %" PRIu64 " runs after epoch %" PRIu32, epoch,
                  state->entered);
        return BATON_OK;
    }
    state->entered++;
    if (!enters_at_start(participant, epoch)) {
        check_quorum(participant, epoch);
    }
    if (plan->keep == BATON_KEEP_ALL &&
        epoch > participant->waited + history_of(plan)) {
        fuzz_fail(participant,
                  "staleness: epoch %" PRIu64 " runs, step %" PRIu32
                  " has not been seen",
                  epoch, participant->waited + 1);
    }
    size_t at = fuzz_difference(plan, state->pending, state->entering);
    if (at < plan->count) {
        fuzz_fail(participant,
                  "safety: epoch %" PRIu64
                  " does not take what is pending, at element %zu",
                  epoch, at);
    }
    fuzz_epoch_t *record = record_of(participant, epoch);
    record->entered++;
    record->active += state->taken < state->contributed;
    while (state->taken < state->contributed) {
        state->contributions[state->taken++].epoch = (uint32_t)epoch;
    }
    fuzz_combine(plan, record->expected, state->pending);
    memcpy(state->took, state->pending, plan->count * sizeof *state->took);
    memset(state->pending, 0, plan->count * sizeof *state->pending);
    return injection(participant, epoch, true);
}

static baton_status_t leave(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    fuzz_participant_t *participant = arg;
    fuzz_state_t *state = participant->state;
    const fuzz_task_plan_t *plan = participant->task->plan;
    if (epoch != state->left + 1 || epoch != state->entered) {
        fuzz_fail(participant,
                  "safety: epoch %" PRIu64 " ends after epoch %" PRIu32, epoch,
                  state->left);
        return BATON_OK;
    }
    state->left++;
    fuzz_epoch_t *record = record_of(participant, epoch);
    /* With nothing to reduce, not even a count of ranks, no rank waits. */
    bool empty = plan->count == 0 && plan->own_op;
    if (record->entered < fuzz_ranks(participant->task) && !empty) {
        fuzz_fail(participant,
                  "safety: epoch %" PRIu64 " ends with %d ranks in it", epoch,
                  record->entered);
        return BATON_OK;
    }
    size_t bytes = fuzz_bytes(plan);
    if (record->result == NULL) {
        size_t at = fuzz_difference(plan, record->expected, state->leaving);
        if (at < plan->count) {
            fuzz_fail(participant,
                      "safety: the result of epoch %" PRIu64
                      " is not the sum of what was taken, at element %zu",
                      epoch, at);
        }
        record->result = fuzz_alloc(bytes + 1, 1);
        memcpy(record->result, state->leaving, bytes);
    } else if (memcmp(record->result, state->leaving, bytes) != 0) {
        fuzz_fail(participant,
                  "safety: epoch %" PRIu64
                  " has another result on another rank",
                  epoch);
    }
    baton_status_t status = injection(participant, epoch, false);
    state->left -= status != BATON_OK; /* nothing is published */
    return status;
}

void fuzz_partial_inner(baton_schedule_t *s, const baton_allreduce_t *args)
{
    const fuzz_task_plan_t *plan = fuzz_partial_building->plan;
    fuzz_participant_t *participant =
        &fuzz_partial_building->participants[baton_schedule_rank(s)];
    size_t bytes = args->target.bytes;
    baton_buffer_t entering =
        baton_buffer_bind(s, participant->state->entering, bytes);
    baton_buffer_t leaving =
        baton_buffer_bind(s, participant->state->leaving, bytes);
    baton_node_t copy_in =
        baton_add_copy(s, baton_view(entering, 0, bytes), args->source);
    baton_node_t entered = baton_add_call(s, enter, participant);
    baton_node_t copy_out =
        baton_add_copy(s, baton_view(leaving, 0, bytes), args->target);
    baton_before(s, copy_in, entered);
    baton_before(s, copy_out, baton_add_call(s, leave, participant));
    baton_allreduce_t inner = *args;
    inner.chunk_bytes = plan->chunk_bytes;
    baton_enclosure_t inside = baton_enclose_begin(s);
    fuzz_algorithms[plan->algorithm].add(s, &inner);
    baton_enclose_end(s, inside, entered, copy_out);
}

/* ---- results ---------------------------------------------------------- */

/* The oldest step with a contribution that no epoch before this one has taken;
   0 if there is none. */
static uint64_t oldest_before(const fuzz_state_t *state, uint64_t epoch)
{
    for (uint32_t i = 0; i < state->contributed; i++) {
        if (state->contributions[i].epoch == 0 ||
            state->contributions[i].epoch >= epoch) {
            return state->contributions[i].step;
        }
    }
    return 0;
}

/* Counts this step's contributions, and how many of them are in the epoch. */
static void count_contributions(const fuzz_state_t *state, uint64_t step,
                                uint64_t epoch, uint32_t *all, uint32_t *inside)
{
    *all = *inside = 0;
    for (uint32_t i = 0; i < state->contributed; i++) {
        *all += state->contributions[i].step == step;
        *inside += state->contributions[i].step == step &&
                   state->contributions[i].epoch == epoch;
    }
}

static void check_claims(fuzz_participant_t *participant,
                         const baton_partial_result_t *seen)
{
    const fuzz_task_plan_t *plan = participant->task->plan;
    const fuzz_state_t *state = participant->state;
    uint32_t all;
    uint32_t inside;
    count_contributions(state, participant->step, seen->epoch, &all, &inside);
    /* partial.h does not define `included` for a step without contributions. */
    if (all > 0 && seen->included != (inside == all)) {
        fuzz_fail(participant,
                  "safety: included is %d, %" PRIu32 " of %" PRIu32
                  " contributions are in epoch %" PRIu64,
                  seen->included, inside, all, seen->epoch);
    }
    uint32_t active = record_of(participant, seen->epoch)->active;
    if (seen->active != active) {
        fuzz_fail(participant,
                  "safety: active is %" PRIu32 " in epoch %" PRIu64
                  ", were %" PRIu32,
                  seen->active, seen->epoch, active);
    }
    uint64_t oldest = oldest_before(state, seen->epoch);
    uint64_t age =
        oldest != 0 && oldest < seen->epoch ? seen->epoch - oldest : 0;
    if (seen->staleness != age) {
        fuzz_fail(participant,
                  "staleness is %" PRIu64 " in epoch %" PRIu64 ", was %" PRIu64,
                  seen->staleness, seen->epoch, age);
    }
    if ((plan->mode == BATON_MAJORITY &&
         age >= 2 * (uint64_t)fuzz_ranks(participant->task)) ||
        (plan->keep == BATON_KEEP_ALL && age > history_of(plan)) ||
        (plan->max_staleness != 0 && age > plan->max_staleness) ||
        (plan->mode == BATON_FULL && age > 0)) {
        fuzz_fail(participant,
                  "staleness: %" PRIu64 " in epoch %" PRIu64
                  " is beyond its bound",
                  age, seen->epoch);
    }
}

void fuzz_partial_check_held(fuzz_participant_t *participant)
{
    const fuzz_state_t *state = participant->state;
    if (state->held != NULL &&
        memcmp(state->held, state->held_as,
               fuzz_bytes(participant->task->plan)) != 0) {
        fuzz_fail(participant,
                  "safety: the result of epoch %" PRIu64
                  " changed before the next wait",
                  state->held_epoch);
    }
}

void fuzz_partial_check_result(fuzz_participant_t *participant,
                               const baton_partial_result_t *seen)
{
    fuzz_state_t *state = participant->state;
    const fuzz_task_plan_t *plan = participant->task->plan;
    check_quorum(participant, seen->epoch);
    /* The last epoch that has left is the latest, unless its count of active
       ranks, an all-reduce of its own, is still on the way, or its activation,
       which it ends behind. */
    uint64_t latest = state->left;
    if ((plan->own_op || plan->mode != BATON_FULL) &&
        seen->epoch + 1 == latest) {
        latest = seen->epoch;
    }
    uint64_t right = plan->keep == BATON_KEEP_ALL ? participant->step : latest;
    if (seen->epoch != right || seen->epoch < participant->step) {
        fuzz_fail(participant,
                  "safety: the result is of epoch %" PRIu64 ", not %" PRIu64,
                  seen->epoch, right);
        return;
    }
    state->held = seen->data;
    state->held_epoch = seen->epoch;
    state->held_as = record_of(participant, seen->epoch)->result;
    state->seen = seen->epoch > state->seen ? seen->epoch : state->seen;
    if (memcmp(seen->data, record_of(participant, seen->epoch)->result,
               fuzz_bytes(plan)) != 0) {
        fuzz_fail(participant,
                  "safety: the result of epoch %" PRIu64
                  " is not what was reduced",
                  seen->epoch);
    }
    check_claims(participant, seen);
    fuzz_note(participant->task->cluster, seen->epoch);
    fuzz_note(participant->task->cluster, seen->active);
    fuzz_note(participant->task->cluster, seen->staleness);
}
