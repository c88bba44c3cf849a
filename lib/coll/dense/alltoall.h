/* What every all-to-all begins and ends with. In place, what is sent is copied
   out of the way first. */
#ifndef BATON_COLL_DENSE_ALLTOALL_H
#define BATON_COLL_DENSE_ALLTOALL_H

#include "coll/kit/blocks.h"
#include "coll/tune/algorithms.h"

typedef struct baton__alltoall {
    baton__flow_t flow;
    size_t *send_at, *recv_at;
    baton__blocks_t source, target;
} baton__alltoall_t;

/* This rank's own block is copied. False: an error of the schedule. True: call
   end. */
bool baton__alltoall_begin(baton_schedule_t *schedule, const char *builder,
                           const baton_alltoall_args_t **args,
                           baton__alltoall_t *out);
void baton__alltoall_end(baton__alltoall_t *exchange);

#endif
