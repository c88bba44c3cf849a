#include "coll/dense/begin.h"

/* Two binary trees below the root. Each half of the data goes down one of them
   in segments. A rank is an inner rank of at most one tree: it receives in both
   and sends in one:

       tree 0:   recv 0 --+--> send 0 left      tree 1:   recv 0
                          +--> send 0 right
                 recv 1 --+--> send 1 left                recv 1
                          +--> send 1 right
                 :                                        :            */
enum { TREES = 2 };

typedef struct half {
    baton_view_t data;
    size_t segments;
    /* Ranks of the parent and the children; -1: this rank has no such
       neighbour. */
    int parent, children[2];
} half_t;

static int broadcast_double_tree_rank_at(const baton__flow_t *flow, int root,
                                         int position, int twin)
{
    return baton__rank_shift(baton__twin_id(position, flow->size, twin), root,
                             flow->size);
}

static half_t broadcast_double_tree_half_of(const baton__flow_t *flow,
                                            const baton_broadcast_args_t *args,
                                            int twin)
{
    int last = flow->size - 1;
    int id = baton__flow_peer(flow, -args->root);
    int position = baton__twin_position(id, flow->size, twin);
    baton__tree_t tree = {.right = baton__tree_root(last)};
    half_t half = {.data =
                       baton__segment_of(flow, args->data, TREES, (size_t)twin),
                   .parent = -1};
    half.segments = baton__segment_count(
        flow, half.data.bytes, args->chunk_bytes, BATON__SEGMENT_BYTES);
    if (position > 0) {
        tree = baton__tree_of(position, last);
        half.parent =
            broadcast_double_tree_rank_at(flow, args->root, tree.parent, twin);
    }
    const int children[] = {tree.left, tree.right};
    for (int i = 0; i < 2; i++) {
        half.children[i] =
            children[i] > 0 ? broadcast_double_tree_rank_at(flow, args->root,
                                                            children[i], twin)
                            : -1;
    }
    return half;
}

static void broadcast_double_tree_add_segment(baton__flow_t *flow,
                                              const half_t *half, size_t index)
{
    if (index >= half->segments) {
        return;
    }
    baton_view_t segment =
        baton__segment_of(flow, half->data, half->segments, index);
    if (half->parent >= 0) {
        baton__flow_recv(flow, half->parent, segment);
    }
    for (int i = 0; i < 2; i++) {
        if (half->children[i] >= 0) {
            baton__flow_send(flow, half->children[i], segment);
        }
    }
}

void baton_add_broadcast_double_tree(baton_schedule_t *schedule,
                                     const baton_broadcast_args_t *args)
{
    if (!baton__broadcast_begin(schedule, "broadcast by double tree", &args)) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, BATON_U8, NULL);
    half_t first = broadcast_double_tree_half_of(&flow, args, 0);
    half_t second = broadcast_double_tree_half_of(&flow, args, 1);
    /* The first half may be longer by an element, so it has at least as many
       segments. */
    for (size_t i = 0; i < first.segments; i++) {
        broadcast_double_tree_add_segment(&flow, &first, i);
        broadcast_double_tree_add_segment(&flow, &second, i);
    }
    baton__flow_close(&flow);
}

/* The cost is an estimate: a segment takes up to 2 log p steps down a tree,
   since a rank sends two segments for each that it receives. */
static double broadcast_double_tree_cost(const baton__terms_t *t)
{
    double count = 2 * baton__segments(t->n / 2, t->of.segment_bytes);
    return (2 * t->log + count) * baton__message(t, t->n / count);
}

const baton_algorithm_t baton__broadcast_double_tree_algorithm = {
    .collective = BATON_COLLECTIVE_BROADCAST,
    .name = "double_tree",
    .build.broadcast = baton_add_broadcast_double_tree,
    .phases = {&baton__broadcast_linear_pipeline_algorithm},
    .segmented = true,
    .cost = broadcast_double_tree_cost,
};
