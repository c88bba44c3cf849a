/* The blocks of collectives that move bytes and reduce none. */
#ifndef BATON_COLL_KIT_CUT_H
#define BATON_COLL_KIT_CUT_H

#include "coll/kit/check.h"
#include "coll/kit/phases.h"

/* Offsets of P blocks in a vector of `bytes` bytes: block_bytes[r] each, whose
   sum must be `bytes`, or NULL: equal ones, of which `bytes` must be a
   multiple. `what` names the vector. For baton__free; NULL means the schedule's
   error. */
size_t *baton__cut_bytes(baton_schedule_t *schedule, const char *builder,
                         const char *what, size_t bytes,
                         const size_t *block_bytes);

#endif
