/* What every reduce to a root begins with. */
#ifndef BATON_COLL_DENSE_REDUCE_H
#define BATON_COLL_DENSE_REDUCE_H

#include "coll/kit/flow.h"

#include <baton/coll.h>

/* The arguments, checked. At the root `source` is `target` when in place. */
typedef struct baton__reduce {
    baton_view_t source;
    baton_view_t target; /* at the root */
    size_t element;      /* bytes */
    bool at_root;
    bool in_place;
} baton__reduce_t;

/* True: there is something to reduce between ranks. Otherwise it has been done,
   or is an error of the schedule. */
bool baton__reduce_begin(baton_schedule_t *schedule, const char *builder,
                         const baton_reduce_args_t **args,
                         baton__reduce_t *out);

#endif
