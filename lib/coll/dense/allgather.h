/* What every all-gather begins with. Each copies its own block to its
   place, unless it is there. What is sent of its own block alone is sent from
   the source, all else from the target:

       source --> own block --> [ring, pairwise, recursive doubling, or Bruck]
          +-----------------------^                                         */
#ifndef BATON_COLL_DENSE_ALLGATHER_H
#define BATON_COLL_DENSE_ALLGATHER_H

#include "coll/kit/phases.h"
#include "coll/tune/algorithms.h"

typedef struct baton__allgather {
    baton__flow_t flow;
    size_t *at;
    baton__blocks_t blocks;
} baton__allgather_t;

/* False: an error of the schedule. True: close the flow. */
bool baton__allgather_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allgather_args_t **args,
                            baton__allgather_t *out);

#endif
