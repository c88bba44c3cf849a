/* Plans that ranks of a simulator share. Without payload a plan says nothing of
   a rank but its peers. Where those are another rank's, with an exclusive or of
   both ranks, the two graphs are the same to all checks of commit, and so are
   their plans but for what epochs write. So a commit compares its graph with
   the first ones that became plans, and checks nothing if it is like one. */
#pragma once

#include "sched/schedule.h"

/* The plan of a schedule that may be gone, whose memory stays; and the graph
   that it was made of. */
typedef struct baton__model {
    baton__plan_t plan;
    baton__op_t *ops;
    uint32_t *needs;
    baton__edge_t *edges;
    uint32_t edge_count, depth;
} baton__model_t;

enum { BATON__MODELS = 8 };

typedef struct baton__sharing {
    baton__model_t models[BATON__MODELS];
    uint32_t count;
} baton__sharing_t;

/* For when no schedules are left. */
void baton__sharing_fini(baton__sharing_t *sharing);

/* The plan of a graph like this one, which nothing has been checked of; or
   NULL. */
const baton__plan_t *baton__sharing_find(const baton_schedule_t *schedule);

/* Makes a model of a schedule that was committed, if its ranks share plans and
   there is room, and takes its graph. Else it returns false. */
bool baton__sharing_keep(baton_schedule_t *schedule);
