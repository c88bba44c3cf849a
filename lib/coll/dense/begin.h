/* The functions with which the builders of each collective begin (in begin.c;
   those of all-reduces are in allreduce.h). They check the arguments, and add
   the nodes that need no messages. */
#pragma once

#include "coll/dense/algorithms.h"
#include "coll/kit/phases.h"

/* ---- broadcast ---------------------------------------------------------- */

/* Checks the arguments. Returns true if the builder has to add messages,
   because there are data and other ranks. */
bool baton__broadcast_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_broadcast_args_t **args);

/* ---- reduce ------------------------------------------------------------- */

/* The checked arguments of a reduce. At the root, if it works in place,
   `source` is `target`. */
typedef struct baton__reduce {
    baton_view_t source;
    baton_view_t target; /* the target, which only the root has */
    bool at_root;
    bool in_place;
} baton__reduce_t;

/* Checks the arguments. Returns true if the builder has to reduce between
   ranks. Otherwise this function has added all nodes, or the schedule has an
   error. */
bool baton__reduce_begin(baton_schedule_t *schedule, const char *builder,
                         const baton_reduce_args_t **args,
                         baton__reduce_t *out);

/* ---- reduce-scatter ----------------------------------------------------- */

/* The state that all reduce-scatters begin with. The ring makes its partial
   sums in slots of scratch (baton__slots_t), and the pairwise exchange in the
   target. The others make them in a vector of scratch, or in the source when in
   place; the last sum goes to the target:

       source --> [recursive halving, or circulant graph] --> target
                        sums (scratch)                                      */
typedef struct baton__reduce_scatter {
    baton__flow_t flow;
    size_t *at; /* offsets of the blocks */
    baton_view_t target;
    baton__blocks_t source;
    bool in_place;
} baton__reduce_scatter_t;

/* Checks the arguments, and opens the flow. Returns false if the schedule has
   an error. If it returns true, the caller must close the flow. */
bool baton__reduce_scatter_begin(baton_schedule_t *schedule,
                                 const char *builder,
                                 const baton_reduce_scatter_args_t **args,
                                 baton__reduce_scatter_t *out);

/* Returns the memory in which partial sums are made: new scratch, or the source
   when in place. */
baton__blocks_t baton__reduce_scatter_sums(baton__reduce_scatter_t *scatter);

/* ---- allgather ---------------------------------------------------------- */

/* The state that all all-gathers begin with. A rank copies its own block to the
   block's place, unless it is there. Messages of this block alone are sent from
   the source, all others from the target:

       source --> own block --> [ring, pairwise, recursive doubling, or Bruck]
          +-----------------------^                                         */
typedef struct baton__allgather {
    baton__flow_t flow;
    size_t *at;
    baton__blocks_t blocks;
} baton__allgather_t;

/* Checks the arguments, opens the flow, and copies this rank's own block to its
   place. Returns false if the schedule has an error. If it returns true, the
   caller must close the flow. */
bool baton__allgather_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allgather_args_t **args,
                            baton__allgather_t *out);

/* ---- alltoall ----------------------------------------------------------- */

/* The state with which all all-to-alls begin. In place, the blocks to send are
   first copied to scratch, and the scratch is then the source. */
typedef struct baton__alltoall {
    baton__flow_t flow;
    baton__blocks_t source, target;
} baton__alltoall_t;

/* Checks the arguments, opens the flow, and copies this rank's own block to its
   place. Returns false if the schedule has an error. If it returns true, the
   caller must close the flow. */
bool baton__alltoall_begin(baton_schedule_t *schedule, const char *builder,
                           const baton_alltoall_args_t **args,
                           baton__alltoall_t *out);
