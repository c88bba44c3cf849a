/* Notices; see notice.h. */
#include "progress/membership/notice.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "progress/epoch/epoch.h"
#include "progress/membership/inquiry.h"

#include <stdio.h>
#include <string.h>

/* ---- contents -------------------------------------------------- */

/* The messages of a schedule to one peer, or from it, activates included. */
typedef struct direction {
    uint32_t count;
    uint32_t varying; /* messages whose length an epoch sets */
    uint64_t sizes;   /* hash of kinds, tags and sizes */
    uint64_t bytes;   /* sum of the sizes */
} direction_t;

typedef struct summary {
    direction_t sends, receives;
    uint32_t device_sends; /* sends of device memory */
    uint32_t lost;         /* 1 + the first lost rank, see hear(); 0: none */
} summary_t;

enum { NAME_BYTES = BATON__UNKNOWN_BYTES, TERMS_BYTES = 136 };

typedef struct hello {
    summary_t summary;
    uint64_t terms_hash;
    char name[NAME_BYTES];
    /* The terms, beginning with the one whose number is the header's tag. */
    char terms[TERMS_BYTES];
} hello_t;
static_assert(sizeof(hello_t) <= BATON_NOTICE_BYTES, "a hello is a notice");

enum { SENTENCE_BYTES = BATON__CAUSE_BYTES, ALL_PEERS = -1, ALL_SCHEDULES = 0 };

/* Value of failure_t.final: the schedule no longer exists on the sender, so the
   sender takes no part in the schedule's recovery. */
enum { GONE = 2 };

typedef struct failure {
    int32_t status;
    int32_t rank;
    uint64_t epoch;
    char sentence[SENTENCE_BYTES];
    uint32_t final; /* 1: the schedule can't be recovered; or GONE */
    uint32_t lost;  /* as in summary_t */
} failure_t;
static_assert(sizeof(failure_t) <= BATON_NOTICE_BYTES, "a failure is a notice");

/* Schedules that fail because `rank` recovers the group. */
typedef struct failures {
    int32_t rank;
    uint32_t lost; /* as in summary_t */
    uint32_t count;
    struct {
        uint64_t schedule, epoch;
    } each[15];
} failures_t;
static_assert(sizeof(failures_t) <= BATON_NOTICE_BYTES, "they are a notice");

static summary_t summarise(const baton_schedule_t *schedule, int peer)
{
    summary_t sum = {0};
    for (uint32_t i = 0; i < schedule->count; i++) {
        const baton__op_t *op = &schedule->ops[i];
        if (!baton__kinds[op->kind].message ||
            baton__peer_of(schedule, op) != peer) {
            continue;
        }
        bool sends = baton__op_sends(op);
        uint64_t bytes = baton__op_activates(op) ? UINT64_MAX : op->bytes;
        direction_t *direction = sends ? &sum.sends : &sum.receives;
        direction->count++;
        direction->bytes += op->bytes;
        direction->sizes += baton__mix(baton__mix(op->message.tag + 1) ^ bytes);
        direction->varying += op->length != BATON__NO_LENGTH;
        sum.device_sends += sends && op->bytes > 0 &&
                            baton__op_memory(op) == BATON_MEMORY_DEVICE;
    }
    return sum;
}

void baton__notice_take(const baton_group_t *group, baton_message_t *message,
                        void *content, size_t bytes)
{
    char memory[BATON_NOTICE_BYTES] = {0};
    const baton_token_t no_token = {.owner = NULL};
    if (message->bytes > sizeof memory) {
        group->transport->drop(group->endpoint, message);
    } else {
        (void)group->transport->accept(group->endpoint, message, no_token,
                                       memory);
    }
    memcpy(content, memory, bytes);
}

/* ---- sending ---------------------------------------------------------- */

static baton_header_t notice_header_of(const baton__task_t *task,
                                       baton__message_kind_t kind)
{
    return (baton_header_t){.schedule = task->identity,
                            .epoch = task->failing_from,
                            .incarnation = task->schedule.group->incarnation,
                            .kind = (uint16_t)kind};
}

static baton_status_t send_hello(const baton__task_t *task, int peer,
                                 baton__message_kind_t kind, uint32_t from)
{
    const baton_schedule_t *schedule = &task->schedule;
    const baton_group_t *group = schedule->group;
    baton_header_t header = notice_header_of(task, kind);
    header.tag = from;
    hello_t hello = {.summary = summarise(schedule, peer),
                     .terms_hash = schedule->terms_hash};
    hello.summary.lost = (uint32_t)baton__group_first_lost(group);
    (void)snprintf(hello.name, sizeof hello.name, "%s", schedule->name);
    (void)snprintf(hello.terms, sizeof hello.terms, "%s",
                   baton__terms_from(schedule, from, sizeof hello.terms));
    return group->transport->notify(group->endpoint, peer, &header, &hello,
                                    sizeof hello);
}

/* Sends the peer the schedule's failure, which affects the peer from epoch
   `from` on. */
static baton_status_t send_failure(const baton__task_t *task, int peer,
                                   uint64_t from)
{
    const baton_group_t *group = task->schedule.group;
    failure_t failure = {.status = task->failure.status,
                         .rank = task->failure.rank,
                         .epoch = task->failure.epoch,
                         .final = task->failure.final,
                         .lost = (uint32_t)baton__group_first_lost(group)};
    baton__text_t text = {failure.sentence, sizeof failure.sentence, 0};
    baton__text_add(&text, "%s", task->schedule.sentence);
    baton_header_t header = notice_header_of(task, BATON__MESSAGE_FAILURE);
    header.epoch = from;
    return group->transport->notify(group->endpoint, peer, &header, &failure,
                                    sizeof failure);
}

/* Fails the schedule because `rank` recovers the group. */
static void fail_for_recovery(baton_schedule_t *schedule, uint64_t from,
                              int rank)
{
    baton__text_t text = BATON__TEXT(SENTENCE_BYTES);
    const baton__failure_t failure = {.status = BATON_ERR_CANCELLED,
                                      .rank = rank,
                                      .epoch = from,
                                      .recovers = true};
    baton__text_add(&text,
                    "\"%.128s\" was cancelled: rank %d recovers its group",
                    schedule->name, rank);
    baton__epoch_fail_from(schedule, from, &failure, text.data);
}

void baton__notice_recover(baton_schedule_t *schedule)
{
    const baton__run_t *run = &schedule->run;
    fail_for_recovery(schedule, run->epoch + (run->phase == BATON__RUN_IDLE),
                      schedule->group->rank);
}

/* Appends the lost rank: the loss is the likely cause, and the peer may have no
   other way to learn of it. */
static void add_loss(baton__text_t *text, const baton_group_t *group)
{
    const baton__member_t *member = baton__member_of(group);
    if (member->first.detail != NULL) {
        baton__text_add(text, "; %s is gone: %s",
                        baton__group_rank_text(group, member->first.peer),
                        member->first.detail);
    } else if (member->shrunk > 0) { /* other ranks reported the loss */
        baton__text_add(text, "; %s is gone",
                        baton__group_rank_text(group, member->shrunk - 1));
    }
}

/* Appends how the schedule or the group has ended on this rank. */
static void add_ended(baton__text_t *text, const char *how,
                      const baton_group_t *group)
{
    baton__text_add(text, " was %s on rank %d", how, group->rank);
    add_loss(text, group);
}

/* Returns the status that reports a destroyed schedule: if there was a loss of
   a rank, that is the cause. */
static baton_status_t destroyed_status(const baton_group_t *group,
                                       baton_status_t other)
{
    const baton__member_t *member = baton__member_of(group);
    return member->first.detail != NULL || member->shrunk > 0
               ? BATON_ERR_TRANSPORT
               : other;
}

bool baton__notice_may_commit(const baton_group_t *group, uint64_t identity)
{
    const baton__member_t *member = baton__member_of(group);
    const baton__task_t *task = group->stepper->uncommitted;
    while (task != NULL &&
           (task->schedule.group != group || task->identity != identity)) {
        task = task->next;
    }
    return member->shrunk == 0 &&
           (task != NULL || (!baton__group_has_made(group, identity) &&
                             member->recovery != BATON__RECOVERY_PARTING));
}

/* Returns true if `rank` was the first to ask this rank about this stall, which
   decides which rank reports the stall; see inquiry.h. After progress of the
   schedule, the next question is about another stall. */
static bool asks_first(baton_group_t *group, const baton_header_t *header,
                       int rank)
{
    baton__member_t *member = baton__member_of(group);
    baton_schedule_t *schedule = baton__group_find(group, header->schedule);
    if (schedule != NULL) {
        baton__task_t *task = baton__task_of(schedule);
        const uint64_t progress = baton__progress_of(schedule);
        if (task->asked_epoch != header->epoch ||
            task->asked_progress != progress) {
            task->asked_epoch = header->epoch;
            task->asked_progress = progress;
            task->asked_by = rank;
        }
        return task->asked_by == rank;
    }
    if (member->asked.schedule != header->schedule ||
        member->asked.epoch != header->epoch ||
        member->asked.incarnation != header->incarnation) {
        member->asked = *header;
        member->asked_by = rank;
    }
    return member->asked_by == rank;
}

/* Returns a running task that is in_order, or NULL. */
static const baton__task_t *find_in_order(const baton_group_t *group)
{
    baton__task_t *t = NULL;
    while ((t = baton__stepper_next(group, t)) &&
           (!t->in_order || t->schedule.run.phase != BATON__RUN_RUNNING)) {
    }
    return t;
}

static baton_status_t send_state(baton_group_t *group, int peer,
                                 const baton_header_t *header)
{
    baton__rank_state_t state = {.progress = 1};
    const baton_schedule_t *schedule =
        baton__group_find(group, header->schedule);
    const baton__task_t *ordered = find_in_order(group);
    if (schedule != NULL) {
        baton__inquiry_answer(schedule, &state);
    } else {
        (void)snprintf(state.text, sizeof state.text, "%s",
                       !baton__group_has_made(group, header->schedule)
                           ? "not created it"
                       : baton__notice_may_commit(group, header->schedule)
                           ? "not committed it"
                           : "destroyed it");
    }
    if (ordered != NULL &&
        (schedule != NULL || !baton__group_has_made(group, header->schedule))) {
        state.ordered = ordered->identity;
        state.ordered_epoch = ordered->schedule.run.epoch;
    }
    state.first = asks_first(group, header, peer);
    return group->transport->notify(group->endpoint, peer, header, &state,
                                    sizeof state);
}

/* Sends a FAILURE for a schedule that does not exist on this rank: the recorded
   cause or, without a record, that the schedule or the group has ended here. */
static baton_status_t send_destroyed(baton_group_t *group, int peer,
                                     baton_header_t header)
{
    header.kind = BATON__MESSAGE_FAILURE;
    failure_t failure = {.status = destroyed_status(group, BATON_ERR_STATE),
                         .rank = group->rank,
                         .epoch = header.epoch,
                         .final = GONE,
                         .lost = (uint32_t)baton__group_first_lost(group)};
    baton__text_t text = {failure.sentence, sizeof failure.sentence, 0};
    const baton__departed_t *known =
        baton__group_departed(group, header.schedule, header.incarnation);
    if (known != NULL) {
        failure.status = known->status;
        failure.rank = known->rank;
        failure.epoch = known->failed;
        baton__text_add(&text, "%s", known->cause);
    } else {
        bool made = baton__group_has_made(group, header.schedule);
        bool shrunk =
            baton__member_of(group)->recovery != BATON__RECOVERY_PARTING &&
            !made;
        /* This rank no longer knows the name of a destroyed schedule. The peer
           adds the name before a text that begins with a space. */
        baton__text_add(&text, "%s",
                        made ? "" : "the group, which lacked the schedule,");
        add_ended(&text, shrunk ? "shrunk" : "destroyed", group);
    }
    baton_status_t status = group->transport->notify(
        group->endpoint, peer, &header, &failure, sizeof failure);
    if (status != BATON_AGAIN) {
        baton__group_told(group, header.schedule, peer);
    }
    return status;
}

/* Sends one queued answer: an inquiry, state, hello, failure or loss. */
static baton_status_t send_answer(baton_group_t *group,
                                  const baton__kept_t *answer)
{
    baton_header_t header = answer->header;
    if (baton__group_loss(group, answer->peer) != NULL) {
        /* The peer may have left, and never have room. */
        return BATON_ERR_TRANSPORT;
    }
    if (header.kind == BATON__MESSAGE_INQUIRY ||
        header.kind == BATON__MESSAGE_LEFT) {
        baton_status_t status = group->transport->notify(
            group->endpoint, answer->peer, &header, NULL, 0);
        if (group->transport->ask != NULL && status != BATON_AGAIN &&
            header.kind == BATON__MESSAGE_INQUIRY) { /* ask wakes the peer */
            group->transport->ask(group->endpoint, answer->peer);
        }
        return status;
    }
    const baton_schedule_t *schedule =
        baton__group_find(group, header.schedule);
    if (schedule != NULL && (header.kind == BATON__MESSAGE_HELLO ||
                             header.kind == BATON__MESSAGE_WELCOME)) {
        return send_hello(baton__task_of(schedule), answer->peer,
                          (baton__message_kind_t)header.kind, header.tag);
    }
    if (header.kind == BATON__MESSAGE_STATE) {
        return send_state(group, answer->peer, &header);
    }
    if (schedule != NULL) {
        return send_failure(baton__task_of(schedule), answer->peer,
                            header.epoch);
    }
    return send_destroyed(group, answer->peer, header);
}

/* Returns the rank whose recovery failed the schedule, if this failure is all
   that is due to the peer; else -1. */
static int recovering_rank(const baton__peer_notice_t *due)
{
    return due->what == BATON__TELL_FAILURE && due->task->failure.recovers
               ? due->task->failure.rank
               : -1;
}

static int peer_of(const baton__peer_notice_t *due)
{
    const baton__task_t *task = due->task;
    return (int)task->schedule.plan.peers[due - task->due];
}

/* Sends the failures at the front of a queue that one rank's recovery caused,
   in one FAILURES notice. Returns their number; 0: no room. */
static uint32_t send_failures(const baton_group_t *group,
                              const baton__peer_notice_t *first)
{
    const baton_header_t header = {.incarnation = group->incarnation,
                                   .kind = BATON__MESSAGE_FAILURES};
    failures_t failures = {.rank = recovering_rank(first),
                           .lost = (uint32_t)baton__group_first_lost(group)};
    const uint32_t most = sizeof failures.each / sizeof failures.each[0];
    int peer = peer_of(first);
    for (const baton__peer_notice_t *due = first;
         due != NULL && failures.count < most &&
         recovering_rank(due) == failures.rank && peer_of(due) == peer;
         due = due->next) {
        failures.each[failures.count].schedule = due->task->identity;
        failures.each[failures.count++].epoch = due->task->failing_from;
    }
    return group->transport->notify(group->endpoint, peer, &header, &failures,
                                    sizeof failures) != BATON_AGAIN
               ? failures.count
               : 0;
}

/* Sends the notices about one schedule that are due to one peer; with recovery
   failures, also those after it in the queue. Returns how many queue entries
   are done; 0: no room. Another error of notify means that the peer is lost,
   which the transport reports. */
static uint32_t notice_tell(baton__peer_notice_t *due)
{
    const baton__task_t *task = due->task;
    const baton_group_t *group = task->schedule.group;
    static const struct {
        uint8_t due;
        baton__message_kind_t kind;
    } all[] = {{BATON__TELL_HELLO, BATON__MESSAGE_HELLO},
               {BATON__TELL_WELCOME, BATON__MESSAGE_WELCOME},
               {BATON__TELL_FAILURE, BATON__MESSAGE_FAILURE}};
    int peer = peer_of(due);
    if (baton__group_loss(group, peer) != NULL) {
        due->what = 0;
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if ((due->what & all[i].due) == 0) {
            continue;
        }
        if (recovering_rank(due) >= 0) {
            return send_failures(group, due);
        }
        baton_status_t status =
            all[i].kind == BATON__MESSAGE_FAILURE
                ? send_failure(task, peer, task->failing_from)
                : send_hello(task, peer, all[i].kind, 0);
        if (status == BATON_AGAIN) {
            return 0;
        }
        due->what &= (uint8_t)~all[i].due;
    }
    return 1;
}

static void take_answer(baton__peer_queue_t *queue)
{
    queue->member->answer_count--;
    baton__member_give_kept(queue->member,
                            baton__kept_list_take(&queue->answers));
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

/* Sends as much as the peer has room for; true if anything was sent. */
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
        uint32_t told = notice_tell(queue->due.head);
        queue->full = told == 0;
        moved |= told > 0;
        for (; told > 0; told--) {
            take_due(queue);
        }
    }
    return moved;
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

bool baton__notice_send(baton__stepper_t *stepper, bool all)
{
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

void baton__notice_queue(baton_group_t *group, baton_header_t header,
                         baton__message_kind_t kind, int peer)
{
    baton__kept_t *answer = baton__member_take_kept(baton__member_of(group));
    if (answer == NULL) {
        return;
    }
    baton__peer_queue_t *queue = baton__group_queue(group, peer);
    header.kind = (uint16_t)kind;
    *answer = (baton__kept_t){.header = header, .peer = peer};
    baton__stepper_list(queue, group);
    baton__kept_list_append(&queue->answers, answer);
    baton__member_of(group)->answer_count++;
}

void baton__notice_answer(baton_group_t *group, const baton_header_t *header,
                          uint64_t epoch, int peer)
{
    baton_header_t answer = *header;
    answer.epoch = epoch;
    baton__notice_queue(group, answer, BATON__MESSAGE_FAILURE, peer);
}

/* Remembers the HELLO of a schedule that this rank has not committed: the peer
   is answered after the commit, or when it is certain that this rank will never
   commit. Without memory the HELLO is forgotten. */
static void notice_remember(baton_group_t *group, const baton_header_t *header,
                            int peer)
{
    baton__member_t *member = baton__member_of(group);
    const uint64_t identity = header->schedule;
    baton__place_t *place = baton__table_find(&member->early, identity);
    if (place == NULL && baton__table_reserve(&member->early, 1)) {
        place = baton__table_enter(&member->early, identity);
    }
    baton__kept_t *kept =
        place != NULL ? baton__member_take_kept(member) : NULL;
    if (kept != NULL) {
        *kept = (baton__kept_t){place->kept, 0, *header, peer};
        place->kept = kept;
    }
}

/* Forgets the remembered HELLOs of a schedule, from one peer or from ALL_PEERS.
   If `answers`, tells these peers that this rank will never commit the
   schedule. */
static void notice_forget(baton_group_t *group, uint64_t identity, int peer,
                          bool answers)
{
    baton__member_t *member = baton__member_of(group);
    baton__place_t *place = baton__table_find(&member->early, identity);
    baton__kept_t **link = place != NULL ? &place->kept : NULL;
    while (link != NULL && *link != NULL) {
        baton__kept_t *each = *link;
        if (peer != ALL_PEERS && each->peer != peer) {
            link = &each->next;
            continue;
        }
        *link = each->next;
        each->header.incarnation = group->incarnation;
        if (answers) {
            baton__notice_answer(group, &each->header, 0, each->peer);
        }
        baton__member_give_kept(member, each);
    }
    if (place != NULL && place->kept == NULL) {
        baton__table_remove(&member->early, identity);
    }
}

void baton__notice_retract(baton_group_t *group, uint64_t identity)
{
    baton__member_t *member = baton__member_of(group);
    if (identity != ALL_SCHEDULES) {
        notice_forget(group, identity, ALL_PEERS, true);
        return;
    }
    for (uint32_t i = 0; i < member->early.size; i++) {
        /* Another entry may move to this place when one is removed. */
        while (member->early.places[i].key != 0) {
            notice_forget(group, member->early.places[i].key, ALL_PEERS, true);
        }
    }
}

/* Queues inquiries to ranks that the inquiry has found and not asked yet. */
static void ask_next(const baton__task_t *task)
{
    int rank;
    while ((rank = baton__inquiry_next(task)) >= 0) {
        baton_header_t header = notice_header_of(task, BATON__MESSAGE_INQUIRY);
        header.epoch = task->schedule.run.epoch;
        baton__notice_queue(task->schedule.group, header,
                            BATON__MESSAGE_INQUIRY, rank);
    }
}

void baton__notice_inquire(baton__task_t *task)
{
    const baton__run_t *run = &task->schedule.run;
    baton_group_t *group = task->schedule.group;
    if (run->phase == BATON__RUN_RUNNING) {
        const baton_header_t header = {.schedule = task->identity,
                                       .epoch = run->epoch};
        baton__inquiry_begin(task, asks_first(group, &header, group->rank));
        ask_next(task);
    }
}

/* Allows this rank's messages to the peer, and issues those that were held
   back. */
static void introduce(baton__task_t *task, uint32_t index)
{
    baton__stepper_meet(task, index, BATON__MET);
    baton__epoch_introduce(&task->schedule,
                           (int)task->schedule.plan.peers[index]);
}

/* Sends HELLO to the ranks that sent theirs before this rank's commit, also to
   a rank with which this schedule has no messages: that rank then finds that
   its schedule differs, and fails it. */
static void answer_early(baton__task_t *task)
{
    const baton_schedule_t *schedule = &task->schedule;
    baton_group_t *group = schedule->group;
    const baton__place_t *place =
        baton__table_find(&baton__member_of(group)->early, task->identity);
    const baton__kept_t *early = place != NULL ? place->kept : NULL;
    for (; early != NULL; early = early->next) {
        uint32_t index = baton__plan_peer(&schedule->plan, early->peer);
        if (index == schedule->plan.peer_count) {
            baton__notice_queue(group, early->header, BATON__MESSAGE_HELLO,
                                early->peer);
        } else {
            baton__stepper_greet(task, index);
        }
    }
    notice_forget(group, task->identity, ALL_PEERS, false);
}

void baton__notice_hello(baton_schedule_t *schedule)
{
    const baton_group_t *group = schedule->group;
    baton__task_t *task = baton__task_of(schedule);
    task->unmet = schedule->plan.peer_count;
    for (uint32_t i = 0; i < schedule->plan.peer_count; i++) {
        int peer = (int)schedule->plan.peers[i];
        if (!baton__member_of(group)->introduces || peer == group->rank) {
            introduce(task, i);
        } else if (task->on_failure != NULL) {
            baton__stepper_greet(task, i);
        }
    }
    answer_early(task);
}

/* Fails the schedule for good, from epoch `from` on, and tells its peers. */
static void notice_end(baton_schedule_t *schedule, const char *how,
                       uint64_t from, baton_status_t status)
{
    baton__text_t text = BATON__TEXT(SENTENCE_BYTES);
    const baton_group_t *group = schedule->group;
    const baton__failure_t failure = {.status = destroyed_status(group, status),
                                      .rank = group->rank,
                                      .epoch = from,
                                      .final = true};
    baton__text_add(&text, "\"%.128s\"", schedule->name);
    add_ended(&text, how, group);
    if (from == schedule->run.epoch) {
        baton__text_add(&text, " while epoch %llu ran",
                        (unsigned long long)from);
    }
    baton__epoch_fail_from(schedule, from, &failure, text.data);
}

void baton__notice_destroy(baton_schedule_t *schedule)
{
    const baton__run_t *run = &schedule->run;
    if (run->phase == BATON__RUN_RUNNING) {
        notice_end(schedule, "destroyed", run->epoch, BATON_ERR_CANCELLED);
    } else if (run->phase == BATON__RUN_IDLE && schedule->plan.messages > 0) {
        notice_end(schedule, "destroyed", run->epoch + 1, BATON_ERR_STATE);
    }
}

void baton__notice_shrink(baton_group_t *group, int lost)
{
    baton__member_of(group)->shrunk = lost + 1;
    baton__notice_retract(group, ALL_SCHEDULES);
    for (baton__task_t *t = NULL; (t = baton__stepper_next(group, t));) {
        if (t->schedule.plan.messages > 0) {
            notice_end(&t->schedule, "given up", baton__task_requested(t) + 1,
                       BATON_ERR_TRANSPORT);
        }
    }
}

/* True if a peer may still send a HELLO for the schedule that is being
   destroyed: because this rank has sent the peer a HELLO and got no answer, or
   because the schedule failed before any epoch had sent a HELLO. */
static bool may_ask(const baton__task_t *task, uint32_t peer, bool has_failed)
{
    const uint8_t acquaintance = task->due[peer].acquaintance;
    return acquaintance == BATON__GREETED ||
           (acquaintance == BATON__UNMET && has_failed);
}

/* Keeps a record of a failed schedule that is destroyed, for peers that may
   still send a HELLO for it. Without such peers there is no record. If there is
   no memory for one, the peers will be told that this rank takes part in no
   epoch. */
void baton__notice_depart(const baton__task_t *task, bool has_failed)
{
    baton_group_t *group = task->schedule.group;
    baton__member_t *member = baton__member_of(group);
    const baton__plan_t *plan = &task->schedule.plan;
    uint32_t unheard = 0;
    for (uint32_t i = 0; i < plan->peer_count; i++) {
        unheard += may_ask(task, i, has_failed);
    }
    bool room = unheard > 0 && task->failing_from != 0 &&
                baton__table_find(&member->departed, task->identity) == NULL &&
                baton__table_reserve(&member->departed, 1);
    baton__departed_t *departed =
        room ? baton__alloc(1, sizeof *departed + unheard * sizeof(int)) : NULL;
    if (departed == NULL) {
        return;
    }
    *departed = (baton__departed_t){
        .epoch = task->failing_from,
        .incarnation = group->incarnation,
        .status = task->failure.status,
        .rank = task->failure.rank,
        .failed = task->failure.epoch,
    };
    for (uint32_t i = 0; i < plan->peer_count; i++) {
        if (may_ask(task, i, has_failed)) {
            departed->peers[departed->unheard++] = (int)plan->peers[i];
        }
    }
    baton__text_t text = {departed->cause, sizeof departed->cause, 0};
    baton__text_add(&text, "%s", task->schedule.sentence);
    baton__table_enter(&member->departed, task->identity)->departed = departed;
}

/* ---- receiving -------------------------------------------------------- */

/* Notes a loss that a peer's notice mentions; `lost` is 1 + the lost rank. This
   rank will notice the loss itself, but failures before that, here and on its
   own peers, should name this cause. Reports from a rank that is itself lost
   are ignored. */
static void hear(baton_group_t *group, int peer, uint32_t lost)
{
    baton__member_t *member = baton__member_of(group);
    const int rank = (int)lost - 1;
    if (lost > 0 && rank < group->size && rank != group->rank &&
        member->first.detail == NULL &&
        baton__group_loss(group, peer) == NULL) {
        member->first =
            (baton__loss_t){.peer = rank, .detail = "another rank has lost it"};
    }
}

static bool notice_meet(const direction_t *a, const direction_t *b)
{
    return a->count == b->count &&
           (a->sizes == b->sizes || a->varying > 0 || b->varying > 0);
}

static bool notice_agree(const summary_t *a, const summary_t *b)
{
    return notice_meet(&a->sends, &b->receives) &&
           notice_meet(&a->receives, &b->sends);
}

static void notice_add_messages(baton__text_t *text,
                                const direction_t *messages)
{
    unsigned long long bytes = messages->bytes;
    if (messages->count == 0) {
        baton__text_add(text, "no message");
    } else {
        bool many = messages->count > 1;
        baton__text_add(text, "%u message%s of %llu bytes%s", messages->count,
                        many ? "s" : "", bytes, many ? " in all" : "");
    }
}

/* Appends what one rank sends and the other receives, if the two differ.
   Returns whether they do. */
static bool tell_apart(baton__text_t *text, const direction_t *sends, int from,
                       const direction_t *receives, int to)
{
    if (notice_meet(sends, receives)) {
        return false;
    }
    baton__text_add(text, "rank %d sends ", from);
    notice_add_messages(text, sends);
    baton__text_add(text, " to rank %d, which receives ", to);
    notice_add_messages(text, receives);
    baton__text_add(text, " from it");
    if (sends->count == receives->count && sends->bytes == receives->bytes) {
        baton__text_add(text, ", of other kinds or sizes");
    }
    return true;
}

static void fail_disagreement(baton_schedule_t *schedule, int peer,
                              const summary_t *ours, const hello_t *theirs,
                              uint32_t from)
{
    baton__text_t text = BATON__TEXT(BATON__SENTENCE_BYTES);
    const summary_t *sum = &theirs->summary;
    int rank = schedule->group->rank;
    baton__text_add(&text, "\"%s\" on rank %d ", schedule->name, rank);
    if (strncmp(schedule->name, theirs->name, NAME_BYTES - 1) != 0) {
        baton__text_add(&text,
                        "meets \"%s\" on rank %d: the two names have one hash: "
                        "choose others",
                        theirs->name, peer);
    } else if (schedule->terms_hash != theirs->terms_hash) {
        baton__text_add(&text, "and on rank %d differ: ", peer);
        baton__terms_compare(&text, schedule, theirs->terms, from, peer);
    } else if (notice_agree(ours, sum)) {
        baton__text_add(&text,
                        "is to receive device memory of rank %d, but its "
                        "engine has no device",
                        peer);
    } else {
        baton__text_add(&text, "and on rank %d differ: ", peer);
        (void)(tell_apart(&text, &ours->sends, rank, &sum->receives, peer) ||
               tell_apart(&text, &sum->sends, peer, &ours->receives, rank));
        baton__text_add(&text, " (BATON_VERIFY=1 finds where)");
    }
    const baton__failure_t failure = {
        .status = baton__error(BATON_ERR_MISMATCH, "%s", text.data),
        .rank = rank,
        .epoch = schedule->run.epoch + 1,
        .final = true};
    baton__epoch_fail(schedule, &failure, text.data);
}

/* Returns true, and sends the peer this rank's next terms, if the difference is
   in terms after those that the peer has sent. The ranks exchange terms until
   one of them finds the difference. */
static bool compare_next(const baton_schedule_t *schedule,
                         baton_header_t header, int peer, const hello_t *theirs)
{
    bool is_cut = strlen(theirs->terms) == TERMS_BYTES - 1;
    header.tag =
        baton__task_of(schedule)->failing_from != 0 ||
                schedule->terms_hash == theirs->terms_hash ||
                strncmp(schedule->name, theirs->name, NAME_BYTES - 1) != 0
            ? 0
            : (uint32_t)baton__terms_next(schedule, theirs->terms, header.tag,
                                          is_cut);
    if (header.tag > 0) {
        baton__notice_queue(schedule->group, header, BATON__MESSAGE_WELCOME,
                            peer);
    }
    return header.tag > 0;
}

/* Called when a peer's HELLO shows that the peer has joined a recovery that was
   not called on this rank yet. Fails the schedule, because the peer takes no
   part in the present epochs any more. A peer that knew the schedule before has
   also sent a FAILURE; of any other peer the HELLO is the only sign. */
static void fail_behind(baton_schedule_t *schedule, int peer)
{
    const baton_group_t *group = schedule->group;
    baton__text_t text = BATON__TEXT(BATON__SENTENCE_BYTES);
    baton__text_add(&text,
                    "\"%.128s\" was cancelled on rank %d: rank %d recovers "
                    "their group after a failure",
                    schedule->name, group->rank, peer);
    add_loss(&text, group);
    baton__epoch_fail_here(
        schedule, baton__error_forward(
                      destroyed_status(group, BATON_ERR_CANCELLED), text.data));
}

void baton__notice_early(baton_group_t *group, const baton_header_t *header,
                         int peer)
{
    if (baton__notice_may_commit(group, header->schedule)) {
        notice_remember(group, header, peer);
    } else {
        const baton__departed_t *known =
            baton__group_departed(group, header->schedule, header->incarnation);
        baton__notice_answer(group, header, known != NULL ? known->epoch : 1,
                             peer);
    }
}

static void receive_hello(baton_group_t *group, baton_message_t *message)
{
    baton__member_t *member = baton__member_of(group);
    const baton_header_t header = message->header;
    int peer = message->peer;
    hello_t hello;
    baton_schedule_t *schedule = baton__group_find(group, header.schedule);
    if (schedule == NULL && header.kind == BATON__MESSAGE_HELLO) {
        baton__notice_early(group, &header, peer);
    } else if (schedule == NULL) {
        /* The schedule was destroyed here, and the peer was told then. */
        baton__group_told(group, header.schedule, peer);
    }
    baton__notice_take(group, message, &hello, sizeof hello);
    hello.name[NAME_BYTES - 1] = hello.terms[TERMS_BYTES - 1] = '\0';
    hear(group, peer, hello.summary.lost);
    if (schedule == NULL) {
        member->unknown_peer = peer;
        memcpy(member->unknown_name, hello.name, sizeof member->unknown_name);
        return;
    }
    baton__task_t *task = baton__task_of(schedule);
    uint32_t index = baton__plan_peer(&schedule->plan, peer);
    if (index < schedule->plan.peer_count) {
        schedule->run.progress_count +=
            task->due[index].acquaintance != BATON__MET;
        baton__stepper_meet(task, index, BATON__GREETED);
    }
    const summary_t ours = summarise(schedule, peer);
    bool no_device = hello.summary.device_sends > 0 && group->device == NULL;
    bool goes_on = compare_next(schedule, header, peer, &hello);
    if (!goes_on &&
        (!notice_agree(&ours, &hello.summary) || no_device ||
         hello.terms_hash != schedule->terms_hash ||
         strncmp(schedule->name, hello.name, NAME_BYTES - 1) != 0)) {
        fail_disagreement(schedule, peer, &ours, &hello, header.tag);
    }
    if (index == schedule->plan.peer_count) {
        /* The sender is not a peer of this schedule, so no epoch of the
           schedule can end on the sender. */
        baton__notice_answer(group, &header, 1, peer);
        return;
    }
    if ((int16_t)(header.incarnation - group->incarnation) > 0) {
        fail_behind(schedule, peer);
    }
    if (header.kind == BATON__MESSAGE_HELLO) {
        /* A FAILURE that was sent before the peer had committed was lost. */
        bool failed = task->failing_from != 0 &&
                      schedule->run.phase != BATON__RUN_RECOVERING;
        uint8_t failure = failed ? BATON__TELL_FAILURE : 0;
        baton__stepper_tell(task, index, BATON__TELL_WELCOME | failure);
    }
    if (!goes_on) {
        introduce(task, index);
    }
}

static void receive_failure(baton_group_t *group, baton_message_t *message)
{
    const baton_header_t header = message->header;
    const int peer = message->peer;
    failure_t received;
    baton__notice_take(group, message, &received, sizeof received);
    received.sentence[SENTENCE_BYTES - 1] = '\0';
    hear(group, peer, received.lost);
    baton_schedule_t *schedule = baton__group_find(group, header.schedule);
    if (schedule == NULL && received.final != 0) {
        /* The schedule has ended on the peer. */
        notice_forget(group, header.schedule, peer, false);
    }
    if (schedule == NULL || header.incarnation != group->incarnation) {
        return;
    }
    const baton__failure_t failure = {.status =
                                          baton__failure_of(received.status),
                                      .rank = received.rank,
                                      .epoch = received.epoch,
                                      .final = received.final != 0};
    baton__text_t text = BATON__TEXT(BATON__SENTENCE_BYTES);
    if (received.sentence[0] == ' ') {
        baton__text_add(&text, "\"%.128s\"", schedule->name);
    }
    baton__text_add(&text, "%s", received.sentence);
    /* A peer that still has the schedule has recovered already, and the
       schedule has failed there since. If the failure is final, the peer has
       destroyed the schedule since. */
    const bool recovered =
        received.final != GONE && schedule->run.phase == BATON__RUN_RECOVERING;
    (recovered ? baton__epoch_fail_recovered : baton__epoch_fail_from)(
        schedule, header.epoch > 0 ? header.epoch : 1, &failure, text.data);
    uint32_t index = baton__plan_peer(&schedule->plan, peer);
    if (failure.final && index < schedule->plan.peer_count) {
        /* Sends of epochs before the failure may be held. */
        introduce(baton__task_of(schedule), index);
    }
}

static void receive_failures(baton_group_t *group, baton_message_t *message)
{
    const uint16_t incarnation = message->header.incarnation;
    const int peer = message->peer;
    failures_t all;
    baton__notice_take(group, message, &all, sizeof all);
    hear(group, peer, all.lost);
    for (uint32_t i = 0; incarnation == group->incarnation && i < all.count &&
                         i < sizeof all.each / sizeof all.each[0];
         i++) {
        baton_schedule_t *schedule =
            baton__group_find(group, all.each[i].schedule);
        if (schedule != NULL) {
            fail_for_recovery(schedule, all.each[i].epoch, all.rank);
        }
    }
}

/* Fails two schedules if the ranks have started them in different orders: the
   peer runs an epoch of `other` that has not begun here, and has not completed
   the epoch that runs here. If `other` does not exist here, the peer finds the
   difference. */
static void fail_out_of_order(baton_schedule_t *schedule, int peer,
                              const baton__rank_state_t *state)
{
    const baton_group_t *group = schedule->group;
    baton_schedule_t *other = baton__group_find(group, state->ordered);
    if (other == NULL || other == schedule ||
        !baton__task_of(other)->in_order ||
        !baton__task_of(schedule)->in_order ||
        schedule->run.phase != BATON__RUN_RUNNING ||
        state->epoch > schedule->run.epoch ||
        state->ordered_epoch <= other->run.epoch) {
        return;
    }
    baton__text_t text = BATON__TEXT(BATON__SENTENCE_BYTES);
    baton__text_add(&text,
                    "\"%s\" on rank %d and on rank %d differ: ", schedule->name,
                    group->rank, peer);
    baton__terms_compare(&text, schedule, other->terms, 0, peer);
    const baton__failure_t failure = {
        .status = baton__error(BATON_ERR_MISMATCH, "%s", text.data),
        .rank = group->rank,
        .epoch = schedule->run.epoch};
    baton__epoch_fail_from(other, state->ordered_epoch, &failure, text.data);
    baton__epoch_fail(schedule, &failure, text.data);
}

static void receive_state(baton_group_t *group, baton_message_t *message)
{
    const int peer = message->peer;
    const baton_header_t header = message->header;
    baton_schedule_t *schedule = baton__group_find(group, header.schedule);
    baton__rank_state_t state;
    baton__notice_take(group, message, &state, sizeof state);
    if (schedule != NULL) {
        baton__inquiry_take(schedule, peer, &state);
        ask_next(baton__task_of(schedule));
    }
    if (schedule != NULL && header.incarnation == group->incarnation &&
        header.epoch == schedule->run.epoch) {
        fail_out_of_order(schedule, peer, &state);
    }
}

void baton__notice_receive(baton_group_t *group, baton_message_t *message)
{
    const baton_header_t header = message->header;
    const int peer = message->peer;
    switch ((int)header.kind) {
    case BATON__MESSAGE_FAILURE:
        receive_failure(group, message);
        break;
    case BATON__MESSAGE_FAILURES:
        receive_failures(group, message);
        break;
    case BATON__MESSAGE_INQUIRY:
        group->transport->drop(group->endpoint, message);
        (void)asks_first(group, &header, peer);
        baton__notice_queue(group, header, BATON__MESSAGE_STATE, peer);
        break;
    case BATON__MESSAGE_STATE:
        receive_state(group, message);
        break;
    default:
        receive_hello(group, message);
    }
}
