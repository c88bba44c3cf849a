#include "coll/kit/phases.h"

/* Scatter down a binomial tree, with ranks counted from the root. An id gets
   the blocks of its subtree from its parent, and sends each child the blocks of
   the child's subtree, the largest first. Gather is the same in the opposite
   direction.

       8 ranks:   0 -+-----------+-------+     recv [id, id + span)
                     | 4..7      | 2 3   | 1     |
                     4 -+----+   2 -+    1       +--> send to id + 2^k its range
                        | 67 | 5    | 3          +--> send to id + 2^(k-1)
                        6    5      3            :
                        | 7
                        7
*/
typedef struct position {
    int id;
    int span;   /* the number of ids in the subtree of `id`, including `id` */
    int parent; /* the rank of the parent */
} position_t;

static position_t binomial_position_of(const baton__flow_t *flow, int root)
{
    int id = baton__flow_peer(flow, -root);
    position_t position = {
        .id = id,
        .span = baton__binomial_span(id, flow->size),
        .parent =
            baton__rank_shift(baton__binomial_parent(id), root, flow->size),
    };
    return position;
}

/* Returns the number of blocks of the subtree whose root is the child at id +
   step. */
static int child_span(const position_t *position, int step)
{
    int rest = position->span - step;
    return rest < step ? rest : step;
}

void baton__binomial_scatter(baton__flow_t *flow, int root,
                             const baton__blocks_t *blocks)
{
    position_t position = binomial_position_of(flow, root);
    if (position.id != 0) {
        baton__blocks_recv(flow, position.parent, blocks, flow->rank,
                           position.span);
    }
    int steps = baton__log2_ceil(position.span);
    for (int k = steps - 1; k >= 0; k--) {
        int child = baton__flow_peer(flow, (int64_t)1 << k);
        baton__blocks_send(flow, child, blocks, child,
                           child_span(&position, 1 << k));
    }
}

void baton__binomial_gather(baton__flow_t *flow, int root,
                            const baton__blocks_t *blocks)
{
    position_t position = binomial_position_of(flow, root);
    int steps = baton__log2_ceil(position.span);
    for (int k = 0; k < steps; k++) {
        int child = baton__flow_peer(flow, (int64_t)1 << k);
        baton__blocks_recv(flow, child, blocks, child,
                           child_span(&position, 1 << k));
    }
    if (position.id != 0) {
        baton__blocks_send(flow, position.parent, blocks, flow->rank,
                           position.span);
    }
}
