/* Which algorithm: the table of all dense builders with what they cost, and one
   name for each collective that takes the cheapest.

   The model: a message of n bytes takes alpha + n beta, a reduced byte gamma;
   a rank sends one message at a time and receives one. Links inside a host and
   between hosts have an alpha and beta of their own. What is compiled in are
   rough figures; `mpirun ... baton-info --calibrate FILE` measures, and
   BATON_CALIBRATION=FILE has them read.

   A choice is made when a builder is called, from what is the same on all
   ranks: sizes, number of ranks and of hosts, costs, variables. So variables
   and the calibration file must be the same on all ranks; where they are not,
   ranks build different schedules, which their first messages tell
   (BATON_ERR_MISMATCH). Builders called by their own names never choose. */
#ifndef BATON_TUNING_H
#define BATON_TUNING_H

#include <baton/coll.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every collective: enumerator, name. */
#define BATON_COLLECTIVE_LIST(X)                                               \
    X(BROADCAST, "broadcast")                                                  \
    X(REDUCE, "reduce")                                                        \
    X(ALLREDUCE, "allreduce")                                                  \
    X(REDUCE_SCATTER, "reduce_scatter")                                        \
    X(ALLGATHER, "allgather")                                                  \
    X(SCATTER, "scatter")                                                      \
    X(GATHER, "gather")                                                        \
    X(ALLTOALL, "alltoall")                                                    \
    X(SCAN, "scan")                                                            \
    X(EXSCAN, "exscan")                                                        \
    X(BARRIER, "barrier")

typedef enum baton_collective {
#define BATON_COLLECTIVE_ENUM(NAME, name) BATON_COLLECTIVE_##NAME,
    BATON_COLLECTIVE_LIST(BATON_COLLECTIVE_ENUM)
#undef BATON_COLLECTIVE_ENUM
        BATON_COLLECTIVE_COUNT
} baton_collective_t;

/* "allreduce"; "?" for a value that is none. */
const char *baton_collective_name(baton_collective_t collective);

/* ---- what an algorithm costs ------------------------------------------- */

/* A case of the model. `bytes`: of the whole vector; where data is gathered,
   scattered or exchanged, of all blocks of a rank together. */
typedef struct baton_cost_case {
    int ranks;
    double bytes;
    double alpha_us;      /* a message */
    double beta_us;       /* a byte */
    double gamma_us;      /* a reduced byte */
    double segment_bytes; /* of those that work in segments */
} baton_cost_case_t;

/* A builder: static strings. */
typedef struct baton_algorithm {
    baton_collective_t collective;
    const char *name;    /* as BATON_ALLREDUCE=name and messages have it */
    const char *formula; /* log: rounded up; n bytes, p ranks, b a segment */
    double (*cost_us)(const baton_cost_case_t *of);
    bool ordered;      /* takes reductions that are not commutative */
    bool segmented;    /* has a segment size to choose */
    bool equal_blocks; /* takes no sizes per rank */
} baton_algorithm_t;

/* The i-th of the table; false past its end. By name: BATON_ERR_INVALID lists
   the collective's algorithms and the nearest name. */
bool baton_algorithm_get(size_t i, baton_algorithm_t *out);
BATON_CHECKED baton_status_t baton_algorithm_find(baton_collective_t collective,
                                                  const char *name,
                                                  baton_algorithm_t *out);

#ifdef __cplusplus
}
#endif
#endif
