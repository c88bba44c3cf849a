#include "coll/dense/begin.h"

void baton_add_allgather_pairwise(baton_schedule_t *schedule,
                                  const baton_allgather_args_t *args)
{
    baton__allgather_t gather;
    if (baton__allgather_begin(schedule, "all-gather by pairwise exchange",
                               &args, &gather)) {
        baton__pairwise_allgather(&gather.flow, &gather.blocks, SIZE_MAX);
        baton__flow_close(&gather.flow);
    }
}

/* If each rank has a processor, the rank that has made a block writes it into
   its peers' memory. That takes half as long as if they read it
   (transport/mpi/put.c): an all-reduce of 256 KiB in place takes 18 us by
   pairwise exchange, and 28 us by recursive doubling. This holds only for data
   in a cache: 16 MiB move at the speed of memory either way. */
static baton__works_t allgather_pairwise_work(const baton__terms_t *t)
{
    baton__works_t works = baton__allgather_ring_algorithm.work->of(t);
    works.written = baton__has_processor_each(t);
    works.most.bytes /= works.written && t->n <= BATON__CACHED_BYTES ? 2 : 1;
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
    .work = &(const baton__work_model_t){allgather_pairwise_work},
};
