/* Basic operations on an epoch's state: its start on this rank, messages that
   came early, messages that are lent to a reduce, and async nodes. None of them
   fails the epoch. */
#include "progress/epoch/epoch.h"

#include "base/alloc.h"
#include "progress/epoch/arrivals.h"
#include "progress/epoch/epoch_parts.h"
#include "progress/state/traced.h"

void baton__epoch_come(baton_schedule_t *schedule)
{
    BATON__TRACED(come, schedule);
    baton__arrivals_come(baton__task_of(schedule));
    baton__run_started(&schedule->run);
}

/* ---- early messages ------------------------------------------------------ */

baton_message_t *baton__epoch_find_early(baton__run_t *run, uint32_t ordinal)
{
    if (run->early_count == 0) {
        return NULL;
    }
    baton_message_t **link = &run->early[ordinal];
    baton_message_t *message = *link;
    if (message == NULL || message->header.epoch != run->epoch) {
        return NULL;
    }
    *link = message->next;
    run->early_count--;
    return message;
}

bool baton__epoch_keep_early(baton__run_t *run, uint32_t ordinal,
                             baton_message_t *message)
{
    if (run->early == NULL &&
        (run->early = baton__alloc(run->plan->receive_count,
                                   sizeof *run->early)) == NULL) {
        return false;
    }
    baton_message_t **link = &run->early[ordinal];
    while (*link != NULL && (*link)->header.epoch <= message->header.epoch) {
        link = &(*link)->next;
    }
    message->next = *link;
    *link = message;
    run->early_count++;
    return true;
}

void baton__epoch_drop_up_to(baton_schedule_t *schedule, uint64_t epoch)
{
    assert(baton__driven_here(schedule->group));
    baton__run_t *run = &schedule->run;
    const baton_group_t *group = schedule->group;
    for (uint32_t i = 0; i < schedule->plan.receive_count && run->early_count;
         i++) {
        baton_message_t **link = &run->early[i];
        while (*link != NULL && (*link)->header.epoch <= epoch) {
            baton_message_t *message = *link;
            *link = message->next;
            run->early_count--;
            group->transport->drop(group->endpoint, message);
        }
    }
}

/* ---- loans --------------------------------------------------------------- */

uint32_t baton__epoch_first_loan(const baton__plan_t *plan, uint32_t reduce)
{
    uint32_t low = 0;
    uint32_t high = plan->loan_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->loans[middle].reduce < reduce) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void epoch_state_return_loan(baton_schedule_t *schedule, uint32_t loan)
{
    baton_message_t *message = schedule->run.lent[loan];
    if (message != NULL) {
        const baton_group_t *group = schedule->group;
        schedule->run.lent[loan] = NULL;
        schedule->run.lent_count--;
        group->transport->drop(group->endpoint, message);
    }
}

void baton__epoch_return_loans(baton_schedule_t *schedule, uint32_t reduce)
{
    const baton__plan_t *plan = &schedule->plan;
    for (uint32_t i = baton__epoch_first_loan(plan, reduce);
         i < plan->loan_count && plan->loans[i].reduce == reduce; i++) {
        epoch_state_return_loan(schedule, i);
    }
}

void baton__epoch_return_all_loans(baton_schedule_t *schedule)
{
    for (uint32_t i = 0; schedule->run.lent_count > 0; i++) {
        epoch_state_return_loan(schedule, i);
    }
}

/* ---- async nodes --------------------------------------------------------- */

bool baton__epoch_is_open(const baton_schedule_t *schedule, uint32_t node)
{
    const baton__async_t *async =
        &schedule->run.asyncs[schedule->ops[node].async.ordinal];
    return baton__async_what(atomic_load_explicit(
               &async->state, memory_order_relaxed)) == BATON__ASYNC_BEGUN;
}
