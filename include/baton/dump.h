/* A schedule as text: to look at, and for other tools. */
#ifndef BATON_DUMP_H
#define BATON_DUMP_H

#include <baton/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the next piece of text; zero-terminated, valid during the call. */
typedef void (*baton_write_fn)(void *arg, const char *text);

/* The DAG of this rank in Graphviz's language, committed or not, valid or not:
   a node for each node, with kind, number, peer, bytes and length; need k of n
   where it is not ALL; optional nodes are dashed. The same DAG gives the same
   text. BATON_ERR_INVALID (no `write`), BATON_ERR_NO_MEMORY. */
BATON_CHECKED baton_status_t baton_schedule_dot(
    const baton_schedule_t *schedule, baton_write_fn write, void *arg);

/* One rank's block in GOAL, the language of LogGOPSim (Hoefler, Siebert,
   Lumsdaine 2009/2010): send, recv, calc, requires; a reduction is a calc of
   gamma_ns a byte, in ns, everything else that is no message a calc of 0. A
   whole file is the line "num_ranks P" and the blocks of all ranks, in order.
   Operation lK is node K. GOAL has no empty messages: they get 1 byte, which
   costs nothing there. It knows no optional nodes either: it waits for all; and
   no lengths that are set in the epoch: nodes have the size of their views.

   Committed schedules only (tags): BATON_ERR_STATE. GOAL has dependencies of
   all, not of any or k: BATON_ERR_UNSUPPORTED names the node, likewise for
   armed receives and activates. BATON_ERR_INVALID (gamma_ns is not in 0..1e9,
   no `write`), BATON_ERR_NO_MEMORY. On an error nothing was written. */
BATON_CHECKED baton_status_t
baton_schedule_goal(const baton_schedule_t *schedule, double gamma_ns,
                    baton_write_fn write, void *arg);

#ifdef __cplusplus
}
#endif
#endif
