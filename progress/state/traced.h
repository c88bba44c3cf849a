/* The records of epochs, messages and waits in the trace (baton/trace.h).

   A time in the trace is read from the clock once for several records where
   that is right: a message is never sent before the time of its SEND, and has
   come before that of its RECEIVED, so in a common clock every message goes
   forward in time. Between them the driver keeps the last time that it has
   read, in `stepper->traced_ns`, as long as it is busy. */
#pragma once

#include "base/trace.h"
#include "progress/state/stepper.h"

/* Work on at least this many bytes takes so long that its duration is recorded
   (a copy or a reduction), and that the clock is read again after it (a send,
   too, since it may copy its data). */
enum { BATON__TRACED_BYTES = 4096 };

/* Forgets the time, since a while may pass before the next record: when a
   thread has got the driver lock, when a step has moved nothing, and after work
   that takes long. */
static inline void baton__traced_forget_time(baton__stepper_t *stepper)
{
    stepper->traced_ns = 0;
}

/* Returns the time, for an activity that begins now and is recorded when it
   ends; 0: nothing is recorded. */
static inline uint64_t baton__traced_begin(void)
{
    return baton__trace_is_on() ? baton__trace_now(false) : 0;
}

/* Returns the time from `began_ns` to `now_ns`. Computed times
   (lib/base/trace.h) may go back by some ns. */
static inline uint64_t baton__traced_since(uint64_t began_ns, uint64_t now_ns)
{
    return now_ns > began_ns ? now_ns - began_ns : 0;
}

/* Records that the thread has slept since `began_ns`; does nothing if that is
   0. Any thread may call this. */
static inline void baton__traced_sleep(uint64_t began_ns)
{
    if (began_ns != 0) {
        const uint64_t now_ns = baton__trace_now(false);
        baton__trace_add(&(baton_trace_record_t){
            .time_ns = now_ns,
            .value = baton__traced_since(began_ns, now_ns),
            .peer = -1,
            .what = BATON_TRACE_SLEEP});
    }
}

/* Calls baton__traced_<record> below with the other arguments, if
   baton__trace_is_on(); if not, they are not even computed. Only
   BATON__TRACED(start, ...) and (wait, ...) may be used by any thread. */
#define BATON__TRACED(record, ...)                                             \
    do {                                                                       \
        if (baton__trace_is_on()) {                                            \
            baton__traced_##record(__VA_ARGS__);                               \
        }                                                                      \
    } while (0)

/* Called when the application starts an epoch. Its START is recorded by
   baton__traced_begin_epoch, if the epoch begins at once, or else by
   baton__traced_forget_start. */
void baton__traced_start(baton__task_t *task);
void baton__traced_forget_start(baton__task_t *task, uint64_t epoch);

/* Records a WAIT with its status. It began at `began_ns`, a result of
   baton__traced_begin; 0: it began just now. */
void baton__traced_wait(baton__task_t *task, uint64_t epoch, uint64_t began_ns,
                        int status);

/* Records BEGIN in the running epoch, and COME; `comes`: COME follows at
   once. */
void baton__traced_begin_epoch(baton_schedule_t *schedule, bool comes);
void baton__traced_come(baton_schedule_t *schedule);

/* Records END or LOST in the running epoch; `peer` as in the record. */
void baton__traced_epoch(baton_schedule_t *schedule, baton_trace_what_t what,
                         int peer);

/* Records SEND, SENT or RECEIVED of a node's message. */
void baton__traced_message(baton_schedule_t *schedule, baton_trace_what_t what,
                           uint32_t node, size_t bytes);

/* Returns the time at which a node's work begins; 0: nothing is recorded. */
uint64_t baton__traced_begin_work(baton_schedule_t *schedule);

/* Records that a node has worked since `began_ns`; does nothing if that is
   0. */
void baton__traced_work(baton_schedule_t *schedule, uint32_t node,
                        uint64_t began_ns);
