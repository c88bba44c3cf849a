/* The parts that all-reduce builders share. */
#pragma once

#include "coll/dense/algorithms.h"
#include "coll/kit/null_contribution.h"
#include "coll/kit/phases.h"

/* The all-reduces that reduce in the order of ranks, and so work with a
   reduction that is not commutative. If such a reduction is given to any other
   all-reduce, the error names these. */
#define BATON__ORDERED_ALLREDUCES                                              \
    "recursive doubling, the binomial tree, the flat tree, rabenseifner, the " \
    "linear pipeline or the double tree"

/* Checks the arguments. A wrong argument is an error of the schedule, which
   names `builder`; then no node is added. Also builds the all-reduces that need
   no messages: of an empty vector (no nodes), and of one rank (a copy). Returns
   true if the builder has to build the all-reduce. */
bool baton__allreduce_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allreduce_args_t **args);

/* A function that adds the phases of an all-reduce to a flow. The vector is cut
   into P blocks. In place, `source` is `target`. */
typedef void (*baton__in_blocks_fn)(baton__flow_t *flow,
                                    const baton__blocks_t *target,
                                    const baton__blocks_t *source,
                                    size_t chunk_bytes);

/* Builds an all-reduce of a vector that is cut into P blocks; `add` adds its
   phases. Each block is reduced on one rank and copied from there, so all ranks
   have the same bits. The operands are not in the order of ranks, so the
   reduction must be commutative. */
void baton__allreduce_in_blocks(baton_schedule_t *schedule, const char *builder,
                                const baton_allreduce_args_t *args,
                                baton__in_blocks_fn add);

/* Returns true if source and target are the same memory. */
bool baton__allreduce_in_place(const baton_schedule_t *schedule,
                               const baton_allreduce_args_t *args);

/* All-reduce by a flat tree: all ranks send their vectors to rank 0, which
   reduces them in the order of ranks, and broadcasts the result along a
   binomial tree.

   No other rank has to be awake for a vector to get to the root. So each rank
   needs only two turns on a processor, where an inner rank of a binomial tree
   needs up to log2 P more. But the root does all reductions alone. So the
   algorithm suits epochs in which few ranks contribute, and groups of at most
   BATON__FLAT_RANKS ranks. (allreduce_binomial.c) */
void baton__allreduce_flat(baton_schedule_t *schedule,
                           const baton_allreduce_args_t *args);

/* Adds a binomial broadcast of `data`. The root sets the length of `data`
   before the broadcast begins. */
void baton__broadcast_binomial(baton_schedule_t *schedule, int root,
                               baton__maybe_vector_t data);
