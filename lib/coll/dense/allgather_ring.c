#include "coll/dense/begin.h"

void baton_add_allgather_ring(baton_schedule_t *schedule,
                              const baton_allgather_args_t *args)
{
    baton__allgather_t gather;
    if (baton__allgather_begin(schedule, "all-gather by ring", &args,
                               &gather)) {
        baton__ring_allgather(&gather.flow, &gather.blocks, args->chunk_bytes);
        baton__flow_close(&gather.flow);
    }
}

static double allgather_ring_cost(const baton__terms_t *t)
{
    return (t->p - 1) * baton__message(t, t->block);
}

/* If there are two ranks, each writes its own block into the other's memory,
   and no block is passed on. */
static baton__works_t allgather_ring_work(const baton__terms_t *t)
{
    baton__works_t works =
        baton__evenly(t, (baton__work_t){t->p * (t->p - 1), t->others, 0},
                      baton__passed_on(t));
    works.written = t->of.ranks == 2 && baton__has_processor_each(t);
    return works;
}

const baton_algorithm_t baton__allgather_ring_algorithm = {
    .collective = BATON_COLLECTIVE_ALLGATHER,
    .name = "ring",
    .build.allgather = baton_add_allgather_ring,
    .cost = allgather_ring_cost,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){allgather_ring_work},
};
