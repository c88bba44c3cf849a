/* What every reduce-scatter begins with. The ring keeps its partial
   sums in slots, and the pairwise exchange in the target. The others make them
   in a vector of scratch, or in the source when in place; the last sum goes to
   the target:

       source --> [recursive halving, or circulant graph] --> target
                        sums (scratch)                                      */
#ifndef BATON_COLL_DENSE_REDUCE_SCATTER_H
#define BATON_COLL_DENSE_REDUCE_SCATTER_H

#include "coll/kit/phases.h"
#include "coll/tune/algorithms.h"

typedef struct baton__reduce_scatter {
    baton__flow_t flow;
    size_t element;
    size_t *at;
    baton_view_t target;
    baton__blocks_t source;
    bool in_place;
} baton__reduce_scatter_t;

/* False: an error of the schedule. True: close the flow. */
bool baton__reduce_scatter_begin(baton_schedule_t *schedule,
                                 const char *builder,
                                 const baton_reduce_scatter_args_t **args,
                                 baton__reduce_scatter_t *out);

/* Where partial sums are made. */
baton__blocks_t baton__reduce_scatter_sums(baton__reduce_scatter_t *scatter);

#endif
