#include "coll/dense/begin.h"

#include <math.h>

void baton_add_reduce_scatter_pairwise(baton_schedule_t *schedule,
                                       const baton_reduce_scatter_args_t *args)
{
    baton__reduce_scatter_t scatter;
    if (baton__reduce_scatter_begin(
            schedule, "reduce-scatter by pairwise exchange", &args, &scatter)) {
        baton__pairwise_reduce_scatter(&scatter.flow, scatter.target,
                                       &scatter.source, args->chunk_bytes);
        baton__flow_close(&scatter.flow);
    }
}

/* A rank reduces a segment while it receives the next one. */
static double reduce_scatter_pairwise_cost(const baton__terms_t *t)
{
    double segments = baton__segments(t->block, BATON__PAIRWISE_BYTES);
    double received = baton__message(t, t->block / segments);
    double reduced = baton__reduction(t, t->block / segments);
    return received + ((t->p - 1) * segments - 1) * fmax(received, reduced) +
           reduced;
}

static baton__works_t reduce_scatter_pairwise_work(const baton__terms_t *t)
{
    double messages =
        t->p * (t->p - 1) * baton__segments(t->block, BATON__PAIRWISE_BYTES);
    baton__works_t works =
        baton__evenly(t, (baton__work_t){messages, t->others, t->others}, 0);
    works.direct = true;
    return works;
}

const baton_algorithm_t baton__reduce_scatter_pairwise_algorithm = {
    .collective = BATON_COLLECTIVE_REDUCE_SCATTER,
    .name = "pairwise",
    .build.reduce_scatter = baton_add_reduce_scatter_pairwise,
    .one_host = true,
    .cost = reduce_scatter_pairwise_cost,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){reduce_scatter_pairwise_work},
};
