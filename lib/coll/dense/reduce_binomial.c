#include "coll/dense/begin.h"

#include <math.h>

/* Reduction up a binomial tree. An id is a rank counted from the root. In step
   k an id receives from id + 2^k the partial sum of the 2^k ids from id + 2^k
   on, and takes it as the right operand:

       recv +1 --+      recv +2 --+      recv +4 --+
                 v                v                v
       source -> reduce 0 ------> reduce 1 ------> reduce 2 --> send to parent

   If the reduction is not commutative, ids are ranks, and rank 0 sends the sum
   to the root. */

enum { LONG_SLOTS = 2 };

/* Adds the tree of `root`, with `sum` as the memory for partial sums. Returns
   the place of this rank's last partial sum: `sum` or, at a leaf, the
   source. */
static baton_view_t reduce_binomial_add_tree(baton__flow_t *flow, int root,
                                             baton_view_t source,
                                             baton_view_t sum)
{
    int id = baton__flow_peer(flow, -root);
    int steps = baton__binomial_children(id, flow->size);
    baton_view_t partial = source;
    baton__slots_t slots = baton__slots_for_rounds(flow->schedule, steps,
                                                   source.bytes, LONG_SLOTS);
    for (int k = 0; k < steps; k++) {
        baton_view_t received = baton__slot_of(&slots, (size_t)k, source.bytes);
        int child = baton__flow_peer(flow, (int64_t)1 << k);
        baton__flow_recv(flow, child, received);
        flow->is_total = id == 0 && k == steps - 1;
        baton__flow_reduce(flow, sum, partial, received);
        partial = sum;
    }
    if (id != 0) {
        int parent =
            baton__rank_shift(baton__binomial_parent(id), root, flow->size);
        baton__flow_send(flow, parent, partial);
    }
    return partial;
}

void baton_add_reduce_binomial(baton_schedule_t *schedule,
                               const baton_reduce_args_t *args)
{
    baton__reduce_t reduce;
    if (!baton__reduce_begin(schedule, "reduce by binomial tree", &args,
                             &reduce)) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, args->dtype, args->op);
    int top = args->op->commutative ? args->root : 0;
    bool is_leaf =
        baton__binomial_span(baton__flow_peer(&flow, -top), flow.size) == 1;
    baton_view_t sum = reduce.target;
    if (flow.rank != top || !reduce.at_root) {
        sum = is_leaf ? reduce.source
                      : baton__flow_scratch(&flow, reduce.source.bytes);
    }
    baton_view_t total =
        reduce_binomial_add_tree(&flow, top, reduce.source, sum);
    if (top != args->root && flow.rank == top) {
        baton__flow_send(&flow, args->root, total);
    }
    if (top != args->root && reduce.at_root) {
        baton__flow_recv(&flow, top, reduce.target);
    }
    baton__flow_close(&flow);
}

/* There are ceil(log2 p) rounds. With 2^k ranks each round is a transfer and a
   reduction. Otherwise the subtree of the root's last child has only `extra`
   ranks. So the child's message comes early and takes the receive port between
   two other messages, and a reduction overlaps a transfer. */
static double reduce_binomial_cost(const baton__terms_t *t)
{
    double transfers = baton__messages_over(t, t->p, t->n, false);
    double each = baton__reduction(t, t->n);
    if (t->extra <= 0) {
        return transfers + t->log * each;
    }
    int extra_log = baton__log2_ceil((int)t->extra / 2 + 1);
    double seen = fmin(t->log - 1, 2 + extra_log);
    return transfers +
           fmax(seen * each, t->log * each - baton__message(t, t->n));
}

static baton__works_t reduce_binomial_work(const baton__terms_t *t)
{
    return (baton__works_t){.most = {t->log, t->log * t->n, t->log * t->n},
                            .all = {t->p - 1, t->others, t->others},
                            .passed = baton__passed_up(t)};
}

const baton_algorithm_t baton__reduce_binomial_algorithm = {
    .collective = BATON_COLLECTIVE_REDUCE,
    .name = "binomial",
    .build.reduce = baton_add_reduce_binomial,
    .ordered = true,
    .cost = reduce_binomial_cost,
    .exact = baton__exact_paired,
    .work = &(const baton__work_model_t){reduce_binomial_work},
};
