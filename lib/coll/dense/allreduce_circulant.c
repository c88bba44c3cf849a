#include "base/alloc.h"
#include "coll/dense/allreduce.h"
#include "coll/kit/check.h"
#include "coll/kit/phases.h"
#include "coll/tune/algorithms.h"

/* Reduce-scatter and all-gather of P blocks on the circulant graph
   (circulant.c): ceil(log2 P) rounds each, for any P.

       source --> [reduce-scatter] --> own block --> [all-gather] --> target

   Each block is summed on one rank, and copied: all have the same bits. What is
   summed first comes from everywhere, so the reduction must be commutative. */
void baton_allreduce_circulant(baton_schedule_t *schedule,
                               const baton_allreduce_t *args)
{
    static const char name[] = "all-reduce by circulant graph";
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
        baton__blocks_t source = {
            .memory = args->source, .at = at, .parts = flow.size};
        bool in_place = baton__allreduce_in_place(schedule, args);
        baton__circulant_reduce_scatter(
            &flow, &target, in_place ? &target : &source, (baton_view_t){0});
        baton__circulant_allgather(&flow, &target, BATON__SKIPS_HALVED);
    }
    baton__free(at);
    baton__flow_close(&flow);
}

static double cost(const baton__terms_t *t)
{
    return baton__reduce_scatter_circulant_algorithm.cost(t) +
           baton__allgather_bruck_algorithm.cost(t);
}

static baton__works_t work(const baton__terms_t *t)
{
    return baton__both(baton__reduce_scatter_circulant_algorithm.work(t),
                       baton__allgather_bruck_algorithm.work(t));
}

const baton_algorithm_t baton__allreduce_circulant_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "circulant",
    .formula = "2 log(p) alpha + (p-1)/p n (2 beta + gamma)",
    .build.allreduce = baton_allreduce_circulant,
    .cost = cost,
    .exact = baton__exact_flat,
    .work = work,
};
