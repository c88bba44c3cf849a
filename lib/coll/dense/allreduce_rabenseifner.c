#include "coll/dense/allreduce.h"

/* Rabenseifner: the vector is cut into as many blocks as the core has ranks. A
   reduce-scatter by recursive halving leaves the sum of one block at each of
   these ranks, and an all-gather by recursive doubling takes all blocks to all
   of them. A core of 4, id 1:

       source --> [fold] --> send 0 1  --> send 3
                             recv 2 3      recv 2
                             reduce 2 3 -> reduce 2 --> send 2 --> send 2 3
                                                        recv 3     recv 0 1

   Neighbours meet first, and the lower rank's part is the left operand, so
   partial sums are of neighbouring ranks, in their order. Each block is summed
   on one rank and copied from there, so all ranks have the same bits. */
static void allreduce_rabenseifner_add_phases(baton__flow_t *flow,
                                              baton_view_t target,
                                              baton_view_t source)
{
    baton__fold_t fold = baton__fold_of(flow->rank, flow->size);
    if (fold.id < 0) {
        baton__flow_send(flow, fold.partner, source);
        baton__flow_recv(flow, fold.partner, target);
        return;
    }
    if (fold.partner >= 0) {
        baton_view_t received = baton__flow_scratch(flow, target.bytes);
        baton__flow_recv(flow, fold.partner, received);
        baton__flow_reduce(flow, target, source, received);
        source = target;
    }
    baton__blocks_t sums = baton__blocks_cut(flow, target, fold.core);
    baton__blocks_t own = sums;
    own.memory = source;
    if (sums.at != NULL) {
        baton__halving_reduce_scatter(flow, &fold, &sums, &own,
                                      BATON__NEAREST_FIRST, (baton_view_t){0});
        baton__doubling_allgather(flow, &fold, &sums, BATON__NEAREST_FIRST);
    }
    if (fold.partner >= 0) {
        baton__flow_send(flow, fold.partner, target);
    }
}

void baton_add_allreduce_rabenseifner(baton_schedule_t *schedule,
                                      const baton_allreduce_args_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by rabenseifner",
                                &args)) {
        return;
    }
    bool in_place = baton__allreduce_in_place(schedule, args);
    baton__flow_t flow = baton__flow_open(schedule, args->dtype, args->op);
    allreduce_rabenseifner_add_phases(&flow, args->target,
                                      in_place ? args->target : args->source);
    baton__flow_close(&flow);
}

/* If P is no power of two, the fold adds two messages and a reduction of the
   whole vector. */
static double allreduce_rabenseifner_cost(const baton__terms_t *t)
{
    double part = t->n * (t->core - 1) / t->core;
    double reduce = baton__reduction(t, part);
    if (t->extra <= 0) {
        return 2 * baton__messages_over(t, t->p, t->n / 2, true) + reduce;
    }
    return 2 * baton__message(t, t->n) + baton__reduction(t, t->n) +
           2 * t->core_log * t->alpha + 2 * part * t->beta + reduce;
}

static baton__works_t allreduce_rabenseifner_work(const baton__terms_t *t)
{
    return baton__evenly(t,
                         (baton__work_t){2 * (t->core * t->core_log + t->extra),
                                         2 * t->others, t->others},
                         2 * baton__passed_on(t) + t->n);
}

static bool allreduce_rabenseifner_is_exact(const baton__terms_t *t)
{
    return t->extra <= 0 && baton__exact_paired(t);
}

const baton_algorithm_t baton__allreduce_rabenseifner_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "rabenseifner",
    .build.allreduce = baton_add_allreduce_rabenseifner,
    .ordered = true,
    .cost = allreduce_rabenseifner_cost,
    .exact = allreduce_rabenseifner_is_exact,
    .work = &(const baton__work_model_t){allreduce_rabenseifner_work},
};
