/* A valid graph, up to the end of its commit, as bytes that another rank can
   make a graph of: for a simulation without data, in which no node computes
   anything (simulate_graphs.c). */
#ifndef BATON_SIM_PACK_H
#define BATON_SIM_PACK_H

#include "sched/schedule.h"

size_t baton__pack_bytes(const baton_schedule_t *schedule);
void baton__pack(const baton_schedule_t *schedule, char *out);

/* Fills a schedule that was just created; its first error sticks. */
void baton__unpack(baton_schedule_t *schedule, const char *data);

#endif
