/* Schedules in which an epoch decides what it does: which messages it sends and
   waits for, how long they are, when a node completes. See plain.h. */
#include "fuzz/plain.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = sizeof(uint64_t), POISON = 0x5a };

static int rank_at(const fuzz_seat_t *seat, int distance)
{
    int ranks = fuzz_ranks(seat->task);
    return (seat->rank + distance % ranks + ranks) % ranks;
}

/* What a rank draws for an epoch of the seat's life; `what` tells draws of one
   epoch apart. */
static uint64_t drawn(const fuzz_seat_t *seat, int rank, uint64_t epoch,
                      uint64_t what)
{
    fuzz_random_t random = {
        fuzz_key(seat->task, rank, fuzz_number(fuzz_life(seat), epoch)) + what};
    return fuzz_next(&random);
}

enum { DRAW_WORD = 1, DRAW_LENGTH, DRAW_ASYNC, DRAW_SEND, DRAW_WANT = 100 };

/* Never 0. */
static uint64_t word_of(const fuzz_seat_t *seat, int rank, uint64_t epoch)
{
    return drawn(seat, rank, epoch, DRAW_WORD) | 1;
}

/* ---- branch ----------------------------------------------------------- */

static bool sends(const fuzz_seat_t *seat, int rank, uint64_t epoch,
                  int distance)
{
    return drawn(seat, rank, epoch, DRAW_SEND + (uint64_t)distance) % 3 != 0;
}

/* Whether receives are behind branches, too. */
static bool is_choosy(const fuzz_seat_t *seat)
{
    return seat->task->plan->in_place;
}

/* A long send to a receive that its epoch leaves out ends with that epoch. So
   that no epochs wait for each other in a circle, two ranks in a row take all.
 */
static bool wants(const fuzz_seat_t *seat, uint64_t epoch, int distance)
{
    return !is_choosy(seat) || seat->rank < FUZZ_HOPS ||
           drawn(seat, seat->rank, epoch, DRAW_WANT + (uint64_t)distance) % 3 !=
               0;
}

static baton_status_t taken(bool is)
{
    return is ? BATON_OK : BATON_SKIP;
}

static baton_status_t send_1(void *arg, baton_call_t *call)
{
    const fuzz_seat_t *seat = arg;
    return taken(sends(seat, seat->rank, baton_call_epoch(call), 1));
}

static baton_status_t send_not_1(void *arg, baton_call_t *call)
{
    return taken(send_1(arg, call) == BATON_SKIP);
}

static baton_status_t send_2(void *arg, baton_call_t *call)
{
    const fuzz_seat_t *seat = arg;
    return taken(sends(seat, seat->rank, baton_call_epoch(call), 2));
}

static baton_status_t want_1(void *arg, baton_call_t *call)
{
    return taken(wants(arg, baton_call_epoch(call), 1));
}

static baton_status_t want_2(void *arg, baton_call_t *call)
{
    return taken(wants(arg, baton_call_epoch(call), 2));
}

static void check_got(fuzz_seat_t *seat, uint64_t epoch, int distance)
{
    int peer = rank_at(seat, -distance);
    if (!sends(seat, peer, epoch, distance) || !wants(seat, epoch, distance) ||
        seat->part->copied[distance - 1] != word_of(seat, peer, epoch)) {
        fuzz_fail(seat,
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
static void add_optional_recv(baton_schedule_t *s, fuzz_seat_t *seat,
                              int distance)
{
    fuzz_part_t *part = seat->part;
    baton_view_t inbox = fuzz_bind(s, &part->inbox[distance - 1], WORD);
    baton_view_t copied = fuzz_bind(s, &part->copied[distance - 1], WORD);
    baton_node_t recv = baton_add_recv(s, rank_at(seat, -distance), inbox);
    baton_node_t copy = baton_add_copy(s, copied, inbox);
    baton_node_t got = baton_add_call(s, distance == 1 ? got_1 : got_2, seat);
    baton_set_optional(s, recv);
    baton_set_optional(s, copy);
    baton_set_optional(s, got);
    baton_before(s, recv, copy);
    baton_before(s, copy, got);
    if (is_choosy(seat)) {
        baton_node_t want =
            baton_add_call(s, distance == 1 ? want_1 : want_2, seat);
        baton_before(s, want, recv);
    }
}

/* To the next rank, which takes it, the tick goes behind the optional message,
   or behind the call that says that there is none:

       send_1 --> send --+
                         +-- any --> tick          send_2 --> send
       send_not_1 -------+                                                  */
static void build_branch(baton_schedule_t *s, fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    baton_view_t number = fuzz_bind(s, &part->number, WORD);
    baton_view_t answer = fuzz_bind(s, &part->answer, WORD);
    baton_node_t tick = baton_add_send(s, rank_at(seat, 1), number);
    (void)baton_add_recv(s, rank_at(seat, -1), answer);
    for (int distance = 1; distance <= FUZZ_HOPS; distance++) {
        baton_node_t choice =
            baton_add_call(s, distance == 1 ? send_1 : send_2, seat);
        baton_node_t send = baton_add_send(s, rank_at(seat, distance), number);
        baton_set_optional(s, send);
        baton_before(s, choice, send);
        if (distance == 1 && !is_choosy(seat)) {
            baton_before(s, send, tick);
            baton_before(s, baton_add_call(s, send_not_1, seat), tick);
            baton_set_need(s, tick, BATON_NEED_ANY);
        }
        add_optional_recv(s, seat, distance);
    }
}

static void fill_branch(fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    if (memcmp(part->inbox, part->last_inbox, sizeof part->inbox) != 0) {
        fuzz_fail(seat, "safety: a message came after the end of its epoch");
    }
    part->number = word_of(seat, seat->rank, seat->step + 1);
    part->answer = 0;
    memset(part->inbox, 0, sizeof part->inbox);
}

/* Whether messages come in the order in which they were sent. */
static bool is_ordered(const fuzz_seat_t *seat)
{
    const fuzz_plan_t *plan = &seat->task->world->plan;
    return !plan->model.multi_ported && !fuzz_has(plan, FUZZ_FAULT_LAG);
}

static void judge_branch(fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    if (part->answer != word_of(seat, rank_at(seat, -1), seat->step)) {
        fuzz_fail(seat, "safety: the tick is of another step");
    }
    for (int distance = 1; distance <= FUZZ_HOPS; distance++) {
        int peer = rank_at(seat, -distance);
        uint64_t seen = part->inbox[distance - 1];
        bool sent = sends(seat, peer, seat->step, distance) &&
                    wants(seat, seat->step, distance);
        if (seen != 0 && (!sent || seen != word_of(seat, peer, seat->step))) {
            fuzz_fail(seat,
                      "safety: a message from rank %d that it has not "
                      "sent in this step",
                      peer);
        }
        /* It came before the tick, and its receive was there first. */
        if (seen == 0 && sent && distance == 1 && is_ordered(seat) &&
            !is_choosy(seat)) {
            fuzz_fail(seat, "safety: the message of rank %d is lost", peer);
        }
    }
    memcpy(part->last_inbox, part->inbox, sizeof part->inbox);
}

const fuzz_plain_t fuzz_branch = {
    .build = build_branch, .fill = fill_branch, .judge = judge_branch};

/* ---- lengths ---------------------------------------------------------- */

/* In words; one epoch in four it is not set. */
static size_t length_of(const fuzz_seat_t *seat, int rank, uint64_t epoch)
{
    uint64_t draw = drawn(seat, rank, epoch, DRAW_LENGTH);
    return draw % 4 == 0 ? FUZZ_WORDS : draw / 4 % (FUZZ_WORDS + 1);
}

static uint64_t element_of(const fuzz_seat_t *seat, int rank, uint64_t epoch,
                           size_t at)
{
    return word_of(seat, rank, epoch) * (at + 1);
}

static baton_status_t decide(void *arg, baton_call_t *call)
{
    fuzz_seat_t *seat = arg;
    uint64_t epoch = baton_call_epoch(call);
    baton_length_t length = seat->part->own_length;
    if (baton_call_length(call, length) != SIZE_MAX) {
        fuzz_fail(seat, "safety: epoch %" PRIu64 " has a length already",
                  epoch);
    }
    return drawn(seat, seat->rank, epoch, DRAW_LENGTH) % 4 == 0
               ? BATON_OK
               : baton_call_set_length(
                     call, length, length_of(seat, seat->rank, epoch) * WORD);
}

static baton_status_t check_lengths(void *arg, baton_call_t *call)
{
    fuzz_seat_t *seat = arg;
    uint64_t epoch = baton_call_epoch(call);
    for (int hop = 0; hop < FUZZ_HOPS; hop++) {
        size_t bytes = baton_call_length(call, seat->part->lengths[hop]);
        size_t right = length_of(seat, rank_at(seat, -1 - hop), epoch) * WORD;
        if (bytes != right) {
            fuzz_fail(seat,
                      "safety: %zu bytes came in epoch %" PRIu64
                      ", %zu were sent",
                      bytes, epoch, right);
        }
    }
    return BATON_OK;
}

/* decide --> send            (own length)
   recv --> sum --> send      (that of the rank before)
   recv --> copy --> check    (that of the one before it)                   */
static void build_lengths(baton_schedule_t *s, fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    int next = rank_at(seat, 1);
    int before = rank_at(seat, -1);
    baton_view_t middle = fuzz_bind(s, part->middle, sizeof part->middle);
    baton_view_t in[] = {fuzz_bind(s, part->in[0], sizeof part->in[0]),
                         fuzz_bind(s, part->in[1], sizeof part->in[1])};
    baton_node_t decided = baton_add_call(s, decide, seat);
    baton_node_t send =
        baton_add_send(s, next, fuzz_bind(s, part->out, sizeof part->out));
    baton_node_t recv = baton_add_recv(s, before, in[0]);
    baton_node_t sum =
        baton_add_reduce(s, BATON_U64, BATON_SUM, middle, in[0],
                         fuzz_bind(s, part->added, sizeof part->added));
    baton_node_t pass = baton_add_send(s, next, middle);
    baton_node_t last = baton_add_recv(s, before, in[1]);
    baton_node_t copy =
        baton_add_copy(s, fuzz_bind(s, part->end, sizeof part->end), in[1]);
    baton_node_t checked = baton_add_call(s, check_lengths, seat);
    part->own_length = baton_add_length(s);
    part->lengths[0] = baton_add_length(s);
    part->lengths[1] = baton_add_length(s);
    baton_set_length(s, send, part->own_length);
    baton_set_length(s, recv, part->lengths[0]);
    baton_set_length(s, sum, part->lengths[0]);
    baton_set_length(s, pass, part->lengths[0]);
    baton_set_length(s, last, part->lengths[1]);
    baton_set_length(s, copy, part->lengths[1]);
    baton_before(s, decided, send);
    baton_before(s, recv, sum);
    baton_before(s, sum, pass);
    baton_before(s, last, copy);
    baton_before(s, copy, checked);
    baton_before(s, recv, checked);
}

static void fill_lengths(fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    for (size_t i = 0; i < FUZZ_WORDS; i++) {
        part->out[i] = element_of(seat, seat->rank, seat->step + 1, i);
        part->added[i] = ~part->out[i];
    }
    memset(part->in, POISON, sizeof part->in);
    memset(part->middle, POISON, sizeof part->middle);
    memset(part->end, POISON, sizeof part->end);
}

static void expect_words(fuzz_seat_t *seat, const uint64_t *words, bool summed,
                         int distance)
{
    int from = rank_at(seat, -distance);
    int adds = rank_at(seat, 1 - distance);
    size_t length = length_of(seat, from, seat->step);
    uint64_t poison;
    memset(&poison, POISON, sizeof poison);
    for (size_t i = 0; i < FUZZ_WORDS; i++) {
        uint64_t right = element_of(seat, from, seat->step, i);
        if (summed) {
            right += ~element_of(seat, adds, seat->step, i);
        }
        if (words[i] != (i < length ? right : poison)) {
            fuzz_fail(seat, "safety: word %zu of %zu from rank %d is wrong", i,
                      length, from);
            return;
        }
    }
}

static void judge_lengths(fuzz_seat_t *seat)
{
    const fuzz_part_t *part = seat->part;
    expect_words(seat, part->in[0], false, 1);
    expect_words(seat, part->middle, true, 1);
    expect_words(seat, part->in[1], true, 2);
    expect_words(seat, part->end, true, 2);
}

const fuzz_plain_t fuzz_lengths = {
    .build = build_lengths, .fill = fill_lengths, .judge = judge_lengths};

/* ---- async ------------------------------------------------------------ */

struct fuzz_begun {
    fuzz_begun_t *next;
    fuzz_seat_t *seat;
    baton_async_t async;
    baton_status_t status; /* that it is to complete with */
    bool writes;           /* what is sent behind it */
    bool polled;
    bool open;
    double at_us;
};

static void end(fuzz_begun_t *begun)
{
    fuzz_seat_t *seat = begun->seat;
    begun->open = false;
    seat->part->open--;
    if (begun->writes && begun->status == BATON_OK) {
        seat->part->number = word_of(seat, seat->rank, seat->step);
    }
}

/* Now and then once more, to no effect. */
static void complete(fuzz_begun_t *begun)
{
    fuzz_seat_t *seat = begun->seat;
    end(begun);
    if (baton_async_complete(begun->async, begun->status) != BATON_OK) {
        fuzz_fail(seat, "complete: %s", baton_error_message());
    }
    if (fuzz_once_in(&seat->random, 4) &&
        baton_async_complete(begun->async, BATON_ERR_LIMIT) !=
            BATON_ERR_STATE) {
        fuzz_fail(seat, "safety: an async node has completed twice");
    }
}

static void complete_later(void *arg)
{
    fuzz_begun_t *begun = arg;
    fuzz_seat_t *seat = begun->seat;
    if (begun->open && !fuzz_failed(seat->task->world) && !fuzz_is_dead(seat)) {
        complete(begun);
    }
}

/* How it goes on: at once, told before start returns, later, or when asked. */
static baton_status_t begin(fuzz_begun_t *begun)
{
    fuzz_seat_t *seat = begun->seat;
    fuzz_world_t *world = seat->task->world;
    double now_us = baton_sim_now_us(world->sim);
    begun->at_us = now_us + fuzz_real(&seat->random, 2 * world->plan.pause_us);
    if (begun->polled) {
        return BATON_OK;
    }
    if (begun->status == BATON_OK && fuzz_once_in(&seat->random, 4)) {
        end(begun);
        return BATON_DONE;
    }
    if (fuzz_once_in(&seat->random, 4)) {
        complete(begun);
        return BATON_OK;
    }
    return baton_sim_at(world->sim, begun->at_us, complete_later, begun);
}

static fuzz_begun_t *add_begun(fuzz_seat_t *seat, baton_async_t async,
                               baton_status_t status)
{
    fuzz_begun_t *begun = fuzz_alloc(1, sizeof *begun);
    *begun = (fuzz_begun_t){.next = seat->part->begun,
                            .seat = seat,
                            .async = async,
                            .status = status,
                            .open = true};
    seat->part->begun = begun;
    seat->part->open++;
    return begun;
}

static baton_status_t start_writer(void *arg, baton_call_t *call,
                                   baton_async_t async)
{
    fuzz_seat_t *seat = arg;
    bool upset = fuzz_upset_due(seat, baton_call_epoch(call));
    fuzz_begun_t *begun =
        add_begun(seat, async, upset ? FUZZ_UPSET_STATUS : BATON_OK);
    begun->writes = true;
    return begin(begun);
}

static bool skips(const fuzz_seat_t *seat, uint64_t epoch)
{
    return drawn(seat, seat->rank, epoch, DRAW_ASYNC) % 2 == 0;
}

static baton_status_t start_chooser(void *arg, baton_call_t *call,
                                    baton_async_t async)
{
    fuzz_seat_t *seat = arg;
    bool skip = skips(seat, baton_call_epoch(call));
    fuzz_begun_t *begun = add_begun(seat, async, skip ? BATON_SKIP : BATON_OK);
    begun->polled = seat->task->plan->in_place;
    return begin(begun);
}

/* There is at most one. */
static baton_status_t poll_chooser(void *arg)
{
    fuzz_seat_t *seat = arg;
    fuzz_begun_t *begun = seat->part->begun;
    while (begun != NULL && !(begun->open && begun->polled)) {
        begun = begun->next;
    }
    if (begun == NULL) {
        fuzz_fail(seat, "safety: a node is asked that has completed");
        return BATON_OK;
    }
    if (baton_sim_now_us(seat->task->world->sim) < begun->at_us) {
        return BATON_AGAIN;
    }
    end(begun);
    return begun->status;
}

/* Some are quick to end then, others take the time that they take. */
static void cancel(void *arg)
{
    fuzz_seat_t *seat = arg;
    for (fuzz_begun_t *begun = seat->part->begun; begun != NULL;
         begun = begun->next) {
        if (begun->open && !begun->polled && fuzz_once_in(&seat->random, 2)) {
            complete(begun);
        }
    }
}

static baton_status_t check_choice(void *arg, baton_call_t *call)
{
    fuzz_seat_t *seat = arg;
    if (skips(seat, baton_call_epoch(call))) {
        fuzz_fail(seat, "safety: behind an async node that skipped");
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

   The writer is behind what came in half of the tasks, but on rank 0. */
static void build_async(baton_schedule_t *s, fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    baton_node_t writer = baton_add_async(s, &writer_ops, seat);
    baton_node_t send =
        baton_add_send(s, rank_at(seat, 1), fuzz_bind(s, &part->number, WORD));
    baton_node_t recv =
        baton_add_recv(s, rank_at(seat, -1), fuzz_bind(s, &part->answer, WORD));
    baton_node_t chooser = baton_add_async(
        s, seat->task->plan->in_place ? &polled_ops : &told_ops, seat);
    baton_node_t checked = baton_add_call(s, check_choice, seat);
    baton_set_optional(s, checked);
    baton_before(s, writer, send);
    baton_before(s, chooser, checked);
    if (seat->task->plan->keep == BATON_KEEP_ALL && seat->rank > 0) {
        baton_before(s, recv, writer);
    }
}

static void fill_async(fuzz_seat_t *seat)
{
    seat->part->number = 0;
    seat->part->answer = 0;
}

static void judge_async(fuzz_seat_t *seat)
{
    int peer = rank_at(seat, -1);
    if (seat->part->answer != word_of(seat, peer, seat->step)) {
        fuzz_fail(seat, "safety: what rank %d has sent was not complete", peer);
    }
}

const fuzz_plain_t fuzz_async = {.build = build_async,
                                 .fill = fill_async,
                                 .judge = judge_async,
                                 .upsets = true};

void fuzz_async_close(fuzz_part_t *part)
{
    while (part->begun != NULL) {
        fuzz_begun_t *begun = part->begun;
        part->begun = begun->next;
        if (begun->open) {
            (void)!baton_async_complete(begun->async, BATON_ERR_CANCELLED);
        }
        free(begun);
    }
}
