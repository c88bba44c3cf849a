/* BATON_VERIFY=1: a commit is one for all ranks. It succeeds on all of them or
   fails on all of them, with the same sentence.

   Each rank tells rank 0 of its graph, rank 0 simulates an epoch of all of
   them, and tells everybody what came of it:

       report    status of its own checks, size of its graph -->  rank 0
       answer    <-- a verdict, or how many rounds to go on       rank 0
       rounds    its graph, block by block ------------------->   rank 0
       answer    <----------------------------- the verdict       rank 0

   What carries this is two schedules that are made with the group: an epoch
   allocates nothing, so a rank that has no memory left can still say so, and
   nobody waits for it. What can still be: that a rank never commits, or dies
   where the transport can't tell; that one has BATON_VERIFY set and another
   does not; and that after the verdict a transport refuses to post an armed
   receive on one rank alone. */
#ifndef BATON_SIM_VERIFY_H
#define BATON_SIM_VERIFY_H

#include "progress/engine.h"

extern const baton__verification_t baton__verification;

/* ---- rank 0 ----------------------------------------------------------- */

enum { BATON__DRAFT_NAME = 64 };

/* A rank's graph. */
typedef struct baton__draft {
    char name[BATON__DRAFT_NAME];
    size_t bytes;
    char *data; /* see baton__pack */
} baton__draft_t;

/* Whether there is memory for so many bytes of graphs, and their simulation. */
baton_status_t baton__judge_admits(double bytes, int ranks);

/* BATON_ERR_MISMATCH, BATON_ERR_DEADLOCK with the sentence why, or
   BATON_ERR_NO_MEMORY. The drafts are by rank. */
baton_status_t baton__judge(baton__draft_t *drafts, int ranks);

#endif
