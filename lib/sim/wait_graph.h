/* The wait-for graph, built after a simulation has come to a standstill. A node
   is a message that is awaited. The edge from a message leads to its other end
   on another rank, and from there back along that rank's DAG to the message
   that blocks it. So each node has at most one edge, and a path ends in a
   cycle, or at a rank that can be blamed.

       rank 0   recv#0 ------waits for-----> send#1   rank 1
                  ^                            |
              comes after                 comes after
                  |                            v
                send#1 <-----waits for----- recv#0

   The graph is not stored: an edge is computed when it is followed. So a
   deadlock of any number of ranks can be explained without memory. */
#pragma once

#include "sim/sim.h"

/* A node of the graph. */
typedef struct baton__sim_wait_node {
    const baton_schedule_t *schedule;
    uint32_t node;
} baton__sim_wait_node_t;

typedef struct baton__sim_wait_edge {
    baton__sim_wait_node_t from;
    /* The schedule of the other end; NULL if the other end no longer exists. */
    const baton_schedule_t *peer;
    uint32_t other; /* the other end, a node of `peer` */
    /* The node of `peer` that has to complete: `other`; or, if an earlier epoch
       is still running on the peer, a node that the earlier epoch waits for. */
    uint32_t blocked;
    /* The unfinished node of `peer` after which `blocked` comes. It is the end
       of the edge. */
    uint32_t node;
    /* A node on the way from `blocked` to `node` that needs only k of its n
       predecessors, or BATON__NO_NODE. */
    uint32_t choice;
    /* `node` is itself an awaited message, so the path goes on from it. */
    bool continues;
} baton__sim_wait_edge_t;

/* Returns the edge from an epoch to the message of its own rank for which it
   waits. The fields `from` and `other` are not set. */
baton__sim_wait_edge_t baton__sim_wait_begin(const baton_sim_t *sim,
                                             const baton_schedule_t *schedule);

/* Returns the edge from a node. */
baton__sim_wait_edge_t baton__sim_wait_edge(const baton_sim_t *sim,
                                            baton__sim_wait_node_t from);

/* Returns the node that an edge leads to. */
static inline baton__sim_wait_node_t
baton__sim_wait_target(const baton__sim_wait_edge_t *edge)
{
    return (baton__sim_wait_node_t){edge->peer, edge->node};
}

/* Follows the path from *first. If it leads into a cycle, returns true, sets
   *first to the node at which the cycle begins, and *count to the number of the
   cycle's edges. Otherwise returns false, and *count is the number of edges up
   to the end of the path. */
bool baton__sim_wait_find_cycle(const baton_sim_t *sim,
                                baton__sim_wait_node_t *first, size_t *count);

/* Returns an unfinished predecessor of a node that has not fired: an awaited
   message if there is one, and an armed receive only if there is no other.
   Returns BATON__NO_NODE if there is none. *edges_out is the node's number of
   predecessors. */
uint32_t baton__sim_wait_predecessor(const baton_schedule_t *schedule,
                                     uint32_t node, uint32_t *edges_out);

/* Returns a predecessor of the node that has skipped in this epoch, and so does
   not let the node fire. Returns BATON__NO_NODE if there is none. */
uint32_t baton__sim_wait_find_skip(const baton_schedule_t *schedule,
                                   uint32_t node);
