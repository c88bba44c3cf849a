/* The trace file of this process: records, which are used in turn, and tables
   of schedules and names; see baton/trace.h. progress/state/traced.h makes the
   records of epochs and messages, and trace.c those of spans. */
#pragma once

#include <baton/trace.h>
#include <stdatomic.h>

typedef struct baton__trace baton__trace_t;

/* The switch of the trace. It has a cache line of its own, since all threads
   read it all the time. */
extern struct baton__trace_switch {
    /* The file in memory; NULL while this process does not record. */
    _Alignas(64) _Atomic(baton__trace_t *) file;
} baton__trace;

/* Returns true if this process records; called before each record is made. The
   load is relaxed, so a thread may see the start or the stop of the trace a
   moment late. */
static inline bool baton__trace_is_on(void)
{
    return __builtin_expect(
        atomic_load_explicit(&baton__trace.file, memory_order_relaxed) != NULL,
        false);
}

/* Begins to record if BATON_TRACE names a folder. Only the first call in a
   process does anything. If it fails, it logs a warning. */
void baton__trace_begin_if_asked(void);

/* Puts a schedule into the table. Returns the schedule's number; 0 if the table
   is full, or if this process has no trace file. */
uint16_t baton__trace_enter(const baton_trace_schedule_t *schedule);

/* Adds a record; its `thread` and `lap` are set by this function. Any thread
   may call this function and baton__trace_enter. */
void baton__trace_add(const baton_trace_record_t *record);
