/* Plans that ranks of a simulator share. If messages carry no data (a cost-only
   simulation), a plan depends on its rank only by the peers. Take the graphs of
   two ranks a and b that are equal but for the peers, where each peer p in one
   graph is p ^ a ^ b (exclusive or) in the other. All checks of commit have the
   same results for both graphs, and their plans differ only in the peers and in
   the arrays that epochs write. So a commit compares its graph with the first
   graphs that became plans, the models, and checks nothing if the graph is like
   a model. */
#pragma once

#include "sched/schedule.h"

/* The graph of which a plan was made, and the plan, whose memory outlives its
   schedule. */
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

/* Frees the models. No schedule may be left that uses one. */
void baton__sharing_fini(baton__sharing_t *sharing);

/* Compares the schedule's graph, which commit has not checked yet, with the
   models. Returns the plan of the model that the graph is like (see above), or
   NULL if there is no such model. */
const baton__plan_t *baton__sharing_find(const baton_schedule_t *schedule);

/* Makes a model of a schedule that is being committed. The model then owns the
   schedule's graph. Returns false and changes nothing if no model is made, for
   example because the ranks share no plans, or because there are BATON__MODELS
   models already. */
bool baton__sharing_keep(baton_schedule_t *schedule);
