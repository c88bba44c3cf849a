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
#pragma once

#include "sched/schedule.h"

/* Before the walk over what nodes read (hazard.c): makes order->loans, unless
   messages are not lent. False without memory. */
bool baton__loans_begin(const baton_schedule_t *schedule,
                        baton__order_t *order);

/* A node reads what `writer` alone has written last. True if that makes a loan;
   else none of the bytes is lent. */
bool baton__loans_note(const baton_schedule_t *schedule, baton__order_t *order,
                       uint32_t writer, uint32_t reader, uint8_t operand);

/* After it: lists the loans of `nodes` nodes, and returns how many there are;
   with out == NULL it only counts. */
uint32_t baton__loans_list(const baton__order_t *order, uint32_t nodes,
                           baton__loan_t *out);

/* Makes the plan's list, in the order of the reduces, and enters it in the
   records of the nodes. */
void baton__loans_enter(baton_schedule_t *schedule,
                        const baton__order_t *order);
