/* What arrives for an epoch: messages, and the ends of sends; see epoch.h. */
#include "progress/epoch_parts.h"

#include "base/error.h"

#include <string.h>

static void fail_mismatch(baton__stepper_t *stepper, baton_schedule_t *schedule,
                          uint32_t node, size_t bytes)
{
    const baton__op_t *op = &schedule->ops[node];
    bool up_to = op->length != BATON__NO_LENGTH;
    baton__epoch_fail_here(
        stepper, schedule,
        baton__error(BATON_ERR_MISMATCH,
                     "\"%s\" epoch %llu failed on rank %d: %s from rank %d, "
                     "tag %u, expects %s%zu bytes and got %zu: the ranks' "
                     "schedules differ (BATON_VERIFY=1 finds where)",
                     schedule->name, (unsigned long long)schedule->run.epoch,
                     schedule->group->rank, baton__node_name(schedule, node),
                     (int)op->peer, op->message.tag, up_to ? "up to " : "",
                     op->bytes, bytes));
}

/* A receive that waits takes its message: false when that failed the epoch. */
static bool take_message(baton__stepper_t *stepper, baton_schedule_t *schedule,
                         uint32_t node, baton_message_t *message)
{
    const baton_group_t *group = schedule->group;
    const baton__op_t *op = &schedule->ops[node];
    size_t bytes = message->bytes;
    bool up_to = op->length != BATON__NO_LENGTH;
    if (up_to ? bytes > op->bytes : bytes != op->bytes) {
        group->transport->drop(group->endpoint, message);
        fail_mismatch(stepper, schedule, node, bytes);
        return false;
    }
    if (!baton__epoch_has_memory(stepper, schedule, node, bytes)) {
        group->transport->drop(group->endpoint, message);
        return false;
    }
    if (up_to) {
        schedule->run.lengths[op->length] = bytes;
    }
    const baton_token_t token = {schedule, node};
    char *target = baton__operand(op, BATON__TARGET, schedule->addresses);
    baton_status_t status =
        group->transport->accept(group->endpoint, message, token, target);
    switch ((int)status) {
    case BATON_DONE:
        baton__epoch_complete(stepper, schedule, node);
        break;
    case BATON_OK:
        baton__epoch_enter(stepper, schedule, node, BATON__NODE_MOVING);
        schedule->turn.moving++;
        break;
    case BATON_ERR_CANCELLED:
        break; /* its sender's epoch has failed, and we will hear of that */
    default:
        (void)baton__error(status,
                           "the %s transport could not take a message of %zu "
                           "bytes from rank %d: %s",
                           group->transport->name, bytes, (int)op->peer,
                           baton_status_text(status));
        baton__epoch_fail_at(stepper, schedule, node, status);
        return false;
    }
    return true;
}

/* The message of the running epoch that came before its receive's turn. */
baton_message_t *baton__epoch_find_early(baton__run_t *run, uint32_t ordinal)
{
    baton_message_t **link = &run->early[ordinal];
    baton_message_t *message = *link;
    if (message == NULL || message->header.epoch != run->epoch) {
        return NULL;
    }
    *link = message->next;
    run->early_count--;
    return message;
}

/* Messages for a receive that is not their turn, in the order of epochs. */
static void keep_early(baton__run_t *run, uint32_t ordinal,
                       baton_message_t *message)
{
    baton_message_t **link = &run->early[ordinal];
    while (*link != NULL && (*link)->header.epoch <= message->header.epoch) {
        link = &(*link)->next;
    }
    message->next = *link;
    *link = message;
    run->early_count++;
}

void baton__epoch_drop_early(baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    const baton_group_t *group = schedule->group;
    for (uint32_t i = 0; i < schedule->plan.receive_count && run->early_count;
         i++) {
        while (run->early[i] != NULL) {
            baton_message_t *message = run->early[i];
            run->early[i] = message->next;
            run->early_count--;
            group->transport->drop(group->endpoint, message);
        }
    }
}

/* A receive that the epoch waits for gets a message of a later epoch: the peer
   has ended the running one without its send, which a branch left out. */
static bool is_left_out(const baton_schedule_t *schedule, uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    return (op->flags & BATON__OPTIONAL) == 0 &&
           !schedule->group->transport->unordered &&
           schedule->run.state[node] == BATON__NODE_WAITING &&
           schedule->run.early[op->message.ordinal] != NULL;
}

static void fail_left_out(baton__stepper_t *stepper, baton_schedule_t *schedule,
                          uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    baton__epoch_fail_here(
        stepper, schedule,
        baton__error(
            BATON_ERR_MISMATCH,
            "\"%s\" epoch %llu failed on rank %d: %s waits for a message that "
            "rank %d has not sent: it is in epoch %llu already (is its send "
            "behind a branch that it did not take, and the receive not "
            "optional?)",
            schedule->name, (unsigned long long)schedule->run.epoch,
            schedule->group->rank, baton__node_name(schedule, node),
            (int)op->peer,
            (unsigned long long)schedule->run.early[op->message.ordinal]
                ->header.epoch));
}

static void fail_lost(baton__stepper_t *stepper, baton_schedule_t *schedule,
                      uint32_t node, baton_status_t status, const char *detail)
{
    const baton__op_t *op = &schedule->ops[node];
    (void)baton__error(status, "rank %d is gone: %s", (int)op->peer,
                       detail != NULL ? detail : baton_status_text(status));
    baton__epoch_fail_at(stepper, schedule, node, status);
}

/* The peer has not committed the schedule yet; or, lost, never will. */
bool baton__epoch_hold_send(baton__stepper_t *stepper,
                            baton_schedule_t *schedule, uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    if (!baton__group_has_lost(schedule->group, (int)op->peer)) {
        baton__epoch_enter(stepper, schedule, node, BATON__NODE_HELD);
        return true;
    }
    if ((op->flags & BATON__OPTIONAL) != 0) {
        return true; /* as if it did not fire */
    }
    fail_lost(stepper, schedule, node, BATON_ERR_TRANSPORT, NULL);
    return false;
}

bool baton__epoch_fire_receive(baton__stepper_t *stepper,
                               baton_schedule_t *schedule, uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    baton_message_t *message =
        baton__epoch_find_early(&schedule->run, op->message.ordinal);
    if (message == NULL &&
        baton__group_has_lost(schedule->group, (int)op->peer)) {
        if ((op->flags & BATON__OPTIONAL) != 0) {
            return true; /* as if it never came */
        }
        fail_lost(stepper, schedule, node, BATON_ERR_TRANSPORT, NULL);
        return false;
    }
    baton__epoch_enter(stepper, schedule, node, BATON__NODE_WAITING);
    if (message != NULL) {
        return take_message(stepper, schedule, node, message);
    }
    if (is_left_out(schedule, node)) {
        fail_left_out(stepper, schedule, node);
        return false;
    }
    return true;
}

void baton__epoch_activate(baton_schedule_t *schedule, uint32_t node,
                           baton_message_t *message)
{
    const baton_group_t *group = schedule->group;
    const baton_token_t token = {schedule, node};
    baton__activation_t activation = {0};
    if (message->bytes != sizeof activation) {
        group->transport->drop(group->endpoint, message); /* of no Baton */
    } else if (group->transport->accept(group->endpoint, message, token,
                                        &activation) == BATON_DONE) {
        baton__run_activate(&schedule->run, node, activation);
    } /* else its sender has withdrawn it */
}

static void deliver_to(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       uint32_t node, baton_message_t *message)
{
    baton__run_t *run = &schedule->run;
    const baton__op_t *op = &schedule->ops[node];
    const baton_group_t *group = schedule->group;
    baton__turn_t turn =
        run->phase == BATON__RUN_RECOVERING
            ? BATON__TURN_LATER
            : baton__run_turn_of(run, node, message->header.epoch);
    switch (turn) {
    case BATON__TURN_PAST:
        group->transport->drop(group->endpoint, message);
        break;
    case BATON__TURN_NOW:
        if (op->kind == BATON__ARMED_RECV) {
            baton__epoch_activate(schedule, node, message);
        } else {
            (void)take_message(stepper, schedule, node, message);
        }
        baton__stepper_add_runnable(stepper, schedule);
        break;
    case BATON__TURN_LATER:
        keep_early(run, op->message.ordinal, message);
        if (op->kind == BATON__ARMED_RECV) {
            baton__epoch_begin_if_due(stepper, schedule);
        } else if (run->phase == BATON__RUN_RUNNING &&
                   is_left_out(schedule, node)) {
            fail_left_out(stepper, schedule, node);
        }
        break;
    }
}

void baton__epoch_deliver(baton__stepper_t *stepper, baton_group_t *group,
                          baton_message_t *message)
{
    const baton_header_t *header = &message->header;
    baton_schedule_t *schedule = baton__group_find(group, header->schedule);
    if (schedule == NULL || header->incarnation != group->incarnation ||
        schedule->run.phase == BATON__RUN_DRAINING ||
        schedule->run.phase == BATON__RUN_FAILED) {
        group->transport->drop(group->endpoint, message);
        return;
    }
    uint32_t node =
        baton__plan_receiver(&schedule->plan, message->peer, header->tag,
                             header->kind == BATON__MESSAGE_ACTIVATION);
    if (node == BATON__NO_NODE) {
        int peer = message->peer;
        uint32_t tag = header->tag;
        group->transport->drop(group->endpoint, message);
        baton__epoch_fail_here(
            stepper, schedule,
            baton__error(BATON_ERR_MISMATCH,
                         "\"%s\" failed on rank %d: rank %d has sent a message "
                         "with tag %u, and there is no receive for it: the "
                         "ranks' schedules differ (BATON_VERIFY=1 finds where)",
                         schedule->name, group->rank, peer, tag));
        return;
    }
    deliver_to(stepper, schedule, node, message);
}

void baton__epoch_end_move(baton__stepper_t *stepper,
                           const baton_event_t *event)
{
    baton_schedule_t *schedule = event->token.owner;
    uint32_t node = event->token.node;
    schedule->turn.moving--;
    if (schedule->run.phase == BATON__RUN_DRAINING) {
        baton__epoch_end_draining(stepper, schedule, node);
        return;
    }
    if (event->status == BATON_OK) {
        baton__epoch_complete(stepper, schedule, node);
    } else if (event->status == BATON_ERR_CANCELLED &&
               event->kind == BATON_EVENT_RECEIVED) {
        baton__epoch_enter(stepper, schedule, node, BATON__NODE_WAITING);
    } else {
        const baton__op_t *op = &schedule->ops[node];
        baton__epoch_enter(stepper, schedule, node, BATON__NODE_IDLE);
        (void)baton__error(event->status, "rank %d, tag %u, %zu bytes: %s",
                           (int)op->peer, op->message.tag, op->bytes,
                           event->detail != NULL
                               ? event->detail
                               : baton_status_text(event->status));
        baton__epoch_fail_at(stepper, schedule, node, event->status);
        return;
    }
    baton__stepper_add_runnable(stepper, schedule);
}

static void lose_in(baton__stepper_t *stepper, baton_schedule_t *schedule,
                    int peer, baton_status_t status, const char *detail)
{
    baton__run_t *run = &schedule->run;
    for (uint32_t node = 0;
         node < schedule->count && run->phase == BATON__RUN_RUNNING; node++) {
        const baton__op_t *op = &schedule->ops[node];
        uint8_t state = run->state[node];
        if (!baton__kinds[op->kind].message || op->peer != peer ||
            (state != BATON__NODE_WAITING && state != BATON__NODE_HELD)) {
            continue;
        }
        if ((op->flags & BATON__OPTIONAL) != 0) {
            baton__epoch_enter(stepper, schedule, node, BATON__NODE_IDLE);
            baton__stepper_add_runnable(stepper, schedule);
        } else {
            fail_lost(stepper, schedule, node, status, detail);
        }
    }
}

void baton__epoch_lose(baton__stepper_t *stepper, baton_group_t *group,
                       int peer, baton_status_t status, const char *detail)
{
    baton__group_lose(group, peer);
    for (baton_schedule_t *s = stepper->schedules; s != NULL;
         s = s->notices.next) {
        if (s->group == group) {
            lose_in(stepper, s, peer, status, detail);
        }
    }
}
