#include "coll/dense/allgather.h"

void baton_add_allgather_pairwise(baton_schedule_t *schedule,
                                  const baton_allgather_args_t *args)
{
    baton__allgather_t gather;
    if (baton__allgather_begin(schedule, "all-gather by pairwise exchange",
                               &args, &gather)) {
        baton__pairwise_allgather(&gather.flow, &gather.blocks);
        baton__allgather_end(&gather);
    }
}

static baton__works_t work(const baton__terms_t *t)
{
    baton__works_t works = baton__allgather_ring_algorithm.work(t);
    works.direct = true;
    works.passed = 0;
    return works;
}

const baton_algorithm_t baton__allgather_pairwise_algorithm = {
    .collective = BATON_COLLECTIVE_ALLGATHER,
    .name = "pairwise",
    .build.allgather = baton_add_allgather_pairwise,
    .phases = {&baton__allgather_ring_algorithm},
    .one_host = true,
    .exact = baton__exact_flat,
    .work = work,
};
