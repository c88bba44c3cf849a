/* Writes a simulation as a trace in Chrome's format: a process for each rank,
   with rows for its epochs, its two ports and its processor. */
#ifndef MICROBENCH_SIM_TRACE_H
#define MICROBENCH_SIM_TRACE_H

#include <baton/sim.h>
#include <stdio.h>

typedef struct sim_trace {
    FILE *file; /* the caller's; NULL for no trace */
    bool overlap;
    uint64_t events;
} sim_trace_t;

/* `overlap` is set when a port carries several messages at once. */
void sim_trace_begin(sim_trace_t *trace, FILE *file, int ranks, bool overlap);
void sim_trace_event(sim_trace_t *trace, const baton_sim_event_t *event);
void sim_trace_end(sim_trace_t *trace);

#endif
