/* What each builder takes in the simulator's model: alpha a message, beta a
   byte, gamma a reduced byte, single-ported ranks. Exact for equal blocks and
   segments, but where a comment in cost.c says otherwise.
   tests/sim/test_dense_costs.c compares them with the simulator. And what it
   takes on one host (host_cost.c). */
#ifndef BATON_COLL_TUNE_COST_H
#define BATON_COLL_TUNE_COST_H

#include <baton/tuning.h>

#define BATON__COST_LIST(X)                                                    \
    X(barrier_dissemination)                                                   \
    X(broadcast_binomial)                                                      \
    X(broadcast_linear_pipeline)                                               \
    X(broadcast_scatter_allgather)                                             \
    X(broadcast_flat)                                                          \
    X(broadcast_double_tree)                                                   \
    X(reduce_binomial)                                                         \
    X(reduce_linear_pipeline)                                                  \
    X(reduce_pairwise)                                                         \
    X(reduce_scatter_gather)                                                   \
    X(allreduce_recursive_doubling)                                            \
    X(allreduce_binomial)                                                      \
    X(allreduce_rabenseifner)                                                  \
    X(allreduce_ring)                                                          \
    X(allreduce_linear_pipeline)                                               \
    X(allreduce_pairwise)                                                      \
    X(allreduce_circulant)                                                     \
    X(allreduce_double_tree)                                                   \
    X(allreduce_hierarchical)                                                  \
    X(reduce_scatter_ring)                                                     \
    X(reduce_scatter_recursive_halving)                                        \
    X(reduce_scatter_pairwise)                                                 \
    X(reduce_scatter_circulant)                                                \
    X(allgather_ring)                                                          \
    X(allgather_recursive_doubling)                                            \
    X(allgather_pairwise)                                                      \
    X(allgather_bruck)                                                         \
    X(scatter_binomial)                                                        \
    X(gather_binomial)                                                         \
    X(alltoall_pairwise)                                                       \
    X(alltoall_bruck)                                                          \
    X(scan_recursive_doubling)                                                 \
    X(exscan_recursive_doubling)

#define BATON__COST_DECLARE(name)                                              \
    double baton__cost_##name(const baton_cost_case_t *of);                    \
    double baton__host_cost_##name(const baton_cost_case_t *of);
BATON__COST_LIST(BATON__COST_DECLARE)
#undef BATON__COST_DECLARE

#endif
