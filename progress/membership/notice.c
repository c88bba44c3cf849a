/* The queues of notices, and how they are sent; see notice.h. */
#include "progress/membership/notice_parts.h"

/* Sends one of a queue's `answers`: an INQUIRY, STATE, HELLO, WELCOME or
   FAILURE, or a LEFT, which reports a loss (loss.h). */
static baton_status_t send_answer(baton_group_t *group,
                                  const baton__notice_t *answer)
{
    baton_header_t header = answer->header;
    if (baton__group_loss(group, answer->peer) != NULL) {
        /* The peer may have left; then there will never be space for a notice
           to it. */
        return BATON_ERR_TRANSPORT;
    }
    if (header.kind == BATON__MESSAGE_INQUIRY ||
        header.kind == BATON__MESSAGE_LEFT) {
        baton_status_t status = group->transport->notify(
            group->endpoint, answer->peer, &header, NULL, 0);
        if (group->transport->ask != NULL && status != BATON_AGAIN &&
            header.kind == BATON__MESSAGE_INQUIRY) {
            /* This call also wakes the peer. */
            group->transport->ask(group->endpoint, answer->peer);
        }
        return status;
    }
    const baton_schedule_t *schedule =
        baton__group_find(group, header.schedule);
    if (schedule != NULL && (header.kind == BATON__MESSAGE_HELLO ||
                             header.kind == BATON__MESSAGE_WELCOME)) {
        return baton__hello_send(baton__task_of(schedule), answer->peer,
                                 (baton__message_kind_t)header.kind,
                                 header.tag);
    }
    if (header.kind == BATON__MESSAGE_STATE) {
        return baton__state_send(group, answer->peer, &header);
    }
    if (schedule != NULL) {
        return baton__failure_send(baton__task_of(schedule), answer->peer,
                                   header.epoch);
    }
    return baton__destroyed_send(group, answer->peer, header);
}

/* Sends the notices about one schedule that are due to one peer. If the notice
   is a failure because of a recovery, also sends further such failures from the
   queue. Returns the number of queue entries that are done; 0 if there is no
   space. Another error of notify means that the peer is lost, which the
   transport reports. */
static uint32_t notice_tell(baton__peer_notice_t *due)
{
    const baton__task_t *task = due->task;
    const baton_group_t *group = task->schedule.group;
    int peer = (int)task->schedule.plan.peers[due - task->due];
    if (baton__group_loss(group, peer) != NULL) {
        due->what = 0;
    }
    for (int kind = BATON__MESSAGE_HELLO; kind <= BATON__MESSAGE_FAILURE;
         kind++) {
        if ((due->what >> kind & 1) == 0) {
            continue;
        }
        if (due->what == BATON__TELL_FAILURE && task->failure.recovers) {
            return baton__failures_send(due);
        }
        baton_status_t status =
            kind == BATON__MESSAGE_FAILURE
                ? baton__failure_send(task, peer, task->failing_from)
                : baton__hello_send(task, peer, (baton__message_kind_t)kind, 0);
        if (status == BATON_AGAIN) {
            return 0;
        }
        due->what &= (uint8_t) ~(1 << kind);
    }
    return 1;
}

static void take_answer(baton__peer_queue_t *queue)
{
    queue->member->answer_count--;
    baton__member_give_notice(queue->member,
                              baton__notice_list_take(&queue->answers));
}

/* Removes the queue's first entry. If that was the last entry about a destroyed
   schedule, frees the schedule. */
static void take_due(baton__peer_queue_t *queue)
{
    baton__peer_notice_t *due = baton__due_list_take(&queue->due);
    baton__task_t *task = due->task;
    due->what = 0;
    queue->member->due_count--;
    if (--task->due_count == 0 && task->leaving) {
        queue->member->leaving--;
        baton__task_free(task);
    }
}

/* Removes empty queues from the stepper's list. */
static void drop_empty(baton__stepper_t *stepper)
{
    baton__peer_queue_t **link = &stepper->queues.head;
    while (*link != NULL) {
        if ((*link)->answers.head == NULL && (*link)->due.head == NULL) {
            *link = (*link)->next;
        } else {
            stepper->queues.tail = *link;
            link = &(*link)->next;
        }
    }
}

/* Sends the notices of one queue, as many as the transport has space for.
   Returns true if a notice was sent. */
static bool send_queue(baton__peer_queue_t *queue)
{
    bool moved = false;
    queue->full = false;
    while (queue->answers.head != NULL && !queue->full) {
        queue->full = send_answer(&queue->member->group, queue->answers.head) ==
                      BATON_AGAIN;
        if (!queue->full) {
            take_answer(queue);
            moved = true;
        }
    }
    while (queue->due.head != NULL && !queue->full) {
        uint32_t sent = notice_tell(queue->due.head);
        queue->full = sent == 0;
        moved |= sent > 0;
        for (; sent > 0; sent--) {
            take_due(queue);
        }
    }
    return moved;
}

bool baton__notice_send(baton__stepper_t *stepper, bool all)
{
    assert(baton__stepper_driven_here(stepper));
    bool moved = false;
    for (baton__peer_queue_t *queue = stepper->queues.head; queue != NULL;
         queue = queue->next) {
        moved |= (all || !queue->full) && send_queue(queue);
    }
    if (moved) {
        drop_empty(stepper);
    }
    return moved;
}

int baton__notice_awaits(const baton_group_t *group)
{
    assert(baton__driven_here(group));
    for (int peer = 0; peer < group->size; peer++) {
        const baton__peer_queue_t *queue = baton__group_queue(group, peer);
        if (queue->answers.head != NULL || queue->due.head != NULL) {
            return peer;
        }
    }
    return -1;
}

void baton__notice_give_up(baton_group_t *group)
{
    for (int peer = 0; peer < group->size; peer++) {
        baton__peer_queue_t *queue = baton__group_queue(group, peer);
        while (queue->answers.head != NULL) {
            take_answer(queue);
        }
        while (queue->due.head != NULL) {
            take_due(queue);
        }
    }
    drop_empty(group->stepper);
}

void baton__notice_forget(baton__task_t *task)
{
    assert(baton__driven_here(task->schedule.group));
    baton_group_t *group = task->schedule.group;
    for (uint32_t i = 0; task->due_count > 0; i++) {
        baton__peer_notice_t *due = &task->due[i];
        baton__peer_queue_t *queue =
            baton__group_queue(group, (int)task->schedule.plan.peers[i]);
        if (due->what != 0) {
            baton__due_list_remove(&queue->due, due);
            due->what = 0;
            task->due_count--;
            baton__member_of(group)->due_count--;
        }
    }
    drop_empty(group->stepper);
}
