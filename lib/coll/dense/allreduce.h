/* What every all-reduce builder begins with. */
#ifndef BATON_COLL_DENSE_ALLREDUCE_H
#define BATON_COLL_DENSE_ALLREDUCE_H

#include <baton/coll.h>

/* Those that keep the order of ranks, for messages of those that don't. */
#define BATON__ORDERED_ALLREDUCES                                              \
    "recursive doubling, the binomial tree, rabenseifner, the linear "         \
    "pipeline "                                                                \
    "or the double tree"

/* Checks the arguments; what is wrong with them is the schedule's error, in
   which `builder` is named and nothing is added. Does what needs no algorithm:
   nothing for an empty vector, a copy for one rank. True: the rest is to do. */
bool baton__allreduce_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allreduce_t **args);

/* Whether source and target are the same memory. */
bool baton__allreduce_in_place(const baton_schedule_t *schedule,
                               const baton_allreduce_t *args);

#endif
