/* Observes a simulation: prints the progress line and writes the trace. */
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

/* `trace` may be NULL. */
void sim_watch_begin(sim_watch_t *watch, const sim_case_t *of, FILE *trace);

/* Called before a rank's schedule is built. */
void sim_watch_build(sim_watch_t *watch, int rank);

/* Observes the simulator until it is detached, which must happen before its
   schedules are destroyed. */
void sim_watch_attach(sim_watch_t *watch, baton_sim_t *sim);
void sim_watch_detach(baton_sim_t *sim);

/* Called after each epoch. */
void sim_watch_epoch(sim_watch_t *watch);

void sim_watch_end(sim_watch_t *watch);

#endif
