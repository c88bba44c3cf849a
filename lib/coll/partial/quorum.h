/* Counting arrivals: one rank, another one in each epoch, learns that enough
   ranks have arrived. */
#ifndef BATON_COLL_PARTIAL_QUORUM_H
#define BATON_COLL_PARTIAL_QUORUM_H

#include "coll/partial/rule.h"

#include <baton/schedule.h>

typedef struct baton__quorum baton__quorum_t;

/* NULL: no memory. Outlives the schedule. */
baton__quorum_t *baton__quorum_create(int rank, int size,
                                      const baton__modes_t *modes);
void baton__quorum_destroy(baton__quorum_t *quorum); /* NULL is allowed */

/* Epochs begin with number 1 again. */
void baton__quorum_recover(baton__quorum_t *quorum);

/* Adds the counting tree behind `arrived`, an on_start. Returns `reached`, an
   optional nop that fires on the epoch's root once as many of the counting
   ranks have arrived as the rule needs; in epochs where it needs all, nothing
   is counted. Before any other activate or armed receive of the
   schedule. */
baton_node_t baton__add_quorum(baton_schedule_t *schedule,
                               baton__quorum_t *quorum, baton_node_t arrived);

/* The node behind which no arrival is worth a message any more. */
void baton__quorum_until(baton__quorum_t *quorum, baton_node_t begun);

#endif
