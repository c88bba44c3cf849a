/* The trace's file of this process: the ring of records, and the tables of
   schedules and names; see baton/trace.h. progress/state/traced.h makes the
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

/* Begins to record if BATON_TRACE says so. Only the first call in a process
   does anything; if it fails, it warns. */
void baton__trace_begin_if_asked(void);

/* Puts a schedule into the table. Returns its number, or 0 if it has no room
   there, or this process does not record. */
uint16_t baton__trace_enter(const baton_trace_schedule_t *schedule);

/* Returns the time of CLOCK_MONOTONIC, as baton/trace.h describes. The
   processor may compute it before it completes earlier loads, unless
   `after_loads`. */
uint64_t baton__trace_now(bool after_loads);

/* Returns the kernel's number of the calling thread. */
uint32_t baton__trace_thread(void);

/* Adds a record; its `thread` and `lap` are set by this function. Any thread
   may call it. It is inline so that the record is made where it stays. */
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
    /* A locked addition waits for the stores before it, so the lines that are
       written next should be in the cache by then. */
    __builtin_prefetch(to + 16, 1);
    /* All of these stores release the one before, so a reader that sees a part
       of this record sees that `what` is NONE, or all of it. */
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
