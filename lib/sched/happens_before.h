/* Tells whether one node of a graph happens before another in every execution.

   A node with need k of n edges waits for the first k of its predecessors. Node
   u happens before v if at least n - k + 1 of v's predecessors are u or happen
   after u: then any k of them include one of these.

   The general answer takes a walk over all nodes between the two. But most
   questions are about nodes that lie on one path, or are connected by a long
   one. So the nodes are first divided into paths (chains). For each of the
   longest chains a node has a clock: after how many nodes of that chain it
   happens. */
#pragma once

#include "sched/schedule.h"

/* Chains that have a clock. */
enum { BATON__CLOCKS = 8 };

typedef struct baton__happens_before {
    const baton_schedule_t *schedule;
    const baton__order_t *order;
    uint32_t *chain;  /* of each node: its chain */
    uint32_t *tail;   /* of each chain: its last node; later its clock, or
                         BATON__CLOCKS */
    uint32_t *reach;  /* of each node: the last walk that reached it */
    uint32_t walk;    /* number of the last walk */
    uint32_t *stamp;  /* of each node: a node whose predecessor it is */
    uint32_t stamped; /* the node whose predecessors were stamped last */
    uint32_t *clock;  /* of each node, for each clock: 1 + the position of the
                         chain's last node that happens before it; 0 means
                         none */
    uint32_t clocks;
    uint32_t asked_u, asked_v; /* the last question answered by yes */
} baton__happens_before_t;

/* BATON_ERR_NO_MEMORY. Call fini in any case. */
baton_status_t baton__happens_before_init(baton__happens_before_t *self,
                                          const baton_schedule_t *schedule,
                                          const baton__order_t *order);
void baton__happens_before_fini(baton__happens_before_t *self);

/* u must not come after v in the order. */
bool baton__happens_before(baton__happens_before_t *self, uint32_t u,
                           uint32_t v);
