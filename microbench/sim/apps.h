/* The applications of a partial all-reduce, one on each rank. In each epoch
   they begin together, and each contributes and starts after its delay. */
#ifndef MICROBENCH_SIM_APPS_H
#define MICROBENCH_SIM_APPS_H

#include "sim/data.h"
#include "sim/watch.h"
#include <baton/partial.h>

/* The ranks of the quorum, or the candidates; 0 for other modes. */
uint32_t sim_apps_mode_ranks(const sim_case_t *c);

typedef struct sim_app {
    struct sim_apps *all;
    baton_partial_t *partial;
    double called_us; /* in the running epoch */
    double ended_us;
    uint64_t taken; /* the last step whose contribution an epoch has taken */
} sim_app_t;

typedef struct sim_apps {
    const sim_case_t *of;
    sim_watch_t *watch;
    baton_sim_t *sim;
    sim_data_t data;
    void *contribution; /* of the rank that contributes; it is not read without
                           payload */
    uint64_t epoch;
    bool failed;    /* a call failed, and that was printed */
    sim_app_t *app; /* [ranks] */
} sim_apps_t;

/* Creates the simulator and each rank's partial all-reduce. Like the functions
   below, prints what failed. */
bool sim_apps_open(const sim_case_t *c, sim_watch_t *watch, sim_apps_t *out);
bool sim_apps_close(sim_apps_t *apps);

/* Runs the next epoch to its end on all ranks. Rank r is late by its skew, or
   by (r + 1) * spacing if there is no skew. */
bool sim_apps_epoch(sim_apps_t *apps);

#endif
