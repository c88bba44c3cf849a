/* How the epochs of a partial collective begin: the modes, as nodes.

   A rank that has started an epoch works on it at once, as in a synchronous
   all-reduce, so that its contribution is with the peers when the epoch is
   activated. The epoch ends after the activation. Only with CANDIDATES_ANY does
   work begin with the activation. There several ranks may activate the epoch,
   and one tree of messages may cut another where a rank has ended the epoch; so
   no rank may end it before all ranks were activated. */
#pragma once

#include "coll/partial/rule.h"

#include <baton/build.h>

/* Returns the number of a call's epoch, on which its mode depends. */
static inline uint64_t baton__epoch_of(const baton__modes_t *modes,
                                       const baton_call_t *call)
{
    return modes->base + baton_call_epoch(call);
}

/* ---- activation.c: the nodes of its tree ------------------------------- */

enum { BATON__ACTIVATION_STEPS = 64 };

/* Does what baton_add_activation does, along trees that `group` chooses. 0: the
   union of binomial trees. Otherwise there are trees of two levels: the
   initiator sends to each group-th rank from itself on, and these ranks send to
   the group - 1 ranks that follow them; if `group` is P or more, the initiator
   sends to all ranks. There are group - 1 + (P - 1) / group distances, which
   must be at most BATON__ACTIVATION_STEPS. */
baton_node_t baton__add_activation(baton_schedule_t *schedule,
                                   baton_node_t initiate, int group);

typedef struct baton__quorum baton__quorum_t;

/* How the epochs of a schedule begin. The driver uses this once the schedule is
   committed. */
typedef struct baton__begin {
    baton_schedule_t *schedule;
    baton__modes_t modes;

    baton_node_t start;      /* the on_start node */
    baton_node_t reached;    /* fires on activation; unset in mode FULL */
    baton_node_t activated;  /* after this node the epoch may end */
    baton__quorum_t *quorum; /* NULL: nothing is counted */
} baton__begin_t;

/* ---- quorum.c: one rank learns that enough ranks have arrived ----------- */

/* Returns NULL if there is no memory. Lifetimes: the schedule ends before the
   quorum, the quorum before `begin`. begin->reached is the node after which
   arrivals are not reported any more. */
baton__quorum_t *baton__quorum_create(const baton__begin_t *begin);
void baton__quorum_destroy(baton__quorum_t *quorum); /* NULL is allowed */

/* Called after a recovery, because epochs begin with number 1 again. `quorum`
   may be NULL. */
void baton__quorum_recover(baton__quorum_t *quorum);

/* Adds the counting tree after `arrived`, an on_start. Returns an optional nop
   that fires on the epoch's root when as many of the counting ranks have
   arrived as the rule needs. In epochs that need all ranks nothing is counted.
   Called before any other activate or armed receive is added to the schedule.
 */
baton_node_t baton__add_quorum(baton__quorum_t *quorum, baton_node_t arrived);

/* ---- begin.c ----------------------------------------------------------- */

/* Allocates a quorum if the mode needs one. The caller has set the fields down
   to `modes`. Returns BATON_ERR_NO_MEMORY if it fails. */
baton_status_t baton__begin_init(baton__begin_t *self);

/* Called before the commit: makes the schedule fail if any rank is lost, even a
   rank from which only optional receives could get anything, such as an
   activation. */
void baton__begin_fail_if_lost(baton_schedule_t *schedule);

/* Called after the schedule was destroyed. */
void baton__begin_fini(baton__begin_t *self);

/* Adds the nodes that begin an epoch, and returns the node after which the
   epoch's work begins. The last node of the epoch must also come after
   self->activated. */
baton_node_t baton__begin_add(baton__begin_t *self);
