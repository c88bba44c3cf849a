#include "coll/dense/allreduce.h"

/* Reduce-scatter and all-gather of P blocks by pairwise exchange (pairwise.c):

       source --> [reduce-scatter] --> own block --> [all-gather] --> target  */
static void allreduce_pairwise_add(baton__flow_t *flow,
                                   const baton__blocks_t *target,
                                   const baton__blocks_t *source,
                                   size_t chunk_bytes)
{
    baton__pairwise_reduce_scatter(
        flow, baton__blocks_view(target, flow->rank, 1), source, chunk_bytes);
    baton__pairwise_allgather(flow, target, chunk_bytes);
}

void baton_add_allreduce_pairwise(baton_schedule_t *schedule,
                                  const baton_allreduce_args_t *args)
{
    baton__allreduce_in_blocks(schedule, "all-reduce by pairwise exchange",
                               args, allreduce_pairwise_add);
}

/* Returns true if a block has one segment. If it has more, the phases overlap,
   and the formula is an estimate. */
static bool allreduce_pairwise_is_exact(const baton__terms_t *t)
{
    return baton__exact_flat(t) &&
           baton__segments(t->block, BATON__PAIRWISE_BYTES) <= 1;
}

const baton_algorithm_t baton__allreduce_pairwise_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "pairwise",
    .build.allreduce = baton_add_allreduce_pairwise,
    .phases = {&baton__reduce_scatter_pairwise_algorithm,
               &baton__allgather_pairwise_algorithm},
    .one_host = true,
    .exact = allreduce_pairwise_is_exact,
};
