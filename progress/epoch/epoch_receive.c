/* How a receive and its message meet, whichever comes first, and how the loss
   of a peer ends its receives and sends.

   Transports move messages, and the engine matches them. A message arrives as
   an event, with the identity of its schedule (name and attempt), its epoch,
   its tag and the group's incarnation. A message of the running epoch is taken
   by its receive when that fires. A message of a later epoch is kept. A message
   of an earlier epoch, or of an earlier incarnation, is dropped. So a message
   meets its own epoch or none, whichever sends or receives one of the two ranks
   has skipped.

   MPI could match by tag. But a posted MPI receive can't be cancelled reliably,
   and a tag says nothing of epochs. Matching in the engine costs one copy of
   each message that comes early and has between 257 bytes and 68 KiB. Only
   receives with BATON__POSTS tell the transport in advance where the data go;
   the transport can take such a post back (withdraw_receive). */
#include "base/error.h"
#include "progress/epoch/epoch.h"
#include "progress/epoch/epoch_parts.h"
#include "progress/state/traced.h"

static const char *peer_text(const baton_schedule_t *schedule,
                             const baton__op_t *op)
{
    return baton__group_rank_text(schedule->group,
                                  baton__peer_of(schedule, op));
}

static void fail_mismatch(baton_schedule_t *schedule, uint32_t node,
                          size_t bytes)
{
    const baton__op_t *op = &schedule->ops[node];
    bool up_to = op->length != BATON__NO_LENGTH;
    baton__epoch_fail_here(
        schedule,
        baton__error(BATON_ERR_MISMATCH,
                     "\"%s\" epoch %llu failed on rank %d: %s from %s, "
                     "tag %u, expects %s%zu bytes and got %zu: the ranks' "
                     "schedules differ (BATON_VERIFY=1 finds where)",
                     schedule->name, (unsigned long long)schedule->run.epoch,
                     schedule->group->rank, baton__node_name(schedule, node),
                     peer_text(schedule, op), op->message.tag,
                     up_to ? "up to " : "", op->bytes, bytes));
}

/* A message shorter than this is copied, because a copy of it costs less than a
   loan (lib/sched/loans.h). */
enum { LEND_BYTES = 1024 };

/* Lends a receive's message to the reduce that follows, which then reads the
   data in place. The message is lent only if that reduce waits for nothing
   else. For the send may not end before the message is dropped, and the sender
   may do what the reduce still waits for only after its send has ended. Returns
   BATON_DONE if the receive is complete, BATON_AGAIN if the message is to be
   accepted instead, or an error. */
static baton_status_t epoch_receive_lend(baton_schedule_t *schedule,
                                         uint32_t node,
                                         baton_message_t *message)
{
    const baton_group_t *group = schedule->group;
    const baton__op_t *op = &schedule->ops[node];
    baton__run_t *run = &schedule->run;
    if (op->message.loan == 0 || message->bytes < LEND_BYTES) {
        return BATON_AGAIN;
    }
    size_t loan = op->message.loan - 1;
    uint32_t reduce = schedule->plan.loans[loan].reduce;
    if (run->left[reduce] != 1 ||
        baton__epoch_element_of(&schedule->ops[reduce]) > BATON__PART_BYTES) {
        return BATON_AGAIN;
    }
    baton_status_t status = group->transport->lend(group->endpoint, message);
    if (status == BATON_DONE) {
        run->lent[loan] = message;
        run->lent_count++;
    }
    return status;
}

baton_status_t baton__epoch_receive_lent(baton_schedule_t *schedule,
                                         uint32_t loan)
{
    const baton_group_t *group = schedule->group;
    baton__task_t *task = baton__task_of(schedule);
    const baton__loan_t *of = &schedule->plan.loans[loan];
    const baton__op_t *reduce = &schedule->ops[of->reduce];
    const uint32_t node = of->receive;
    const baton__op_t *op = &schedule->ops[node];
    baton__run_t *run = &schedule->run;
    const baton_token_t token = {
        .owner = schedule, .node = node, .memory = baton__op_memory(op)};
    baton_message_t *message = run->lent[loan];
    run->lent[loan] = NULL;
    run->lent_count--;
    if (baton__operand(reduce, of->operand, schedule->addresses) ==
        baton__operand(reduce, BATON__TARGET, schedule->addresses)) {
        /* the message overwrites what was reduced, so the reduce begins anew */
        task->slice_done = 0;
    }
    baton_status_t status = group->transport->accept(
        group->endpoint, message, token,
        baton__operand(op, BATON__TARGET, schedule->addresses));
    if (status == BATON_OK) {
        baton__run_enter(run, node, BATON__NODE_MOVING);
        task->moving++;
        task->unlent = node + 1;
    }
    return status == BATON_DONE ? BATON_OK : status;
}

bool baton__epoch_take_message(baton_schedule_t *schedule, uint32_t node,
                               baton_message_t *message)
{
    const baton_group_t *group = schedule->group;
    const baton__op_t *op = &schedule->ops[node];
    size_t bytes = message->bytes;
    bool up_to = op->length != BATON__NO_LENGTH;
    if (up_to ? bytes > op->bytes : bytes != op->bytes) {
        group->transport->drop(group->endpoint, message);
        fail_mismatch(schedule, node, bytes);
        return false;
    }
    if (!baton__epoch_has_memory(schedule, node, bytes)) {
        group->transport->drop(group->endpoint, message);
        return false;
    }
    if (up_to) {
        schedule->run.lengths[op->length] = bytes;
    }
    const baton_token_t token = {
        .owner = schedule, .node = node, .memory = baton__op_memory(op)};
    char *target = baton__operand(op, BATON__TARGET, schedule->addresses);
    baton_status_t status = epoch_receive_lend(schedule, node, message);
    if (status == BATON_AGAIN) {
        status =
            group->transport->accept(group->endpoint, message, token, target);
    }
    switch ((int)status) {
    case BATON_DONE:
        BATON__TRACED(message, schedule, BATON_TRACE_RECEIVED, node, bytes);
        baton__run_complete(&schedule->run, node);
        break;
    case BATON_OK:
        baton__run_enter(&schedule->run, node, BATON__NODE_MOVING);
        baton__task_of(schedule)->moving++;
        break;
    case BATON_ERR_CANCELLED:
        /* The sender's epoch has failed. The sender reports that itself. */
        break;
    default:
        baton__epoch_fail_message(schedule, node, status, NULL);
    }
    return schedule->run.phase == BATON__RUN_RUNNING;
}

bool baton__epoch_is_left_out(const baton_schedule_t *schedule, uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    return (op->flags & BATON__OPTIONAL) == 0 &&
           !schedule->group->transport->unordered &&
           schedule->run.state[node] == BATON__NODE_WAITING &&
           schedule->run.early_count > 0 &&
           schedule->run.early[op->message.ordinal] != NULL;
}

void baton__epoch_fail_left_out(baton_schedule_t *schedule, uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    baton__epoch_fail_here(
        schedule,
        baton__error(
            BATON_ERR_MISMATCH,
            "\"%s\" epoch %llu failed on rank %d: %s waits for a message that "
            "%s has not sent: it is in epoch %llu already (is its send "
            "after a branch that it did not take, and the receive not "
            "optional?)",
            schedule->name, (unsigned long long)schedule->run.epoch,
            schedule->group->rank, baton__node_name(schedule, node),
            peer_text(schedule, op),
            (unsigned long long)schedule->run.early[op->message.ordinal]
                ->header.epoch));
}

void baton__epoch_fail_lost(baton_schedule_t *schedule, uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    const baton_group_t *group = schedule->group;
    const baton__member_t *member = baton__member_of(group);
    char memory[96] = "";
    baton__text_t first = {memory, sizeof memory, 0};
    if (member->first.peer != baton__peer_of(schedule, op)) {
        baton__text_add(&first, ", after %s",
                        baton__group_rank_text(group, member->first.peer));
    }
    (void)baton__error(
        BATON_ERR_TRANSPORT, "%s is gone: %s%s", peer_text(schedule, op),
        baton__group_loss(group, baton__peer_of(schedule, op)), memory);
    baton__epoch_fail_at(schedule, node, BATON_ERR_TRANSPORT);
}

static void fail_message(baton_schedule_t *schedule, uint32_t node,
                         baton_status_t status, const char *why)
{
    const baton__op_t *op = &schedule->ops[node];
    (void)baton__error(status, "%s, tag %u, %zu bytes: %s",
                       peer_text(schedule, op), op->message.tag, op->bytes,
                       why != NULL ? why : baton_status_text(status));
    baton__epoch_fail_at(schedule, node, status);
}

void baton__epoch_fail_message(baton_schedule_t *schedule, uint32_t node,
                               baton_status_t status, const char *why)
{
    assert(baton__driven_here(schedule->group));
    baton__task_t *task = baton__task_of(schedule);
    const int peer = baton__peer_of(schedule, &schedule->ops[node]);
    if (status != BATON_ERR_TRANSPORT) {
        fail_message(schedule, node, status, why);
    } else if (baton__group_loss(schedule->group, peer) != NULL) {
        baton__epoch_fail_lost(schedule, node);
    } else {
        baton__run_enter(&schedule->run, node, BATON__NODE_HELD);
        task->doubted = node + 1;
        task->doubted_detail = why;
        schedule->group->stepper->doubts = true;
        baton__stepper_add_runnable(schedule);
    }
}

void baton__epoch_end_doubts(baton__stepper_t *stepper)
{
    assert(baton__stepper_driven_here(stepper));
    stepper->doubts = false;
    for (baton__task_t *t = stepper->tasks; t != NULL; t = t->next) {
        const uint32_t node = t->doubted;
        const baton__run_t *run = &t->schedule.run;
        t->doubted = 0;
        if (node > 0 && run->phase == BATON__RUN_RUNNING &&
            run->state[node - 1] == BATON__NODE_HELD) {
            fail_message(&t->schedule, node - 1, BATON_ERR_TRANSPORT,
                         t->doubted_detail);
        }
    }
}

void baton__epoch_fail_if_lost(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    const baton_group_t *group = schedule->group;
    const baton__member_t *member = baton__member_of(group);
    if (baton__task_of(schedule)->on_failure != NULL &&
        baton__member_has_lost(member)) {
        baton__epoch_fail_here(
            schedule,
            baton__error(BATON_ERR_TRANSPORT,
                         "\"%.128s\" failed on rank %d: %s is gone: %s",
                         schedule->name, group->rank,
                         baton__group_rank_text(group, member->first.peer),
                         member->first.detail));
    }
}

void baton__epoch_lose(baton_schedule_t *schedule, int peer)
{
    assert(baton__driven_here(schedule->group));
    baton__run_t *run = &schedule->run;
    if (baton__trace_is_on()) {
        baton__traced_forget_time(schedule->group->stepper);
        baton__traced_epoch(schedule, BATON_TRACE_LOST, peer);
    }
    baton__epoch_fail_if_lost(schedule);
    for (uint32_t node = 0;
         node < schedule->count && run->phase == BATON__RUN_RUNNING; node++) {
        const baton__op_t *op = &schedule->ops[node];
        uint8_t state = run->state[node];
        if (!baton__kinds[op->kind].message ||
            baton__peer_of(schedule, op) != peer ||
            (state != BATON__NODE_WAITING && state != BATON__NODE_HELD)) {
            continue;
        }
        /* True if a reduce has begun that borrows the message of this
           receive. */
        const bool begun = baton__task_of(schedule)->unlent == node + 1;
        if ((op->flags & BATON__OPTIONAL) != 0 && !begun) {
            baton__run_enter(&schedule->run, node, BATON__NODE_IDLE);
        } else {
            baton__epoch_fail_lost(schedule, node);
        }
    }
    if (run->phase == BATON__RUN_RUNNING) {
        /* The epoch may be stuck, which the next step finds out. */
        baton__stepper_add_runnable(schedule);
    }
}

/* Tells the sender of a receive's message where to put the data. */
static void epoch_receive_post(const baton_schedule_t *schedule, uint32_t node)
{
    const baton_group_t *group = schedule->group;
    const baton__op_t *op = &schedule->ops[node];
    const baton_header_t header = {.schedule =
                                       baton__task_of(schedule)->identity,
                                   .epoch = schedule->run.epoch,
                                   .tag = op->message.tag,
                                   .incarnation = group->incarnation,
                                   .kind = BATON__MESSAGE_DATA};
    const baton_token_t token = {.owner = (void *)(uintptr_t)schedule,
                                 .node = node};
    char *target = baton__operand(op, BATON__TARGET, schedule->addresses);
    if (schedule->addresses[op->buffer[BATON__TARGET]] != NULL) {
        (void)group->transport->post_receive(group->endpoint, token,
                                             baton__peer_of(schedule, op),
                                             &header, target, op->bytes);
    }
}

bool baton__epoch_fire_receive(baton_schedule_t *schedule, uint32_t node)
{
    assert(baton__driven_here(schedule->group));
    const baton__op_t *op = &schedule->ops[node];
    baton_message_t *message =
        baton__epoch_find_early(&schedule->run, op->message.ordinal);
    if (message == NULL &&
        baton__group_loss(schedule->group, baton__peer_of(schedule, op)) !=
            NULL) {
        if ((op->flags & BATON__OPTIONAL) != 0) {
            /* The receive stays idle, so the epoch does not wait for it. */
            return true;
        }
        baton__epoch_fail_lost(schedule, node);
        return false;
    }
    baton__run_enter(&schedule->run, node, BATON__NODE_WAITING);
    if ((op->flags & BATON__POSTS) != 0) {
        epoch_receive_post(schedule, node);
    }
    if (message != NULL) {
        return baton__epoch_take_message(schedule, node, message);
    }
    if (baton__epoch_is_left_out(schedule, node)) {
        baton__epoch_fail_left_out(schedule, node);
        return false;
    }
    return true;
}

bool baton__epoch_hold_send(baton_schedule_t *schedule, uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    const int peer = baton__peer_of(schedule, op);
    if (baton__group_loss(schedule->group, peer) == NULL) {
        baton__run_enter(&schedule->run, node, BATON__NODE_HELD);
        return true;
    }
    if ((op->flags & BATON__OPTIONAL) != 0) {
        /* the send stays idle, so the epoch does not wait for it */
        return true;
    }
    baton__epoch_fail_lost(schedule, node);
    return false;
}
