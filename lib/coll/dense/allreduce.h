/* What every all-reduce builder begins with. */
#pragma once

#include "coll/kit/phases.h"

#include <baton/coll.h>

/* Those that keep the order of ranks, for messages of those that don't. */
#define BATON__ORDERED_ALLREDUCES                                              \
    "recursive doubling, the binomial tree, the flat tree, rabenseifner, the " \
    "linear pipeline or the double tree"

/* Checks the arguments; what is wrong with them is the schedule's error, in
   which `builder` is named and nothing is added. Does what needs no algorithm:
   nothing for an empty vector, a copy for one rank. True: the rest is to do. */
bool baton__allreduce_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allreduce_args_t **args);

/* An all-reduce of P blocks, which are all summed at once: each on one rank,
   from which it is copied, so all have the same bits. What is summed first
   comes from everywhere, so the reduction must be commutative. `add` adds the
   phases; `source` is `target` when in place. */
typedef void (*baton__in_blocks_fn)(baton__flow_t *flow,
                                    const baton__blocks_t *target,
                                    const baton__blocks_t *source,
                                    size_t element, size_t chunk_bytes);
void baton__allreduce_in_blocks(baton_schedule_t *schedule, const char *builder,
                                const baton_allreduce_args_t *args,
                                baton__in_blocks_fn add);

/* Whether source and target are the same memory. */
bool baton__allreduce_in_place(const baton_schedule_t *schedule,
                               const baton_allreduce_args_t *args);
