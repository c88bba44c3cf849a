/* Tells whether one node of a graph happens before another in every execution.

   A node with need k of n edges waits for the first k of its predecessors that
   complete. Node u happens before v if at least n - k + 1 of v's predecessors
   are u or happen after u, because then any k of v's predecessors include one
   of these.

   To answer in general takes a walk over all nodes between u and v in the
   topological order. But most questions are about two nodes that lie on one
   path of the graph, or that a long path connects. So the nodes are first
   divided into paths (chains). For each of the longest chains a node has a
   clock: the last node of that chain that happens before the node. */
#pragma once

#include "sched/schedule.h"

/* The most chains that have a clock. */
enum { BATON__CLOCKS = 8 };

typedef struct baton__happens_before {
    const baton_schedule_t *schedule;
    const baton__order_t *order;
    uint32_t *chain; /* by node: the node's chain */
    /* By chain: the chain's last node; later the number of the chain's clock,
       or BATON__CLOCKS. */
    uint32_t *tail;
    /* By node: the number of the last walk that found that the node happens
       after the node at which the walk began. */
    uint32_t *reach;
    uint32_t walk; /* number of the last walk */
    /* By node: the last node of which this node was marked as a predecessor
       (is_direct in happens_before.c). */
    uint32_t *stamp;
    uint32_t stamped; /* the node whose predecessors were marked last */
    /* By node, for each clock: 1 + the position of the last node of the clock's
       chain that happens before the node; 0: no node of the chain does. */
    uint32_t *clock;
    uint32_t clocks;
    /* The nodes u and v of the last question (baton__happens_before) whose
       answer was yes. */
    uint32_t asked_u, asked_v;
} baton__happens_before_t;

/* Returns BATON_OK or BATON_ERR_NO_MEMORY. In both cases the caller must call
   baton__happens_before_fini. */
baton_status_t baton__happens_before_init(baton__happens_before_t *self,
                                          const baton_schedule_t *schedule,
                                          const baton__order_t *order);
void baton__happens_before_fini(baton__happens_before_t *self);

/* Returns true if u happens before v, or is v. In the topological order u must
   not come after v. */
bool baton__happens_before(baton__happens_before_t *self, uint32_t u,
                           uint32_t v);
