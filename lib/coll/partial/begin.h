/* How the epochs of a partial collective begin: the modes, as nodes.

   A rank that has started an epoch works on it at once, as in a synchronous
   all-reduce: its contribution is with the peers by the time that the epoch is
   activated. The epoch ends behind the activation. Only with CANDIDATES_ANY
   does work begin with the activation: of two trees of messages one may cut the
   other where a rank has ended the epoch, so the epoch must end nowhere before
   all ranks were activated. */
#pragma once

#include "coll/partial/rule.h"

#include <baton/build.h>

/* The number of a call's epoch, by which it has its mode. */
static inline uint64_t baton__epoch_of(const baton__modes_t *modes,
                                       const baton_call_t *call)
{
    return modes->base + baton_call_epoch(call);
}

/* ---- activation.c: the nodes of its tree ------------------------------- */

enum { BATON__ACTIVATION_STEPS = 64 };

/* As baton_add_activation. `group` of 0: along the union of binomial trees.
   Else along trees of two levels: the initiator sends to each group-th rank
   from itself on, and these to the group - 1 ranks that follow them; P or more
   means that it sends to all. At most BATON__ACTIVATION_STEPS distances:
   group - 1 + (P - 1) / group. */
baton_node_t baton__add_activation(baton_schedule_t *schedule,
                                   baton_node_t initiate, int group);

typedef struct baton__quorum baton__quorum_t;

/* The driver's, once the schedule is committed. */
typedef struct baton__begin {
    baton_schedule_t *schedule;
    baton__modes_t modes;

    baton_node_t start;   /* the on_start */
    baton_node_t reached; /* the activation's begin; not where FULL alone is */
    baton_node_t activated;  /* behind which the epoch may end */
    baton__quorum_t *quorum; /* NULL where nothing is counted */
} baton__begin_t;

/* ---- quorum.c: one rank learns that enough ranks have arrived ----------- */

/* NULL: no memory. Outlives the schedule, and `begin` outlives it, whose
   `reached` is the node behind which no arrival is worth a message any more. */
baton__quorum_t *baton__quorum_create(const baton__begin_t *begin);
void baton__quorum_destroy(baton__quorum_t *quorum); /* NULL is allowed */

/* Epochs begin with number 1 again. NULL is allowed. */
void baton__quorum_recover(baton__quorum_t *quorum);

/* Adds the counting tree behind `arrived`, an on_start. Returns `reached`, an
   optional nop that fires on the epoch's root once as many of the counting
   ranks have arrived as the rule needs; in epochs where it needs all, nothing
   is counted. Before any other activate or armed receive of the
   schedule. */
baton_node_t baton__add_quorum(baton__quorum_t *quorum, baton_node_t arrived);

/* ---- begin.c ----------------------------------------------------------- */

/* Allocates what the mode needs; the fields down to `modes` are set.
   BATON_ERR_NO_MEMORY. */
baton_status_t baton__begin_init(baton__begin_t *self);

/* Before the commit: from then on the schedule fails when any rank is lost,
   also where only receives that are optional could come of it: what activates.
 */
void baton__begin_fail_if_lost(baton_schedule_t *schedule);

/* After the schedule was destroyed. */
void baton__begin_fini(baton__begin_t *self);

/* Adds what begins an epoch; returns the node behind which it works. The node
   with which it ends goes behind self->activated, too. */
baton_node_t baton__begin_add(baton__begin_t *self);
