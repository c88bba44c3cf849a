#include "coll/dense/allreduce.h"

/* Reduce-scatter and all-gather of P blocks on the circulant graph
   (circulant.c): ceil(log2 P) rounds each, for any P.

       source --> [reduce-scatter] --> own block --> [all-gather] --> target  */
static void allreduce_circulant_add(baton__flow_t *flow,
                                    const baton__blocks_t *target,
                                    const baton__blocks_t *source,
                                    size_t chunk_bytes)
{
    baton__circulant_reduce_scatter(flow, target, source, (baton_view_t){0});
    baton__circulant_allgather(flow, target, BATON__SKIPS_HALVED);
}

void baton_add_allreduce_circulant(baton_schedule_t *schedule,
                                   const baton_allreduce_args_t *args)
{
    baton__allreduce_in_blocks(schedule, "all-reduce by circulant graph", args,
                               allreduce_circulant_add);
}

const baton_algorithm_t baton__allreduce_circulant_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "circulant",
    .build.allreduce = baton_add_allreduce_circulant,
    .phases = {&baton__reduce_scatter_circulant_algorithm,
               &baton__allgather_bruck_algorithm},
    .exact = baton__exact_flat,
};
