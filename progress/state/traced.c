#include "progress/state/traced.h"

#include <sched.h>
#include <stdio.h>

enum {
    /* `trace` of a task is the number of its schedule in the trace's table of
       schedules, 0 before the schedule was entered there, or one of these
       values. ENTERING: a thread is entering the schedule. UNTRACED: the
       schedule is not in the table, so nothing of it is recorded. */
    ENTERING = UINT16_MAX - 1,
    UNTRACED = UINT16_MAX
};
static_assert((int)BATON_TRACE_SCHEDULES < (int)ENTERING,
              "no schedule has this number");

/* Enters a schedule into the table, and returns its number there. Returns 0 if
   the table is full, or in a simulation: its stepper has no clock. */
static uint16_t traced_enter(baton__task_t *task)
{
    const baton_schedule_t *schedule = &task->schedule;
    const baton_group_t *group = schedule->group;
    baton_trace_schedule_t entry = {.key = baton__task_key(task),
                                    .channel = group->channel,
                                    .rank = group->rank,
                                    .size = group->size,
                                    .incarnation = group->incarnation,
                                    .nodes = schedule->count};
    (void)snprintf(entry.name, sizeof entry.name, "%s", schedule->name);
    return group->stepper->hooks->clock_ns != NULL ? baton__trace_enter(&entry)
                                                   : 0;
}

/* Returns the schedule's number in the table; 0 if the schedule is not
   recorded. The first call enters the schedule. It may come from the
   application, which starts an epoch, or from the driver, so the two must not
   both enter it. */
static uint16_t traced_number(baton__task_t *task)
{
    uint16_t number = atomic_load_explicit(&task->trace, memory_order_relaxed);
    if (number == 0 && atomic_compare_exchange_strong_explicit(
                           &task->trace, &number, ENTERING,
                           memory_order_relaxed, memory_order_relaxed)) {
        const uint16_t entered = traced_enter(task);
        number = entered != 0 ? entered : UNTRACED;
        atomic_store_explicit(&task->trace, number, memory_order_relaxed);
    }
    while (number == ENTERING) {
        (void)sched_yield();
        number = atomic_load_explicit(&task->trace, memory_order_relaxed);
    }
    return number == UNTRACED ? 0 : number;
}

/* Completes a record of the schedule, and adds it to the trace. Inline, as
   baton__trace_add is. */
static inline __attribute__((always_inline)) void
traced_add(baton_schedule_t *schedule, baton_trace_what_t what,
           uint64_t time_ns, baton_trace_record_t *record)
{
    record->schedule = traced_number(baton__task_of(schedule));
    record->time_ns = time_ns;
    record->what = (uint8_t)what;
    if (record->schedule != 0) {
        baton__trace_add(record);
    }
}

/* Returns the time that the driver has read from the clock last. Reads the
   clock if that time was forgotten. */
static uint64_t traced_time(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    baton__stepper_t *stepper = schedule->group->stepper;
    if (stepper->traced_ns == 0) {
        stepper->traced_ns = baton__trace_now(false);
    }
    return stepper->traced_ns;
}

void baton__traced_start(baton__task_t *task)
{
    atomic_store_explicit(&task->traced_ns, baton__trace_now(false),
                          memory_order_relaxed);
}

void baton__traced_forget_start(baton__task_t *task, uint64_t epoch)
{
    baton_trace_record_t record = {.epoch = (uint32_t)epoch, .peer = -1};
    const uint64_t time_ns =
        atomic_load_explicit(&task->traced_ns, memory_order_relaxed);
    atomic_store_explicit(&task->traced_ns, 0, memory_order_relaxed);
    if (time_ns != 0) {
        traced_add(&task->schedule, BATON_TRACE_START, time_ns, &record);
    }
}

void baton__traced_wait(baton__task_t *task, uint64_t epoch, uint64_t began_ns,
                        int status)
{
    const uint64_t now_ns = baton__trace_now(false);
    baton_trace_record_t record = {
        .value = began_ns != 0 ? baton__traced_since(began_ns, now_ns) : 0,
        .epoch = (uint32_t)epoch,
        .peer = status};
    traced_add(&task->schedule, BATON_TRACE_WAIT, now_ns, &record);
}

void baton__traced_begin_epoch(baton_schedule_t *schedule, bool comes)
{
    baton__task_t *task = baton__task_of(schedule);
    const uint64_t start_ns =
        atomic_load_explicit(&task->traced_ns, memory_order_relaxed);
    task->traced_come =
        comes && start_ns != 0 && start_ns == traced_time(schedule);
    if (task->traced_come) {
        atomic_store_explicit(&task->traced_ns, 0, memory_order_relaxed);
    }
    baton__traced_epoch(
        schedule, task->traced_come ? BATON_TRACE_STARTED : BATON_TRACE_BEGIN,
        -1);
}

void baton__traced_come(baton_schedule_t *schedule)
{
    baton__task_t *task = baton__task_of(schedule);
    if (!task->traced_come) {
        baton__traced_epoch(schedule, BATON_TRACE_COME, -1);
    }
    task->traced_come = false;
}

void baton__traced_epoch(baton_schedule_t *schedule, baton_trace_what_t what,
                         int peer)
{
    baton_trace_record_t record = {.epoch = (uint32_t)schedule->run.epoch,
                                   .peer = peer};
    traced_add(schedule, what, traced_time(schedule), &record);
}

void baton__traced_message(baton_schedule_t *schedule, baton_trace_what_t what,
                           uint32_t node, size_t bytes)
{
    const baton__op_t *op = &schedule->ops[node];
    baton__stepper_t *stepper = schedule->group->stepper;
    const bool activates =
        op->kind == BATON__ACTIVATE || op->kind == BATON__ARMED_RECV;
    baton_trace_record_t record = {.value = activates ? 0 : bytes,
                                   .epoch = (uint32_t)schedule->run.epoch,
                                   .node = node,
                                   .tag = op->message.tag |
                                          (activates ? UINT32_C(1) << 31 : 0),
                                   .peer = baton__peer_of(schedule, op)};
    if (what != BATON_TRACE_SEND) {
        /* The message has arrived or left after the clock was last read. */
        stepper->traced_ns = baton__trace_now(what == BATON_TRACE_RECEIVED);
    }
    traced_add(schedule, what, traced_time(schedule), &record);
    if (what == BATON_TRACE_SEND && bytes >= BATON__TRACED_BYTES) {
        /* The send may copy the data, which takes a while. */
        baton__traced_forget_time(stepper);
    }
}

uint64_t baton__traced_begin_work(baton_schedule_t *schedule)
{
    return baton__trace_is_on() ? traced_time(schedule) : 0;
}

void baton__traced_work(baton_schedule_t *schedule, uint32_t node,
                        uint64_t began_ns)
{
    baton_trace_record_t record = {
        .epoch = (uint32_t)schedule->run.epoch, .node = node, .peer = -1};
    if (began_ns != 0) {
        baton__traced_forget_time(schedule->group->stepper);
        record.value = baton__traced_since(began_ns, traced_time(schedule));
        traced_add(schedule, BATON_TRACE_WORK, traced_time(schedule), &record);
    }
}
