/* What all builders of a collective begin with (begin.c; all-reduces:
   allreduce.h): they check the arguments, and do what needs no messages. */
#pragma once

#include "coll/kit/phases.h"
#include "coll/tune/algorithms.h"

/* ---- broadcast ---------------------------------------------------------- */

/* Checks the arguments. True: there are ranks to send to, and data. */
bool baton__broadcast_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_broadcast_args_t **args);

/* ---- reduce ------------------------------------------------------------- */

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

/* ---- reduce-scatter ----------------------------------------------------- */

/* What every reduce-scatter begins with. The ring keeps its partial
   sums in slots, and the pairwise exchange in the target. The others make them
   in a vector of scratch, or in the source when in place; the last sum goes to
   the target:

       source --> [recursive halving, or circulant graph] --> target
                        sums (scratch)                                      */
typedef struct baton__reduce_scatter {
    baton__flow_t flow;
    size_t element;
    size_t *at;
    baton_view_t target;
    baton__blocks_t source;
    bool in_place;
} baton__reduce_scatter_t;

/* False: an error of the schedule. True: close the flow. */
bool baton__reduce_scatter_begin(baton_schedule_t *schedule,
                                 const char *builder,
                                 const baton_reduce_scatter_args_t **args,
                                 baton__reduce_scatter_t *out);

/* Where partial sums are made. */
baton__blocks_t baton__reduce_scatter_sums(baton__reduce_scatter_t *scatter);

/* ---- allgather ---------------------------------------------------------- */

/* What every all-gather begins with. Each copies its own block to its
   place, unless it is there. What is sent of its own block alone is sent from
   the source, all else from the target:

       source --> own block --> [ring, pairwise, recursive doubling, or Bruck]
          +-----------------------^                                         */
typedef struct baton__allgather {
    baton__flow_t flow;
    size_t *at;
    baton__blocks_t blocks;
} baton__allgather_t;

/* False: an error of the schedule. True: close the flow. */
bool baton__allgather_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allgather_args_t **args,
                            baton__allgather_t *out);

/* ---- alltoall ----------------------------------------------------------- */

/* What every all-to-all begins with. In place, what is sent is copied
   out of the way first. */
typedef struct baton__alltoall {
    baton__flow_t flow;
    baton__blocks_t source, target;
} baton__alltoall_t;

/* This rank's own block is copied. False: an error of the schedule. True: close
   the flow. */
bool baton__alltoall_begin(baton_schedule_t *schedule, const char *builder,
                           const baton_alltoall_args_t **args,
                           baton__alltoall_t *out);
