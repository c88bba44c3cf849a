/* The records of epochs, messages and waits in the trace (baton/trace.h).

   Reading the clock takes time, so several records may share one reading: the
   driver keeps the last time that it has read in `stepper->traced_ns`, as long
   as it is busy. The record SEND never has a later time than the sending of the
   message, and the record RECEIVED never an earlier time than its arrival. So
   if two ranks have the same clock, every message is received after it was
   sent. */
#pragma once

#include "base/clock.h"
#include "base/trace.h"
#include "progress/state/stepper.h"

/* Work on at least this many bytes takes so long that its duration is recorded
   (a copy or a reduction), and that the clock is read again after it (a send,
   too, since it may copy its data). */
enum { BATON__TRACED_BYTES = 4096 };

/* Makes the next record read the clock. Called when time has passed since the
   last reading: when a thread has got the driver lock, when a step has moved
   nothing, and after work that takes long. */
static inline void baton__traced_forget_time(baton__stepper_t *stepper)
{
    stepper->traced_ns = 0;
}

/* Returns the time, for an activity that begins now and is recorded when it
   ends; 0: nothing is recorded. */
static inline uint64_t baton__traced_begin(void)
{
    return baton__trace_is_on() ? baton__clock_ns() : 0;
}

/* Records that the thread has slept since `began_ns`; does nothing if that is
   0. Any thread may call this. */
static inline void baton__traced_sleep(uint64_t began_ns)
{
    if (began_ns != 0) {
        const uint64_t now_ns = baton__clock_ns();
        baton__trace_add(&(baton_trace_record_t){.time_ns = now_ns,
                                                 .value = now_ns - began_ns,
                                                 .peer = -1,
                                                 .what = BATON_TRACE_SLEEP});
    }
}

/* Calls baton__traced_<record> below with the other arguments, if
   baton__trace_is_on(); if not, they are not even computed. Only
   BATON__TRACED(call, ...) may be used by any thread. */
#define BATON__TRACED(record, ...)                                             \
    do {                                                                       \
        if (baton__trace_is_on()) {                                            \
            baton__traced_##record(__VA_ARGS__);                               \
        }                                                                      \
    } while (0)

/* Records a START, or a WAIT with its status. The call began at `began_ns`, a
   result of baton__traced_begin; 0: it began just now. */
void baton__traced_call(baton__task_t *task, baton_trace_what_t what,
                        uint64_t epoch, uint64_t began_ns, int status);

/* Records BEGIN, COME, END or LOST in the running epoch. `peer` is stored in
   the record's field of that name. */
void baton__traced_epoch(baton_schedule_t *schedule, baton_trace_what_t what,
                         int peer);

/* Records SEND, SENT or RECEIVED of a node's message. */
void baton__traced_message(baton_schedule_t *schedule, baton_trace_what_t what,
                           uint32_t node, size_t bytes);

/* Records that a node has worked since `began_ns`; does nothing if that is
   0. */
void baton__traced_work(baton_schedule_t *schedule, uint32_t node,
                        uint64_t began_ns);
