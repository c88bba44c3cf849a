/* The activation tree's nodes, for those that send a word along with it. */
#ifndef BATON_COLL_PARTIAL_ACTIVATION_H
#define BATON_COLL_PARTIAL_ACTIVATION_H

#include <baton/coll.h>

enum { BATON__ACTIVATION_STEPS = 64 };

typedef struct baton__wave {
    int steps;
    int distance[BATON__ACTIVATION_STEPS];          /* in ranks */
    baton_node_t armed[BATON__ACTIVATION_STEPS];    /* from rank - distance */
    baton_node_t activate[BATON__ACTIVATION_STEPS]; /* to rank + distance */
} baton__wave_t;

/* As baton_add_activation. `group` of 0: along the union of binomial trees.
   Else along trees of two levels: the initiator sends to each group-th rank
   from itself on, and these to the group - 1 ranks that follow them; P or more
   means that it sends to all. At most BATON__ACTIVATION_STEPS distances:
   group - 1 + (P - 1) / group. */
baton_node_t baton__add_activation(baton_schedule_t *schedule,
                                   baton_node_t initiate, int group,
                                   baton__wave_t *out);

#endif
