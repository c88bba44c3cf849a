/* The list of all dense algorithms. Each has its record at the end of its own
   file: a new algorithm is a file in coll/dense and a line here.

   If several algorithms have the same cost, the first in the list is chosen. A
   ring comes before others of the same cost, because the data that it passes on
   are still in a cache. */
#pragma once

#include "coll/kit/cost.h"

/* What baton_collective_facts returns, by collective. */
extern const baton_collective_facts_t baton__facts[];

#define BATON__ALGORITHM_LIST(X)                                               \
    X(barrier_dissemination)                                                   \
    X(broadcast_binomial)                                                      \
    X(broadcast_scatter_allgather)                                             \
    X(broadcast_linear_pipeline)                                               \
    X(broadcast_double_tree)                                                   \
    X(broadcast_flat)                                                          \
    X(reduce_binomial)                                                         \
    X(reduce_scatter_gather)                                                   \
    X(reduce_linear_pipeline)                                                  \
    X(reduce_pairwise)                                                         \
    X(allreduce_recursive_doubling)                                            \
    X(allreduce_binomial)                                                      \
    X(allreduce_ring)                                                          \
    X(allreduce_rabenseifner)                                                  \
    X(allreduce_circulant)                                                     \
    X(allreduce_pairwise)                                                      \
    X(allreduce_flat)                                                          \
    X(allreduce_linear_pipeline)                                               \
    X(allreduce_double_tree)                                                   \
    X(allreduce_hierarchical)                                                  \
    X(reduce_scatter_ring)                                                     \
    X(reduce_scatter_recursive_halving)                                        \
    X(reduce_scatter_circulant)                                                \
    X(reduce_scatter_pairwise)                                                 \
    X(allgather_ring)                                                          \
    X(allgather_recursive_doubling)                                            \
    X(allgather_bruck)                                                         \
    X(allgather_pairwise)                                                      \
    X(scatter_binomial)                                                        \
    X(gather_binomial)                                                         \
    X(alltoall_pairwise)                                                       \
    X(alltoall_bruck)                                                          \
    X(scan_recursive_doubling)                                                 \
    X(exscan_recursive_doubling)

#define BATON__ALGORITHM_DECLARE(name)                                         \
    extern const baton_algorithm_t baton__##name##_algorithm;
BATON__ALGORITHM_LIST(BATON__ALGORITHM_DECLARE)
#undef BATON__ALGORITHM_DECLARE

/* Returns BATON_ERR_INVALID if `collective` is not a value of
   baton_collective_t. The message begins with `what`, and says which values are
   allowed. */
baton_status_t baton__check_collective(const char *what,
                                       baton_collective_t collective);
