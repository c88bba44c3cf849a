/* The simulator from inside: a stepper for each rank over one simulated network
   (lib/sim/net.h), and the loop that lets virtual time pass:

       pop the events of the next time --> ranks become due
             ^                                   |
             |                                   v
       sends make events <-- baton__step for each due rank, until it has
                             nothing to do at its time

   This is the driver of a simulated engine, as engine.c is that of a real one.
 */
#ifndef BATON_SIM_SIM_H
#define BATON_SIM_SIM_H

#include "progress/engine.h"
#include "sim/net.h"

#include <baton/sim.h>

typedef struct baton__sim_rank {
    _Alignas(64) baton__stepper_t stepper;
    baton_group_t group;
} baton__sim_rank_t;

typedef struct baton__sim_call {
    baton_sim_fn fn;
    void *arg;
    uint32_t next; /* free ones */
} baton__sim_call_t;

struct baton_sim {
    baton_engine_t engine; /* first: its driver table leads here */
    baton_sim_options_t options;
    baton__kind_info_t kinds[BATON__KIND_COUNT];
    baton__sim_net_t net;
    baton__sim_rank_t *ranks;
    baton__sim_port_t *stepping; /* a rank's step runs, up to its call nodes */
    bool calling;                /* a callback of baton_sim_at runs */
    bool ending;    /* what was built is destroyed, as if it never was */
    bool unmatched; /* schedules were committed since sends and receives were
                       last compared */
    baton__sim_call_t *calls;
    uint32_t call_count, call_capacity, free_call;
    baton_schedule_t **built;    /* by baton_sim_build; NULL: nothing */
    baton_status_t start_status; /* of starts that baton_sim_epoch put off */
    uint64_t admitted;           /* schedules */
    double admitted_bytes;
    baton_sim_trace_fn trace;
    void *trace_arg;
};

extern const baton__driver_t baton__sim_driver;

static inline baton_sim_t *baton__sim_of(const baton_engine_t *engine)
{
    return (baton_sim_t *)(uintptr_t)engine;
}

/* BATON_ERR_STATE in a callback; `what` is not allowed there. */
baton_status_t baton__sim_check_outside(const baton_sim_t *sim,
                                        const char *what);

/* ---- among the simulator's files -------------------------------------- */

static inline baton__sim_port_t *baton__sim_port(const baton_sim_t *sim,
                                                 int rank)
{
    return &sim->net.ports[rank];
}

/* When the rank's processor is free, in us. */
static inline double baton__sim_clock(const baton__sim_port_t *port)
{
    double now_us = port->net->now_us;
    return port->clock > now_us ? port->clock : now_us;
}

/* Whether the machine has memory for schedules like this on every rank. */
baton_status_t baton__sim_admit(const baton_schedule_t *schedule);

/* Destroys what baton_sim_build has built. */
void baton__sim_unbuild(baton_sim_t *sim);

/* BATON_ERR_NO_MEMORY where `bytes` more are not to be had: `what` needs them,
   `advice` says what to lower. */
baton_status_t baton__sim_check_memory(double bytes, const char *what,
                                       const char *advice);

/* Compares every send with its receive. */
baton_status_t baton__sim_match(baton_sim_t *sim);

/* The other end of a message, and whose it is; NULL: there is none. Looks at
   all nodes of the peer's schedule. */
const baton__op_t *baton__sim_find_match(const baton_sim_t *sim,
                                         const baton_schedule_t *schedule,
                                         const baton__op_t *op,
                                         const baton_schedule_t **schedule_out);

/* Whether an epoch that was started has not ended, on a rank that is alive. */
bool baton__sim_waits(const baton_sim_t *sim, const baton_schedule_t *schedule);

/* BATON_ERR_DEADLOCK, with the sentence why `schedule` can't go on. */
baton_status_t baton__sim_explain(const baton_sim_t *sim,
                                  const baton_schedule_t *schedule);

#endif
