#include "coll/dense/begin.h"

void baton_add_reduce_scatter_circulant(baton_schedule_t *schedule,
                                        const baton_reduce_scatter_args_t *args)
{
    baton__reduce_scatter_t scatter;
    if (!baton__reduce_scatter_begin(
            schedule, "reduce-scatter by circulant graph", &args, &scatter)) {
        return;
    }
    if (scatter.flow.size > 1) {
        int rank = scatter.flow.rank;
        baton__blocks_t sums = baton__reduce_scatter_sums(&scatter);
        sums.base = scatter.in_place ? 0 : rank;
        baton__circulant_reduce_scatter(
            &scatter.flow, &sums, scatter.in_place ? &sums : &scatter.source,
            scatter.in_place ? (baton_view_t){0} : scatter.target);
    }
    baton__flow_close(&scatter.flow);
}

static double reduce_scatter_circulant_cost(const baton__terms_t *t)
{
    return t->log * t->alpha + t->part * (t->beta + t->gamma);
}

static baton__works_t reduce_scatter_circulant_work(const baton__terms_t *t)
{
    return baton__evenly(t,
                         (baton__work_t){t->p * t->log, t->others, t->others},
                         baton__passed_on(t));
}

const baton_algorithm_t baton__reduce_scatter_circulant_algorithm = {
    .collective = BATON_COLLECTIVE_REDUCE_SCATTER,
    .name = "circulant",
    .build.reduce_scatter = baton_add_reduce_scatter_circulant,
    .cost = reduce_scatter_circulant_cost,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){reduce_scatter_circulant_work},
};
