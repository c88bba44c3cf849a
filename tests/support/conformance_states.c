/* The cases of the conformance suite about states: messages that are kept,
   dropped, withdrawn or short; notices, sleep, reservations; and random
   traffic.
 */
#include "support/conformance.h"

#include "support/random.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* Messages that are not accepted yet hold up no others, however many, and keep
   their own data while others pass. */
enum { KEPT = 48, KEPT_BYTES = 70000, PASSING_BYTES = 300, FIRST = 1000 };

static size_t kept_bytes(uint32_t i)
{
    static const size_t sizes[] = {0, 100, 256, 2000, 60000, KEPT_BYTES};
    return sizes[i % 6];
}

static void pass(conformance_rank_t *self, uint32_t count, size_t bytes)
{
    unsigned char out[PASSING_BYTES];
    unsigned char in[PASSING_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        conformance_fill(out, bytes, i);
        uint32_t node = FIRST + 2 * i;
        conformance_send(self, node, conformance_next_of(self), FIRST + i, out,
                         bytes);
        conformance_recv(self, node + 1, conformance_previous_of(self),
                         FIRST + i, in);
        conformance_expect_message(self, node + 1, in, bytes, i);
        conformance_expect_sent(self, node);
    }
}

static void keep_while_passing(conformance_rank_t *self, uint32_t kept,
                               uint32_t passing, size_t bytes)
{
    unsigned char *out = malloc((size_t)kept * KEPT_BYTES);
    unsigned char *in = malloc((size_t)kept * KEPT_BYTES);
    int previous = conformance_previous_of(self);
    for (uint32_t i = 0; i < kept; i++) {
        unsigned char *data = out + (size_t)i * KEPT_BYTES;
        conformance_fill(data, kept_bytes(i),
                         conformance_key_of(self->rank, i));
        conformance_send(self, i, conformance_next_of(self), i, data,
                         kept_bytes(i));
    }
    pass(self, passing, bytes);
    for (uint32_t i = kept; i-- > 0;) { /* the last first */
        unsigned char *data = in + (size_t)i * KEPT_BYTES;
        conformance_recv(self, KEPT + i, previous, i, data);
        conformance_expect_message(self, KEPT + i, data, kept_bytes(i),
                                   conformance_key_of(previous, i));
    }
    conformance_wait_all(self);
    conformance_forget(self);
    free(out);
    free(in);
}

void conformance_kept_while_others_pass(conformance_rank_t *self)
{
    keep_while_passing(self, KEPT, 300, 16);
    keep_while_passing(self, 12, 1200, PASSING_BYTES);
}

/* A message that is dropped ends its send, and nothing else happens. */
void conformance_dropped(conformance_rank_t *self)
{
    static const size_t sizes[] = {0, 256, 257, 4000, 70000, 1u << 20};
    unsigned char *out = calloc(1, 1u << 20);
    for (uint32_t i = 0; i < 60; i++) {
        conformance_send(self, i, conformance_next_of(self), i, out,
                         sizes[i % 6]);
        baton_message_t *message =
            conformance_take(self, conformance_previous_of(self), i);
        if (message == NULL) {
            break;
        }
        EXPECT(self, message->bytes == sizes[i % 6]);
        self->transport->drop(self->endpoint, message);
        conformance_expect_sent(self, i);
    }
    free(out);
}

/* Drops the messages of these tags that have arrived and were not taken. */
static void drop_arrived(conformance_rank_t *self, uint32_t first,
                         uint32_t last)
{
    baton_message_t **link = &self->arrived;
    while (*link != NULL) {
        baton_message_t *message = *link;
        if (message->header.tag < first || message->header.tag > last) {
            link = &message->next;
        } else {
            *link = message->next;
            self->transport->drop(self->endpoint, message);
        }
    }
}

/* Whether a lent message has these data; they are read in parts if they are not
   in memory. */
static bool lent_holds(conformance_rank_t *self, const baton_message_t *message,
                       size_t bytes, uint32_t key)
{
    if (message->data != NULL) {
        return conformance_holds(message->data, bytes, key);
    }
    unsigned char *copy = malloc(bytes);
    size_t first = bytes / 3;
    memset(copy, 0, bytes);
    EXPECT(self,
           self->transport->read(self->endpoint, message, first, bytes - first,
                                 copy + first) == BATON_OK);
    EXPECT(self, self->transport->read(self->endpoint, message, 0, first,
                                       copy) == BATON_OK);
    bool same = conformance_holds(copy, bytes, key);
    free(copy);
    return same;
}

/* Takes the previous rank's message of this tag, and has it lent; NULL if its
   data can't be read, and the message was dropped. */
static baton_message_t *borrow(conformance_rank_t *self, uint32_t tag)
{
    baton_message_t *message =
        conformance_take(self, conformance_previous_of(self), tag);
    if (message == NULL) {
        return NULL;
    }
    baton_status_t status = self->transport->lend(self->endpoint, message);
    if (status == BATON_DONE) {
        EXPECT(self, message->data != NULL || self->transport->read != NULL);
        return message;
    }
    EXPECT(self, status == BATON_AGAIN);
    self->transport->drop(self->endpoint, message);
    return NULL;
}

/* What is lent can be read until it is dropped: until then its send has not
   ended, and can't be withdrawn, or the data was copied. */
void conformance_lent(conformance_rank_t *self)
{
    static const size_t sizes[] = {1,     256,   257,     4096,
                                   65536, 70000, 1 << 20, (1 << 20) + 1};
    enum { SIZES = sizeof sizes / sizeof sizes[0], TOLD = 500 };
    if (self->transport->lend == NULL) {
        return;
    }
    unsigned char *out = malloc(sizes[SIZES - 1]);
    for (uint32_t i = 0; i < SIZES; i++) {
        int from = conformance_previous_of(self);
        conformance_fill(out, sizes[i], conformance_key_of(self->rank, i));
        bool over = conformance_send(self, i, conformance_next_of(self), i, out,
                                     sizes[i]);
        const baton_message_t *message = borrow(self, i);
        const unsigned char borrowed = message != NULL;
        unsigned char lent = 0;
        conformance_send(self, SIZES + i, from, TOLD, &borrowed, 1);
        conformance_recv(self, 2 * SIZES + i, conformance_next_of(self), TOLD,
                         &lent);
        conformance_expect_sent(self, SIZES + i);
        conformance_wait(self, 2 * SIZES + i);
        bool withdrawn = lent != 0 && !over && !self->results[i].ended &&
                         conformance_withdraw(self, i);
        if (withdrawn || over || self->results[i].ended) {
            memset(out, 0xee, sizes[i]); /* it is this rank's again */
        }
        conformance_sync(self, 0);
        if (message != NULL) {
            EXPECT(self, message->bytes == sizes[i]);
            EXPECT(self, lent_holds(self, message, sizes[i],
                                    conformance_key_of(from, i)));
            self->transport->drop(self->endpoint, (baton_message_t *)message);
        }
        if (!withdrawn) {
            conformance_expect_sent(self, i);
        }
    }
    free(out);
}

/* Messages out of memory that the transport has allocated, at any place in it;
   freed while peers know it, in another order than allocated. */
void conformance_allocated(conformance_rank_t *self)
{
    static const size_t sizes[] = {70000, 5 << 18, 16500};
    enum { BLOCKS = 3, ROUNDS = 3, SKIPPED = 100 };
    if (self->transport->allocate == NULL) {
        return;
    }
    unsigned char *in = malloc(sizes[1]);
    int from = conformance_previous_of(self);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        unsigned char *blocks[BLOCKS];
        bool own[BLOCKS];
        conformance_forget(self);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            size_t skipped = i * SKIPPED;
            uint32_t number = round * BLOCKS + i;
            blocks[i] = self->transport->allocate(self->endpoint, sizes[i]);
            own[i] = blocks[i] == NULL;
            blocks[i] = own[i] ? malloc(sizes[i]) : blocks[i];
            conformance_fill(blocks[i] + skipped, sizes[i] - skipped,
                             conformance_key_of(self->rank, number));
            conformance_send(self, 2 * i, conformance_next_of(self), number,
                             blocks[i] + skipped, sizes[i] - skipped);
            conformance_recv(self, 2 * i + 1, from, number, in);
            conformance_expect_message(self, 2 * i + 1, in, sizes[i] - skipped,
                                       conformance_key_of(from, number));
            conformance_expect_sent(self, 2 * i);
        }
        for (uint32_t i = 0; i < BLOCKS; i++) {
            uint32_t k = (i + round) % BLOCKS;
            if (own[k]) {
                free(blocks[k]);
            } else {
                self->transport->release(self->endpoint, blocks[k]);
            }
        }
    }
    free(in);
}

/* Either the receiver may read, until it drops the message, or the sender has
   its memory back. */
void conformance_lent_or_withdrawn(conformance_rank_t *self)
{
    enum { ROUNDS = 60, BYTES = 80000, TAG = 100 };
    if (self->transport->lend == NULL) {
        return;
    }
    unsigned char *out = malloc(BYTES);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        size_t bytes = i % 2 == 0 ? BYTES : 3000;
        int from = conformance_previous_of(self);
        conformance_forget(self);
        conformance_fill(out, bytes, conformance_key_of(self->rank, i));
        bool over = conformance_send(self, 1, conformance_next_of(self),
                                     TAG + i, out, bytes);
        baton_message_t *message = NULL;
        for (uint32_t turn = 0; turn < i % 7; turn++) {
            (void)conformance_go_on(self);
        }
        for (baton_message_t **link = &self->arrived; *link != NULL;
             link = &(*link)->next) {
            if ((*link)->header.tag == TAG + i && (*link)->peer == from) {
                message = *link;
                *link = message->next;
                break;
            }
        }
        if (message != NULL) {
            baton_status_t status =
                self->transport->lend(self->endpoint, message);
            EXPECT(self, status == BATON_DONE || status == BATON_AGAIN ||
                             status == BATON_ERR_CANCELLED);
            EXPECT(self, status != BATON_DONE ||
                             lent_holds(self, message, bytes,
                                        conformance_key_of(from, i)));
            if (status != BATON_ERR_CANCELLED) {
                self->transport->drop(self->endpoint, message);
            }
        }
        if (!over && !self->results[1].ended &&
            !conformance_withdraw(self, 1)) {
            conformance_expect_sent(self, 1);
        }
        memset(out, 0xee, bytes);
        conformance_sync(self, 0);
    }
    conformance_wait_all(self);
    for (int i = 0; i < 100; i++) {
        (void)conformance_go_on(self);
    }
    drop_arrived(self, TAG, TAG + ROUNDS);
    free(out);
}

/* A send that is not accepted yet can be withdrawn. Its memory is free at once,
   and a receiver that accepts it later gets BATON_ERR_CANCELLED. */
void conformance_withdraw_before_accept(conformance_rank_t *self)
{
    enum { BYTES = 300000, ROUNDS = 20, TAG = 100 };
    unsigned char *out = malloc(BYTES);
    unsigned char *in = malloc(BYTES);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        conformance_forget(self);
        conformance_fill(out, BYTES, i);
        bool over = conformance_send(self, 0, conformance_next_of(self),
                                     TAG + i, out, BYTES);
        conformance_send(self, 1, conformance_next_of(self), 2, NULL, 0);
        if (i % 2 == 0) { /* it has arrived, or not */
            conformance_recv(self, 2, conformance_previous_of(self), 2, NULL);
            conformance_wait(self, 2);
        }
        if (!over && !self->results[0].ended &&
            !conformance_withdraw(self, 0)) {
            conformance_expect_sent(self, 0); /* by itself */
        }
        memset(out, 0xee, BYTES);
        conformance_send(self, 3, conformance_next_of(self), 3, out, 64);
        conformance_recv(self, 4, conformance_previous_of(self), 3, in);
        conformance_wait(self, 4);
        /* A withdrawn message of the previous rank has vanished, or is refused.
         */
        for (baton_message_t **link = &self->arrived; *link != NULL;) {
            baton_message_t *message = *link;
            if (message->header.tag != TAG + i) {
                link = &message->next;
                continue;
            }
            *link = message->next;
            conformance_accept(self, 5, message, in);
            conformance_result_t result = conformance_wait(self, 5);
            EXPECT(self, result.status == BATON_ERR_CANCELLED ||
                             conformance_holds(in, BYTES, i));
        }
        if (i % 2 == 1) {
            conformance_recv(self, 2, conformance_previous_of(self), 2, NULL);
            conformance_wait(self, 2);
        }
        conformance_wait_all(self);
        conformance_sync(self, 0);
    }
    for (int i = 0; i < 100; i++) {
        (void)conformance_go_on(self);
    }
    drop_arrived(self, TAG, TAG + ROUNDS);
    free(out);
    free(in);
}

/* A withdrawal races with the receiver. Whichever wins, the message completes
   once at each end, and a received message is whole. */
void conformance_withdraw_races(conformance_rank_t *self)
{
    enum { ROUNDS = 60, BYTES = 80000, TAG = 100 };
    unsigned char *out = malloc(BYTES);
    unsigned char *in = malloc(BYTES);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        size_t bytes = i % 3 == 0 ? BYTES : i % 3 == 1 ? 3000 : 16;
        conformance_forget(self);
        conformance_fill(out, bytes, i);
        conformance_recv(self, 0, conformance_previous_of(self), TAG + i, in);
        bool over = conformance_send(self, 1, conformance_next_of(self),
                                     TAG + i, out, bytes);
        for (uint32_t turn = 0; turn < i % 5; turn++) {
            (void)conformance_go_on(self);
        }
        if (!over && !self->results[1].ended &&
            !conformance_withdraw(self, 1)) {
            conformance_expect_sent(self, 1);
        }
        memset(out, 0xee, bytes);
        conformance_sync(self, 0);
        if (self->receives[0].waits) { /* it vanished, or comes later */
            self->receives[0].waits = false;
            self->posted--;
        } else {
            conformance_result_t result = conformance_wait(self, 0);
            EXPECT(self, result.status == BATON_ERR_CANCELLED ||
                             (result.status == BATON_OK &&
                              conformance_holds(in, bytes, i)));
        }
    }
    conformance_wait_all(self);
    conformance_sync(self, 0);
    for (int i = 0; i < 100; i++) {
        (void)conformance_go_on(self);
    }
    drop_arrived(self, TAG, TAG + ROUNDS);
    free(out);
    free(in);
}

/* No rank accepts before every rank's send has completed. Each has heard from
   its receiver before. */
void conformance_short_needs_no_receiver(conformance_rank_t *self)
{
    enum { BYTES = BATON_NOTICE_BYTES };
    unsigned char out[BYTES];
    unsigned char in[2][BYTES];
    if (self->synchronous) {
        return;
    }
    conformance_send(self, 4, conformance_previous_of(self), 5, NULL, 0);
    conformance_recv(self, 5, conformance_next_of(self), 5, NULL);
    conformance_wait(self, 5);
    conformance_fill(out, BYTES, conformance_key_of(self->rank, 0));
    conformance_send(self, 0, conformance_next_of(self), 6, out, BYTES);
    conformance_send(self, 1, self->rank, 8, out, BYTES);
    conformance_expect_sent(self, 0);
    conformance_expect_sent(self, 1);
    conformance_sync(self, 0);
    memset(out, 0, BYTES); /* it is the sender's again */
    conformance_recv(self, 2, conformance_previous_of(self), 6, in[0]);
    conformance_recv(self, 3, self->rank, 8, in[1]);
    conformance_expect_message(
        self, 2, in[0], BYTES,
        conformance_key_of(conformance_previous_of(self), 0));
    conformance_expect_message(self, 3, in[1], BYTES,
                               conformance_key_of(self->rank, 0));
}

/* Notices need no reservation. One that finds no room finds some later. */
void conformance_notices(conformance_rank_t *self)
{
    enum { COUNT = 1500 };
    unsigned char out[BATON_NOTICE_BYTES];
    unsigned char in[BATON_NOTICE_BYTES];
    uint32_t sent = 0;
    uint32_t seen = 0;
    while ((sent < COUNT || seen < COUNT) && self->failure[0] == '\0') {
        size_t bytes = sent % (BATON_NOTICE_BYTES + 1);
        const baton_header_t header = {.schedule = 1, .tag = sent};
        conformance_fill(out, bytes, sent);
        baton_status_t status =
            sent == COUNT ? BATON_AGAIN
                          : self->transport->notify(self->endpoint,
                                                    conformance_next_of(self),
                                                    &header, out, bytes);
        EXPECT(self, status == BATON_DONE || status == BATON_OK ||
                         status == BATON_AGAIN);
        sent += status != BATON_AGAIN;
        if (status == BATON_AGAIN) {
            (void)conformance_go_on(self);
        }
        baton_message_t **link = &self->arrived;
        while (*link != NULL) {
            baton_message_t *message = *link;
            size_t length = message->bytes;
            uint32_t tag = message->header.tag;
            if (message->header.schedule != 1) { /* a sync's */
                link = &message->next;
                continue;
            }
            *link = message->next;
            EXPECT(self, length == tag % (BATON_NOTICE_BYTES + 1));
            EXPECT(self, self->transport->unordered || tag == seen);
            EXPECT(self, self->transport->accept(self->endpoint, message,
                                                 (baton_token_t){.owner = NULL},
                                                 in) == BATON_DONE);
            EXPECT(self, conformance_holds(in, length, tag));
            seen++;
        }
    }
}

static bool readable(const conformance_rank_t *self)
{
    bool any = false;
    for (int k = 0; self->transport->descriptor(self->endpoint, k) >= 0; k++) {
        struct pollfd wait = {
            .fd = self->transport->descriptor(self->endpoint, k),
            .events = POLLIN};
        any |= poll(&wait, 1, 0) == 1;
    }
    return any;
}

/* Polls all events and arms. Returns false when the rank can't be woken, or not
   yet. A peer that was about to ring when the rank armed wakes it in vain, so
   that it arms again. */
static bool arm(conformance_rank_t *self, baton_arm_t how)
{
    uint32_t us = 0;
    do {
        self->transport->disarm(self->endpoint);
        self->transport->drain(self->endpoint);
        while (!self->transport->arm(self->endpoint, how, &us) &&
               conformance_go_on(self)) {
        }
    } while (readable(self) && conformance_go_on(self));
    return us == BATON_SLEEP_FOREVER;
}

/* The waker receives a message and answers it, twice; it insists where the
   sleeper is armed for notices alone. */
static void wake(conformance_rank_t *self, int sleeper, baton_arm_t how)
{
    unsigned char data[16];
    conformance_fill(data, 16, 1);
    for (uint32_t i = 0; i < 2; i++) {
        conformance_recv(self, 2 * i, sleeper, 11, NULL);
        conformance_wait(self, 2 * i);
        conformance_send(self, 2 * i + 1, sleeper, 12, data, 16);
        if (how == BATON_ARM_NOTICES) {
            (void)arm(self, BATON_ARM_INSIST);
            self->transport->disarm(self->endpoint);
        }
        conformance_expect_sent(self, 2 * i + 1);
    }
}

/* The sleeper arms, sends to the waker, and is woken by the answer; then it is
   disarmed, and sends again. Returns whether it was woken just when it should
   have been. */
static bool sleep_and_wake(conformance_rank_t *self, int waker, baton_arm_t how)
{
    const baton_transport_t *port = self->transport;
    unsigned char data[2][16];
    conformance_recv(self, 0, waker, 12, data[0]);
    bool armed = arm(self, how);
    bool early = armed && readable(self);
    conformance_send(self, 1, waker, 11, NULL, 0);
    while (armed && !readable(self) && self->yield(self)) {
    }
    port->disarm(self->endpoint);
    port->drain(self->endpoint);
    armed = armed && !self->rings; /* whose bells may follow */
    bool late = armed && readable(self);
    conformance_expect_message(self, 0, data[0], 16, 1);
    conformance_recv(self, 2, waker, 12, data[1]);
    conformance_send(self, 3, waker, 11, NULL, 0);
    conformance_expect_message(self, 2, data[1], 16, 1);
    late |= armed && readable(self);
    conformance_wait_all(self);
    return !early && !late;
}

/* All other ranks send to the waker meanwhile. A bell may come late, from a
   rank that saw the sleeper armed and lost its processor: seldom. */
void conformance_wakes_when_armed(conformance_rank_t *self)
{
    if (self->size == 1 || self->transport->descriptor(self->endpoint, 0) < 0) {
        return;
    }
    static const baton_arm_t hows[] = {BATON_ARM_ALL, BATON_ARM_SOON,
                                       BATON_ARM_NOTICES, BATON_ARM_ALL,
                                       BATON_ARM_INSIST};
    enum { ROUNDS = sizeof hows / sizeof hows[0] };
    for (int sleeper = 0; sleeper < self->size; sleeper++) {
        int waker = (sleeper + 1) % self->size;
        int right = 0;
        for (int round = 0; round < ROUNDS; round++) {
            conformance_forget(self);
            conformance_sync(self, waker);
            if (self->rank == sleeper) {
                right += sleep_and_wake(self, waker, hows[round]);
            } else if (self->rank == waker) {
                wake(self, sleeper, hows[round]);
            }
            conformance_sync(self, waker);
        }
        EXPECT(self, self->rank != sleeper || right > ROUNDS / 2);
    }
}

/* Reservations grow while messages are in flight. */
void conformance_reserve_while_in_flight(conformance_rank_t *self)
{
    enum { COUNT = 200, BYTES = 2000, MORE = 20000 };
    unsigned char *out = malloc(COUNT * BYTES);
    unsigned char *in = malloc(COUNT * BYTES);
    for (uint32_t i = 0; i < COUNT; i++) {
        unsigned char *data = out + i * BYTES;
        conformance_fill(data, BYTES, conformance_key_of(self->rank, i));
        if (i % 2) {
            conformance_send(self, i, conformance_next_of(self), i, data,
                             BYTES);
        } else {
            conformance_recv(self, i, conformance_previous_of(self), i,
                             in + i * BYTES);
        }
    }
    int next = conformance_next_of(self);
    baton_status_t status =
        self->transport->reserve(self->endpoint, next, MORE, MORE);
    EXPECT(self, status == BATON_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        if (i % 2) {
            conformance_recv(self, COUNT + i, conformance_previous_of(self), i,
                             in + i * BYTES);
        } else {
            conformance_send(self, COUNT + i, conformance_next_of(self), i,
                             out + i * BYTES, BYTES);
        }
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        conformance_expect_message(
            self, i % 2 ? COUNT + i : i, in + i * BYTES, BYTES,
            conformance_key_of(conformance_previous_of(self), i));
    }
    conformance_wait_all(self);
    status = self->transport->reserve(self->endpoint, next, -MORE, -MORE);
    EXPECT(self, status == BATON_OK);
    free(out);
    free(in);
}

/* Each rank sends each other rank a list of messages that both compute from the
   seed. A rank posts its sends and receives in random order, but in order
   within a tag. */
typedef struct traffic {
    int peer;
    bool receive;
    uint32_t next; /* of the list */
    support_random_t list;
} traffic_t;

enum { STORM = 40, STORM_TAGS = 5, STORM_BYTES = 9000 };

static support_random_t list_of(const conformance_rank_t *self, int from,
                                int to)
{
    uint64_t stream = (uint64_t)from * 1000 + (uint64_t)to;
    return support_random(self->seed, stream);
}

static void post_next(conformance_rank_t *self, traffic_t *traffic,
                      uint32_t node, unsigned char *data)
{
    uint32_t tag = (uint32_t)support_random_below(&traffic->list, STORM_TAGS);
    tag = self->transport->unordered ? traffic->next : tag;
    size_t most = support_random_below(&traffic->list, 2) ? STORM_BYTES : 64;
    size_t bytes = support_random_below(&traffic->list, most + 1);
    uint32_t number = traffic->next++;
    if (traffic->receive) {
        memset(data, 0, bytes);
        conformance_recv(self, node, traffic->peer, tag, data);
    } else {
        conformance_fill(data, bytes, conformance_key_of(self->rank, number));
        conformance_send(self, node, traffic->peer, tag, data, bytes);
    }
}

void conformance_random_traffic(conformance_rank_t *self)
{
    uint32_t lists = (uint32_t)self->size * 2;
    uint32_t total = lists * STORM;
    traffic_t *traffic = calloc(lists, sizeof *traffic);
    unsigned char *data = malloc((size_t)total * STORM_BYTES);
    support_random_t own =
        support_random(self->seed, 1000000 + (uint64_t)self->rank);
    for (uint32_t i = 0; i < lists; i++) {
        int peer = (int)(i / 2);
        bool receive = i % 2 == 1;
        traffic[i] = (traffic_t){peer, receive, 0,
                                 receive ? list_of(self, peer, self->rank)
                                         : list_of(self, self->rank, peer)};
    }
    for (uint32_t left = total; left > 0;) {
        uint32_t i = (uint32_t)support_random_below(&own, lists);
        if (traffic[i].next < STORM) {
            uint32_t node = i * STORM + traffic[i].next;
            post_next(self, &traffic[i], node,
                      data + (size_t)node * STORM_BYTES);
            left--;
        }
        if (support_random_below(&own, 4) == 0) {
            conformance_poll(self);
            (void)self->yield(self);
        }
    }
    conformance_wait_all(self);
    for (uint32_t node = 0; node < total; node++) {
        if (traffic[node / STORM].receive) {
            conformance_expect_message(
                self, node, data + (size_t)node * STORM_BYTES,
                self->results[node].bytes,
                conformance_key_of(traffic[node / STORM].peer, node % STORM));
        }
    }
    free(traffic);
    free(data);
}
