#include "coll/dense/allreduce.h"

#include <math.h>

/* Partial sums of segments go from rank 0 to rank P - 1, and the sums from
   there on to ranks 0, 1, ..., P - 2: always to the next rank, so that the
   pipeline is filled once. 3 ranks, 4 segments a to d, by step; a'' is the sum:

       step        1     2     3     4     5     6     7     8
       0 sends     a     b     c     d     a''   b''   c''   d''
       1 sends           a'    b'    c'    d'
       2 sends                 a''   b''   c''   d''

   A segment in a rank in the middle:

       recv partial --> reduce --> send          recv sum --> send on

   A reduce and a broadcast one after the other would take 10 steps. The order
   of ranks is kept, and each sum is made once. */
enum { SLOTS = 4 };

void baton_add_allreduce_linear_pipeline(baton_schedule_t *schedule,
                                         const baton_allreduce_args_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by linear pipeline",
                                &args)) {
        return;
    }
    bool in_place = baton__allreduce_in_place(schedule, args);
    baton_view_t source = in_place ? args->target : args->source;
    baton__flow_t flow = baton__flow_open(schedule, args->dtype, args->op);
    size_t count = baton__segment_count(&flow, source.bytes, args->chunk_bytes,
                                        BATON__SEGMENT_BYTES);
    int next = baton__flow_peer(&flow, 1);
    int previous = baton__flow_peer(&flow, -1);
    baton__slots_t slots = {.count = 0};
    if (in_place && flow.rank > 0) {
        slots = baton__slots_for_segments(&flow, source, count, SLOTS);
    }
    for (size_t i = 0; i < count; i++) {
        baton_view_t own = baton__segment_of(&flow, source, count, i);
        baton_view_t sum = baton__segment_of(&flow, args->target, count, i);
        if (flow.rank > 0) {
            baton_view_t received =
                in_place ? baton__slot_of(&slots, i, sum.bytes) : sum;
            baton__flow_recv(&flow, previous, received);
            flow.is_total = flow.rank == flow.size - 1;
            baton__flow_reduce(&flow, sum, received, own);
            own = sum;
        }
        baton__flow_send(&flow, next, own);
    }
    /* The last rank has made the sums and already has them, so it receives
       none. */
    for (size_t i = 0; i < count && flow.rank < flow.size - 1; i++) {
        baton_view_t sum = baton__segment_of(&flow, args->target, count, i);
        baton__flow_recv(&flow, previous, sum);
        if (flow.rank < flow.size - 2) {
            baton__flow_send(&flow, next, sum);
        }
    }
    baton__flow_close(&flow);
}

/* Rank 0 sends all of its own segments before it passes the first sum on. So if
   the first sum arrives earlier, it waits at rank 0 until all these segments
   were sent. */
static double allreduce_linear_pipeline_cost(const baton__terms_t *t)
{
    double come = baton__message(t, t->n / t->segments);
    double reduce = baton__reduction(t, t->n / t->segments);
    double slower = fmax(come, reduce);
    double filled =
        (t->p - 1) * (come + reduce) + come + (t->segments - 1) * slower;
    if (t->of.ranks == 2) {
        return filled;
    }
    double sent = (2 * t->segments - 1) * slower + (t->p - 3) * reduce;
    return fmax(filled, sent) + (t->p - 2) * come;
}

/* If there are two ranks, each receives one vector. If there are more, an inner
   rank receives two: the partial sums and the sums. */
static baton__works_t allreduce_linear_pipeline_work(const baton__terms_t *t)
{
    double ways = t->of.ranks > 2 ? 2 : 1;
    return (baton__works_t){
        .most = {ways * t->segments, ways * t->n, t->n},
        .all = {2 * (t->p - 1) * t->segments, 2 * t->others, t->others},
        .passed = baton__passed_on(t)};
}

const baton_algorithm_t baton__allreduce_linear_pipeline_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "linear_pipeline",
    .build.allreduce = baton_add_allreduce_linear_pipeline,
    .ordered = true,
    .segmented = true,
    .cost = allreduce_linear_pipeline_cost,
    .exact = baton__exact_pipeline,
    .work = &(const baton__work_model_t){allreduce_linear_pipeline_work},
};
