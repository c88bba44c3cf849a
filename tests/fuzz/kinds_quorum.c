/* Kinds of schedules whose epochs go on with only some of their messages, or
   begin with one message; see fuzz_rules_t. */
#include "fuzz/cluster.h"

#include <baton/coll.h>

#include <inttypes.h>

/* ---- quorum ----------------------------------------------------------- */

/* A call node that runs as soon as `need` numbers of this epoch have been
   copied. */
static baton_status_t gather(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    fuzz_participant_t *participant = arg;
    const fuzz_task_t *task = participant->task;
    uint64_t number = fuzz_number(fuzz_incarnation(participant), epoch);
    uint32_t received = 0;
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        received += participant->received[rank] == number;
        if (participant->received[rank] > number ||
            (participant->received[rank] == number &&
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
    participant->answer = number;
    return BATON_OK;
}

/* The root, of 3 ranks, need 2 of 3; later messages are stragglers:

       recv 0 --> copy --+
       recv 1 --> copy --+--> gather --> send answer to each
       recv 2 --> copy --+                                             */
static void build_root(fuzz_participant_t *participant)
{
    baton_schedule_t *schedule = participant->schedule;
    const fuzz_task_plan_t *plan = participant->task->plan;
    int ranks = fuzz_ranks(participant->task);
    size_t word = sizeof(uint64_t);
    baton_buffer_t scratch =
        baton_buffer_scratch(schedule, (size_t)ranks * word);
    baton_buffer_t received =
        fuzz_bind(participant, participant->received, (size_t)ranks * word)
            .buffer;
    baton_view_t answer = fuzz_bind(participant, &participant->answer, word);
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

static void build_quorum(fuzz_participant_t *participant)
{
    baton_schedule_t *schedule = participant->schedule;
    const fuzz_task_plan_t *plan = participant->task->plan;
    size_t word = sizeof(uint64_t);
    (void)baton_add_send(schedule, plan->root,
                         fuzz_bind(participant, &participant->number, word));
    if (participant->rank == plan->root) {
        build_root(participant);
    } else {
        (void)baton_add_recv(
            schedule, plan->root,
            fuzz_bind(participant, &participant->answer, word));
    }
}

static void fill_number(fuzz_participant_t *participant)
{
    participant->number =
        fuzz_number(fuzz_incarnation(participant), participant->step + 1);
}

static void check_quorum_result(fuzz_participant_t *participant)
{
    if (participant->answer !=
        fuzz_number(fuzz_incarnation(participant), participant->step)) {
        fuzz_fail(participant, "safety: the root's answer is of step %" PRIu64,
                  participant->answer);
    }
}

const fuzz_rules_t fuzz_quorum = {
    .build = build_quorum, .fill = fill_number, .check = check_quorum_result};

/* ---- alarm ------------------------------------------------------------ */

/* One rank initiates. If several ranks may initiate, so does each other rank
   with a probability of one in four. */
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
    if (participant->alarm_incarnation != fuzz_incarnation(participant)) {
        participant->alarm_incarnation = fuzz_incarnation(participant);
        participant->alarmed = 0;
    }
    if (epoch != participant->alarmed + 1) {
        fuzz_fail(participant, "safety: alarm %" PRIu64 " after alarm %" PRIu64,
                  epoch, participant->alarmed);
    }
    if (epoch > participant->waited + task->plan->limit) {
        fuzz_fail(participant, "safety: epoch %" PRIu64 " is beyond the limit",
                  epoch);
    }
    participant->alarmed = epoch;
    return BATON_OK;
}

/* on_start --> initiate (or not) --> activation tree --> receive_alarm
                                                      (--> barrier)

   With several initiators a rank whose epoch has ended would not forward
   another tree's activation. The barrier keeps an epoch from ending before all
   ranks have begun it. */
static void build_alarm(fuzz_participant_t *participant)
{
    baton_schedule_t *schedule = participant->schedule;
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
        baton_add_barrier(schedule);
    }
    baton_enclose_end(schedule, inside, received, end);
    baton_schedule_limit(schedule, plan->limit);
}

/* A recovery removes the limit. */
static void limit_alarm(fuzz_participant_t *participant)
{
    baton_schedule_limit(participant->schedule, participant->task->plan->limit);
}

static void check_alarm_result(fuzz_participant_t *participant)
{
    if (participant->alarm_incarnation != fuzz_incarnation(participant) ||
        participant->alarmed < participant->step) {
        fuzz_fail(participant, "safety: no alarm came");
    }
    baton_schedule_limit(participant->schedule,
                         participant->waited + participant->task->plan->limit);
}

const fuzz_rules_t fuzz_alarm = {.build = build_alarm,
                                 .check = check_alarm_result,
                                 .on_recover = limit_alarm};
