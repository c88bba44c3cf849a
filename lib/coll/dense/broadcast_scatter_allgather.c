#include "coll/dense/begin.h"

/* The data is cut into P blocks. A binomial scatter leaves block r at rank r,
   and a ring takes each block to all ranks:

       recv own range from the parent --+--> send to children
                                        |
                                        +--> send own block --> ...
                                             recv a block  --> send it on

   The data begins with the root's block, so that the blocks of a subtree are
   contiguous. */
void baton_add_broadcast_scatter_allgather(baton_schedule_t *schedule,
                                           const baton_broadcast_args_t *args)
{
    if (!baton__broadcast_begin(schedule, "broadcast by scatter + all-gather",
                                &args)) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, BATON_U8, NULL);
    baton__blocks_t blocks = baton__blocks_cut(&flow, args->data, flow.size);
    blocks.base = args->root;
    if (blocks.at != NULL) {
        baton__binomial_scatter(&flow, args->root, &blocks);
        baton__ring_allgather(&flow, &blocks, SIZE_MAX);
    }
    baton__flow_close(&flow);
}

static double broadcast_scatter_allgather_cost(const baton__terms_t *t)
{
    return (t->log + t->p - 1) * t->alpha + 2 * t->part * t->beta;
}

static baton__works_t broadcast_scatter_allgather_work(const baton__terms_t *t)
{
    return (baton__works_t){
        .most = {t->p, t->n, 0},
        .all = {(t->p - 1) * (t->p + 1), t->others + baton__scattered(t), 0}};
}

const baton_algorithm_t baton__broadcast_scatter_allgather_algorithm = {
    .collective = BATON_COLLECTIVE_BROADCAST,
    .name = "scatter_allgather",
    .build.broadcast = baton_add_broadcast_scatter_allgather,
    .cost = broadcast_scatter_allgather_cost,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){broadcast_scatter_allgather_work},
};
