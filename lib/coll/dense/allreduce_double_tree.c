#include "coll/dense/allreduce.h"

#include <math.h>

/* Each half of the vector is reduced up a binary tree of its own and goes down
   again, in segments. Trees are in order: the left child's partial sum is of
   lower ranks, so the order of ranks is kept. A segment of one tree:

       recv left ----+
                     v
       source ---> reduce ---> reduce ---> send to parent
                                 ^
       recv right ---------------+         recv from parent --+--> send left
                                                              +--> send right

   An inner rank of one tree is a leaf of the other. Two ranks may be neighbours
   in both trees, so at both ends the messages of a pair are in the order of
   segments, and then of trees. */
enum { TREES = 2, SLOTS = 2 };

typedef struct half {
    /* Ranks of the parent and the children; -1: this rank has no such
       neighbour. */
    int parent, children[2];
    baton_view_t source;
    baton_view_t target;
    size_t segments;
    baton__slots_t slots[2]; /* slots for the children's partial sums */
} half_t;

static half_t allreduce_double_tree_half_of(baton__flow_t *flow,
                                            const baton_allreduce_args_t *args,
                                            bool in_place, int twin)
{
    baton__tree_t tree = baton__twin_of(flow->rank, flow->size, twin);
    half_t half = {
        .parent = tree.parent,
        .children = {tree.left, tree.right},
        .target = baton__segment_of(flow, args->target, TREES, (size_t)twin),
        .source = baton__segment_of(
            flow, in_place ? args->target : args->source, TREES, (size_t)twin),
    };
    half.segments = baton__segment_count(
        flow, half.target.bytes, args->chunk_bytes, BATON__SEGMENT_BYTES);
    for (int i = 0; i < 2; i++) {
        if (half.segments > 0 && half.children[i] >= 0) {
            half.slots[i] = baton__slots_for_segments(flow, half.target,
                                                      half.segments, SLOTS);
        }
    }
    return half;
}

static void allreduce_double_tree_add_segment(baton__flow_t *flow,
                                              const half_t *half, size_t index)
{
    if (index >= half->segments) {
        return;
    }
    baton_view_t target =
        baton__segment_of(flow, half->target, half->segments, index);
    baton_view_t partial =
        baton__segment_of(flow, half->source, half->segments, index);
    for (int i = 0; i < 2; i++) {
        if (half->children[i] >= 0) {
            baton_view_t received =
                baton__slot_of(&half->slots[i], index, target.bytes);
            baton__flow_recv(flow, half->children[i], received);
            flow->is_total =
                half->parent < 0 && (i == 1 || half->children[1] < 0);
            baton__flow_reduce(flow, target, i == 0 ? received : partial,
                               i == 0 ? partial : received);
            partial = target;
        }
    }
    if (half->parent >= 0) {
        baton__flow_send(flow, half->parent, partial);
        baton__flow_recv(flow, half->parent, target);
    }
    for (int i = 0; i < 2; i++) {
        if (half->children[i] >= 0) {
            baton__flow_send(flow, half->children[i], target);
        }
    }
}

void baton_add_allreduce_double_tree(baton_schedule_t *schedule,
                                     const baton_allreduce_args_t *args)
{
    if (!baton__allreduce_begin(schedule, "all-reduce by double tree", &args)) {
        return;
    }
    bool in_place = baton__allreduce_in_place(schedule, args);
    baton__flow_t flow = baton__flow_open(schedule, args->dtype, args->op);
    half_t first = allreduce_double_tree_half_of(&flow, args, in_place, 0);
    half_t second = allreduce_double_tree_half_of(&flow, args, in_place, 1);
    /* The first half may be longer by an element, so it has at least as many
       segments. */
    for (size_t i = 0; i < first.segments; i++) {
        allreduce_double_tree_add_segment(&flow, &first, i);
        allreduce_double_tree_add_segment(&flow, &second, i);
    }
    baton__flow_close(&flow);
}

/* Returns an estimate of the time up and down a double tree. */
static double allreduce_double_tree_cost(const baton__terms_t *t)
{
    double count = 2 * baton__segments(t->n / 2, t->of.segment_bytes);
    return (4 * t->log + 2 * count) * fmax(baton__message(t, t->n / count),
                                           baton__reduction(t, t->n / count));
}

const baton_algorithm_t baton__allreduce_double_tree_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "double_tree",
    .build.allreduce = baton_add_allreduce_double_tree,
    .phases = {&baton__allreduce_linear_pipeline_algorithm},
    .ordered = true,
    .segmented = true,
    .cost = allreduce_double_tree_cost,
};
