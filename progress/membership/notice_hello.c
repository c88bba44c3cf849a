/* HELLO and WELCOME: ranks tell each other that they have committed a schedule,
   and compare what they have committed; see notice.h. */
#include "progress/membership/notice_parts.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "progress/epoch/epoch.h"

#include <stdio.h>
#include <string.h>

/* The messages of a schedule to one peer, or those from that peer, including
   activations. */
typedef struct direction {
    uint32_t count;
    uint32_t varying; /* number of messages whose length is set in each epoch */
    uint64_t sizes;   /* hash of the messages' kinds, tags and sizes */
    uint64_t bytes;   /* sum of the sizes */
} direction_t;

/* The messages between two ranks, as the sender of the HELLO has committed
   them. */
typedef struct summary {
    direction_t sends, receives;
    uint32_t device_sends; /* number of sends of device memory */
    /* 1 + the rank that the sender lost first (baton__group_note_report); 0: it
       has lost no rank. */
    uint32_t lost;
} summary_t;

enum { NAME_BYTES = BATON__UNKNOWN_BYTES, TERMS_BYTES = 136 };

/* The content of a HELLO or WELCOME. */
typedef struct hello {
    summary_t summary;
    uint64_t terms_hash;
    char name[NAME_BYTES];
    /* The terms, beginning with the one whose number is the header's tag. */
    char terms[TERMS_BYTES];
} hello_t;
static_assert(sizeof(hello_t) <= BATON_NOTICE_BYTES, "a hello is a notice");

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

baton_status_t baton__hello_send(const baton__task_t *task, int peer,
                                 baton__message_kind_t kind, uint32_t from)
{
    const baton_schedule_t *schedule = &task->schedule;
    const baton_group_t *group = schedule->group;
    baton_header_t header = baton__notice_header(task, kind);
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

/* Remembers the HELLO of a schedule that this rank has not committed: the peer
   is answered after the commit, or when it is certain that this rank will never
   commit. Without memory the HELLO is forgotten. */
static void notice_remember(baton_group_t *group, const baton_header_t *header,
                            int peer)
{
    baton__member_t *member = baton__member_of(group);
    const uint64_t identity = header->schedule;
    baton__place_t *place = baton__table_find(&member->hellos, identity);
    if (place == NULL && baton__table_reserve(&member->hellos, 1)) {
        place = baton__table_enter(&member->hellos, identity);
    }
    baton__notice_t *notice =
        place != NULL ? baton__member_take_notice(member) : NULL;
    if (notice != NULL) {
        *notice = (baton__notice_t){
            .next = place->hellos, .header = *header, .peer = peer};
        place->hellos = notice;
    }
}

/* Sends HELLO to the ranks that sent theirs before this rank's commit, also to
   a rank with which this schedule has no messages: that rank then finds that
   its schedule differs, and fails it. */
static void answer_early(baton__task_t *task)
{
    const baton_schedule_t *schedule = &task->schedule;
    baton_group_t *group = schedule->group;
    const baton__place_t *place =
        baton__table_find(&baton__member_of(group)->hellos, task->identity);
    const baton__notice_t *early = place != NULL ? place->hellos : NULL;
    for (; early != NULL; early = early->next) {
        uint32_t index = baton__plan_peer(&schedule->plan, early->peer);
        if (index == schedule->plan.peer_count) {
            baton__stepper_answer(group, early->header, BATON__MESSAGE_HELLO,
                                  early->peer);
        } else {
            baton__stepper_greet(task, index);
        }
    }
    baton__notice_forget_early(group, task->identity, -1, false);
}

void baton__notice_hello(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    const baton_group_t *group = schedule->group;
    baton__task_t *task = baton__task_of(schedule);
    /* In a plan that the ranks of a simulation share (sched/share.h), all peers
       of the sends count as introduced already. */
    const uint32_t peers =
        schedule->plan.shared ? 0 : schedule->plan.peer_count;
    task->unmet = task->due != NULL ? peers : 0;
    for (uint32_t i = 0; i < peers; i++) {
        int peer = (int)schedule->plan.peers[i];
        if (!baton__member_of(group)->introduces || peer == group->rank) {
            baton__epoch_introduce(schedule, i);
        } else if (task->on_failure != NULL) {
            baton__stepper_greet(task, i);
        }
    }
    answer_early(task);
}

/* ---- receiving -------------------------------------------------------- */

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

/* If the messages that one rank sends differ from those that the other rank
   receives, appends both, and returns true. */
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
    const char *named = baton__group_rank_text(schedule->group, peer);
    baton__text_add(&text, "\"%s\" on rank %d ", schedule->name, rank);
    if (strncmp(schedule->name, theirs->name, NAME_BYTES - 1) != 0) {
        baton__text_add(
            &text,
            "has the same hash as \"%s\" on %s: change one of the two names",
            theirs->name, named);
    } else if (schedule->terms_hash != theirs->terms_hash) {
        baton__text_add(&text, "and on %s differ: ", named);
        baton__terms_compare(&text, schedule, theirs->terms, from, peer);
    } else if (notice_agree(ours, sum)) {
        baton__text_add(&text,
                        "is to receive device memory of %s, but its "
                        "engine has no device",
                        named);
    } else {
        baton__text_add(&text, "and on %s differ: ", named);
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
        baton__stepper_answer(schedule->group, header, BATON__MESSAGE_WELCOME,
                              peer);
    }
    return header.tag > 0;
}

void baton__notice_early(baton_group_t *group, const baton_header_t *header,
                         int peer)
{
    if (baton__notice_may_commit(group, header->schedule)) {
        notice_remember(group, header, peer);
    } else {
        const baton__destroyed_t *known = baton__group_destroyed(
            group, header->schedule, header->incarnation);
        baton__notice_answer(group, header, known != NULL ? known->epoch : 1,
                             peer);
    }
}

/* Notes for error messages that a peer has committed a schedule with this name,
   which this rank has not. */
static void note_unknown(baton__member_t *member, int peer, const char *name)
{
    member->unknown_peer = peer;
    if (member->unknown_name == NULL) {
        member->unknown_name = baton__alloc(1, NAME_BYTES);
    }
    if (member->unknown_name != NULL) {
        memcpy(member->unknown_name, name, NAME_BYTES);
    }
}

void baton__hello_receive(baton_group_t *group, baton_message_t *message)
{
    const baton_header_t header = message->header;
    int peer = message->peer;
    hello_t hello;
    baton_schedule_t *schedule = baton__group_find(group, header.schedule);
    if (schedule == NULL && header.kind == BATON__MESSAGE_HELLO) {
        baton__notice_early(group, &header, peer);
    } else if (schedule == NULL) {
        /* The schedule was destroyed here, and the peer was told then. */
        baton__group_notified(group, header.schedule, peer);
    }
    baton__group_take_notice(group, message, &hello, sizeof hello);
    hello.name[NAME_BYTES - 1] = hello.terms[TERMS_BYTES - 1] = '\0';
    baton__group_note_report(group, peer, hello.summary.lost);
    if (schedule == NULL) {
        note_unknown(baton__member_of(group), peer, hello.name);
        return;
    }
    baton__task_t *task = baton__task_of(schedule);
    uint32_t index = baton__plan_peer(&schedule->plan, peer);
    if (index < schedule->plan.peer_count) {
        schedule->run.progress_count +=
            baton__task_acquaintance(task, index) != BATON__MET;
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
        baton__failure_peer_ahead(schedule, peer);
    }
    if (header.kind == BATON__MESSAGE_HELLO) {
        /* A FAILURE that this rank sent before the peer had committed was lost,
           so it is sent again. */
        bool failed = task->failing_from != 0 &&
                      schedule->run.phase != BATON__RUN_RECOVERING;
        uint8_t failure = failed ? BATON__TELL_FAILURE : 0;
        baton__stepper_tell(task, index, BATON__TELL_WELCOME | failure);
    }
    if (!goes_on) {
        baton__epoch_introduce(schedule, index);
    }
}
