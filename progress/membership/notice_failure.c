/* FAILURE and FAILURES: ranks tell each other that a schedule has failed or was
   destroyed, and why; see notice.h. */
#include "progress/membership/notice_parts.h"

#include "base/alloc.h"
#include "base/error.h"
#include "progress/epoch/epoch.h"

enum { SENTENCE_BYTES = BATON__CAUSE_BYTES, ALL_PEERS = -1, ALL_SCHEDULES = 0 };

/* Value of failure_t.final: the schedule no longer exists on the sender, so the
   sender takes no part in the schedule's recovery. */
enum { GONE = 2 };

/* The content of a FAILURE. The epoch in the header is the first one that the
   failure affects. */
typedef struct failure {
    int32_t status;
    int32_t rank;
    /* the epoch that failed on `rank` */
    uint64_t epoch;
    char sentence[SENTENCE_BYTES];
    uint32_t final; /* 0: the schedule can be recovered; 1: it can't; GONE */
    /* 1 + the rank that the sender lost first (baton__group_note_report); 0: it
       has lost no rank. */
    uint32_t lost;
} failure_t;
static_assert(sizeof(failure_t) <= BATON_NOTICE_BYTES, "a failure is a notice");

/* The content of a FAILURES: the schedules that fail because `rank` recovers
   the group, each with the first epoch that fails. */
typedef struct failures {
    int32_t rank;
    uint32_t lost; /* 1 + the rank that the sender lost first; 0: none */
    uint32_t count;
    struct {
        uint64_t schedule, epoch;
    } each[15];
} failures_t;
static_assert(sizeof(failures_t) <= BATON_NOTICE_BYTES, "they are a notice");

baton_status_t baton__failure_send(const baton__task_t *task, int peer,
                                   uint64_t from)
{
    const baton_group_t *group = task->schedule.group;
    failure_t failure = {.status = task->failure.status,
                         .rank = task->failure.rank,
                         .epoch = task->failure.epoch,
                         .final = task->failure.final,
                         .lost = (uint32_t)baton__group_first_lost(group)};
    baton__text_t text = {failure.sentence, sizeof failure.sentence, 0};
    baton__text_add(&text, "%s", baton__schedule_sentence(&task->schedule));
    baton_header_t header = baton__notice_header(task, BATON__MESSAGE_FAILURE);
    header.epoch = from;
    return group->transport->notify(group->endpoint, peer, &header, &failure,
                                    sizeof failure);
}

/* Appends the lost rank: the loss is the likely cause, and the peer may have no
   other way to learn of it. */
static void add_loss(const baton_group_t *group, baton__text_t *text)
{
    const baton__member_t *member = baton__member_of(group);
    if (member->first.detail != NULL) {
        baton__text_add(text, "; %s is gone: %s",
                        baton__group_rank_text(group, member->first.peer),
                        member->first.detail);
    } else if (member->shrunk > 0) {
        /* The transport of this rank has not reported the loss that caused the
           shrink. */
        baton__text_add(text, "; %s is gone",
                        baton__group_rank_text(group, member->shrunk - 1));
    }
}

/* Returns the status for a report that a schedule has ended on this rank:
   BATON_ERR_TRANSPORT if a rank was lost, since the loss is the likely cause,
   else `other`. */
static baton_status_t destroyed_status(const baton_group_t *group,
                                       baton_status_t other)
{
    const baton__member_t *member = baton__member_of(group);
    return member->first.detail != NULL || member->shrunk > 0
               ? BATON_ERR_TRANSPORT
               : other;
}

/* Appends how the schedule or the group has ended on this rank. */
static void add_ended(baton__text_t *text, const char *how,
                      const baton_group_t *group)
{
    baton__text_add(text, " was %s on %s", how,
                    baton__group_rank_text(group, group->rank));
    add_loss(group, text);
}

baton_status_t baton__destroyed_send(baton_group_t *group, int peer,
                                     baton_header_t header)
{
    header.kind = BATON__MESSAGE_FAILURE;
    failure_t failure = {.status = destroyed_status(group, BATON_ERR_STATE),
                         .rank = group->rank,
                         .epoch = header.epoch,
                         .final = GONE,
                         .lost = (uint32_t)baton__group_first_lost(group)};
    baton__text_t text = {failure.sentence, sizeof failure.sentence, 0};
    const baton__destroyed_t *known =
        baton__group_destroyed(group, header.schedule, header.incarnation);
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
        baton__group_notified(group, header.schedule, peer);
    }
    return status;
}

/* If this failure is all that is due to the peer, returns the rank whose
   recovery has failed the schedule. Otherwise returns -1. */
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

uint32_t baton__failures_send(const baton__peer_notice_t *first)
{
    const baton_group_t *group = first->task->schedule.group;
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

void baton__notice_answer(baton_group_t *group, const baton_header_t *header,
                          uint64_t epoch, int peer)
{
    assert(baton__driven_here(group));
    baton_header_t answer = *header;
    answer.epoch = epoch;
    baton__stepper_answer(group, answer, BATON__MESSAGE_FAILURE, peer);
}

void baton__notice_forget_early(baton_group_t *group, uint64_t identity,
                                int peer, bool answers)
{
    baton__member_t *member = baton__member_of(group);
    baton__place_t *place = baton__table_find(&member->hellos, identity);
    baton__notice_t **link = place != NULL ? &place->hellos : NULL;
    while (link != NULL && *link != NULL) {
        baton__notice_t *each = *link;
        if (peer != ALL_PEERS && each->peer != peer) {
            link = &each->next;
            continue;
        }
        *link = each->next;
        each->header.incarnation = group->incarnation;
        if (answers) {
            baton__notice_answer(group, &each->header, 0, each->peer);
        }
        baton__member_give_notice(member, each);
    }
    if (place != NULL && place->hellos == NULL) {
        baton__table_remove(&member->hellos, identity);
    }
}

void baton__notice_retract(baton_group_t *group, uint64_t identity)
{
    assert(baton__driven_here(group));
    baton__member_t *member = baton__member_of(group);
    if (identity != ALL_SCHEDULES) {
        baton__notice_forget_early(group, identity, ALL_PEERS, true);
        return;
    }
    for (uint32_t i = 0; i < member->hellos.size; i++) {
        /* When an entry is removed, another one may move to its place, so the
           place is looked at again. */
        while (member->hellos.places[i].key != 0) {
            baton__notice_forget_early(group, member->hellos.places[i].key,
                                       ALL_PEERS, true);
        }
    }
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
    baton__text_add(&text, "\"%.128s\" was cancelled: %s recovers its group",
                    schedule->name,
                    baton__group_rank_text(schedule->group, rank));
    baton__epoch_fail_from(schedule, from, &failure, text.data);
}

void baton__notice_recover(baton_schedule_t *schedule)
{
    const baton__run_t *run = &schedule->run;
    fail_for_recovery(schedule, run->epoch + (run->phase == BATON__RUN_IDLE),
                      schedule->group->rank);
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
    assert(baton__driven_here(schedule->group));
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
    const baton__acquaintance_t acquaintance =
        baton__task_acquaintance(task, peer);
    return acquaintance == BATON__GREETED ||
           (acquaintance == BATON__UNMET && has_failed);
}

/* Keeps a record of a failed schedule that is destroyed, for peers that may
   still send a HELLO for it. Without such peers there is no record. If there is
   no memory for one, the peers will be told that this rank takes part in no
   epoch. */
void baton__notice_record(const baton__task_t *task, bool has_failed)
{
    assert(baton__driven_here(task->schedule.group));
    baton_group_t *group = task->schedule.group;
    baton__member_t *member = baton__member_of(group);
    const baton__plan_t *plan = &task->schedule.plan;
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->peer_count; i++) {
        count += may_ask(task, i, has_failed);
    }
    bool needed =
        count > 0 && task->failing_from != 0 &&
        baton__table_find(&member->destroyed, task->identity) == NULL &&
        baton__table_reserve(&member->destroyed, 1);
    baton__destroyed_t *record =
        needed ? baton__alloc(1, sizeof *record + count * sizeof(int)) : NULL;
    if (record == NULL) {
        return;
    }
    *record = (baton__destroyed_t){.epoch = task->failing_from,
                                   .incarnation = group->incarnation,
                                   .status = task->failure.status,
                                   .rank = task->failure.rank,
                                   .failed = task->failure.epoch};
    for (uint32_t i = 0; i < plan->peer_count; i++) {
        if (may_ask(task, i, has_failed)) {
            record->peers[record->peer_count++] = (int)plan->peers[i];
        }
    }
    baton__text_t text = {record->cause, sizeof record->cause, 0};
    baton__text_add(&text, "%s", baton__schedule_sentence(&task->schedule));
    baton__table_enter(&member->destroyed, task->identity)->destroyed = record;
}

/* ---- receiving -------------------------------------------------------- */

void baton__failure_peer_ahead(baton_schedule_t *schedule, int peer)
{
    const baton_group_t *group = schedule->group;
    baton__text_t text = BATON__TEXT(BATON__SENTENCE_BYTES);
    baton__text_add(&text,
                    "\"%.128s\" was cancelled on rank %d: %s recovers "
                    "their group after a failure",
                    schedule->name, group->rank,
                    baton__group_rank_text(group, peer));
    add_loss(group, &text);
    baton__epoch_fail_here(
        schedule, baton__error_forward(
                      destroyed_status(group, BATON_ERR_CANCELLED), text.data));
}

void baton__failure_receive(baton_group_t *group, baton_message_t *message)
{
    const baton_header_t header = message->header;
    const int peer = message->peer;
    failure_t received;
    baton__group_take_notice(group, message, &received, sizeof received);
    received.sentence[SENTENCE_BYTES - 1] = '\0';
    baton__group_note_report(group, peer, received.lost);
    baton_schedule_t *schedule = baton__group_find(group, header.schedule);
    if (schedule == NULL && received.final != 0) {
        /* The schedule has ended on the peer, whose HELLO needs no answer any
           more. */
        baton__notice_forget_early(group, header.schedule, peer, false);
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
    /* If this rank recovers the schedule, and the peer still has it, the peer
       has recovered already, and the schedule has failed there since. If
       received.final is GONE, the peer has destroyed the schedule instead. */
    const bool recovered =
        received.final != GONE && schedule->run.phase == BATON__RUN_RECOVERING;
    (recovered ? baton__epoch_fail_recovered : baton__epoch_fail_from)(
        schedule, header.epoch > 0 ? header.epoch : 1, &failure, text.data);
    uint32_t index = baton__plan_peer(&schedule->plan, peer);
    if (failure.final && index < schedule->plan.peer_count) {
        /* Sends of epochs before the failure may be held until the peer commits
           the schedule, which it will never do. Now they are sent, and the peer
           drops them. */
        baton__epoch_introduce(schedule, index);
    }
}

void baton__failures_receive(baton_group_t *group, baton_message_t *message)
{
    const uint16_t incarnation = message->header.incarnation;
    const int peer = message->peer;
    failures_t all;
    baton__group_take_notice(group, message, &all, sizeof all);
    baton__group_note_report(group, peer, all.lost);
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
