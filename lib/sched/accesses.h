/* What the nodes of a graph read and write, in an order in which they may run:
   for checks that follow who wrote the bytes that a node touches.

   Each space, memory that buffers share (alias.c), is cut into segments at the
   ends of its views; an access covers whole segments.

       view of recv#0     |---------------|
       view of reduce#1           |---------------|
       segments           |   0   |   1   |   2   |                           */
#ifndef BATON_SCHED_ACCESSES_H
#define BATON_SCHED_ACCESSES_H

#include "sched/schedule.h"

typedef struct baton__access {
    uint32_t space; /* of its buffer; offsets are within it */
    uint32_t buffer;
    uint32_t position; /* of its node in the order */
    uint8_t operand;   /* of its node */
    bool write;
    size_t begin, end;
} baton__access_t;

typedef struct baton__accesses {
    baton__access_t *all; /* by space, then in the order of the nodes; a node's
                             reads come before its write */
    size_t count;
    size_t *cuts; /* of the present space, ascending */
    size_t cut_count;
} baton__accesses_t;

/* Lists the accesses of all nodes; empty views touch nothing. There are at most
   twice as many segments in a space as accesses. False without memory; fini is
   to be called in either case. */
bool baton__accesses_init(baton__accesses_t *self,
                          const baton_schedule_t *schedule,
                          const baton__order_t *order);
void baton__accesses_fini(baton__accesses_t *self);

/* Cuts the space of the access at `first`; returns where the accesses of the
   next space begin. */
size_t baton__accesses_cut(baton__accesses_t *self, size_t first);

/* Where a byte of the present space, the begin or the end of a view, is among
   the cuts. An access covers the segments from its begin's up to its end's. */
size_t baton__accesses_find(const baton__accesses_t *self, size_t byte);

#endif
