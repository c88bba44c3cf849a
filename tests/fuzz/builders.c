/* The plain schedules' builders and judges; see plain.h. */
#include "fuzz/plain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL_NODES = 4 };

baton_view_t fuzz_bind(baton_schedule_t *schedule, void *memory, size_t bytes)
{
    baton_buffer_t buffer = baton_buffer_bind(schedule, memory, bytes);
    return baton_view(buffer, 0, bytes);
}

/* What a rank puts into its next step. */
static void values_of(const fuzz_seat_t *seat, int rank, uint32_t step,
                      uint64_t *values)
{
    fuzz_fill(seat->task->plan,
              fuzz_key(seat->task, rank, fuzz_number(fuzz_life(seat), step)),
              values);
}

static void expect_target(fuzz_seat_t *seat)
{
    const fuzz_task_plan_t *plan = seat->task->plan;
    size_t at = fuzz_difference(plan, seat->part->values, seat->part->target);
    if (at < plan->count) {
        fuzz_fail(seat, "safety: element %zu of the result is wrong", at);
    }
}

static bool works_in_place(const fuzz_seat_t *seat)
{
    const fuzz_task_plan_t *plan = seat->task->plan;
    return plan->kind != FUZZ_ALLREDUCE || plan->in_place;
}

/* ---- all-reduce, broadcast, barrier ----------------------------------- */

static void build_allreduce(baton_schedule_t *schedule, fuzz_seat_t *seat)
{
    const fuzz_task_plan_t *plan = seat->task->plan;
    size_t bytes = fuzz_bytes(plan);
    baton_view_t target = fuzz_bind(schedule, seat->part->target, bytes);
    baton_allreduce_t args = {.size = sizeof args,
                              .source = target,
                              .target = target,
                              .dtype = plan->dtype,
                              .op = fuzz_op(plan),
                              .chunk_bytes = plan->chunk_bytes};
    if (!plan->in_place) {
        args.source = fuzz_bind(schedule, seat->part->source, bytes);
    }
    fuzz_algorithms[plan->algorithm].add(schedule, &args);
}

static void fill_own(fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    values_of(seat, seat->rank, seat->step + 1, part->values);
    fuzz_store(seat->task->plan, part->values,
               works_in_place(seat) ? part->target : part->source);
}

static void judge_allreduce(fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    const fuzz_task_plan_t *plan = seat->task->plan;
    uint64_t *one = fuzz_alloc(plan->count + 1, sizeof *one);
    if (!plan->in_place &&
        fuzz_difference(plan, part->values, part->source) < plan->count) {
        fuzz_fail(seat, "safety: the source was written");
    }
    memset(part->values, 0, plan->count * sizeof *part->values);
    for (int rank = 0; rank < fuzz_ranks(seat->task); rank++) {
        values_of(seat, rank, seat->step, one);
        fuzz_combine(plan, part->values, one);
    }
    free(one);
    expect_target(seat);
}

static void build_broadcast(baton_schedule_t *schedule, fuzz_seat_t *seat)
{
    const fuzz_task_plan_t *plan = seat->task->plan;
    baton_broadcast_binomial(
        schedule, plan->root,
        fuzz_bind(schedule, seat->part->target, fuzz_bytes(plan)));
}

static void judge_broadcast(fuzz_seat_t *seat)
{
    values_of(seat, seat->task->plan->root, seat->step, seat->part->values);
    expect_target(seat);
}

static void build_barrier(baton_schedule_t *schedule, fuzz_seat_t *seat)
{
    (void)seat;
    baton_barrier_dissemination(schedule);
}

static void fill_nothing(fuzz_seat_t *seat)
{
    (void)seat;
}

static void judge_barrier(fuzz_seat_t *seat)
{
    for (int rank = 0; rank < fuzz_ranks(seat->task); rank++) {
        if (!fuzz_has_begun(seat->task, rank, fuzz_life(seat), seat->step)) {
            fuzz_fail(seat, "safety: through before rank %d has begun", rank);
        }
    }
}

/* ---- quorum ----------------------------------------------------------- */

/* Runs as soon as `need` numbers of this epoch have been copied. */
static baton_status_t gather(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    fuzz_seat_t *seat = arg;
    const fuzz_task_t *task = seat->task;
    uint64_t number = fuzz_number(fuzz_life(seat), epoch);
    uint32_t heard = 0;
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        heard += seat->part->heard[rank] == number;
        if (seat->part->heard[rank] > number ||
            (seat->part->heard[rank] == number &&
             !fuzz_has_begun(task, rank, fuzz_life(seat), epoch))) {
            fuzz_fail(seat, "safety: rank %d sent a number too early", rank);
        }
    }
    if (heard < task->plan->need) {
        fuzz_fail(seat,
                  "quorum: %" PRIu32 " of %" PRIu32 " numbers are of epoch "
                  "%" PRIu64,
                  heard, task->plan->need, epoch);
    }
    seat->part->answer = number;
    return BATON_OK;
}

/* The root, of 3 ranks, need 2 of 3; those that come later are stragglers:

       recv 0 --> copy --+
       recv 1 --> copy --+--> gather --> send answer to each
       recv 2 --> copy --+                                             */
static void build_root(baton_schedule_t *schedule, fuzz_seat_t *seat)
{
    const fuzz_task_plan_t *plan = seat->task->plan;
    int ranks = fuzz_ranks(seat->task);
    size_t word = sizeof(uint64_t);
    baton_buffer_t scratch =
        baton_buffer_scratch(schedule, (size_t)ranks * word);
    baton_buffer_t heard =
        baton_buffer_bind(schedule, seat->part->heard, (size_t)ranks * word);
    baton_view_t answer = fuzz_bind(schedule, &seat->part->answer, word);
    baton_node_t gathered = baton_add_call(schedule, gather, seat);
    baton_set_need(schedule, gathered, plan->need);
    for (int rank = 0; rank < ranks; rank++) {
        baton_view_t slot = baton_view(scratch, (size_t)rank * word, word);
        baton_node_t recv = baton_add_recv(schedule, rank, slot);
        baton_node_t copy = baton_add_copy(
            schedule, baton_view(heard, (size_t)rank * word, word), slot);
        baton_set_optional(schedule, recv);
        baton_set_optional(schedule, copy);
        baton_before(schedule, recv, copy);
        baton_before(schedule, copy, gathered);
        if (rank != seat->rank) {
            baton_before(schedule, gathered,
                         baton_add_send(schedule, rank, answer));
        }
    }
}

static void build_quorum(baton_schedule_t *schedule, fuzz_seat_t *seat)
{
    const fuzz_task_plan_t *plan = seat->task->plan;
    size_t word = sizeof(uint64_t);
    (void)baton_add_send(schedule, plan->root,
                         fuzz_bind(schedule, &seat->part->number, word));
    if (seat->rank == plan->root) {
        build_root(schedule, seat);
    } else {
        (void)baton_add_recv(schedule, plan->root,
                             fuzz_bind(schedule, &seat->part->answer, word));
    }
}

static void fill_number(fuzz_seat_t *seat)
{
    seat->part->number = fuzz_number(fuzz_life(seat), seat->step + 1);
}

static void judge_quorum(fuzz_seat_t *seat)
{
    if (seat->part->answer != fuzz_number(fuzz_life(seat), seat->step)) {
        fuzz_fail(seat, "safety: the root's answer is of step %" PRIu64,
                  seat->part->answer);
    }
}

/* ---- alarm ------------------------------------------------------------ */

/* One rank, and where there may be more, one in four. */
static bool initiates(const fuzz_task_t *task, int rank, uint64_t epoch)
{
    uint64_t chosen = fuzz_key(task, 0, epoch) % (uint64_t)fuzz_ranks(task);
    return (uint64_t)rank == chosen ||
           (task->plan->need > 1 && fuzz_key(task, rank, epoch) % 4 == 1);
}

static baton_status_t initiate(void *arg, baton_call_t *call)
{
    const fuzz_seat_t *seat = arg;
    return initiates(seat->task, seat->rank, baton_call_epoch(call))
               ? BATON_OK
               : BATON_SKIP;
}

/* How many epochs may begin before one has been waited for. */
static uint64_t limit_of(const fuzz_task_plan_t *plan)
{
    return plan->keep == BATON_KEEP_ALL ? 1 + plan->history : plan->steps;
}

static baton_status_t hear_alarm(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    fuzz_seat_t *seat = arg;
    const fuzz_task_t *task = seat->task;
    bool raised = false;
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        raised |= fuzz_has_begun(task, rank, fuzz_life(seat), epoch) &&
                  initiates(task, rank, epoch);
    }
    if (!raised) {
        fuzz_fail(seat, "quorum: nobody began epoch %" PRIu64, epoch);
    }
    if (seat->part->alarm_life != fuzz_life(seat)) {
        seat->part->alarm_life = fuzz_life(seat);
        seat->part->alarmed = 0;
    }
    if (epoch != seat->part->alarmed + 1) {
        fuzz_fail(seat, "safety: alarm %" PRIu64 " after alarm %" PRIu64, epoch,
                  seat->part->alarmed);
    }
    if (epoch > seat->waited + limit_of(task->plan)) {
        fuzz_fail(seat, "safety: epoch %" PRIu64 " is beyond the limit", epoch);
    }
    seat->part->alarmed = epoch;
    return BATON_OK;
}

/* on_start --> initiate (or not) --> activation tree --> hear_alarm
                                                      (--> barrier)

   The trees of several initiators may cut each other where a rank is through
   with its epoch: so it ends nowhere before all have begun it. */
static void build_alarm(baton_schedule_t *schedule, fuzz_seat_t *seat)
{
    const fuzz_task_plan_t *plan = seat->task->plan;
    baton_node_t drawn = baton_add_call(schedule, initiate, seat);
    baton_node_t heard = baton_add_call(schedule, hear_alarm, seat);
    baton_node_t end = baton_add_nop(schedule);
    baton_set_optional(schedule, drawn);
    baton_before(schedule, baton_add_on_start(schedule), drawn);
    baton_before(schedule, baton_add_activation(schedule, drawn), heard);
    baton_enclosure_t inside = baton_enclose_begin(schedule);
    if (plan->need > 1) {
        baton_barrier_dissemination(schedule);
    }
    baton_enclose_end(schedule, inside, heard, end);
    baton_schedule_limit(schedule, limit_of(plan));
}

/* A recovered schedule has no limit. */
static void limit_alarm(fuzz_seat_t *seat)
{
    baton_schedule_limit(seat->part->schedule, limit_of(seat->task->plan));
}

static void judge_alarm(fuzz_seat_t *seat)
{
    if (seat->part->alarm_life != fuzz_life(seat) ||
        seat->part->alarmed < seat->step) {
        fuzz_fail(seat, "safety: no alarm came");
    }
    baton_schedule_limit(seat->part->schedule,
                         seat->waited + limit_of(seat->task->plan));
}

/* ---- local ------------------------------------------------------------ */

/* target = source (op) source (op) ... */
static void build_local(baton_schedule_t *schedule, fuzz_seat_t *seat)
{
    const fuzz_task_plan_t *plan = seat->task->plan;
    size_t bytes = fuzz_bytes(plan);
    baton_view_t source = fuzz_bind(schedule, seat->part->source, bytes);
    baton_view_t target = fuzz_bind(schedule, seat->part->target, bytes);
    baton_node_t last = baton_add_copy(schedule, target, source);
    for (int i = 1; i < LOCAL_NODES; i++) {
        baton_node_t next = baton_add_reduce(
            schedule, plan->dtype, fuzz_op(plan), target, target, source);
        baton_before(schedule, last, next);
        last = next;
    }
}

static void fill_local(fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    values_of(seat, seat->rank, seat->step + 1, part->values);
    fuzz_store(seat->task->plan, part->values, part->source);
}

static void judge_local(fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    const fuzz_task_plan_t *plan = seat->task->plan;
    uint64_t *one = fuzz_alloc(plan->count + 1, sizeof *one);
    memcpy(one, part->values, plan->count * sizeof *one);
    for (int i = 1; i < LOCAL_NODES; i++) {
        fuzz_combine(plan, part->values, one);
    }
    free(one);
    expect_target(seat);
}

const fuzz_plain_t *const fuzz_plains[FUZZ_KIND_COUNT] = {
    [FUZZ_ALLREDUCE] = &(const fuzz_plain_t){.build = build_allreduce,
                                             .fill = fill_own,
                                             .judge = judge_allreduce},
    [FUZZ_BROADCAST] = &(const fuzz_plain_t){.build = build_broadcast,
                                             .fill = fill_own,
                                             .judge = judge_broadcast},
    [FUZZ_BARRIER] = &(const fuzz_plain_t){.build = build_barrier,
                                           .fill = fill_nothing,
                                           .judge = judge_barrier},
    [FUZZ_QUORUM] = &(const fuzz_plain_t){.build = build_quorum,
                                          .fill = fill_number,
                                          .judge = judge_quorum},
    [FUZZ_ALARM] = &(const fuzz_plain_t){.build = build_alarm,
                                         .fill = fill_nothing,
                                         .judge = judge_alarm,
                                         .on_recover = limit_alarm},
    [FUZZ_LOCAL] = &(const fuzz_plain_t){.build = build_local,
                                         .fill = fill_local,
                                         .judge = judge_local},
    [FUZZ_BRANCH] = &fuzz_branch,
    [FUZZ_LENGTHS] = &fuzz_lengths,
    [FUZZ_ASYNC] = &fuzz_async,
};
