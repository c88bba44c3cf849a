#include "coll/dense/begin.h"

void baton_add_allgather_recursive_doubling(baton_schedule_t *schedule,
                                            const baton_allgather_args_t *args)
{
    baton__allgather_t gather;
    if (!baton__allgather_begin(schedule, "all-gather by recursive doubling",
                                &args, &gather)) {
        return;
    }
    baton__flow_t *flow = &gather.flow;
    baton__fold_t fold = baton__fold_of(flow->rank, flow->size);
    if (fold.id < 0) {
        baton__blocks_send(flow, fold.partner, &gather.blocks, flow->rank, 1);
        baton__flow_recv(flow, fold.partner, args->target);
    } else {
        if (fold.partner >= 0) {
            baton__blocks_recv(flow, fold.partner, &gather.blocks, fold.partner,
                               1);
        }
        baton__fold_unite(&fold, flow->size, gather.at);
        gather.blocks.parts = fold.core;
        gather.blocks.original_block = fold.id;
        gather.blocks.original.bytes =
            fold.partner < 0 ? gather.blocks.original.bytes : 0;
        baton__doubling_allgather(flow, &fold, &gather.blocks,
                                  BATON__NEAREST_LAST);
        if (fold.partner >= 0) {
            baton__flow_send(flow, fold.partner, args->target);
        }
    }
    baton__flow_close(&gather.flow);
}

static double allgather_recursive_doubling_cost(const baton__terms_t *t)
{
    double fold = t->extra > 0
                      ? baton__message(t, t->block) + baton__message(t, t->n)
                      : 0;
    return fold + t->core_log * t->alpha +
           t->n * (t->core - 1) / t->core * t->beta;
}

static baton__works_t allgather_recursive_doubling_work(const baton__terms_t *t)
{
    return baton__evenly(t,
                         (baton__work_t){t->core * t->core_log + 2 * t->extra,
                                         t->others + t->extra * t->block, 0},
                         baton__passed_on(t));
}

const baton_algorithm_t baton__allgather_recursive_doubling_algorithm = {
    .collective = BATON_COLLECTIVE_ALLGATHER,
    .name = "recursive_doubling",
    .build.allgather = baton_add_allgather_recursive_doubling,
    .cost = allgather_recursive_doubling_cost,
    .exact = baton__exact_powers,
    .work = &(const baton__work_model_t){allgather_recursive_doubling_work},
};
