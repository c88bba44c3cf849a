#include "coll/dense/begin.h"
#include "coll/kit/check.h"

#include <math.h>

/* Segments go along a chain of all ranks that ends at the root. If the root is
   rank 0, the chain is P - 1, P - 2, ..., 0; otherwise it is root + 1, root +
   2, ..., root (mod P). A segment is received while the segment before it is
   reduced and the one before that is sent:

       recv 0 --> reduce 0 --> send 0
       recv 1 --> reduce 1 --> send 1
       recv 2 --> reduce 2 --> send 2
       :

   A rank reduces into the slot that has received a segment, the root into its
   target. */
enum { SLOTS = 4 };

void baton_add_reduce_linear_pipeline(baton_schedule_t *schedule,
                                      const baton_reduce_args_t *args)
{
    static const char name[] = "reduce by linear pipeline";
    baton__reduce_t reduce;
    if (!baton__reduce_begin(schedule, name, &args, &reduce)) {
        return;
    }
    int size = baton_schedule_size(schedule);
    bool down = args->root == 0;
    if (!down && args->root != size - 1 &&
        !baton__check_commutative(schedule, name, args->op,
                                  "root 0, root P - 1 or the binomial tree")) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, args->dtype, args->op);
    int next = baton__rank_shift(flow.rank, down ? -1 : 1, size);
    int previous = baton__rank_shift(flow.rank, down ? 1 : -1, size);
    bool is_first = previous == args->root;
    size_t count = baton__segment_count(
        &flow, reduce.source.bytes, args->chunk_bytes, BATON__SEGMENT_BYTES);
    bool receives_in_target = reduce.at_root && !reduce.in_place;
    baton__slots_t slots = {.count = 1};
    if (!is_first && !receives_in_target) {
        slots = baton__slots_for_segments(&flow, reduce.source, count, SLOTS);
    }
    for (size_t i = 0; i < count; i++) {
        baton_view_t own = baton__segment_of(&flow, reduce.source, count, i);
        baton_view_t out = own;
        if (!is_first) {
            baton_view_t received = baton__slot_of(&slots, i, own.bytes);
            if (reduce.at_root) {
                out = baton__segment_of(&flow, reduce.target, count, i);
                received = receives_in_target ? out : received;
            } else {
                out = received;
            }
            baton__flow_recv(&flow, previous, received);
            flow.is_total = reduce.at_root;
            baton__flow_reduce(&flow, out, down ? own : received,
                               down ? received : own);
        }
        if (!reduce.at_root) {
            baton__flow_send(&flow, next, out);
        }
    }
    baton__flow_close(&flow);
}

static double reduce_linear_pipeline_cost(const baton__terms_t *t)
{
    double come = baton__message(t, t->n / t->segments);
    double reduce = baton__reduction(t, t->n / t->segments);
    return (t->p - 1) * (come + reduce) +
           (t->segments - 1) * fmax(come, reduce);
}

static baton__works_t reduce_linear_pipeline_work(const baton__terms_t *t)
{
    return (baton__works_t){
        .most = {t->segments, t->n, t->n},
        .all = {(t->p - 1) * t->segments, t->others, t->others},
        .passed = baton__passed_on(t)};
}

const baton_algorithm_t baton__reduce_linear_pipeline_algorithm = {
    .collective = BATON_COLLECTIVE_REDUCE,
    .name = "linear_pipeline",
    .build.reduce = baton_add_reduce_linear_pipeline,
    .segmented = true,
    .ordered_at_ends = true,
    .cost = reduce_linear_pipeline_cost,
    .exact = baton__exact_pipeline,
    .work = &(const baton__work_model_t){reduce_linear_pipeline_work},
};
