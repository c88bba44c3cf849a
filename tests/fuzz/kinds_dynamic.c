/* Kinds of schedules in which an epoch decides which messages it sends and
   waits for, how long they are, or when a node completes; see kinds.h. */
#include "fuzz/kinds.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = sizeof(uint64_t), POISON = 0x5a };

static int rank_at(const fuzz_participant_t *participant, int distance)
{
    int ranks = fuzz_ranks(participant->task);
    return (participant->rank + distance % ranks + ranks) % ranks;
}

/* A random number of a rank for an epoch of the participant's incarnation.
   `what` tells the numbers of one epoch apart. */
static uint64_t sampled(const fuzz_participant_t *participant, int rank,
                        uint64_t epoch, uint64_t what)
{
    fuzz_random_t random = {
        fuzz_key(participant->task, rank,
                 fuzz_number(fuzz_incarnation(participant), epoch)) +
        what};
    return fuzz_next(&random);
}

enum {
    SAMPLE_WORD = 1,
    SAMPLE_LENGTH,
    SAMPLE_ASYNC,
    SAMPLE_SEND,
    SAMPLE_WANT = 100
};

/* Never 0. */
static uint64_t word_of(const fuzz_participant_t *participant, int rank,
                        uint64_t epoch)
{
    return sampled(participant, rank, epoch, SAMPLE_WORD) | 1;
}

/* ---- branch ----------------------------------------------------------- */

static bool sends(const fuzz_participant_t *participant, int rank,
                  uint64_t epoch, int distance)
{
    return sampled(participant, rank, epoch, SAMPLE_SEND + (uint64_t)distance) %
               3 !=
           0;
}

/* Whether receives are in branches, too. */
static bool is_choosy(const fuzz_participant_t *participant)
{
    return participant->task->plan->in_place;
}

/* A long send whose receive is not taken ends with the receiver's epoch. Two
   ranks in a row take all messages, so that epochs can't wait for each other in
   a cycle. */
static bool wants(const fuzz_participant_t *participant, uint64_t epoch,
                  int distance)
{
    return !is_choosy(participant) || participant->rank < FUZZ_HOPS ||
           sampled(participant, participant->rank, epoch,
                   SAMPLE_WANT + (uint64_t)distance) %
                   3 !=
               0;
}

static baton_status_t taken(bool is)
{
    return is ? BATON_OK : BATON_SKIP;
}

static baton_status_t send_1(void *arg, baton_call_t *call)
{
    const fuzz_participant_t *participant = arg;
    return taken(
        sends(participant, participant->rank, baton_call_epoch(call), 1));
}

static baton_status_t send_not_1(void *arg, baton_call_t *call)
{
    return taken(send_1(arg, call) == BATON_SKIP);
}

static baton_status_t send_2(void *arg, baton_call_t *call)
{
    const fuzz_participant_t *participant = arg;
    return taken(
        sends(participant, participant->rank, baton_call_epoch(call), 2));
}

static baton_status_t want_1(void *arg, baton_call_t *call)
{
    return taken(wants(arg, baton_call_epoch(call), 1));
}

static baton_status_t want_2(void *arg, baton_call_t *call)
{
    return taken(wants(arg, baton_call_epoch(call), 2));
}

static void check_got(fuzz_participant_t *participant, uint64_t epoch,
                      int distance)
{
    int peer = rank_at(participant, -distance);
    if (!sends(participant, peer, epoch, distance) ||
        !wants(participant, epoch, distance) ||
        participant->state->copied[distance - 1] !=
            word_of(participant, peer, epoch)) {
        fuzz_fail(participant,
                  "safety: what came from rank %d in epoch %" PRIu64
                  " is not of this epoch",
                  peer, epoch);
    }
}

static baton_status_t got_1(void *arg, baton_call_t *call)
{
    check_got(arg, baton_call_epoch(call), 1);
    return BATON_OK;
}

static baton_status_t got_2(void *arg, baton_call_t *call)
{
    check_got(arg, baton_call_epoch(call), 2);
    return BATON_OK;
}

/* An optional message from `distance` ranks down:

       (want --) recv --> copy --> got                                     */
static void add_optional_recv(baton_schedule_t *s,
                              fuzz_participant_t *participant, int distance)
{
    fuzz_state_t *state = participant->state;
    baton_view_t inbox = fuzz_bind(s, &state->inbox[distance - 1], WORD);
    baton_view_t copied = fuzz_bind(s, &state->copied[distance - 1], WORD);
    baton_node_t recv =
        baton_add_recv(s, rank_at(participant, -distance), inbox);
    baton_node_t copy = baton_add_copy(s, copied, inbox);
    baton_node_t got =
        baton_add_call(s, distance == 1 ? got_1 : got_2, participant);
    baton_set_optional(s, recv);
    baton_set_optional(s, copy);
    baton_set_optional(s, got);
    baton_before(s, recv, copy);
    baton_before(s, copy, got);
    if (is_choosy(participant)) {
        baton_node_t want =
            baton_add_call(s, distance == 1 ? want_1 : want_2, participant);
        baton_before(s, want, recv);
    }
}

/* The tick is sent to the next rank behind the optional message, or behind the
   call that leaves it out:

       send_1 --> send --+
                         +-- any --> tick          send_2 --> send
       send_not_1 -------+                                                  */
static void build_branch(baton_schedule_t *s, fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    baton_view_t number = fuzz_bind(s, &state->number, WORD);
    baton_view_t answer = fuzz_bind(s, &state->answer, WORD);
    baton_node_t tick = baton_add_send(s, rank_at(participant, 1), number);
    (void)baton_add_recv(s, rank_at(participant, -1), answer);
    for (int distance = 1; distance <= FUZZ_HOPS; distance++) {
        baton_node_t choice =
            baton_add_call(s, distance == 1 ? send_1 : send_2, participant);
        baton_node_t send =
            baton_add_send(s, rank_at(participant, distance), number);
        baton_set_optional(s, send);
        baton_before(s, choice, send);
        if (distance == 1 && !is_choosy(participant)) {
            baton_before(s, send, tick);
            baton_before(s, baton_add_call(s, send_not_1, participant), tick);
            baton_set_need(s, tick, BATON_NEED_ANY);
        }
        add_optional_recv(s, participant, distance);
    }
}

static void fill_branch(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    if (memcmp(state->inbox, state->last_inbox, sizeof state->inbox) != 0) {
        fuzz_fail(participant,
                  "safety: a message came after the end of its epoch");
    }
    state->number =
        word_of(participant, participant->rank, participant->step + 1);
    state->answer = 0;
    memset(state->inbox, 0, sizeof state->inbox);
}

/* Whether messages arrive in the order in which they were sent. */
static bool is_ordered(const fuzz_participant_t *participant)
{
    const fuzz_plan_t *plan = &participant->task->cluster->plan;
    return !plan->model.multi_ported && !fuzz_has(plan, FUZZ_TRANSIENT_LAG);
}

static void check_branch_result(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    if (state->answer !=
        word_of(participant, rank_at(participant, -1), participant->step)) {
        fuzz_fail(participant, "safety: the tick is of another step");
    }
    for (int distance = 1; distance <= FUZZ_HOPS; distance++) {
        int peer = rank_at(participant, -distance);
        uint64_t seen = state->inbox[distance - 1];
        bool sent = sends(participant, peer, participant->step, distance) &&
                    wants(participant, participant->step, distance);
        if (seen != 0 &&
            (!sent || seen != word_of(participant, peer, participant->step))) {
            fuzz_fail(participant,
                      "safety: a message from rank %d that it has not "
                      "sent in this step",
                      peer);
        }
        /* The message came before the tick, and its receive had fired. */
        if (seen == 0 && sent && distance == 1 && is_ordered(participant) &&
            !is_choosy(participant)) {
            fuzz_fail(participant, "safety: the message of rank %d is lost",
                      peer);
        }
    }
    memcpy(state->last_inbox, state->inbox, sizeof state->inbox);
}

const fuzz_plain_t fuzz_branch = {
    .build = build_branch, .fill = fill_branch, .check = check_branch_result};

/* ---- lengths ---------------------------------------------------------- */

/* In words. In one epoch of four the length is not set. */
static size_t length_of(const fuzz_participant_t *participant, int rank,
                        uint64_t epoch)
{
    uint64_t sample = sampled(participant, rank, epoch, SAMPLE_LENGTH);
    return sample % 4 == 0 ? FUZZ_WORDS : sample / 4 % (FUZZ_WORDS + 1);
}

static uint64_t element_of(const fuzz_participant_t *participant, int rank,
                           uint64_t epoch, size_t at)
{
    return word_of(participant, rank, epoch) * (at + 1);
}

static baton_status_t decide(void *arg, baton_call_t *call)
{
    fuzz_participant_t *participant = arg;
    uint64_t epoch = baton_call_epoch(call);
    baton_length_t length = participant->state->own_length;
    if (baton_call_length(call, length) != SIZE_MAX) {
        fuzz_fail(participant, "safety: epoch %" PRIu64 " has a length already",
                  epoch);
    }
    return sampled(participant, participant->rank, epoch, SAMPLE_LENGTH) % 4 ==
                   0
               ? BATON_OK
               : baton_call_set_length(
                     call, length,
                     length_of(participant, participant->rank, epoch) * WORD);
}

static baton_status_t check_lengths(void *arg, baton_call_t *call)
{
    fuzz_participant_t *participant = arg;
    uint64_t epoch = baton_call_epoch(call);
    for (int hop = 0; hop < FUZZ_HOPS; hop++) {
        size_t bytes =
            baton_call_length(call, participant->state->lengths[hop]);
        size_t right =
            length_of(participant, rank_at(participant, -1 - hop), epoch) *
            WORD;
        if (bytes != right) {
            fuzz_fail(participant,
                      "safety: %zu bytes came in epoch %" PRIu64
                      ", %zu were sent",
                      bytes, epoch, right);
        }
    }
    return BATON_OK;
}

/* decide --> send            (own length)
   recv --> sum --> send      (the length of the previous rank)
   recv --> copy --> check    (the length of the one before it) */
static void build_lengths(baton_schedule_t *s, fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    int next = rank_at(participant, 1);
    int before = rank_at(participant, -1);
    baton_view_t middle = fuzz_bind(s, state->middle, sizeof state->middle);
    baton_view_t in[] = {fuzz_bind(s, state->in[0], sizeof state->in[0]),
                         fuzz_bind(s, state->in[1], sizeof state->in[1])};
    baton_node_t decided = baton_add_call(s, decide, participant);
    baton_node_t send =
        baton_add_send(s, next, fuzz_bind(s, state->out, sizeof state->out));
    baton_node_t recv = baton_add_recv(s, before, in[0]);
    baton_node_t sum =
        baton_add_reduce(s, BATON_U64, BATON_SUM, middle, in[0],
                         fuzz_bind(s, state->added, sizeof state->added));
    baton_node_t pass = baton_add_send(s, next, middle);
    baton_node_t last = baton_add_recv(s, before, in[1]);
    baton_node_t copy =
        baton_add_copy(s, fuzz_bind(s, state->end, sizeof state->end), in[1]);
    baton_node_t checked = baton_add_call(s, check_lengths, participant);
    state->own_length = baton_add_length(s);
    state->lengths[0] = baton_add_length(s);
    state->lengths[1] = baton_add_length(s);
    baton_set_length(s, send, state->own_length);
    baton_set_length(s, recv, state->lengths[0]);
    baton_set_length(s, sum, state->lengths[0]);
    baton_set_length(s, pass, state->lengths[0]);
    baton_set_length(s, last, state->lengths[1]);
    baton_set_length(s, copy, state->lengths[1]);
    baton_before(s, decided, send);
    baton_before(s, recv, sum);
    baton_before(s, sum, pass);
    baton_before(s, last, copy);
    baton_before(s, copy, checked);
    baton_before(s, recv, checked);
}

static void fill_lengths(fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    for (size_t i = 0; i < FUZZ_WORDS; i++) {
        state->out[i] = element_of(participant, participant->rank,
                                   participant->step + 1, i);
        state->added[i] = ~state->out[i];
    }
    memset(state->in, POISON, sizeof state->in);
    memset(state->middle, POISON, sizeof state->middle);
    memset(state->end, POISON, sizeof state->end);
}

static void expect_words(fuzz_participant_t *participant, const uint64_t *words,
                         bool summed, int distance)
{
    int from = rank_at(participant, -distance);
    int adds = rank_at(participant, 1 - distance);
    size_t length = length_of(participant, from, participant->step);
    uint64_t poison;
    memset(&poison, POISON, sizeof poison);
    for (size_t i = 0; i < FUZZ_WORDS; i++) {
        uint64_t right = element_of(participant, from, participant->step, i);
        if (summed) {
            right += ~element_of(participant, adds, participant->step, i);
        }
        if (words[i] != (i < length ? right : poison)) {
            fuzz_fail(participant,
                      "safety: word %zu of %zu from rank %d is wrong", i,
                      length, from);
            return;
        }
    }
}

static void check_lengths_result(fuzz_participant_t *participant)
{
    const fuzz_state_t *state = participant->state;
    expect_words(participant, state->in[0], false, 1);
    expect_words(participant, state->middle, true, 1);
    expect_words(participant, state->in[1], true, 2);
    expect_words(participant, state->end, true, 2);
}

const fuzz_plain_t fuzz_lengths = {.build = build_lengths,
                                   .fill = fill_lengths,
                                   .check = check_lengths_result};

/* ---- async ------------------------------------------------------------ */

struct fuzz_begun {
    fuzz_begun_t *next;
    fuzz_participant_t *participant;
    baton_async_t async;
    baton_status_t status; /* with which it completes */
    bool writes;           /* writes the number that is sent behind it */
    bool polled;
    bool open;
    double at_us;
};

static void end(fuzz_begun_t *begun)
{
    fuzz_participant_t *participant = begun->participant;
    begun->open = false;
    participant->state->open--;
    if (begun->writes && begun->status == BATON_OK) {
        participant->state->number =
            word_of(participant, participant->rank, participant->step);
    }
}

/* Sometimes completes a second time, which must be refused. */
static void complete(fuzz_begun_t *begun)
{
    fuzz_participant_t *participant = begun->participant;
    end(begun);
    if (baton_async_complete(begun->async, begun->status) != BATON_OK) {
        fuzz_fail(participant, "complete: %s", baton_error_message());
    }
    if (fuzz_once_in(&participant->random, 4) &&
        baton_async_complete(begun->async, BATON_ERR_LIMIT) !=
            BATON_ERR_STATE) {
        fuzz_fail(participant, "safety: an async node has completed twice");
    }
}

static void complete_later(void *arg)
{
    fuzz_begun_t *begun = arg;
    fuzz_participant_t *participant = begun->participant;
    if (begun->open && !fuzz_failed(participant->task->cluster) &&
        !fuzz_is_dead(participant)) {
        complete(begun);
    }
}

/* Completes at once, before start returns, later, or when it is polled. */
static baton_status_t begin(fuzz_begun_t *begun)
{
    fuzz_participant_t *participant = begun->participant;
    fuzz_cluster_t *cluster = participant->task->cluster;
    double now_us = baton_sim_now_us(cluster->sim);
    begun->at_us =
        now_us + fuzz_real(&participant->random, 2 * cluster->plan.pause_us);
    if (begun->polled) {
        return BATON_OK;
    }
    if (begun->status == BATON_OK && fuzz_once_in(&participant->random, 4)) {
        end(begun);
        return BATON_DONE;
    }
    if (fuzz_once_in(&participant->random, 4)) {
        complete(begun);
        return BATON_OK;
    }
    return baton_sim_at(cluster->sim, begun->at_us, complete_later, begun);
}

static fuzz_begun_t *add_begun(fuzz_participant_t *participant,
                               baton_async_t async, baton_status_t status)
{
    fuzz_begun_t *begun = fuzz_alloc(1, sizeof *begun);
    *begun = (fuzz_begun_t){.next = participant->state->begun,
                            .participant = participant,
                            .async = async,
                            .status = status,
                            .open = true};
    participant->state->begun = begun;
    participant->state->open++;
    return begun;
}

static baton_status_t start_writer(void *arg, baton_call_t *call,
                                   baton_async_t async)
{
    fuzz_participant_t *participant = arg;
    bool injection = fuzz_injection_due(participant, baton_call_epoch(call));
    fuzz_begun_t *begun = add_begun(
        participant, async, injection ? FUZZ_INJECTED_STATUS : BATON_OK);
    begun->writes = true;
    return begin(begun);
}

static bool skips(const fuzz_participant_t *participant, uint64_t epoch)
{
    return sampled(participant, participant->rank, epoch, SAMPLE_ASYNC) % 2 ==
           0;
}

static baton_status_t start_chooser(void *arg, baton_call_t *call,
                                    baton_async_t async)
{
    fuzz_participant_t *participant = arg;
    bool skip = skips(participant, baton_call_epoch(call));
    fuzz_begun_t *begun =
        add_begun(participant, async, skip ? BATON_SKIP : BATON_OK);
    begun->polled = participant->task->plan->in_place;
    return begin(begun);
}

/* At most one operation is open and polled. */
static baton_status_t poll_chooser(void *arg)
{
    fuzz_participant_t *participant = arg;
    fuzz_begun_t *begun = participant->state->begun;
    while (begun != NULL && !(begun->open && begun->polled)) {
        begun = begun->next;
    }
    if (begun == NULL) {
        fuzz_fail(participant, "safety: a node is polled that has completed");
        return BATON_OK;
    }
    if (baton_sim_now_us(participant->task->cluster->sim) < begun->at_us) {
        return BATON_AGAIN;
    }
    end(begun);
    return begun->status;
}

/* Some operations complete when they are cancelled, others at their own time.
 */
static void cancel(void *arg)
{
    fuzz_participant_t *participant = arg;
    for (fuzz_begun_t *begun = participant->state->begun; begun != NULL;
         begun = begun->next) {
        if (begun->open && !begun->polled &&
            fuzz_once_in(&participant->random, 2)) {
            complete(begun);
        }
    }
}

static baton_status_t check_choice(void *arg, baton_call_t *call)
{
    fuzz_participant_t *participant = arg;
    if (skips(participant, baton_call_epoch(call))) {
        fuzz_fail(participant,
                  "safety: a node ran behind an async node that skipped");
    }
    return BATON_OK;
}

static const baton_async_ops_t writer_ops = {.start = start_writer,
                                             .cancel = cancel};
static const baton_async_ops_t told_ops = {.start = start_chooser,
                                           .cancel = cancel};
static const baton_async_ops_t polled_ops = {.start = start_chooser,
                                             .poll = poll_chooser};

/* writer --> send     recv     chooser --> check (or not)

   In half of the tasks the writer is behind the receive, except on rank 0. */
static void build_async(baton_schedule_t *s, fuzz_participant_t *participant)
{
    fuzz_state_t *state = participant->state;
    baton_node_t writer = baton_add_async(s, &writer_ops, participant);
    baton_node_t send = baton_add_send(s, rank_at(participant, 1),
                                       fuzz_bind(s, &state->number, WORD));
    baton_node_t recv = baton_add_recv(s, rank_at(participant, -1),
                                       fuzz_bind(s, &state->answer, WORD));
    baton_node_t chooser = baton_add_async(
        s, participant->task->plan->in_place ? &polled_ops : &told_ops,
        participant);
    baton_node_t checked = baton_add_call(s, check_choice, participant);
    baton_set_optional(s, checked);
    baton_before(s, writer, send);
    baton_before(s, chooser, checked);
    if (participant->task->plan->keep == BATON_KEEP_ALL &&
        participant->rank > 0) {
        baton_before(s, recv, writer);
    }
}

static void fill_async(fuzz_participant_t *participant)
{
    participant->state->number = 0;
    participant->state->answer = 0;
}

static void check_async_result(fuzz_participant_t *participant)
{
    int peer = rank_at(participant, -1);
    if (participant->state->answer !=
        word_of(participant, peer, participant->step)) {
        fuzz_fail(participant, "safety: what rank %d has sent was not complete",
                  peer);
    }
}

static void close_async(fuzz_state_t *state)
{
    while (state->begun != NULL) {
        fuzz_begun_t *begun = state->begun;
        state->begun = begun->next;
        if (begun->open) {
            (void)!baton_async_complete(begun->async, BATON_ERR_CANCELLED);
        }
        free(begun);
    }
}

const fuzz_plain_t fuzz_async = {.build = build_async,
                                 .fill = fill_async,
                                 .check = check_async_result,
                                 .close = close_async,
                                 .has_injection = true};
