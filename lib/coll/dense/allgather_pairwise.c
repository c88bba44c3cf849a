#include "coll/dense/allgather.h"

void baton_add_allgather_pairwise(baton_schedule_t *schedule,
                                  const baton_allgather_args_t *args)
{
    baton__allgather_t gather;
    if (baton__allgather_begin(schedule, "all-gather by pairwise exchange",
                               &args, &gather)) {
        baton__pairwise_allgather(&gather.flow, &gather.blocks, 1, SIZE_MAX);
        baton__allgather_end(&gather);
    }
}

/* Where each rank has a processor, the one that has made a block writes it,
   which takes half as long as reading it (transport/mpi/put.c): an all-reduce
   of 256 KiB in place takes 18 us, and 28 by recursive doubling. */
static baton__works_t work(const baton__terms_t *t)
{
    baton__works_t works = baton__allgather_ring_algorithm.work(t);
    works.written = t->of.processors <= 0 || t->of.processors >= t->of.ranks;
    works.most.bytes /= works.written ? 2 : 1;
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
