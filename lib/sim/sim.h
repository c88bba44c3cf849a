/* The state of a simulator: a stepper and a group for each rank over one
   simulated network (sim/net.h). This header also has the functions that the
   simulator's files offer each other. */
#pragma once

#include "progress/driving/engine.h"
#include "sched/share.h"
#include "sim/net.h"

typedef struct baton__sim_rank {
    _Alignas(64) baton__stepper_t stepper;
    baton__member_t member;
    baton__peer_queue_t queue; /* the queue of notices of `member` */
} baton__sim_rank_t;

/* A callback of baton_sim_at. */
typedef struct baton__sim_call {
    baton_sim_fn fn;
    void *arg;
    uint32_t next; /* the next call in the list of free calls */
} baton__sim_call_t;

struct baton_sim {
    /* This field is first, since baton__sim_of casts its address. */
    baton_engine_t engine;
    baton_sim_options_t options;
    baton__kind_info_t kinds[BATON__KIND_COUNT];
    baton__sim_net_t net;
    baton__sim_rank_t *ranks;
    baton__sharing_t sharing;
    /* The port of the rank whose step runs, or NULL. */
    baton__sim_port_t *stepping;
    bool calling; /* a callback of baton_sim_at runs */
    /* Schedules are being destroyed without notices to the peers, because the
       simulator is destroyed or a build is undone. */
    bool ending;
    /* Schedules were committed since sends and receives were last compared. */
    bool unmatched;
    baton__sim_call_t *calls;
    uint32_t call_count, call_capacity, free_call;
    /* The schedules that baton_sim_build has built, one for each rank. NULL:
       baton_sim_build was not called yet. */
    baton_schedule_t **built;
    /* baton_sim_epoch starts ranks at later virtual times, if they are skewed.
       This is the first error of such a start. */
    baton_status_t start_status;
    uint64_t schedule_count; /* number of schedules committed so far */
    double schedule_bytes;   /* bytes of memory of these schedules */
    baton_sim_trace_fn trace;
    void *trace_arg;
};

static inline baton_sim_t *baton__sim_of(const baton_engine_t *engine)
{
    return (baton_sim_t *)(uintptr_t)engine;
}

/* The task of a simulated schedule, and the simulator's data about it. */
typedef struct baton__sim_task {
    /* This field is first, so that a task can be cast to its baton__sim_task_t.
       Schedules of a simulator are allocated with this struct as their task:
       baton__sim_driver.task_bytes is its size. */
    baton__task_t task;
    /* The schedule was compared with those of the other ranks. */
    bool matched;
    bool timed; /* an epoch has begun and not ended */
    /* The virtual times at which the last epoch began and ended. */
    double began_us, ended_us;
} baton__sim_task_t;

static inline baton__sim_port_t *baton__sim_port(const baton_sim_t *sim,
                                                 int rank)
{
    return &sim->net.ports[rank];
}

/* Returns the time in us at which the rank's processor is free. If it is free
   now, returns the current time. */
static inline double baton__sim_clock(const baton__sim_port_t *port)
{
    double now_us = port->net->now_us;
    return port->clock > now_us ? port->clock : now_us;
}

/* ---- build.c ----------------------------------------------------------- */

/* Destroys the schedules that baton_sim_build has built, if any. */
void baton__sim_destroy_built(baton_sim_t *sim);

/* ---- driver.c: a simulated engine, instead of progress/driving/engine.c -- */

extern const baton__driver_t baton__sim_driver;

/* Returns the task of a simulated schedule. */
static inline baton__sim_task_t *
baton__sim_task_of(const baton_schedule_t *schedule)
{
    assert(baton_group_is_simulated(schedule->group));
    return (baton__sim_task_t *)baton__task_at(schedule);
}

/* Returns BATON_ERR_STATE inside a callback of the simulator, where `operation`
   is not allowed. */
baton_status_t baton__sim_check_outside(const baton_sim_t *sim,
                                        const char *operation);

/* ---- match.c ----------------------------------------------------------- */

/* Compares the sends and receives of all ranks. Returns BATON_ERR_MISMATCH if a
   send and a receive do not match, with a message that names both ranks and
   nodes. */
baton_status_t baton__sim_match(baton_sim_t *sim);

/* Returns the node at the other end of the message of `op`, a node of
   `schedule`: the receive of a send, or the send of a receive. Returns
   BATON__NO_NODE if there is none. *peer_out is the schedule of that node, or
   NULL. */
uint32_t baton__sim_find_match(const baton_sim_t *sim,
                               const baton_schedule_t *schedule,
                               const baton__op_t *op,
                               const baton_schedule_t **peer_out);

/* ---- memory.c ---------------------------------------------------------- */

/* Returns BATON_ERR_NO_MEMORY if `bytes` more are not available. The message
   names the `consumer` that needs them, and `advice` says what to lower. */
baton_status_t baton__sim_check_memory(double bytes, const char *consumer,
                                       const char *advice);

/* Called before each commit. Returns BATON_ERR_NO_MEMORY, like
   baton__sim_check_memory, if the machine has no memory for schedules like this
   one on every rank. */
baton_status_t baton__sim_check_schedule(const baton_schedule_t *schedule);

/* ---- explain.c --------------------------------------------------------- */

/* Returns BATON_ERR_DEADLOCK with a message that says why `schedule` can't go
   on: the cycle in which ranks wait, or the rank at which the chain of waits
   ends. Call it only when the simulator has no event left. */
baton_status_t baton__sim_explain(const baton_sim_t *sim,
                                  const baton_schedule_t *schedule);
