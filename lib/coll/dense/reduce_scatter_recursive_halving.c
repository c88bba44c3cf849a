#include "coll/dense/begin.h"

static void add_halving(baton__reduce_scatter_t *scatter,
                        const baton__fold_t *fold)
{
    baton__flow_t *flow = &scatter->flow;
    baton__blocks_t *source = &scatter->source;
    baton__blocks_t sums = baton__reduce_scatter_sums(scatter);
    baton_view_t own = baton__blocks_view(&sums, flow->rank, 1);
    baton_view_t folded = {0};
    if (fold->partner >= 0) {
        folded = baton__blocks_view(&sums, fold->partner, 1);
        baton_view_t received = baton__flow_scratch(flow, source->memory.bytes);
        baton__flow_recv(flow, fold->partner, received);
        baton__flow_reduce(flow, sums.memory, source->memory, received);
        *source = sums;
    }
    baton__fold_unite(fold, flow->size, scatter->at);
    sums.parts = source->parts = fold->core;
    bool direct = !scatter->in_place && fold->partner < 0;
    baton__halving_reduce_scatter(flow, fold, &sums, source,
                                  BATON__NEAREST_LAST,
                                  direct ? scatter->target : (baton_view_t){0});
    if (!scatter->in_place && !direct) {
        baton__flow_copy(flow, scatter->target, own);
    }
    if (fold->partner >= 0) {
        baton__flow_send(flow, fold->partner, folded);
    }
}

void baton_add_reduce_scatter_recursive_halving(
    baton_schedule_t *schedule, const baton_reduce_scatter_args_t *args)
{
    baton__reduce_scatter_t scatter;
    if (!baton__reduce_scatter_begin(
            schedule, "reduce-scatter by recursive halving", &args, &scatter)) {
        return;
    }
    baton__fold_t fold = baton__fold_of(scatter.flow.rank, scatter.flow.size);
    if (fold.id < 0) {
        baton__flow_send(&scatter.flow, fold.partner, scatter.source.memory);
        baton__flow_recv(&scatter.flow, fold.partner, scatter.target);
    } else if (scatter.flow.size > 1) {
        add_halving(&scatter, &fold);
    }
    baton__flow_close(&scatter.flow);
}

static double reduce_scatter_recursive_halving_cost(const baton__terms_t *t)
{
    double fold = t->extra > 0
                      ? baton__message(t, t->n) + baton__reduction(t, t->n) +
                            baton__message(t, t->block)
                      : 0;
    return fold + t->core_log * t->alpha +
           t->n * (t->core - 1) / t->core * (t->beta + t->gamma);
}

static baton__works_t
reduce_scatter_recursive_halving_work(const baton__terms_t *t)
{
    return baton__evenly(t,
                         (baton__work_t){t->core * t->core_log + 2 * t->extra,
                                         t->others + t->extra * t->block,
                                         t->others},
                         baton__passed_on(t));
}

const baton_algorithm_t baton__reduce_scatter_recursive_halving_algorithm = {
    .collective = BATON_COLLECTIVE_REDUCE_SCATTER,
    .name = "recursive_halving",
    .build.reduce_scatter = baton_add_reduce_scatter_recursive_halving,
    .cost = reduce_scatter_recursive_halving_cost,
    .exact = baton__exact_powers,
    .work = &(const baton__work_model_t){reduce_scatter_recursive_halving_work},
};
