/* Applications of partial all-reduces, and their conservation law: at the end
   the results and the pending contributions must add up to all contributions,
   and a result has the same bits on every rank. A call node behind the inner
   all-reduce records it:

       take --> enter --> inner --> copy --> leave --> publish

   What each result must consist of, and its claims, is sim/test_properties.c's.
 */
#include "fuzz/partial.h"
#include "fuzz/values.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct fuzz_state {
    baton_partial_t *partial;
    uint64_t *values; /* of one contribution */
    char *elements;   /* the same as elements */
    char *leaving;    /* a result, with the count of active ranks */
    uint64_t made;    /* contributions so far */
};

struct fuzz_account {
    char **results;        /* NULL until the epoch has left on some rank */
    uint64_t *contributed; /* sum of all contributions */
};

/* The task whose schedules are being built. The builder of an inner all-reduce
   has no argument, so it reads this. */
static fuzz_task_t *building;

/* The result of an epoch, from 1, of an incarnation. */
static char **result_of(const fuzz_task_t *task, uint32_t incarnation,
                        uint64_t epoch)
{
    return &task->account
                ->results[incarnation * ((uint64_t)task->plan->steps + 1) +
                          epoch];
}

/* ---- both ends of the inner all-reduce --------------------------------- */

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
    return injection(arg, baton_call_epoch(call), true);
}

static baton_status_t leave(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    fuzz_participant_t *participant = arg;
    const fuzz_task_t *task = participant->task;
    size_t bytes = fuzz_bytes(task->plan);
    if (epoch > task->plan->steps) {
        fuzz_fail(participant, "safety: epoch %" PRIu64 " runs", epoch);
        return BATON_OK;
    }
    char **result = result_of(task, fuzz_incarnation(participant), epoch);
    if (*result == NULL) {
        *result = fuzz_alloc(bytes + 1, 1);
        memcpy(*result, participant->state->leaving, bytes);
    } else if (memcmp(*result, participant->state->leaving, bytes) != 0) {
        fuzz_fail(participant,
                  "safety: epoch %" PRIu64
                  " has another result on another rank",
                  epoch);
    }
    return injection(participant, epoch, false);
}

static void add_inner(baton_schedule_t *s, const baton_allreduce_t *args)
{
    const fuzz_task_plan_t *plan = building->plan;
    fuzz_participant_t *participant =
        &building->participants[baton_schedule_rank(s)];
    size_t bytes = args->target.bytes;
    baton_buffer_t leaving =
        baton_buffer_bind(s, participant->state->leaving, bytes);
    baton_node_t entered = baton_add_call(s, enter, participant);
    baton_node_t copy =
        baton_add_copy(s, baton_view(leaving, 0, bytes), args->target);
    baton_before(s, copy, baton_add_call(s, leave, participant));
    baton_allreduce_t inner = *args;
    inner.chunk_bytes = plan->chunk_bytes;
    baton_enclosure_t inside = baton_enclose_begin(s);
    fuzz_algorithms[plan->algorithm].add(s, &inner);
    baton_enclose_end(s, inside, entered, copy);
}

/* ---- open and close --------------------------------------------------- */

static fuzz_state_t *state_create(const fuzz_task_plan_t *plan)
{
    size_t room = fuzz_bytes(plan) + baton_dtype_size(plan->dtype);
    fuzz_state_t *state = fuzz_alloc(1, sizeof *state);
    state->values = fuzz_alloc(plan->count + 1, sizeof *state->values);
    state->elements = fuzz_alloc(room, 1);
    state->leaving = fuzz_alloc(room, 1);
    return state;
}

static void state_destroy(fuzz_state_t *state)
{
    (void)!baton_partial_destroy(state->partial);
    free(state->values);
    free(state->elements);
    free(state->leaving);
    free(state);
}

static void open_task(fuzz_task_t *task)
{
    const fuzz_task_plan_t *plan = task->plan;
    fuzz_account_t *account = fuzz_alloc(1, sizeof *account);
    task->account = account;
    account->results = fuzz_alloc(FUZZ_INCARNATIONS * ((size_t)plan->steps + 1),
                                  sizeof *account->results);
    account->contributed =
        fuzz_alloc(plan->count + 1, sizeof *account->contributed);
}

/* Without introductions all ranks create their schedules in one order, and
   attempts tell those of one name apart. */
static baton_status_t commit_participant(fuzz_participant_t *participant)
{
    fuzz_task_t *task = participant->task;
    const fuzz_task_plan_t *plan = task->plan;
    char name[32];
    (void)snprintf(name, sizeof name, "partial %d", task->index);
    building = task;
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
                                       .inner = add_inner};
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
            free(*result_of(task, incarnation, epoch));
        }
    }
    free(task->account->results);
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
    /* At most once a step: sums of floats must stay exact. */
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
    const fuzz_task_t *task = participant->task;
    baton_partial_result_t seen;
    baton_status_t status =
        baton_partial_wait(participant->state->partial, -1, &seen);
    if (status != BATON_OK) {
        return status;
    }
    bool all = task->plan->keep == BATON_KEEP_ALL;
    const char *result =
        *result_of(task, fuzz_incarnation(participant), seen.epoch);
    if (seen.epoch < participant->step ||
        (all && seen.epoch != participant->step) || result == NULL ||
        memcmp(seen.data, result, fuzz_bytes(task->plan)) != 0) {
        fuzz_fail(participant,
                  "safety: the result of epoch %" PRIu64
                  " is not what was reduced, or not this step's",
                  seen.epoch);
    }
    fuzz_note(task->cluster, seen.epoch);
    fuzz_note(task->cluster, seen.active);
    fuzz_note(task->cluster, seen.staleness);
    return BATON_OK;
}

static void recovered(fuzz_participant_t *participant)
{
    (void)participant;
}

/* ---- at the end ------------------------------------------------------- */

/* Leaves what is pending in state->elements. */
static void audit_participant(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    uint64_t epochs = baton_schedule_epoch(schedule_of(participant));
    bool any;
    if (epochs != participant->task->plan->steps) {
        fuzz_fail(participant, "liveness: %" PRIu64 " epochs have run", epochs);
    }
    if (baton_partial_pending(state->partial, state->elements, &any) !=
        BATON_OK) {
        fuzz_fail(participant, "pending: %s", baton_error_message());
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
            const char *result = *result_of(task, incarnation, epoch);
            if (result != NULL) {
                fuzz_combine_elements(plan, sum, result);
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
