/* The step; see step.h.

   The mailbox is the one queue that threads share: an intrusive stack in a few
   lines of C11 atomics. A library of lock-free queues would use inline
   assembly, which the thread sanitizer can't check. */
#include "progress/driving/step.h"

#include "base/float_mode.h"
#include "progress/epoch/arrivals.h"
#include "progress/epoch/epoch.h"
#include "progress/epoch/queues.h"
#include "progress/membership/loss.h"
#include "progress/membership/notice.h"
#include "progress/membership/recovery.h"
#include "progress/membership/shrink.h"
#include "progress/state/traced.h"
#include "transport/subset.h"

static_assert(BATON__MESSAGE_KIND_COUNT <= 1 << BATON__CHANNEL_SHIFT,
              "a message's kind lies below its channel");

/* NODES_AT_ONCE is the number of nodes of one schedule that are issued before
   those of other schedules; EVENTS_A_POLL is the number of events that a poll
   takes at once. */
enum { NODES_AT_ONCE = 1024, EVENTS_A_POLL = 64 };

/* ---- mail ------------------------------------------------------------- */

void baton__step_mail(baton_schedule_t *schedule)
{
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__task_t *task = baton__task_of(schedule);
    if (atomic_exchange_explicit(&task->mailed, true, memory_order_seq_cst)) {
        return;
    }
    baton__task_t *head =
        atomic_load_explicit(&stepper->mail, memory_order_relaxed);
    do {
        task->next_mail = head;
    } while (!atomic_compare_exchange_weak_explicit(&stepper->mail, &head, task,
                                                    memory_order_seq_cst,
                                                    memory_order_relaxed));
}

/* Handles the requests that the application or other threads have made for a
   schedule: starts, cancels and completions of async nodes. */
static void handle_requests(baton_schedule_t *schedule)
{
    bool abandoned = baton__task_of(schedule)->abandoned;
    baton__epoch_collect_asyncs(schedule);
    if (abandoned) {
        return; /* the schedule may have been freed */
    }
    baton__epoch_begin_if_due(schedule);
    (void)baton__epoch_cancel_if_asked(schedule);
}

static bool take_mail(baton__stepper_t *stepper)
{
    if (atomic_load_explicit(&stepper->mail, memory_order_relaxed) == NULL) {
        return false;
    }
    /* Pairs with the push in baton__step_mail. */
    baton__task_t *newest =
        atomic_exchange_explicit(&stepper->mail, NULL, memory_order_acquire);
    baton__task_t *oldest = NULL;
    while (newest != NULL) {
        baton__task_t *next = newest->next_mail;
        newest->next_mail = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        baton__task_t *task = oldest;
        oldest = task->next_mail;
        /* From here on the schedule can be mailed again. Its requests are read
           after this, so none is missed. */
        (void)atomic_exchange_explicit(&task->mailed, false,
                                       memory_order_seq_cst);
        baton__traced_forget_time(stepper);
        handle_requests(&task->schedule);
    }
    return true;
}

/* ---- runnable schedules ----------------------------------------------- */

/* Advances each schedule that is runnable now, in the order of the list, until
   this step has computed and copied as many bytes as it may (bytes_left). A
   schedule that becomes runnable again is advanced in the next step. Returns
   true if anything was done. */
static bool advance_runnable(baton__stepper_t *stepper)
{
    const baton__task_t *last = stepper->runnable_tail;
    bool moved = false;
    bool more = stepper->runnable_head != NULL;
    while (more && stepper->bytes_left > 0) {
        baton__task_t *task = stepper->runnable_head;
        uint64_t before = task->schedule.run.progress_count;
        size_t bytes = stepper->bytes_left;
        more = task != last;
        stepper->runnable_head = task->next_runnable;
        task->runnable = false;
        baton__epoch_advance(&task->schedule, NODES_AT_ONCE);
        moved |= task->schedule.run.progress_count != before ||
                 !task->runnable || stepper->bytes_left != bytes;
    }
    return moved;
}

static bool ask_asyncs(baton__stepper_t *stepper)
{
    bool moved = false;
    for (baton__task_t *t = stepper->tasks; t != NULL; t = t->next) {
        if (t->begun > 0) {
            moved |= baton__epoch_poll_asyncs(&t->schedule);
        }
    }
    return moved;
}

/* ---- events ----------------------------------------------------------- */

/* Handles a notice that consists of a header alone, or whose content was
   dropped: the content of a hello is dropped if it comes before its group is
   created. */
static void handle_header(baton_group_t *group, const baton_header_t *header,
                          int peer)
{
    switch ((int)header->kind) {
    case BATON__MESSAGE_LEFT:
        baton__loss_receive(group, header, peer);
        break;
    case BATON__MESSAGE_HELLO:
        baton__notice_early(group, header, peer);
        break;
    default:
        baton__recovery_receive(group, header, peer);
    }
}

static void progress_step_arrive(baton_group_t *group, baton_message_t *message)
{
    switch ((baton__message_kind_t)message->header.kind) {
    case BATON__MESSAGE_DATA:
    case BATON__MESSAGE_ACTIVATION:
        baton__epoch_deliver(group, message);
        break;
    case BATON__MESSAGE_RECOVERY:
    case BATON__MESSAGE_FAREWELL:
    case BATON__MESSAGE_LEFT: {
        const baton_header_t header = message->header;
        int peer = message->peer;
        group->transport->drop(group->endpoint, message);
        handle_header(group, &header, peer);
        break;
    }
    case BATON__MESSAGE_VIEW:
        baton__shrink_receive(group, message);
        break;
    case BATON__MESSAGE_HELLO:
    case BATON__MESSAGE_WELCOME:
        baton__hello_receive(group, message);
        break;
    case BATON__MESSAGE_FAILURE:
        baton__failure_receive(group, message);
        break;
    case BATON__MESSAGE_FAILURES:
        baton__failures_receive(group, message);
        break;
    case BATON__MESSAGE_INQUIRY:
        baton__inquiry_receive(group, message);
        break;
    case BATON__MESSAGE_STATE:
        baton__state_receive(group, message);
        break;
    case BATON__MESSAGE_KIND_COUNT:
        break;
    }
}

/* Passes a message to the group of its channel, which shares the root's
   endpoint. If that group has not been created here yet, headers of recoveries,
   farewells, losses and hellos are kept for it. Nothing else need be kept:
   peers send other messages only after this rank has said hello. */
static void progress_step_pass_on(baton_group_t *root, baton_message_t *message)
{
    uint64_t channel = baton__subset_channel_of(&message->header);
    const baton__place_t *place = baton__table_find(&root->channels, channel);
    if (place != NULL &&
        baton__subset_rank(place->group->endpoint, message->peer) >= 0) {
        baton__subset_take(place->group->endpoint, message);
        progress_step_arrive(place->group, message);
        return;
    }
    const baton_header_t header = baton__subset_header(&message->header);
    if (header.kind == BATON__MESSAGE_RECOVERY ||
        header.kind == BATON__MESSAGE_FAREWELL ||
        header.kind == BATON__MESSAGE_LEFT ||
        header.kind == BATON__MESSAGE_HELLO) {
        baton__group_keep(&baton__member_of(root)->subset_headers, channel,
                          &header, message->peer);
    }
    root->transport->drop(root->endpoint, message);
}

void baton__step_adopt(baton_group_t *group)
{
    assert(baton__driven_here(group));
    baton_group_t *root = group->root;
    for (int rank = 0; rank < group->size; rank++) {
        const char *lost = baton__group_loss(
            root, baton__subset_root_rank(group->endpoint, rank));
        if (lost != NULL) {
            baton__loss_take(group, rank, lost);
        }
    }
    baton__notice_t **link = &baton__member_of(root)->subset_headers;
    while (*link != NULL) {
        baton__notice_t *notice = *link;
        if (notice->channel != group->channel) {
            link = &notice->next;
            continue;
        }
        *link = notice->next;
        notice->next = NULL;
        int peer = baton__subset_rank(group->endpoint, notice->peer);
        /* If `peer` is negative, the sender is not in the group, and may not
           know that yet. */
        if (peer >= 0) {
            handle_header(group, &notice->header, peer);
        }
        baton__group_drop_notices(&notice);
    }
}

static void handle_event(baton_group_t *group, const baton_event_t *event)
{
    switch (event->kind) {
    case BATON_EVENT_ARRIVED:
        if (baton__subset_channel_of(&event->message->header) != 0) {
            progress_step_pass_on(group, event->message);
        } else {
            progress_step_arrive(group, event->message);
        }
        break;
    case BATON_EVENT_SENT:
    case BATON_EVENT_RECEIVED:
        baton__epoch_complete_transfer(event);
        break;
    case BATON_EVENT_MOVED:
        ((baton_schedule_t *)event->token.owner)->run.progress_count++;
        break;
    case BATON_EVENT_LOST:
        baton__loss_happen(group, event);
        break;
    }
}

static bool poll_groups(baton__stepper_t *stepper)
{
    baton_event_t events[EVENTS_A_POLL];
    bool moved = false;
    for (baton_group_t *group = stepper->groups; group != NULL;
         group = group->next) {
        /* This polls groups without schedules, too, since they must take the
           notices of their peers, which can have only a few in flight. */
        size_t count =
            group->transport->poll(group->endpoint, events, EVENTS_A_POLL);
        for (size_t i = 0; i < count; i++) {
            handle_event(group, &events[i]);
        }
        moved |= count > 0;
    }
    return moved;
}

bool baton__step(baton__stepper_t *stepper, size_t bytes)
{
    assert(baton__stepper_driven_here(stepper));
    baton__float_mode_t mode = baton__float_mode_enter();
    stepper->bytes_left = bytes;
    stepper->left_calls = false;
    const uint32_t running = stepper->running;
    bool moved = take_mail(stepper);
    moved |= advance_runnable(stepper);
    if (stepper->polled > 0) {
        moved |= ask_asyncs(stepper);
    }
    if (stepper->offloads != NULL) {
        moved |= baton__queues_poll(stepper);
    }
    if (stepper->recovering > 0) {
        moved |= baton__recovery_advance(stepper);
        moved |= baton__shrink_advance(stepper);
        if (stepper->reap != NULL) {
            stepper->reap(stepper);
        }
    }
    /* A step that has ended the last running epoch does not poll, so that the
       thread that waits for it returns sooner: a poll is 5 % of the time of a
       short message between hosts. Two steps in a row never skip the poll. */
    stepper->unpolled =
        running > 0 && stepper->running == 0 && !stepper->unpolled;
    if (!stepper->unpolled && poll_groups(stepper)) {
        moved = true;
    } else if (!stepper->unpolled && stepper->doubts) {
        baton__epoch_end_doubts(stepper);
        moved = true;
    }
    /* Notices are sent after the poll, so that those of failed epochs name a
       loss that this poll has reported. */
    if (baton__stepper_has_notices(stepper)) {
        moved |= baton__notice_send(stepper, true);
    }
    if (!moved) {
        baton__traced_forget_time(stepper);
    }
    baton__float_mode_leave(mode);
    return moved;
}

void baton__step_start(baton_schedule_t *schedule, uint32_t nodes, size_t bytes)
{
    assert(baton__driven_here(schedule->group));
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__float_mode_t mode = baton__float_mode_enter();
    stepper->bytes_left = bytes;
    stepper->left_calls = false;
    (void)take_mail(stepper);
    /* If a start has called this function, the trace has the same time for the
       start (START) and for the beginning of the epoch (BEGIN). */
    if (baton__trace_is_on()) {
        stepper->traced_ns = atomic_load_explicit(
            &baton__task_of(schedule)->traced_ns, memory_order_relaxed);
    }
    handle_requests(schedule);
    if (schedule->run.phase == BATON__RUN_RUNNING) {
        /* Takes the schedule off the list of runnable ones, if it is the first.
           baton__epoch_advance puts it back if it leaves work. If it stayed on
           the list, a leaving driver would kick the progress thread for it. */
        baton__task_t *task = baton__task_of(schedule);
        if (stepper->runnable_head == task) {
            stepper->runnable_head = task->next_runnable;
            task->runnable = false;
        }
        baton__epoch_advance(schedule, nodes);
    }
    baton__float_mode_leave(mode);
}

/* ---- adding and removing schedules ------------------------------------- */

static void link_to(baton__task_t **list, baton__task_t *task)
{
    task->previous = NULL;
    task->next = *list;
    if (*list != NULL) {
        (*list)->previous = task;
    }
    *list = task;
}

static void unlink_from(baton__task_t **list, baton__task_t *task)
{
    if (task->previous != NULL) {
        task->previous->next = task->next;
    } else {
        *list = task->next;
    }
    if (task->next != NULL) {
        task->next->previous = task->previous;
    }
}

void baton__step_attach(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    link_to(&schedule->group->stepper->uncommitted, baton__task_of(schedule));
}

void baton__step_commit(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    baton__stepper_t *stepper = schedule->group->stepper;
    baton_group_t *group = schedule->group;
    baton__task_t *task = baton__task_of(schedule);
    unlink_from(&stepper->uncommitted, task);
    link_to(&stepper->tasks, task);
    schedule->run.waited_by_all = &stepper->waited;
    baton__table_enter(&group->table, task->identity)->schedule = schedule;
    baton__notice_hello(schedule);
    baton__epoch_fail_if_lost(schedule);
    stepper->activatable += schedule->plan.armed_count > 0;
}

/* Removes a task from the mailbox, and from the runnable ones. */
static void progress_step_forget(baton__stepper_t *stepper,
                                 const baton__task_t *task)
{
    baton__task_t *each = stepper->runnable_head;
    stepper->runnable_head = NULL;
    stepper->runnable_tail = NULL;
    while (each != NULL) {
        baton__task_t *next = each->next_runnable;
        each->runnable = false;
        if (each != task) {
            baton__stepper_add_runnable(&each->schedule);
        }
        each = next;
    }
    /* Other threads may push meanwhile. So this takes all mail, and puts back
       the other tasks. */
    baton__task_t *mail =
        atomic_exchange_explicit(&stepper->mail, NULL, memory_order_acquire);
    while (mail != NULL) {
        baton__task_t *next = mail->next_mail;
        atomic_store_explicit(&mail->mailed, false, memory_order_seq_cst);
        if (mail != task) {
            baton__step_mail(&mail->schedule);
        }
        mail = next;
    }
}

void baton__step_detach(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    baton__stepper_t *stepper = schedule->group->stepper;
    baton_group_t *group = schedule->group;
    baton__task_t *task = baton__task_of(schedule);
    if (!schedule->committed) {
        unlink_from(&stepper->uncommitted, task);
        return;
    }
    progress_step_forget(stepper, task);
    baton__arrivals_close(task);
    if (schedule->offload != NULL && !task->abandoned) {
        baton__queues_forget(schedule->group, schedule);
    }
    if (!task->leaving) {
        baton__notice_forget(task);
    }
    baton__epoch_drop_up_to(schedule, UINT64_MAX);
    baton__table_remove(&group->table, task->identity);
    baton__recovery_leave(task);
    stepper->draining -= schedule->run.phase == BATON__RUN_DRAINING;
    stepper->activatable -= schedule->plan.armed_count > 0;
    unlink_from(&stepper->tasks, task);
}
