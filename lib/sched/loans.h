/* Loans: receives whose message one reduction can read where it lies, so that
   its data need not be copied into scratch first.

   A receive and a reduce are a loan when the reduce is the only node that ever
   sees what the receive writes:

   - the receive writes scratch, and an edge leads from it to the reduce;
   - the reduce reads the same bytes, of the same length, in one operand;
   - no other node reads any of them before they are written again; and no call
     or async node comes behind the receive, which may look at scratch, unless
     the builder has said that it does not (baton_set_no_scratch).

   Whether a message is lent is decided when it is taken: see lend(),
   epoch_receive.c.
 */
#ifndef BATON_SCHED_LOANS_H
#define BATON_SCHED_LOANS_H

#include "sched/schedule.h"

/* Finds the loans of a valid graph without hazards, in the order of the
   reduces. The caller frees them. NULL without memory. */
baton__loan_t *baton__loans_find(const baton_schedule_t *schedule,
                                 const baton__order_t *order,
                                 uint32_t *count_out);

/* Enters the plan's loans in the records of their nodes. */
void baton__loans_enter(baton_schedule_t *schedule);

#endif
