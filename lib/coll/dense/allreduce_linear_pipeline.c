#include "coll/dense/allreduce.h"
#include "coll/kit/blocks.h"
#include "coll/tune/algorithms.h"

#include <math.h>

/* Partial sums of segments go from rank 0 to rank P - 1, and the sums from
   there on to ranks 0, 1, ..., P - 2: always to the next rank, so that the pipe
   is filled once. 3 ranks, 4 segments a to d, by step; a'' is the sum:

       step        1     2     3     4     5     6     7     8
       0 sends     a     b     c     d     a''   b''   c''   d''
       1 sends           a'    b'    c'    d'
       2 sends                 a''   b''   c''   d''

   A segment in a rank in the middle:

       recv partial --> reduce --> send          recv sum --> send on

   Reduce and broadcast one after the other take 10 steps, the paper's figure 9:
   there the last sum travels one hop further, to the rank that has made it. The
   order of ranks is kept, and each sum is made once. */
enum { SLOTS = 4 };

typedef struct pipe {
    baton__flow_t flow;
    int next;
    int previous;
    bool in_place;
    baton__slots_t slots; /* in place alone */
} pipe_t;

static void add_partial_sum(pipe_t *pipe, size_t index, baton_view_t source,
                            baton_view_t target)
{
    baton__flow_t *flow = &pipe->flow;
    baton_view_t partial = source;
    if (flow->rank > 0) {
        baton_view_t received = target;
        if (pipe->in_place) {
            received = baton__slot_of(&pipe->slots, index, target.bytes);
        }
        baton__flow_recv(flow, pipe->previous, received);
        baton__flow_reduce(flow, target, received, source);
        partial = target;
    }
    baton__flow_send(flow, pipe->next, partial);
}

static void add_sum(pipe_t *pipe, baton_view_t target)
{
    baton__flow_t *flow = &pipe->flow;
    if (flow->rank == flow->size - 1) {
        return; /* it has made the sum, and sent it */
    }
    baton__flow_recv(flow, pipe->previous, target);
    if (flow->rank < flow->size - 2) {
        baton__flow_send(flow, pipe->next, target);
    }
}

void baton_allreduce_linear_pipeline(baton_schedule_t *schedule,
                                     const baton_allreduce_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by linear pipeline",
                                &args)) {
        return;
    }
    size_t element = baton_op_element_bytes(args->op, args->dtype);
    pipe_t pipe = {
        .flow = baton__flow_open(schedule, args->dtype, args->op),
        .in_place = baton__allreduce_in_place(schedule, args),
    };
    pipe.next = baton__rank_shift(pipe.flow.rank, 1, pipe.flow.size);
    pipe.previous = baton__rank_shift(pipe.flow.rank, -1, pipe.flow.size);
    baton_view_t source = pipe.in_place ? args->target : args->source;
    size_t count =
        baton__segment_count(source.bytes / element, element, args->chunk_bytes,
                             BATON__SEGMENT_BYTES);
    if (pipe.in_place && pipe.flow.rank > 0) {
        pipe.slots = baton__slots_open(
            pipe.flow.schedule, count < SLOTS ? count : SLOTS,
            baton__segment_of(source, element, count, 0).bytes);
    }
    for (size_t i = 0; i < count; i++) {
        add_partial_sum(&pipe, i, baton__segment_of(source, element, count, i),
                        baton__segment_of(args->target, element, count, i));
    }
    for (size_t i = 0; i < count; i++) {
        add_sum(&pipe, baton__segment_of(args->target, element, count, i));
    }
    baton__flow_close(&pipe.flow);
}

/* Rank 0 sends all of its own segments first: the first sum waits for them, or
   comes later. */
static double cost(const baton__terms_t *t)
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

/* Between two ranks a vector goes each way; an inner rank gets both. */
static baton__works_t work(const baton__terms_t *t)
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
    .build.allreduce = baton_allreduce_linear_pipeline,
    .ordered = true,
    .segmented = true,
    .cost = cost,
    .exact = baton__exact_pipeline,
    .work = work,
};
