/* Simulates one epoch of the packed graphs of all ranks.

   A call node does nothing and succeeds, so that all branches are taken and
   every rank that an election could choose is chosen.

   One timing is enough: an edge once satisfied stays satisfied, so a node that
   can fire in one order fires in every order. The simulation can't detect one
   kind of error: an epoch that needs an optional node, but may end before that
   node has fired. */
#pragma once

#include <baton/baton.h>

enum { BATON__SIM_GRAPH_NAME = 64 };

/* baton__pack turns a valid graph, at the end of its commit, into bytes, from
   which another rank can make a graph again. That graph is for a simulation
   without data, in which no node computes anything. baton__unpack fills a
   schedule that was just created. If it fails, the schedule keeps its first
   error. */
size_t baton__pack_bytes(const baton_schedule_t *schedule);
void baton__pack(const baton_schedule_t *schedule, char *out);
void baton__unpack(baton_schedule_t *schedule, const char *data);

/* One rank's graph. */
typedef struct baton__sim_packed_graph {
    char name[BATON__SIM_GRAPH_NAME];
    size_t bytes;
    char *data; /* the bytes that baton__pack has made */
} baton__sim_packed_graph_t;

/* Simulates the graphs, which are ordered by rank. BATON_ERR_MISMATCH and
   BATON_ERR_DEADLOCK come with an explanation. Also returns
   BATON_ERR_NO_MEMORY. */
baton_status_t baton__sim_simulate_graphs(baton__sim_packed_graph_t *graphs,
                                          int ranks);
