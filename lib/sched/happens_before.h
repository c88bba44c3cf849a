/* Whether one node of a graph happens before another, in every execution.

   With need k of n edges a node waits for some k of its predecessors, whichever
   come first. Node u happens before v when at least n - k + 1 of v's
   predecessors are u, or happen after u: then any k of them include such a
   one.

   The general answer takes a walk over all nodes between the two. Most
   questions are of nodes on one path, or have a long path between them; so
   the nodes are cut into paths first, and of the longest of these each node
   knows after how many of their nodes it happens. */
#pragma once

#include "sched/schedule.h"

/* The paths that nodes know of. */
enum { BATON__CLOCKS = 8 };

typedef struct baton__happens_before {
    const baton_schedule_t *schedule;
    const baton__order_t *order;
    uint32_t *chain; /* of each node: a path that it lies on */
    uint32_t *tail;  /* of each chain; then: its clock, or BATON__CLOCKS */
    uint32_t *reach; /* of each node: the walk that reached it */
    uint32_t walk;
    uint32_t *stamp;  /* of each node: whose predecessor it was found to be */
    uint32_t stamped; /* the last such */
    uint32_t *clock;  /* of each node, for each clock: 1 + the last position on
                         that chain that happens before it; 0 means none */
    uint32_t clocks;
    uint32_t asked_u, asked_v; /* the last question with the answer yes */
} baton__happens_before_t;

/* BATON_ERR_NO_MEMORY; fini in any case. */
baton_status_t baton__happens_before_init(baton__happens_before_t *self,
                                          const baton_schedule_t *schedule,
                                          const baton__order_t *order);
void baton__happens_before_fini(baton__happens_before_t *self);

/* u does not come behind v in the order. */
bool baton__happens_before(baton__happens_before_t *self, uint32_t u,
                           uint32_t v);
