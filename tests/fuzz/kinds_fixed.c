/* Kinds of schedules in which every epoch does the same; see kinds.h. */
#include "fuzz/kinds.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL_NODES = 4 };

/* The values that a rank contributes to a step. */
static void values_of(const fuzz_participant_t *participant, int rank,
                      uint32_t step, uint64_t *values)
{
    fuzz_fill(participant->task->plan,
              fuzz_key(participant->task, rank,
                       fuzz_number(fuzz_incarnation(participant), step)),
              values);
}

static void expect_target(fuzz_participant_t *participant)
{
    const fuzz_task_plan_t *plan = participant->task->plan;
    size_t at = fuzz_difference(plan, participant->state->values,
                                participant->state->target);
    if (at < plan->count) {
        fuzz_fail(participant, "safety: element %zu of the result is wrong",
                  at);
    }
}

static bool works_in_place(const fuzz_participant_t *participant)
{
    const fuzz_task_plan_t *plan = participant->task->plan;
    return plan->kind != FUZZ_ALLREDUCE || plan->in_place;
}

/* ---- all-reduce, broadcast, barrier ----------------------------------- */

static void build_allreduce(baton_schedule_t *schedule,
                            fuzz_participant_t *participant)
{
    const fuzz_task_plan_t *plan = participant->task->plan;
    size_t bytes = fuzz_bytes(plan);
    baton_view_t target =
        fuzz_bind(schedule, participant->state->target, bytes);
    baton_allreduce_t args = {.size = sizeof args,
                              .source = target,
                              .target = target,
                              .dtype = plan->dtype,
                              .op = fuzz_op(plan),
                              .chunk_bytes = plan->chunk_bytes};
    if (!plan->in_place) {
        args.source = fuzz_bind(schedule, participant->state->source, bytes);
    }
    fuzz_algorithms[plan->algorithm].add(schedule, &args);
}

static void fill_own(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    values_of(participant, participant->rank, participant->step + 1,
              state->values);
    fuzz_store(participant->task->plan, state->values,
               works_in_place(participant) ? state->target : state->source);
}

static void check_allreduce_result(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    const fuzz_task_plan_t *plan = participant->task->plan;
    uint64_t *one = fuzz_alloc(plan->count + 1, sizeof *one);
    if (!plan->in_place &&
        fuzz_difference(plan, state->values, state->source) < plan->count) {
        fuzz_fail(participant, "safety: the source was written");
    }
    memset(state->values, 0, plan->count * sizeof *state->values);
    for (int rank = 0; rank < fuzz_ranks(participant->task); rank++) {
        values_of(participant, rank, participant->step, one);
        fuzz_combine(plan, state->values, one);
    }
    free(one);
    expect_target(participant);
}

const fuzz_plain_t fuzz_allreduce = {.build = build_allreduce,
                                     .fill = fill_own,
                                     .check = check_allreduce_result};

static void build_broadcast(baton_schedule_t *schedule,
                            fuzz_participant_t *participant)
{
    const fuzz_task_plan_t *plan = participant->task->plan;
    baton_broadcast_binomial(
        schedule, plan->root,
        fuzz_bind(schedule, participant->state->target, fuzz_bytes(plan)));
}

static void check_broadcast_result(fuzz_participant_t *participant)
{
    values_of(participant, participant->task->plan->root, participant->step,
              participant->state->values);
    expect_target(participant);
}

const fuzz_plain_t fuzz_broadcast = {.build = build_broadcast,
                                     .fill = fill_own,
                                     .check = check_broadcast_result};

static void build_barrier(baton_schedule_t *schedule,
                          fuzz_participant_t *participant)
{
    (void)participant;
    baton_barrier_dissemination(schedule);
}

static void fill_nothing(fuzz_participant_t *participant)
{
    (void)participant;
}

static void check_barrier_result(fuzz_participant_t *participant)
{
    for (int rank = 0; rank < fuzz_ranks(participant->task); rank++) {
        if (!fuzz_has_begun(participant->task, rank,
                            fuzz_incarnation(participant), participant->step)) {
            fuzz_fail(participant,
                      "safety: the barrier ended before rank %d began", rank);
        }
    }
}

const fuzz_plain_t fuzz_barrier = {.build = build_barrier,
                                   .fill = fill_nothing,
                                   .check = check_barrier_result};

/* ---- quorum ----------------------------------------------------------- */

/* Runs as soon as `need` numbers of this epoch have been copied. */
static baton_status_t gather(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    fuzz_participant_t *participant = arg;
    const fuzz_task_t *task = participant->task;
    uint64_t number = fuzz_number(fuzz_incarnation(participant), epoch);
    uint32_t received = 0;
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        received += participant->state->received[rank] == number;
        if (participant->state->received[rank] > number ||
            (participant->state->received[rank] == number &&
             !fuzz_has_begun(task, rank, fuzz_incarnation(participant),
                             epoch))) {
            fuzz_fail(participant, "safety: rank %d sent a number too early",
                      rank);
        }
    }
    if (received < task->plan->need) {
        fuzz_fail(participant,
                  "quorum: %" PRIu32 " of %" PRIu32 " numbers are of epoch "
                  "%" PRIu64,
                  received, task->plan->need, epoch);
    }
    participant->state->answer = number;
    return BATON_OK;
}

/* The root, of 3 ranks, need 2 of 3; later messages are stragglers:

       recv 0 --> copy --+
       recv 1 --> copy --+--> gather --> send answer to each
       recv 2 --> copy --+                                             */
static void build_root(baton_schedule_t *schedule,
                       fuzz_participant_t *participant)
{
    const fuzz_task_plan_t *plan = participant->task->plan;
    int ranks = fuzz_ranks(participant->task);
    size_t word = sizeof(uint64_t);
    baton_buffer_t scratch =
        baton_buffer_scratch(schedule, (size_t)ranks * word);
    baton_buffer_t received =
        fuzz_bind(schedule, participant->state->received, (size_t)ranks * word)
            .buffer;
    baton_view_t answer =
        fuzz_bind(schedule, &participant->state->answer, word);
    baton_node_t gathered = baton_add_call(schedule, gather, participant);
    baton_set_need(schedule, gathered, plan->need);
    for (int rank = 0; rank < ranks; rank++) {
        baton_view_t slot = baton_view(scratch, (size_t)rank * word, word);
        baton_node_t recv = baton_add_recv(schedule, rank, slot);
        baton_node_t copy = baton_add_copy(
            schedule, baton_view(received, (size_t)rank * word, word), slot);
        baton_set_optional(schedule, recv);
        baton_set_optional(schedule, copy);
        baton_before(schedule, recv, copy);
        baton_before(schedule, copy, gathered);
        if (rank != participant->rank) {
            baton_before(schedule, gathered,
                         baton_add_send(schedule, rank, answer));
        }
    }
}

static void build_quorum(baton_schedule_t *schedule,
                         fuzz_participant_t *participant)
{
    const fuzz_task_plan_t *plan = participant->task->plan;
    size_t word = sizeof(uint64_t);
    (void)baton_add_send(
        schedule, plan->root,
        fuzz_bind(schedule, &participant->state->number, word));
    if (participant->rank == plan->root) {
        build_root(schedule, participant);
    } else {
        (void)baton_add_recv(
            schedule, plan->root,
            fuzz_bind(schedule, &participant->state->answer, word));
    }
}

static void fill_number(fuzz_participant_t *participant)
{
    participant->state->number =
        fuzz_number(fuzz_incarnation(participant), participant->step + 1);
}

static void check_quorum_result(fuzz_participant_t *participant)
{
    if (participant->state->answer !=
        fuzz_number(fuzz_incarnation(participant), participant->step)) {
        fuzz_fail(participant, "safety: the root's answer is of step %" PRIu64,
                  participant->state->answer);
    }
}

const fuzz_plain_t fuzz_quorum = {
    .build = build_quorum, .fill = fill_number, .check = check_quorum_result};

/* ---- alarm ------------------------------------------------------------ */

/* One rank initiates, or, where several may, one in four besides. */
static bool initiates(const fuzz_task_t *task, int rank, uint64_t epoch)
{
    uint64_t chosen = fuzz_key(task, 0, epoch) % (uint64_t)fuzz_ranks(task);
    return (uint64_t)rank == chosen ||
           (task->plan->need > 1 && fuzz_key(task, rank, epoch) % 4 == 1);
}

static baton_status_t initiate(void *arg, baton_call_t *call)
{
    const fuzz_participant_t *participant = arg;
    return initiates(participant->task, participant->rank,
                     baton_call_epoch(call))
               ? BATON_OK
               : BATON_SKIP;
}

/* The number of epochs that may begin before the application waits. */
static uint64_t limit_of(const fuzz_task_plan_t *plan)
{
    return plan->keep == BATON_KEEP_ALL ? 1 + plan->history : plan->steps;
}

static baton_status_t receive_alarm(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    fuzz_participant_t *participant = arg;
    const fuzz_task_t *task = participant->task;
    bool raised = false;
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        raised |=
            fuzz_has_begun(task, rank, fuzz_incarnation(participant), epoch) &&
            initiates(task, rank, epoch);
    }
    if (!raised) {
        fuzz_fail(participant, "quorum: no initiator has begun epoch %" PRIu64,
                  epoch);
    }
    if (participant->state->alarm_incarnation !=
        fuzz_incarnation(participant)) {
        participant->state->alarm_incarnation = fuzz_incarnation(participant);
        participant->state->alarmed = 0;
    }
    if (epoch != participant->state->alarmed + 1) {
        fuzz_fail(participant, "safety: alarm %" PRIu64 " after alarm %" PRIu64,
                  epoch, participant->state->alarmed);
    }
    if (epoch > participant->waited + limit_of(task->plan)) {
        fuzz_fail(participant, "safety: epoch %" PRIu64 " is beyond the limit",
                  epoch);
    }
    participant->state->alarmed = epoch;
    return BATON_OK;
}

/* on_start --> initiate (or not) --> activation tree --> receive_alarm
                                                      (--> barrier)

   With several initiators a rank whose epoch has ended would not forward
   another tree's activation. The barrier keeps an epoch from ending before all
   ranks have begun it. */
static void build_alarm(baton_schedule_t *schedule,
                        fuzz_participant_t *participant)
{
    const fuzz_task_plan_t *plan = participant->task->plan;
    baton_node_t initiator = baton_add_call(schedule, initiate, participant);
    baton_node_t received =
        baton_add_call(schedule, receive_alarm, participant);
    baton_node_t end = baton_add_nop(schedule);
    baton_set_optional(schedule, initiator);
    baton_before(schedule, baton_add_on_start(schedule), initiator);
    baton_before(schedule, baton_add_activation(schedule, initiator), received);
    baton_enclosure_t inside = baton_enclose_begin(schedule);
    if (plan->need > 1) {
        baton_barrier_dissemination(schedule);
    }
    baton_enclose_end(schedule, inside, received, end);
    baton_schedule_limit(schedule, limit_of(plan));
}

/* A recovery removes the limit. */
static void limit_alarm(fuzz_participant_t *participant)
{
    baton_schedule_limit(participant->state->schedule,
                         limit_of(participant->task->plan));
}

static void check_alarm_result(fuzz_participant_t *participant)
{
    if (participant->state->alarm_incarnation !=
            fuzz_incarnation(participant) ||
        participant->state->alarmed < participant->step) {
        fuzz_fail(participant, "safety: no alarm came");
    }
    baton_schedule_limit(participant->state->schedule,
                         participant->waited +
                             limit_of(participant->task->plan));
}

const fuzz_plain_t fuzz_alarm = {.build = build_alarm,
                                 .fill = fill_nothing,
                                 .check = check_alarm_result,
                                 .on_recover = limit_alarm};

/* ---- local ------------------------------------------------------------ */

/* target = source (op) source (op) ... */
static void build_local(baton_schedule_t *schedule,
                        fuzz_participant_t *participant)
{
    const fuzz_task_plan_t *plan = participant->task->plan;
    size_t bytes = fuzz_bytes(plan);
    baton_view_t source =
        fuzz_bind(schedule, participant->state->source, bytes);
    baton_view_t target =
        fuzz_bind(schedule, participant->state->target, bytes);
    baton_node_t last = baton_add_copy(schedule, target, source);
    for (int i = 1; i < LOCAL_NODES; i++) {
        baton_node_t next = baton_add_reduce(
            schedule, plan->dtype, fuzz_op(plan), target, target, source);
        baton_before(schedule, last, next);
        last = next;
    }
}

static void fill_local(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    values_of(participant, participant->rank, participant->step + 1,
              state->values);
    fuzz_store(participant->task->plan, state->values, state->source);
}

static void check_local_result(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    const fuzz_task_plan_t *plan = participant->task->plan;
    uint64_t *one = fuzz_alloc(plan->count + 1, sizeof *one);
    memcpy(one, state->values, plan->count * sizeof *one);
    for (int i = 1; i < LOCAL_NODES; i++) {
        fuzz_combine(plan, state->values, one);
    }
    free(one);
    expect_target(participant);
}

const fuzz_plain_t fuzz_local = {
    .build = build_local, .fill = fill_local, .check = check_local_result};
