/* Loans: receives whose message a reduction can read in place, so that the
   message's data need not be copied into scratch first.

   A receive and a reduce are a loan if no other node ever reads the data that
   the receive writes:

   - the receive writes scratch, and an edge leads from it to the reduce;
   - the reduce reads the same bytes, of the same length, in one operand;
   - no other node reads any of these bytes before they are written again; and
     no call or async node that may read scratch comes after the receive. By
     baton_set_no_scratch the builder can promise that such a node reads no
     scratch.

   The driver decides whether to lend a message when it takes the message: see
   epoch_receive_lend, progress/epoch/epoch_receive.c. */
#pragma once

#include "sched/schedule.h"

/* Called before commit visits the accesses of all nodes in order (hazard.c).
   Allocates order->loans, one entry for each node, in which the functions below
   note the loans. Leaves it NULL, which means no loans, if the group's
   transport can't lend messages or if messages carry no data (cost-only
   simulations). Returns false if there is no memory. */
bool baton__loans_begin(const baton_schedule_t *schedule,
                        baton__order_t *order);

/* Called while commit visits the accesses, when `reader` reads, as its operand
   `operand`, bytes that `writer` was the last to write. Returns true if the two
   nodes make a loan. If it returns false, another node reads the message's
   data, so the caller must set order->loans[writer].spoiled. */
bool baton__loans_note(const baton_schedule_t *schedule, baton__order_t *order,
                       uint32_t writer, uint32_t reader, uint8_t operand);

/* Called after commit has visited all accesses. Writes the loans of a graph of
   `nodes` nodes to `out`, and returns their number. If `out` is NULL, only
   counts them. */
uint32_t baton__loans_list(const baton__order_t *order, uint32_t nodes,
                           baton__loan_t *out);

/* Writes the loans to plan->loans, sorted by their reduces, and marks both
   nodes of each loan in their records. */
void baton__loans_enter(baton_schedule_t *schedule,
                        const baton__order_t *order);
