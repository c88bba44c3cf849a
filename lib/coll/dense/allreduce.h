/* The parts that all-reduce builders share. */
#pragma once

#include "coll/dense/algorithms.h"
#include "coll/kit/given.h"
#include "coll/kit/phases.h"

/* The all-reduces that keep the order of ranks. The errors of the other
   all-reduces list them. */
#define BATON__ORDERED_ALLREDUCES                                              \
    "recursive doubling, the binomial tree, the flat tree, rabenseifner, the " \
    "linear pipeline or the double tree"

/* Checks the arguments. A wrong argument is the schedule's error, which names
   `builder`; then no node is added. Adds the nodes that need no algorithm: none
   for an empty vector, a copy for one rank. Returns true if the builder has to
   go on. */
bool baton__allreduce_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allreduce_args_t **args);

/* Adds the phases of an all-reduce of P blocks, all of which are reduced at the
   same time. `source` is `target` when in place. */
typedef void (*baton__in_blocks_fn)(baton__flow_t *flow,
                                    const baton__blocks_t *target,
                                    const baton__blocks_t *source,
                                    size_t element, size_t chunk_bytes);

/* Builds an all-reduce of P blocks; `add` adds its phases. Each block is
   reduced on one rank and copied from there, so all ranks have the same bits.
   The operands are not in the order of ranks, so the reduction must be
   commutative. */
void baton__allreduce_in_blocks(baton_schedule_t *schedule, const char *builder,
                                const baton_allreduce_args_t *args,
                                baton__in_blocks_fn add);

/* Returns true if source and target are the same memory. */
bool baton__allreduce_in_place(const baton_schedule_t *schedule,
                               const baton_allreduce_args_t *args);

/* Flat tree: all ranks send their vectors to rank 0, which reduces them in the
   order of ranks, and broadcasts the result along a binomial tree. For a vector
   to reach the root, no rank between has to be awake. So each rank needs two
   turns on a processor, where the inner ranks of a binomial tree need up to
   log2 P more; but the root alone reduces. So this is for few vectors, and for
   at most BATON__FLAT_RANKS ranks. (allreduce_binomial.c) */
void baton__allreduce_flat(baton_schedule_t *schedule,
                           const baton_allreduce_args_t *args);

/* Adds a binomial broadcast of data.length bytes. The root sets that length
   before the broadcast begins. */
void baton__broadcast_binomial(baton_schedule_t *schedule, int root,
                               baton__maybe_vector_t data);
