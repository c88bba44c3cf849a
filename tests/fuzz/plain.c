/* Open, commit, run and close plain schedules; see plain.h. */
#include "fuzz/plain.h"
#include "fuzz/kinds.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const fuzz_plain_t *const plains[FUZZ_KIND_COUNT] = {
    [FUZZ_ALLREDUCE] = &fuzz_allreduce, [FUZZ_BROADCAST] = &fuzz_broadcast,
    [FUZZ_BARRIER] = &fuzz_barrier,     [FUZZ_QUORUM] = &fuzz_quorum,
    [FUZZ_ALARM] = &fuzz_alarm,         [FUZZ_LOCAL] = &fuzz_local,
    [FUZZ_BRANCH] = &fuzz_branch,       [FUZZ_LENGTHS] = &fuzz_lengths,
    [FUZZ_ASYNC] = &fuzz_async,
};

static const fuzz_plain_t *plain_of(const fuzz_participant_t *participant)
{
    return plains[participant->task->plan->kind];
}

static baton_status_t fail_if_injected(void *arg, baton_call_t *call)
{
    return fuzz_injection_due(arg, baton_call_epoch(call))
               ? FUZZ_INJECTED_STATUS
               : BATON_OK;
}

/* A schedule with an on_recover function stays failed until it is recovered. A
   local schedule goes on, so it has none. */
static bool watches(const fuzz_task_t *task)
{
    return (task->plan->watches && task->plan->kind != FUZZ_LOCAL) ||
           plains[task->plan->kind]->on_recover != NULL;
}

static void on_recover(void *arg, uint64_t epoch)
{
    fuzz_participant_t *participant = arg;
    /* The rank has called recover, so it is in its next incarnation already. */
    uint64_t last =
        fuzz_last_epoch(participant, fuzz_incarnation(participant) - 1);
    participant->state->recoveries++;
    if (epoch != last ||
        participant->state->recoveries != fuzz_incarnation(participant)) {
        fuzz_fail(participant,
                  "recovery: %" PRIu32 " was called with epoch %" PRIu64
                  ", the last one was %" PRIu64,
                  participant->state->recoveries, epoch, last);
    }
    const fuzz_plain_t *plain = plain_of(participant);
    if (plain->on_recover != NULL) {
        plain->on_recover(participant);
    }
}

/* Without introductions all ranks create their schedules in one order, and
   attempts tell those of one name apart. */
static void name_of(const fuzz_task_t *task, char *name, size_t bytes)
{
    const char *kind = fuzz_kind_name(task->plan->kind);
    if (task->cluster->plan.model.introductions) {
        (void)snprintf(name, bytes, "%s %d", kind, task->index);
    } else {
        (void)snprintf(name, bytes, "%s", kind);
    }
}

static baton_status_t commit_participant(fuzz_participant_t *participant)
{
    const fuzz_task_t *task = participant->task;
    char name[32];
    name_of(task, name, sizeof name);
    fuzz_state_t *state = fuzz_alloc(1, sizeof *state);
    participant->state = state;
    state->source = fuzz_alloc(fuzz_bytes(task->plan) + 1, 1);
    state->target = fuzz_alloc(fuzz_bytes(task->plan) + 1, 1);
    state->values = fuzz_alloc(task->plan->count + 1, sizeof *state->values);
    state->received =
        fuzz_alloc((size_t)fuzz_ranks(task), sizeof *state->received);
    baton_status_t status = baton_schedule_create(
        baton_sim_group(task->cluster->sim, participant->rank), name,
        &state->schedule);
    if (status != BATON_OK) {
        return status;
    }
    const fuzz_plain_t *plain = plains[task->plan->kind];
    plain->build(state->schedule, participant);
    if (task->cluster->plan.injections > 0 && !plain->has_injection) {
        (void)baton_add_call(state->schedule, fail_if_injected, participant);
    }
    if (watches(task)) {
        baton_schedule_on_recover(state->schedule, on_recover, participant);
    }
    return baton_schedule_commit(state->schedule);
}

static void open_task(fuzz_task_t *task)
{
    (void)task;
}

static const baton_schedule_t *
schedule_of(const fuzz_participant_t *participant)
{
    return participant->state->schedule;
}

static baton_status_t cancel(fuzz_participant_t *participant)
{
    return baton_schedule_cancel(participant->state->schedule);
}

static void close_task(fuzz_task_t *task)
{
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        fuzz_state_t *state = task->participants[rank].state;
        if (state != NULL) {
            if (plains[task->plan->kind]->close != NULL) {
                plains[task->plan->kind]->close(state);
            }
            (void)!baton_schedule_destroy(state->schedule);
            free(state->source);
            free(state->target);
            free(state->values);
            free(state->received);
            free(state);
        }
    }
}

static bool prepare(fuzz_participant_t *participant)
{
    plain_of(participant)->fill(participant);
    participant->state->cancelled = false;
    return false;
}

static baton_status_t start(fuzz_participant_t *participant)
{
    return baton_schedule_start(participant->state->schedule);
}

/* Only a schedule without messages can be cancelled without failing peers. */
static bool cancels(fuzz_participant_t *participant)
{
    return participant->task->plan->kind == FUZZ_LOCAL &&
           !participant->state->cancelled &&
           fuzz_in_force(participant, FUZZ_TRANSIENT_CANCEL) &&
           fuzz_once_in(&participant->random, 4);
}

static bool was_cancelled(const fuzz_participant_t *participant,
                          baton_status_t status)
{
    return status == BATON_ERR_CANCELLED && participant->state->cancelled;
}

static baton_status_t test(fuzz_participant_t *participant, bool *done_out)
{
    baton_schedule_t *schedule = participant->state->schedule;
    if (cancels(participant)) {
        /* It may have ended by now. */
        participant->state->cancelled =
            baton_schedule_cancel(schedule) == BATON_OK;
    }
    baton_status_t status = baton_schedule_test(schedule, done_out);
    if ((status != BATON_OK || *done_out) && participant->state->open > 0) {
        fuzz_fail(participant,
                  "safety: the epoch has ended, an async node has not");
    }
    *done_out |= was_cancelled(participant, status);
    return was_cancelled(participant, status) ? BATON_OK : status;
}

static baton_status_t wait_for(fuzz_participant_t *participant, int timeout_ms)
{
    return baton_schedule_wait(participant->state->schedule, timeout_ms);
}

static baton_status_t finish(fuzz_participant_t *participant)
{
    baton_status_t status = wait_for(participant, -1);
    if (was_cancelled(participant, status)) {
        return BATON_OK;
    }
    if (status == BATON_OK) {
        plain_of(participant)->check(participant);
    }
    return status;
}

static void recovered(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    state->cancelled = false;
    memset(state->last_inbox, 0, sizeof state->last_inbox);
    memset(state->inbox, 0, sizeof state->inbox);
    if (state->open > 0) {
        fuzz_fail(participant, "recovery: an async node has not completed");
    }
    if (watches(participant->task) &&
        state->recoveries != fuzz_incarnation(participant)) {
        fuzz_fail(participant, "recovery: on_recover was not called");
    }
}

static void audit(fuzz_task_t *task)
{
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        fuzz_participant_t *participant = &task->participants[rank];
        uint64_t epochs = baton_schedule_epoch(participant->state->schedule);
        if (epochs != task->plan->steps) {
            fuzz_fail(participant, "liveness: %" PRIu64 " epochs have run",
                      epochs);
        }
    }
}

const fuzz_rules_t fuzz_plain_rules = {
    .open = open_task,
    .commit = commit_participant,
    .schedule = schedule_of,
    .cancel = cancel,
    .prepare = prepare,
    .start = start,
    .test = test,
    .finish = finish,
    .wait = wait_for,
    .recovered = recovered,
    .audit = audit,
    .close = close_task,
};
