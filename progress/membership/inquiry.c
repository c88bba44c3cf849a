/* Inquiries; see inquiry.h. */
#include "progress/membership/inquiry.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

/* Every rank whose epoch stalls asks the REPORTERS lowest ranks, even if it
   does not wait for them, to learn which rank reports the stall; see inquiry.h.
   ASKED_CAPACITY is the most ranks that a rank asks. */
enum { REPORTERS = 2, ASKED_CAPACITY = BATON__ASKED_MOST + REPORTERS };

/* A rank that an inquiry asks, and the answer of that rank. */
typedef struct asked {
    int rank;
    /* The rank was asked in this round. Also true of the rank that asks, which
       sends itself no inquiry. */
    bool sent;
    bool named; /* the rank is in the text that is being composed */
    /* True: a rank that was asked waits for `rank`. False: `rank` is asked only
       to learn which rank reports the stall. */
    bool awaited;
    /* baton__progress_of in the rank's first answer; 0: unknown. */
    uint64_t before;
    baton__rank_state_t state;
} asked_t;

typedef struct baton__inquiry {
    uint64_t progress; /* the schedule's progress when the inquiry began */
    bool moves;        /* a rank has made progress between its two answers */
    uint32_t count;
    asked_t ranks[ASKED_CAPACITY + 1]; /* sorted by rank */
} baton__inquiry_t;

/* ---- the answer ------------------------------------------------------- */

uint64_t baton__progress_of(const baton_schedule_t *schedule)
{
    return schedule->run.progress_count + schedule->run.epoch;
}

bool baton__node_is_awaited(const baton_schedule_t *schedule, uint32_t node)
{
    uint8_t state = schedule->run.state[node];
    return state != BATON__NODE_IDLE && state != BATON__NODE_SKIPPED &&
           state != BATON__NODE_COMPLETED;
}

void baton__describe_own(const baton_schedule_t *schedule, uint32_t node,
                         baton__text_t *text)
{
    bool queued = schedule->run.state[node] == BATON__NODE_QUEUED;
    baton__text_add(text, "%s, which %s%s", baton__node_name(schedule, node),
                    queued ? "is queued on " : "was begun",
                    queued ? schedule->group->device->port.name : "");
}

static void inquiry_await(baton__rank_state_t *out, int peer)
{
    uint32_t i = 0;
    while (i < out->await_count && out->awaits[i] != peer) {
        i++;
    }
    if (i == out->await_count && i < BATON__AWAITS_MOST) {
        out->awaits[out->await_count++] = peer;
    }
}

/* Answers for a running epoch: the nodes that it waits for or, if no node is in
   progress, the ranks that may activate it. */
static void answer_running(const baton_schedule_t *schedule,
                           baton__rank_state_t *out, baton__text_t *text)
{
    const baton__plan_t *plan = &schedule->plan;
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        if ((op->flags & BATON__OPTIONAL) != 0 ||
            !baton__node_is_awaited(schedule, node)) {
            continue;
        }
        if (baton__kinds[op->kind].message) {
            inquiry_await(out, baton__peer_of(schedule, op));
        } else if (text->used == 0) {
            baton__text_add(text, "not ended ");
            baton__describe_own(schedule, node, text);
        }
    }
    bool begun = out->await_count > 0 || text->used > 0;
    for (uint32_t i = 0; !begun && i < plan->armed_count; i++) {
        inquiry_await(out,
                      baton__peer_of(schedule, &plan->ops[plan->armed[i]]));
    }
}

void baton__inquiry_answer(const baton_schedule_t *schedule,
                           baton__rank_state_t *out)
{
    const baton__run_t *run = &schedule->run;
    baton__text_t text = {out->text, sizeof out->text, 0};
    bool idle = run->phase == BATON__RUN_IDLE;
    *out = (baton__rank_state_t){.epoch = run->epoch + idle,
                                 .progress = 2 + baton__progress_of(schedule)};
    if (run->phase == BATON__RUN_RUNNING && !baton__task_of(schedule)->held) {
        answer_running(schedule, out, &text);
    }
    if (out->await_count > 0 || text.used > 0) {
        return;
    }
    const char *lacks = "recovered";
    if (idle || !run->started) {
        lacks = "started";
    } else if (run->phase == BATON__RUN_RUNNING) {
        lacks = "computed all of";
    }
    baton__text_add(&text, "not %s epoch %llu of \"%s\"", lacks,
                    (unsigned long long)out->epoch, schedule->name);
}

/* ---- the inquiry ------------------------------------------------------ */

/* Returns the place of a rank in the inquiry or, if the rank is not there, the
   place where it belongs. */
static asked_t *inquiry_find(baton__inquiry_t *inquiry, int rank)
{
    asked_t *at = inquiry->ranks;
    while (at < inquiry->ranks + inquiry->count && at->rank < rank) {
        at++;
    }
    return at;
}

static void forget_answer(const baton_group_t *group, asked_t *at)
{
    const char *has =
        "not answered: it may wait for a processor, be in a long call node or "
        "in MPI, be out of reach, or have no progress thread";
    if (baton__group_loss(group, at->rank) != NULL) {
        has = "been lost";
    } else if (baton__group_is_stopped(group, at->rank)) {
        has = "been stopped, by a signal or a debugger";
    }
    at->state = (baton__rank_state_t){0};
    (void)snprintf(at->state.text, sizeof at->state.text, "%s", has);
}

static void add_rank(const baton_group_t *group, baton__inquiry_t *inquiry,
                     int rank, bool awaited)
{
    asked_t *at = inquiry_find(inquiry, rank);
    size_t after = (size_t)(inquiry->ranks + inquiry->count - at);
    if (after > 0 && at->rank == rank) {
        /* The rank was asked only to learn which rank reports the stall. Now it
           is also awaited, so it is asked again, for the ranks that it waits
           for. */
        at->sent &= at->awaited || !awaited;
        at->awaited |= awaited;
        return;
    }
    if (rank < 0 || rank >= group->size || inquiry->count == ASKED_CAPACITY) {
        return;
    }
    memmove(at + 1, at, after * sizeof *at);
    *at = (asked_t){.rank = rank, .awaited = awaited};
    forget_answer(group, at);
    inquiry->count++;
}

void baton__inquiry_begin(baton__task_t *task, bool first)
{
    const baton_schedule_t *schedule = &task->schedule;
    const baton_group_t *group = schedule->group;
    if (task->inquiry == NULL) {
        task->inquiry = baton__alloc(1, sizeof(baton__inquiry_t));
    }
    baton__inquiry_t *inquiry = task->inquiry;
    if (inquiry == NULL) {
        return;
    }
    baton__rank_state_t own;
    if (inquiry->count > 0 && !inquiry->moves &&
        inquiry->progress == baton__progress_of(schedule)) {
        for (uint32_t i = 0; i < inquiry->count; i++) { /* the second round */
            inquiry->ranks[i].sent = false;
            forget_answer(group, &inquiry->ranks[i]);
        }
    } else {
        *inquiry = (baton__inquiry_t){.progress = baton__progress_of(schedule)};
        for (int i = 0; i < REPORTERS && i < group->size; i++) {
            add_rank(group, inquiry, i, false);
        }
        add_rank(group, inquiry, group->rank, true);
    }
    inquiry_find(inquiry, group->rank)->sent = true;
    baton__inquiry_answer(schedule, &own);
    own.first = first;
    baton__inquiry_take(schedule, group->rank, &own);
}

int baton__inquiry_next(const baton__task_t *task)
{
    baton__inquiry_t *inquiry = task->inquiry;
    for (uint32_t i = 0; inquiry != NULL && i < inquiry->count; i++) {
        if (!inquiry->ranks[i].sent) {
            inquiry->ranks[i].sent = true;
            return inquiry->ranks[i].rank;
        }
    }
    return -1;
}

void baton__inquiry_take(const baton_schedule_t *schedule, int rank,
                         const baton__rank_state_t *state)
{
    baton__inquiry_t *inquiry = baton__task_of(schedule)->inquiry;
    if (inquiry == NULL) {
        return;
    }
    asked_t *asked = inquiry_find(inquiry, rank);
    if (asked == inquiry->ranks + inquiry->count || asked->rank != rank) {
        return;
    }
    asked->before = asked->before == 0 ? state->progress : asked->before;
    inquiry->moves |= asked->awaited && asked->before != state->progress;
    asked->state = *state;
    asked->state.text[sizeof state->text - 1] = '\0';
    if (state->epoch > schedule->run.epoch) {
        (void)snprintf(asked->state.text, sizeof state->text,
                       "ended epoch %llu of \"%.64s\"",
                       (unsigned long long)schedule->run.epoch, schedule->name);
        return;
    }
    bool awaited = asked->awaited; /* adding a rank may move *asked */
    for (uint32_t i = 0;
         awaited && i < state->await_count && i < BATON__AWAITS_MOST; i++) {
        add_rank(schedule->group, inquiry, state->awaits[i], true);
    }
}

/* ---- the result of an inquiry ----------------------------------------- */

static bool says_the_same(const asked_t *a, const asked_t *b)
{
    return a->awaited && strcmp(a->state.text, b->state.text) == 0;
}

/* Appends "rank 3 has" or "ranks 0, 1, 2 have": the ranks, from `first` on,
   that have answered with the same text as `first`. Marks these ranks as named.
   If they are few, adds their hosts and processes, which help the user to find
   them. */
static void describe_ranks(const baton_group_t *group,
                           baton__inquiry_t *inquiry, asked_t *first,
                           baton__text_t *text)
{
    enum { FEW = 4 };
    asked_t *end = inquiry->ranks + inquiry->count;
    uint32_t count = 0;
    for (asked_t *at = first; at < end; at++) {
        count += says_the_same(at, first);
    }
    baton__text_add(text, count > 1 ? "ranks" : "rank");
    for (asked_t *at = first; at < end; at++) {
        if (says_the_same(at, first)) {
            const char *place = baton__group_rank_text(group, at->rank);
            bool placed = count <= FEW && first->state.text[0] != '\0';
            at->named = true;
            baton__text_add(text, "%s%d%s", at == first ? " " : ", ", at->rank,
                            placed && strchr(place, '(') != NULL
                                ? strchr(place, '(') - 1
                                : "");
        }
    }
    baton__text_add(text, count > 1 ? " have" : " has");
}

/* Appends a circle of ranks that wait for each other. There is such a circle if
   each rank that was asked waits for another rank. To find it, goes from each
   rank to the first rank that it waits for: as many times as there are ranks,
   which leads into the circle, and then once around it. */
static void describe_circle(baton__inquiry_t *inquiry, int own,
                            baton__text_t *text)
{
    const asked_t *at = inquiry_find(inquiry, own);
    for (uint32_t i = 0; i < inquiry->count; i++) {
        at = inquiry_find(inquiry, at->state.awaits[0]);
    }
    const asked_t *first = at;
    baton__text_add(text, "\n    ranks wait for each other: %d", at->rank);
    do {
        at = inquiry_find(inquiry, at->state.awaits[0]);
        baton__text_add(text, " for %d", at->rank);
    } while (at != first && at < inquiry->ranks + inquiry->count);
    baton__text_add(text, " (BATON_VERIFY=1 finds what does not match)");
}

void baton__inquiry_describe(const baton_schedule_t *schedule,
                             baton__text_t *text)
{
    baton__inquiry_t *inquiry = baton__task_of(schedule)->inquiry;
    if (inquiry == NULL || inquiry->progress != baton__progress_of(schedule)) {
        return;
    }
    const baton_group_t *group = schedule->group;
    asked_t *waiting = NULL;
    const asked_t *end = NULL;
    for (uint32_t i = 0; i < inquiry->count; i++) {
        inquiry->ranks[i].named = !inquiry->ranks[i].awaited;
    }
    for (uint32_t i = 0; i < inquiry->count; i++) {
        asked_t *at = &inquiry->ranks[i];
        if (at->named) {
            continue;
        }
        if (at->state.text[0] == '\0') {
            waiting = waiting == NULL ? at : waiting;
        } else {
            baton__text_add(text, "\n    ");
            describe_ranks(group, inquiry, at, text);
            baton__text_add(text, " %s", at->state.text);
            end = at;
        }
    }
    if (end == NULL && inquiry->count < BATON__ASKED_MOST) {
        describe_circle(inquiry, group->rank, text);
    } else if (end != NULL && waiting != NULL &&
               strncmp(end->state.text, "not ", 4) == 0) {
        baton__text_add(text, "; ");
        describe_ranks(group, inquiry, waiting, text);
    }
}

bool baton__inquiry_saw_progress(const baton__task_t *task)
{
    return task->inquiry != NULL && task->inquiry->moves;
}

bool baton__inquiry_leaves_report(const baton__task_t *task)
{
    const baton__inquiry_t *inquiry = task->inquiry;
    uint32_t i = 0;
    while (inquiry != NULL && i < inquiry->count &&
           inquiry->ranks[i].state.progress == 0) {
        i++;
    }
    return inquiry != NULL && i < inquiry->count &&
           inquiry->ranks[i].state.first == 0;
}
