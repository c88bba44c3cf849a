/* Applications of partial all-reduces. partial_check.h lists the checks of each
   epoch; at the end the results and the pending contributions must add up to
   all contributions. */
#include "fuzz/partial.h"
#include "fuzz/partial_check.h"

#include <inttypes.h>
#include <stdlib.h>

enum { CONTRIBUTIONS_A_STEP = 4 };

/* ---- open and close --------------------------------------------------- */

static fuzz_state_t *state_create(const fuzz_task_plan_t *plan)
{
    uint64_t steps = (uint64_t)plan->steps + 1;
    size_t room = fuzz_bytes(plan) + baton_dtype_size(plan->dtype);
    fuzz_state_t *state = fuzz_alloc(1, sizeof *state);
    state->pending = fuzz_alloc(plan->count + 1, sizeof *state->pending);
    state->values = fuzz_alloc(plan->count + 1, sizeof *state->values);
    state->elements = fuzz_alloc(room, 1);
    state->entering = fuzz_alloc(room, 1);
    state->leaving = fuzz_alloc(room, 1);
    state->took = fuzz_alloc(plan->count + 1, sizeof *state->took);
    state->contributions =
        fuzz_alloc(FUZZ_INCARNATIONS * steps * CONTRIBUTIONS_A_STEP,
                   sizeof *state->contributions);
    return state;
}

static void state_destroy(fuzz_state_t *state)
{
    (void)!baton_partial_destroy(state->partial);
    free(state->pending);
    free(state->values);
    free(state->elements);
    free(state->entering);
    free(state->leaving);
    free(state->took);
    free(state->contributions);
    free(state);
}

static void open_task(fuzz_task_t *task)
{
    const fuzz_task_plan_t *plan = task->plan;
    fuzz_account_t *account = fuzz_alloc(1, sizeof *account);
    task->account = account;
    account->epochs = fuzz_alloc(FUZZ_INCARNATIONS * ((size_t)plan->steps + 1),
                                 sizeof *account->epochs);
    account->contributed =
        fuzz_alloc(plan->count + 1, sizeof *account->contributed);
    for (uint32_t incarnation = 0;
         incarnation <= task->cluster->plan.injections; incarnation++) {
        for (uint32_t epoch = 1; epoch <= plan->steps; epoch++) {
            fuzz_epoch_of(task, incarnation, epoch)->expected =
                fuzz_alloc(plan->count + 1, sizeof(uint64_t));
        }
    }
}

/* Without introductions all ranks create their schedules in one order, and
   attempts tell those of one name apart. */
static baton_status_t commit_participant(fuzz_participant_t *participant)
{
    fuzz_task_t *task = participant->task;
    const fuzz_task_plan_t *plan = task->plan;
    char name[32];
    (void)snprintf(name, sizeof name, "partial %d", task->index);
    fuzz_partial_building = task;
    baton_partial_options_t options = {.size = sizeof options,
                                       .mode = plan->mode,
                                       .mode_ranks = plan->mode_ranks,
                                       .sync_every = plan->sync_every,
                                       .max_staleness = plan->max_staleness,
                                       .keep = plan->keep,
                                       .history = plan->history,
                                       .seed = task->cluster->plan.seed,
                                       .count = plan->count,
                                       .dtype = plan->dtype,
                                       .op = fuzz_op(plan),
                                       .inner = fuzz_partial_inner};
    if (task->cluster->plan.model.introductions) {
        options.name = name;
    }
    participant->state = state_create(plan);
    return baton_partial_create(
        baton_sim_group(task->cluster->sim, participant->rank), &options,
        &participant->state->partial);
}

static const baton_schedule_t *
schedule_of(const fuzz_participant_t *participant)
{
    return baton_partial_schedule(participant->state->partial);
}

static void close_task(fuzz_task_t *task)
{
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        if (task->participants[rank].state != NULL) {
            state_destroy(task->participants[rank].state);
        }
    }
    for (uint32_t incarnation = 0; incarnation < FUZZ_INCARNATIONS;
         incarnation++) {
        for (uint32_t epoch = 1; epoch <= task->plan->steps; epoch++) {
            free(fuzz_epoch_of(task, incarnation, epoch)->expected);
            free(fuzz_epoch_of(task, incarnation, epoch)->result);
        }
    }
    free(task->account->epochs);
    free(task->account->contributed);
    free(task->account);
}

/* ---- steps ------------------------------------------------------------ */

static void contribute(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    const fuzz_task_t *task = participant->task;
    fuzz_fill(task->plan, fuzz_key(task, participant->rank, state->made++),
              state->values);
    fuzz_store(task->plan, state->values, state->elements);
    baton_status_t status =
        baton_partial_contribute(state->partial, state->elements);
    if (status != BATON_OK) {
        fuzz_fail(participant, "contribute: %s", baton_error_message());
        return;
    }
    state->contributions[state->contributed++] =
        (fuzz_contribution_t){.step = participant->step + 1};
    fuzz_combine(task->plan, state->pending, state->values);
    fuzz_combine(task->plan, task->account->contributed, state->values);
}

static bool prepare(fuzz_participant_t *participant)
{
    if (participant->todo > 0) {
        contribute(participant);
        participant->todo--;
        return participant->todo > 0 || fuzz_once_in(&participant->random, 2);
    }
    return false;
}

static baton_status_t start(fuzz_participant_t *participant)
{
    return baton_partial_start(participant->state->partial);
}

static baton_status_t test(fuzz_participant_t *participant, bool *done_out)
{
    /* At most once a step, which bounds the number of contributions. */
    if (participant->polls == 1 &&
        fuzz_in_force(participant, FUZZ_TRANSIENT_EARLY) &&
        fuzz_once_in(&participant->random, 2)) {
        contribute(participant);
    }
    return baton_partial_test(participant->state->partial, done_out);
}

static baton_status_t wait_for(fuzz_participant_t *participant, int timeout_ms)
{
    baton_partial_result_t seen;
    return baton_partial_wait(participant->state->partial, timeout_ms, &seen);
}

static baton_status_t finish(fuzz_participant_t *participant)
{
    baton_partial_result_t seen;
    fuzz_partial_check_held(participant);
    baton_status_t status =
        baton_partial_wait(participant->state->partial, -1, &seen);
    if (status == BATON_OK) {
        fuzz_partial_check_result(participant, &seen);
    }
    return status;
}

static void recovered(fuzz_participant_t *participant)
{
    fuzz_partial_catch_up(participant);
}

/* ---- at the end ------------------------------------------------------- */

/* Leaves what is pending in state->elements. */
static void audit_participant(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    const fuzz_task_plan_t *plan = participant->task->plan;
    bool any = false;
    if (state->left != plan->steps) {
        fuzz_fail(participant, "liveness: %" PRIu32 " epochs have run",
                  state->left);
    }
    if (baton_partial_pending(state->partial, state->elements, &any) !=
            BATON_OK ||
        any != (state->taken < state->contributed) ||
        fuzz_difference(plan, state->pending, state->elements) < plan->count) {
        fuzz_fail(participant, "conservation: what is pending is wrong");
    }
}

static void audit(fuzz_task_t *task)
{
    const fuzz_task_plan_t *plan = task->plan;
    uint64_t *sum = fuzz_alloc(plan->count + 1, sizeof *sum);
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        audit_participant(&task->participants[rank]);
        fuzz_combine_elements(plan, sum,
                              task->participants[rank].state->elements);
    }
    uint32_t incarnations = task->cluster->rank_states[0].incarnation;
    for (uint32_t incarnation = 0; incarnation <= incarnations; incarnation++) {
        uint64_t last =
            incarnation < incarnations
                ? fuzz_last_epoch(&task->participants[0], incarnation)
                : plan->steps;
        for (uint64_t epoch = 1; epoch <= last; epoch++) {
            const fuzz_epoch_t *record =
                fuzz_epoch_of(task, incarnation, epoch);
            if (record->result != NULL) {
                fuzz_combine_elements(plan, sum, record->result);
            }
        }
    }
    char *elements = fuzz_alloc(fuzz_bytes(plan) + 1, 1);
    fuzz_store(plan, sum, elements);
    size_t at = fuzz_difference(plan, task->account->contributed, elements);
    if (at < plan->count) {
        fuzz_fail(&task->participants[0],
                  "conservation: results and what is pending do not add up to "
                  "the contributions, at element %zu",
                  at);
    }
    free(elements);
    free(sum);
}

const fuzz_rules_t fuzz_partial_rules = {
    .open = open_task,
    .commit = commit_participant,
    .schedule = schedule_of,
    .prepare = prepare,
    .start = start,
    .test = test,
    .finish = finish,
    .wait = wait_for,
    .recovered = recovered,
    .audit = audit,
    .close = close_task,
};
