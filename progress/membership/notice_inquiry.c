/* INQUIRY and STATE: ranks ask each other what they wait for; see inquiry.h. */
#include "progress/membership/notice_parts.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "progress/epoch/epoch.h"
#include "progress/membership/inquiry.h"

#include <stdio.h>
#include <string.h>

/* Returns the record of the rank that reports a schedule's stalls. The member
   has a few records for schedules that are not committed here: such a schedule
   uses the record that has its identity or, if there is none, takes over the
   oldest one. Returns NULL if there is no memory. */
static baton__reporter_t *reporter_of(baton_group_t *group, uint64_t identity,
                                      baton_schedule_t *schedule)
{
    baton__member_t *member = baton__member_of(group);
    if (schedule != NULL) {
        return &baton__task_of(schedule)->reporter;
    }
    if (member->reporters == NULL) {
        member->reporters =
            baton__alloc(BATON__REPORTERS, sizeof *member->reporters);
    }
    baton__reporter_t *oldest = member->reporters;
    for (int i = 0; oldest != NULL && i < BATON__REPORTERS; i++) {
        baton__reporter_t *reporter = &member->reporters[i];
        if (reporter->schedule == identity) {
            return reporter;
        }
        oldest = reporter->at_ns < oldest->at_ns ? reporter : oldest;
    }
    return oldest;
}

/* Called when `rank` asks about a stall of the schedule. Returns true if it was
   the first to ask: then it reports the stall (inquiry.h). The first rank goes
   on asking as long as its stall lasts. If it has not asked for two stall
   periods, `rank` takes its place. If this rank has made progress since the
   first rank asked, this may be another stall, and one period is enough. */
static bool asks_first(baton_group_t *group, uint64_t identity, int rank)
{
    baton_schedule_t *schedule = baton__group_find(group, identity);
    baton__reporter_t *reporter = reporter_of(group, identity, schedule);
    const baton__reporter_t asks = {
        .schedule = identity,
        .at_ns = baton__clock_ns(),
        .progress = schedule != NULL ? baton__progress_of(schedule) : 0,
        .rank = rank};
    if (reporter == NULL) {
        return true;
    }
    const uint64_t lapse_ms = (uint64_t)group->stepper->stall_ms *
                              (asks.progress == reporter->progress ? 2 : 1);
    if (reporter->schedule != identity || reporter->rank == rank ||
        asks.at_ns - reporter->at_ns > lapse_ms * 1000000u) {
        *reporter = asks;
    }
    return reporter->rank == rank;
}

/* Queues an INQUIRY to each rank that the inquiry has found and not asked
   yet. */
static void ask_next(const baton__task_t *task)
{
    int rank;
    while ((rank = baton__inquiry_next(task)) >= 0) {
        baton_header_t header =
            baton__notice_header(task, BATON__MESSAGE_INQUIRY);
        header.epoch = task->schedule.run.epoch;
        baton__stepper_answer(task->schedule.group, header,
                              BATON__MESSAGE_INQUIRY, rank);
    }
}

void baton__notice_inquire(baton__task_t *task)
{
    assert(baton__driven_here(task->schedule.group));
    const baton__run_t *run = &task->schedule.run;
    baton_group_t *group = task->schedule.group;
    if (run->phase == BATON__RUN_RUNNING) {
        baton__inquiry_begin(task,
                             asks_first(group, task->identity, group->rank));
        ask_next(task);
    }
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

static const baton_group_t *root_of(const baton_group_t *group)
{
    return group->root != NULL ? group->root : group;
}

/* Used in the answer of a rank that has not begun the epoch. Appends the epoch
   for which the rank's application waits instead, if that is in this group or
   in one with the same root. */
static void add_wait(const baton_group_t *group, baton__rank_state_t *state)
{
    const baton__task_t *t = group->stepper->tasks;
    baton__text_t text = {state->text, sizeof state->text, strlen(state->text)};
    while (t != NULL &&
           (atomic_load_explicit(&t->waiters, memory_order_relaxed) == 0 ||
            t->schedule.run.phase != BATON__RUN_RUNNING ||
            root_of(t->schedule.group) != root_of(group))) {
        t = t->next;
    }
    if (t != NULL) {
        baton__text_add(&text, " (in a wait for epoch %llu of \"%s\")",
                        (unsigned long long)t->schedule.run.epoch,
                        t->schedule.name);
    }
}

baton_status_t baton__state_send(baton_group_t *group, int peer,
                                 const baton_header_t *header)
{
    baton__rank_state_t state = {.progress = 1};
    const baton_schedule_t *schedule =
        baton__group_find(group, header->schedule);
    const baton__task_t *ordered = find_in_order(group);
    if (schedule != NULL) {
        baton__inquiry_answer(schedule, &state);
    } else {
        const char *has = "destroyed it";
        if (!baton__group_has_made(group, header->schedule)) {
            has = "not created it";
        } else if (baton__notice_may_commit(group, header->schedule)) {
            has = "not committed it";
        }
        (void)snprintf(state.text, sizeof state.text, "%s", has);
    }
    if (schedule == NULL || schedule->run.phase == BATON__RUN_IDLE) {
        add_wait(group, &state);
    }
    if (ordered != NULL &&
        (schedule != NULL || !baton__group_has_made(group, header->schedule))) {
        state.ordered = ordered->identity;
        state.ordered_epoch = ordered->schedule.run.epoch;
    }
    state.first = asks_first(group, header->schedule, peer);
    return group->transport->notify(group->endpoint, peer, header, &state,
                                    sizeof state);
}

/* ---- receiving -------------------------------------------------------- */

void baton__inquiry_receive(baton_group_t *group, baton_message_t *message)
{
    const baton_header_t header = message->header;
    const int peer = message->peer;
    group->transport->drop(group->endpoint, message);
    (void)asks_first(group, header.schedule, peer);
    baton__stepper_answer(group, header, BATON__MESSAGE_STATE, peer);
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
                    "\"%s\" on rank %d and on %s differ: ", schedule->name,
                    group->rank, baton__group_rank_text(group, peer));
    baton__terms_compare(&text, schedule, other->terms, 0, peer);
    const baton__failure_t failure = {
        .status = baton__error(BATON_ERR_MISMATCH, "%s", text.data),
        .rank = group->rank,
        .epoch = schedule->run.epoch};
    baton__epoch_fail_from(other, state->ordered_epoch, &failure, text.data);
    baton__epoch_fail(schedule, &failure, text.data);
}

void baton__state_receive(baton_group_t *group, baton_message_t *message)
{
    const int peer = message->peer;
    const baton_header_t header = message->header;
    baton_schedule_t *schedule = baton__group_find(group, header.schedule);
    baton__rank_state_t state;
    baton__group_take_notice(group, message, &state, sizeof state);
    if (schedule != NULL) {
        baton__inquiry_take(schedule, peer, &state);
        ask_next(baton__task_of(schedule));
    }
    if (schedule != NULL && header.incarnation == group->incarnation &&
        header.epoch == schedule->run.epoch) {
        fail_out_of_order(schedule, peer, &state);
    }
}
