#include "base/alloc.h"
#include "coll/dense/allreduce.h"
#include "coll/kit/check.h"
#include "coll/kit/phases.h"
#include "coll/tune/algorithms.h"

/* Reduce-scatter and all-gather of P blocks by pairwise exchange (pairwise.c):

       source --> [reduce-scatter] --> own block --> [all-gather] --> target

   Each block is summed on one rank, in an order of its own, and copied: all
   have the same bits, and the reduction must be commutative. */
void baton_allreduce_pairwise(baton_schedule_t *schedule,
                              const baton_allreduce_t *args)
{
    static const char name[] = "all-reduce by pairwise exchange";
    if (!baton__allreduce_begin(schedule, name, &args) ||
        !baton__check_commutative(schedule, name, args->op,
                                  BATON__ORDERED_ALLREDUCES)) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, args->dtype, args->op);
    size_t element = baton_op_element_bytes(args->op, args->dtype);
    size_t *at = baton__cut_evenly(schedule, args->target.bytes / element,
                                   element, flow.size);
    if (at != NULL) {
        baton__blocks_t target = {
            .memory = args->target, .at = at, .parts = flow.size};
        baton__blocks_t source = target;
        if (!baton__allreduce_in_place(schedule, args)) {
            source.memory = args->source;
        }
        baton__pairwise_reduce_scatter(
            &flow, baton__blocks_view(&target, flow.rank, 1), &source, element,
            args->chunk_bytes);
        baton__pairwise_allgather(&flow, &target);
    }
    baton__free(at);
    baton__flow_close(&flow);
}

static double cost(const baton__terms_t *t)
{
    return baton__reduce_scatter_pairwise_algorithm.cost(t) +
           baton__allgather_pairwise_algorithm.cost(t);
}

static baton__works_t work(const baton__terms_t *t)
{
    return baton__both(baton__reduce_scatter_pairwise_algorithm.work(t),
                       baton__allgather_pairwise_algorithm.work(t));
}

const baton_algorithm_t baton__allreduce_pairwise_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "pairwise",
    .formula = "(p-1) (2 alpha + 2n/p beta) + n/p gamma",
    .build.allreduce = baton_allreduce_pairwise,
    .one_host = true,
    .cost = cost,
    .exact = baton__exact_flat,
    .work = work,
};
