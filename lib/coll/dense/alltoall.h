/* What every all-to-all begins with. In place, what is sent is copied
   out of the way first. */
#ifndef BATON_COLL_DENSE_ALLTOALL_H
#define BATON_COLL_DENSE_ALLTOALL_H

#include "coll/kit/blocks.h"
#include "coll/tune/algorithms.h"

typedef struct baton__alltoall {
    baton__flow_t flow;
    baton__blocks_t source, target;
} baton__alltoall_t;

/* This rank's own block is copied. False: an error of the schedule. True: close
   the flow. */
bool baton__alltoall_begin(baton_schedule_t *schedule, const char *builder,
                           const baton_alltoall_args_t **args,
                           baton__alltoall_t *out);

#endif
