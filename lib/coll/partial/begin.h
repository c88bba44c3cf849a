/* How the epochs of a partial collective begin: the modes, as nodes.

   A rank that has started an epoch works on it at once, as in a synchronous
   all-reduce, so that its contribution is with the peers when the epoch is
   activated. The epoch ends after the activation. Only with CANDIDATES_ANY does
   work begin with the activation. There several ranks may activate the epoch,
   each along a tree of messages of its own. A rank that has ended the epoch
   sends no activation on, and could cut off the part of a tree below it; so no
   rank may end the epoch before all ranks were activated. */
#pragma once

#include "coll/partial/rule.h"

#include <baton/build.h>

/* Returns the number of the partial's epoch in which a call runs. The mode of
   the epoch depends on this number. */
static inline uint64_t baton__epoch_of(const baton__modes_t *modes,
                                       const baton_call_t *call)
{
    return modes->base + baton_call_epoch(call);
}

/* ---- activation.c: the nodes of its tree ------------------------------- */

enum { BATON__ACTIVATION_STEPS = 64 };

/* Adds the nodes of baton_add_activation, but `group` chooses the trees along
   which they send. If `group` is 0, these are binomial trees. Otherwise they
   have two levels: the initiator sends to each group-th rank from itself on,
   and each of these ranks sends to the group - 1 ranks that follow it. If
   `group` is P or more, the initiator sends to all ranks. A tree has group - 1
   + (P - 1) / group distances, which must be at most
   BATON__ACTIVATION_STEPS. */
baton_node_t baton__add_activation(baton_schedule_t *schedule,
                                   baton_node_t initiate, int group);

typedef struct baton__quorum baton__quorum_t;

/* How the epochs of a schedule begin. After the commit only the driver, the
   thread that makes the engine's progress, uses this struct. */
typedef struct baton__begin {
    baton_schedule_t *schedule;
    baton__modes_t modes;

    /* Fires when this rank starts the epoch. */
    baton_node_t start;
    /* Fires when this rank learns that the epoch is activated. Unset in mode
       FULL. */
    baton_node_t reached;
    baton_node_t activated; /* the node after which the epoch may end */
    /* Counts arrivals; NULL: the mode needs no count. */
    baton__quorum_t *quorum;
} baton__begin_t;

/* ---- quorum.c: one rank learns that enough ranks have arrived ----------- */

/* Creates a quorum. Returns NULL if there is no memory. The schedule must be
   destroyed before the quorum, and the quorum before `begin`. After the node
   begin->reached has completed on a rank, this rank reports no further arrivals
   of that epoch, neither its own nor those of other ranks. */
baton__quorum_t *baton__quorum_create(const baton__begin_t *begin);
void baton__quorum_destroy(baton__quorum_t *quorum); /* `quorum` may be NULL */

/* Resets the quorum after a recovery, because epochs begin with number 1 again.
   `quorum` may be NULL. */
void baton__quorum_recover(baton__quorum_t *quorum);

/* Adds the tree that counts arrivals. Its nodes come after `arrived`, which is
   an on_start node. Returns an optional nop, which fires on the epoch's root
   when as many ranks have arrived as the mode needs. Arrivals are not counted
   in epochs that need all ranks. Must be called before any other activate or
   armed receive is added to the schedule. */
baton_node_t baton__add_quorum(baton__quorum_t *quorum, baton_node_t arrived);

/* ---- begin.c ----------------------------------------------------------- */

/* Allocates a quorum if the mode needs one, or returns BATON_ERR_NO_MEMORY. The
   caller has set `schedule` and `modes`. */
baton_status_t baton__begin_init(baton__begin_t *self);

/* Makes the schedule fail when any rank is lost. By itself a schedule goes on
   if only optional receives, such as those of activations, could get a message
   from the lost rank. Called before the commit. */
void baton__begin_fail_if_lost(baton_schedule_t *schedule);

/* Frees the quorum. Called after the schedule was destroyed. */
void baton__begin_fini(baton__begin_t *self);

/* Adds the nodes that begin an epoch. Returns the node after which the epoch's
   work begins. The caller makes the last node of the epoch come after
   self->activated, too. */
baton_node_t baton__begin_add(baton__begin_t *self);
