/* The wait-for graph, once nothing can happen any more. Its nodes are messages
   that are awaited. The edge from a message leads to its other end on another
   rank, and from there back along that rank's DAG to the message that blocks
   it. So each node has one edge at most, and a path ends in a cycle or at a
   rank that can be blamed.

       rank 0   recv#0 ------waits for-----> send#1   rank 1
                  ^                            |
              is behind                    is behind
                  |                            v
                send#1 <-----waits for----- recv#0

   Nothing is allocated, so that any number of ranks can be explained. */
#pragma once

#include "sim/sim.h"

/* A node of the graph. */
typedef struct baton__sim_wait_node {
    const baton_schedule_t *schedule;
    uint32_t node;
} baton__sim_wait_node_t;

typedef struct baton__sim_wait_edge {
    baton__sim_wait_node_t from;
    const baton_schedule_t *peer; /* NULL when there is no other end any more */
    uint32_t other;               /* the other end, a node of `peer` */
    uint32_t blocked; /* of `peer`: `other`, or what an earlier epoch that still
                         runs there waits for */
    uint32_t node;    /* of `peer`: what `blocked` is behind */
    uint32_t choice;  /* a node in between that needs k of n predecessors, or
                         BATON__NO_NODE */
    bool continues;   /* `node` is an awaited message: a node of the graph */
} baton__sim_wait_edge_t;

/* The edge from an epoch to what it waits for on its own rank; `from` and
   `other` are not set. */
baton__sim_wait_edge_t baton__sim_wait_begin(const baton_sim_t *sim,
                                             const baton_schedule_t *schedule);

/* The edge from a node. */
baton__sim_wait_edge_t baton__sim_wait_edge(const baton_sim_t *sim,
                                            baton__sim_wait_node_t from);

/* The node that an edge leads to. */
static inline baton__sim_wait_node_t
baton__sim_wait_target(const baton__sim_wait_edge_t *edge)
{
    return (baton__sim_wait_node_t){edge->peer, edge->node};
}

/* Follows the path from *first. True if it has a cycle: *first is then a node
   at which the cycle begins, and *count its number of edges. Otherwise *count
   edges lead to the end of the path. */
bool baton__sim_wait_find_cycle(const baton_sim_t *sim,
                                baton__sim_wait_node_t *first, size_t *count);

/* The predecessor that a node that has not fired waits for: an awaited message
   if there is one, an armed receive only if there is nothing else, or
   BATON__NO_NODE. *edges_out is how many predecessors it has. */
uint32_t baton__sim_wait_predecessor(const baton_schedule_t *schedule,
                                     uint32_t node, uint32_t *edges_out);

/* A call node that has completed without satisfying this node, or
   BATON__NO_NODE. */
uint32_t baton__sim_wait_find_skip(const baton_schedule_t *schedule,
                                   uint32_t node);
