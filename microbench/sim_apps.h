/* The applications of a partial all-reduce, one a rank: in each epoch all begin
   together, and each contributes and starts at its time. */
#ifndef MICROBENCH_SIM_APPS_H
#define MICROBENCH_SIM_APPS_H

#include "sim_data.h"
#include "sim_watch.h"
#include <baton/partial.h>

/* Variants, in this order: full comes first, since the others are compared with
   it. NULL ends the names. */
enum {
    SIM_FULL,
    SIM_SOLO,
    SIM_MAJORITY,
    SIM_QUORUM,
    SIM_CANDIDATES_ANY,
    SIM_CANDIDATES_ALL
};
extern const char *const sim_partial_names[];

/* The quorum's, or the candidates' number; 0 for other modes. */
uint32_t sim_apps_mode_ranks(const sim_case_t *c);

typedef struct sim_app {
    struct sim_apps *all;
    baton_partial_t *partial;
    double called_us; /* in the running epoch */
    double ended_us;
    uint64_t taken; /* steps that epochs have taken: all up to this one */
} sim_app_t;

typedef struct sim_apps {
    const sim_case_t *of;
    sim_watch_t *watch;
    baton_sim_t *sim;
    sim_data_t data;
    void *contribution; /* of any rank, as it contributes; without payload its
                           bytes are never read */
    uint64_t epoch;
    bool failed;    /* in a call, and it was said */
    sim_app_t *app; /* [ranks] */
} sim_apps_t;

/* Makes the simulator, and on each rank its partial all-reduce. These say what
   failed. */
bool sim_apps_open(const sim_case_t *c, sim_watch_t *watch, sim_apps_t *out);
bool sim_apps_close(sim_apps_t *apps);

/* Runs the next epoch to its end, on all ranks. Rank r comes (r + 1) * spacing
   late; without a spacing, by its skew. */
bool sim_apps_epoch(sim_apps_t *apps);

#endif
