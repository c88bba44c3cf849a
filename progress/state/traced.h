/* The records of epochs, messages and waits in the trace (baton/trace.h).

   Reading the clock takes time, so several records may share one reading: the
   driver keeps the last time that it has read in `stepper->traced_ns`, as long
   as it is busy. The record SEND never has a later time than the sending of the
   message, and the record RECEIVED never an earlier time than its arrival. So
   if two ranks have the same clock, every message is received after it was
   sent. */
#pragma once

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

/* Called when the application starts an epoch. If the epoch begins at once,
   baton__traced_begin_epoch records the START, else baton__traced_forget_start
   does. */
void baton__traced_start(baton__task_t *task);
void baton__traced_forget_start(baton__task_t *task, uint64_t epoch);

/* Records a WAIT with its status. The wait began at `began_ns`, a result of
   baton__traced_begin; 0: it began just now. */
void baton__traced_wait(baton__task_t *task, uint64_t epoch, uint64_t began_ns,
                        int status);

/* baton__traced_begin_epoch records BEGIN in the running epoch, and also COME
   if `comes`: this rank comes to the epoch at once. Else baton__traced_come
   records COME later. */
void baton__traced_begin_epoch(baton_schedule_t *schedule, bool comes);
void baton__traced_come(baton_schedule_t *schedule);

/* Records END or LOST in the running epoch. `peer` is stored in the record's
   field of that name. */
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
