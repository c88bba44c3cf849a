/* Sees a simulation run: the progress line, the trace, and the ends of epochs
   for who wants them. */
#ifndef MICROBENCH_SIM_WATCH_H
#define MICROBENCH_SIM_WATCH_H

#include "common/progress.h"
#include "sim/case.h"
#include "sim/trace.h"

typedef struct sim_watch {
    const sim_case_t *of;
    progress_t progress; /* of epochs */
    sim_trace_t trace;
    uint64_t seen; /* events */
} sim_watch_t;

/* `trace` NULL: no trace. */
void sim_watch_begin(sim_watch_t *watch, const sim_case_t *of, FILE *trace);

/* While schedules are built: this rank's is next. */
void sim_watch_build(sim_watch_t *watch, int rank);

/* From now on, until it is detached: what its end does is nobody's business. A
   simulation that nobody watches runs without a trace. */
void sim_watch_attach(sim_watch_t *watch, baton_sim_t *sim);
void sim_watch_detach(baton_sim_t *sim);

/* An epoch has been run. */
void sim_watch_epoch(sim_watch_t *watch);

void sim_watch_end(sim_watch_t *watch);

#endif
