/* Loans; see loans.h. */
#include "sched/loans.h"

#include "base/alloc.h"

#include <stdlib.h>

bool baton__loans_begin(const baton_schedule_t *schedule, baton__order_t *order)
{
    const baton_group_t *group = schedule->group;
    if (group->transport->lend == NULL || group->cost_only) {
        return true;
    }
    order->loans = baton__alloc(schedule->count, sizeof *order->loans);
    if (order->loans == NULL) {
        return false;
    }
    /* Marks all nodes from which a path leads to a function that may read
       scratch. The nodes are visited in reverse topological order, so each node
       is visited after its successors. */
    for (uint32_t i = schedule->count; i-- > 0;) {
        uint32_t node = order->order[i];
        order->loans[node].reduce = BATON__NO_NODE;
        if (!order->loans[node].spoiled &&
            !baton__op_sees_scratch(&schedule->ops[node])) {
            continue;
        }
        for (uint32_t e = order->first[node]; e < order->first[node + 1]; e++) {
            order->loans[order->preds[e]].spoiled = true;
        }
    }
    return true;
}

static bool has_edge(const baton__order_t *order, uint32_t from, uint32_t to)
{
    for (uint32_t e = order->first[to]; e < order->first[to + 1]; e++) {
        if (order->preds[e] == from) {
            return true;
        }
    }
    return false;
}

/* `writer` was the last node to write each of the bytes that `reader` reads. So
   if both views have the same size, they are the same bytes. */
bool baton__loans_note(const baton_schedule_t *schedule, baton__order_t *order,
                       uint32_t writer, uint32_t reader, uint8_t operand)
{
    const baton__op_t *from = &schedule->ops[writer];
    const baton__op_t *to = &schedule->ops[reader];
    baton__lending_t *loan = &order->loans[writer];
    if (from->kind != BATON__RECV || to->kind != BATON__REDUCE ||
        (to->flags & BATON__ON_DEVICE) != 0 || to->bytes != from->bytes ||
        to->length != from->length || loan->reduce != BATON__NO_NODE ||
        !has_edge(order, writer, reader)) {
        return false;
    }
    loan->reduce = reader;
    loan->operand = operand;
    return true;
}

static int compare_loans(const void *a, const void *b)
{
    const baton__loan_t *left = a;
    const baton__loan_t *right = b;
    if (left->reduce != right->reduce) {
        return left->reduce < right->reduce ? -1 : 1;
    }
    return (int)left->operand - (int)right->operand;
}

uint32_t baton__loans_list(const baton__order_t *order, uint32_t nodes,
                           baton__loan_t *out)
{
    uint32_t count = 0;
    for (uint32_t node = 0; node < nodes && order->loans != NULL; node++) {
        const baton__lending_t *loan = &order->loans[node];
        if (loan->spoiled || loan->reduce == BATON__NO_NODE) {
            continue;
        }
        if (out != NULL) {
            out[count] = (baton__loan_t){.receive = node,
                                         .reduce = loan->reduce,
                                         .operand = loan->operand};
        }
        count++;
    }
    return count;
}

void baton__loans_enter(baton_schedule_t *schedule, const baton__order_t *order)
{
    const baton__plan_t *plan = &schedule->plan;
    if (plan->loan_count > 0) {
        (void)baton__loans_list(order, schedule->count, plan->loans);
        qsort(plan->loans, plan->loan_count, sizeof *plan->loans,
              compare_loans);
    }
    for (uint32_t i = 0; i < plan->count && order->loans != NULL; i++) {
        bool made = order->loans[i].made;
        schedule->ops[i].flags |= made ? BATON__MADE : 0;
    }
    for (uint32_t i = 0; i < plan->loan_count; i++) {
        const baton__loan_t *loan = &plan->loans[i];
        schedule->ops[loan->receive].message.loan = i + 1;
        schedule->ops[loan->reduce].flags |= BATON__BORROWS;
    }
}
