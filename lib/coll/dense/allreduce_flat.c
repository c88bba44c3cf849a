#include "coll/dense/allreduce.h"

#include <math.h>

/* A tree of one level, up and down again: rank 0 adds the other ranks' vectors
   to its own, in the order of ranks, and sends the sum to each rank.

       rank 0:  recv 1 --+       recv 2 --+
                         v                v
                source -> reduce -------> reduce ---> ... ---> send to 1, 2, ...

       rank r:  source --> send to 0             recv from 0 --> target

   This takes 2(P - 1) messages, as a binomial tree does, but two rounds for any
   P. If many ranks share a processor, the number of rounds decides. */

enum { LONG_SLOTS = 2 };

static void add_root(baton__flow_t *flow, baton_view_t target,
                     baton_view_t source)
{
    baton__slots_t slots = baton__slots_for_rounds(
        flow->schedule, flow->size - 1, target.bytes, LONG_SLOTS);
    for (int k = 1; k < flow->size; k++) {
        baton_view_t slot = baton__slot_of(&slots, (size_t)k - 1, target.bytes);
        baton__flow_recv(flow, k, slot);
        flow->is_total = k == flow->size - 1;
        baton__flow_reduce(flow, target, source, slot);
        source = target;
    }
    for (int k = 1; k < flow->size; k++) {
        baton__flow_send(flow, k, target);
    }
}

void baton_add_allreduce_flat(baton_schedule_t *schedule,
                              const baton_allreduce_args_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by flat tree", &args)) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, args->dtype, args->op);
    baton_view_t source =
        baton__allreduce_in_place(schedule, args) ? args->target : args->source;
    if (flow.rank == 0) {
        add_root(&flow, args->target, source);
    } else {
        baton__flow_send(&flow, 0, source);
        baton__flow_recv(&flow, 0, args->target);
    }
    baton__flow_close(&flow);
}

/* The root reduces one vector while it receives the next one. */
static double allreduce_flat_cost(const baton__terms_t *t)
{
    double come = baton__message(t, t->n);
    double reduce = baton__reduction(t, t->n);
    return t->p * come + (t->p - 2) * fmax(come, reduce) + reduce;
}

/* The root has the most work. For each of the other ranks it also copies the
   sum into a message, one message after another. */
static baton__works_t allreduce_flat_work(const baton__terms_t *t)
{
    double count = t->p - 1;
    return (baton__works_t){.most = {2 * count, 2 * t->others, t->others},
                            .all = {2 * count, 3 * t->others, t->others},
                            .direct = true};
}

const baton_algorithm_t baton__allreduce_flat_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "flat",
    .build.allreduce = baton_add_allreduce_flat,
    .ordered = true,
    .one_host = true,
    .cost = allreduce_flat_cost,
    .exact = baton__exact_flat,
    .work = &(const baton__work_model_t){allreduce_flat_work},
};
