#include "coll/dense/begin.h"

#include <math.h>

void baton_add_allgather_bruck(baton_schedule_t *schedule,
                               const baton_allgather_args_t *args)
{
    baton__allgather_t gather;
    if (baton__allgather_begin(schedule, "all-gather by Bruck", &args,
                               &gather)) {
        baton__circulant_allgather(&gather.flow, &gather.blocks,
                                   BATON__SKIPS_DOUBLED);
        baton__flow_close(&gather.flow);
    }
}

static double allgather_bruck_cost(const baton__terms_t *t)
{
    return t->log * t->alpha + t->part * t->beta;
}

/* A range of blocks that wraps around the vector's end is copied before it is
   sent, and after it was received. In a round whose messages have `more`
   blocks, more - 1 ranks send such a range, and more - 1 ranks receive one. */
static baton__works_t allgather_bruck_work(const baton__terms_t *t)
{
    double copied = 0;
    for (int64_t have = 1; have < t->of.ranks; have *= 2) {
        double more = fmin((double)have, t->p - (double)have);
        copied += 2 * (more - 1) * more * t->block;
    }
    return baton__evenly(t,
                         (baton__work_t){t->p * t->log, t->others + copied, 0},
                         baton__passed_on(t));
}

const baton_algorithm_t baton__allgather_bruck_algorithm = {
    .collective = BATON_COLLECTIVE_ALLGATHER,
    .name = "bruck",
    .build.allgather = baton_add_allgather_bruck,
    .cost = allgather_bruck_cost,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){allgather_bruck_work},
};
