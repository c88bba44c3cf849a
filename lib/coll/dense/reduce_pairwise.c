#include "coll/dense/begin.h"
#include "coll/kit/check.h"

/* Reduce-scatter by pairwise exchange (pairwise.c), then the blocks are sent to
   the root:

       source --> [reduce-scatter] --> own block --> send to the root

   The root sums its block in its target, where it receives the other blocks.
   Another rank sums its block in scratch. */
static void reduce_pairwise_add_gather(baton__flow_t *flow,
                                       const baton__reduce_t *reduce, int root,
                                       const baton__blocks_t *target,
                                       baton_view_t own)
{
    if (!reduce->at_root) {
        baton__flow_send(flow, root, own);
        return;
    }
    for (int k = 1; k < flow->size; k++) {
        int from = baton__flow_peer(flow, -k);
        baton__blocks_recv(flow, from, target, from, 1);
    }
}

void baton_add_reduce_pairwise(baton_schedule_t *schedule,
                               const baton_reduce_args_t *args)
{
    static const char name[] = "reduce by pairwise exchange";
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
        baton_view_t own =
            reduce.at_root
                ? baton__blocks_view(&target, flow.rank, 1)
                : baton__flow_scratch(
                      &flow, baton__blocks_bytes(&source, flow.rank, 1));
        baton__pairwise_reduce_scatter(&flow, own, &source, args->chunk_bytes);
        reduce_pairwise_add_gather(&flow, &reduce, args->root, &target, own);
    }
    baton__flow_close(&flow);
}

static baton__works_t reduce_pairwise_work(const baton__terms_t *t)
{
    const baton__works_t gather = {.most = {t->p - 1, t->part, 0},
                                   .all = {t->p - 1, t->part, 0},
                                   .direct = true,
                                   .passed = t->part};
    return baton__both(baton__reduce_scatter_pairwise_algorithm.work->of(t),
                       gather);
}

const baton_algorithm_t baton__reduce_pairwise_algorithm = {
    .collective = BATON_COLLECTIVE_REDUCE,
    .name = "pairwise",
    .build.reduce = baton_add_reduce_pairwise,
    .phases = {&baton__reduce_scatter_pairwise_algorithm,
               &baton__allgather_pairwise_algorithm},
    .one_host = true,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){reduce_pairwise_work},
};
