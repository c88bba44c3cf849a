#include "coll/dense/begin.h"

void baton_add_reduce_scatter_ring(baton_schedule_t *schedule,
                                   const baton_reduce_scatter_args_t *args)
{
    baton__reduce_scatter_t scatter;
    if (baton__reduce_scatter_begin(schedule, "reduce-scatter by ring", &args,
                                    &scatter)) {
        if (scatter.flow.size > 1) {
            baton__ring_reduce_scatter(&scatter.flow, scatter.target,
                                       &scatter.source, args->chunk_bytes);
        }
        baton__flow_close(&scatter.flow);
    }
}

static double reduce_scatter_ring_cost(const baton__terms_t *t)
{
    return (t->p - 1) *
           (baton__message(t, t->block) + baton__reduction(t, t->block));
}

/* Each message counts as one copy of its bytes. In fact only the first message
   of a block, which is a rank's own part, is copied. The others are partial
   sums in the sender's scratch, from where the receiver reduces them
   (sched/loans.h). The copies that are counted too many stand for the cost of
   passing sums on, so `passed` is 0. */
static baton__works_t reduce_scatter_ring_work(const baton__terms_t *t)
{
    return baton__evenly(
        t, (baton__work_t){t->p * (t->p - 1), t->others, t->others}, 0);
}

const baton_algorithm_t baton__reduce_scatter_ring_algorithm = {
    .collective = BATON_COLLECTIVE_REDUCE_SCATTER,
    .name = "ring",
    .build.reduce_scatter = baton_add_reduce_scatter_ring,
    .cost = reduce_scatter_ring_cost,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){reduce_scatter_ring_work},
};
