/* The activation tree's nodes, for those that send a word along with it. */
#ifndef BATON_COLL_ACTIVATION_H
#define BATON_COLL_ACTIVATION_H

#include <baton/coll.h>

enum { BATON__ACTIVATION_STEPS = 32 };

typedef struct baton__wave {
    int steps;
    baton_node_t armed[BATON__ACTIVATION_STEPS];    /* from rank - 2^step */
    baton_node_t activate[BATON__ACTIVATION_STEPS]; /* to rank + 2^step */
} baton__wave_t;

/* As baton_add_activation. */
baton_node_t baton__add_activation(baton_schedule_t *schedule,
                                   baton_node_t initiate, baton__wave_t *out);

#endif
