/* The trace file of this process: records, which are used in turn, and tables
   of schedules and names; see baton/trace.h. progress/state/traced.h makes the
   records of epochs and messages, and trace.c those of spans. */
#pragma once

#include <baton/trace.h>
#include <stdatomic.h>

/* The contents of the file. */
typedef struct baton__trace {
    baton_trace_head_t head;
    baton_trace_schedule_t schedules[BATON_TRACE_SCHEDULES];
    baton_trace_name_t names[BATON_TRACE_NAMES];
    baton_trace_record_t records[];
} baton__trace_t;

/* The switch of the trace. It has a cache line of its own, since all threads
   read it all the time. */
extern struct baton__trace_switch {
    /* The file in memory; NULL while this process does not record. */
    _Alignas(64) _Atomic(baton__trace_t *) file;
    int lap_bits; /* the file has 2^lap_bits records */
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

/* Returns the time of CLOCK_MONOTONIC, as baton/trace.h describes. The
   processor may compute it before it completes earlier loads, unless
   `after_loads`. */
uint64_t baton__trace_now(bool after_loads);

/* Returns the kernel's number of the calling thread. */
uint32_t baton__trace_thread(void);

/* Adds a record; its `thread` and `lap` are set by this function. Any thread
   may call this function and baton__trace_enter. It is inline, so that the
   compiler stores the fields in the file without making `*record` first. */
static inline __attribute__((always_inline)) void
baton__trace_add(const baton_trace_record_t *record)
{
    baton__trace_t *trace =
        atomic_load_explicit(&baton__trace.file, memory_order_acquire);
    if (trace == NULL) {
        return;
    }
    const uint32_t thread = baton__trace_thread();
    const uint64_t i = atomic_fetch_add_explicit(
        (_Atomic uint64_t *)&trace->head.written, 1, memory_order_relaxed);
    const uint64_t lap = i >> baton__trace.lap_bits;
    baton_trace_record_t *to =
        &trace->records[i - (lap << baton__trace.lap_bits)];
    /* The next record's atomic addition waits for the stores to this record. So
       that stores are quick, the cache line of a later record is prefetched
       here. */
    __builtin_prefetch(to + 16, 1);
    /* Each of these stores is a release. So a reader that sees a part of the
       new record also sees that `what` is NONE, or sees the whole record. */
#define PUT(type, field, of)                                                   \
    atomic_store_explicit((_Atomic type *)&to->field, (of),                    \
                          memory_order_release)
    PUT(uint8_t, what, BATON_TRACE_NONE);
    PUT(uint64_t, time_ns, record->time_ns);
    PUT(uint64_t, value, record->value);
    PUT(uint32_t, epoch, record->epoch);
    PUT(uint32_t, thread, thread);
    PUT(uint32_t, node, record->node);
    PUT(uint32_t, tag, record->tag);
    PUT(int32_t, peer, record->peer);
    PUT(uint16_t, schedule, record->schedule);
    PUT(uint8_t, lap, (uint8_t)lap);
    PUT(uint8_t, what, record->what);
#undef PUT
}
