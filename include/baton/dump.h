/* A schedule as a picture. */
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

#ifdef __cplusplus
}
#endif
#endif
