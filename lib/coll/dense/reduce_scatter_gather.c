#include "coll/dense/begin.h"
#include "coll/kit/check.h"

/* Reduce-scatter on the circulant graph, then a binomial gather of the blocks:

       source --> [reduce-scatter] --> own block --+
                                                   +--> send to the parent
                  recv children's blocks ----------+

   The root makes its partial sums in the target, other ranks in scratch. */
void baton_add_reduce_scatter_gather(baton_schedule_t *schedule,
                                     const baton_reduce_args_t *args)
{
    static const char name[] = "reduce by reduce-scatter + gather";
    baton__reduce_t reduce;
    if (!baton__reduce_begin(schedule, name, &args, &reduce) ||
        !baton__check_commutative(schedule, name, args->op,
                                  "the binomial tree")) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, args->dtype, args->op);
    baton__blocks_t source = baton__blocks_cut(&flow, reduce.source, flow.size);
    baton__blocks_t target = source;
    target.memory = reduce.target;
    if (source.at != NULL) {
        if (!reduce.at_root) {
            target.memory = baton__flow_scratch(&flow, reduce.source.bytes);
            target.base = flow.rank;
        }
        baton__circulant_reduce_scatter(&flow, &target,
                                        reduce.in_place ? &target : &source,
                                        (baton_view_t){0});
        baton__binomial_gather(&flow, args->root, &target);
    }
    baton__flow_close(&flow);
}

/* The work of both phases. In the gather, too, ranks pass on sums that they
   have received: `passed` counts these bytes. */
static baton__works_t reduce_scatter_gather_work(const baton__terms_t *t)
{
    baton__works_t works =
        baton__both(baton__reduce_scatter_circulant_algorithm.work->of(t),
                    baton__gather_binomial_algorithm.work->of(t));
    works.passed += t->part;
    return works;
}

const baton_algorithm_t baton__reduce_scatter_gather_algorithm = {
    .collective = BATON_COLLECTIVE_REDUCE,
    .name = "scatter_gather",
    .build.reduce = baton_add_reduce_scatter_gather,
    .phases = {&baton__reduce_scatter_circulant_algorithm,
               &baton__gather_binomial_algorithm},
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){reduce_scatter_gather_work},
};
