/* The conformance cases about states: messages that are kept, lent or
   withdrawn; notices; sleep. */
#include "support/conformance.h"

#include "base/alloc.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* Messages that were not accepted yet do not block later messages, however many
   they are, and they keep their data while later messages arrive. Nothing is
   allocated meanwhile. */
enum { KEPT = 48, KEPT_BYTES = 70000, MANY = 600, MANY_BYTES = 256 };
enum { PASSING_BYTES = 300, FIRST = 1000 };

/* Returns the size of message `i` of `kept` messages. If there are MANY, all of
   them are short. */
static size_t kept_bytes(uint32_t i, uint32_t kept)
{
    static const size_t sizes[] = {0, 100, MANY_BYTES, 2000, 60000, KEPT_BYTES};
    return sizes[i % (kept == MANY ? 3 : 6)];
}

static void pass(conformance_rank_t *self, uint32_t count, size_t bytes)
{
    unsigned char out[PASSING_BYTES];
    unsigned char in[PASSING_BYTES];
    for (uint32_t i = 0; i < count && self->failure[0] == '\0'; i++) {
        memset(&self->results[FIRST], 0, 2 * sizeof self->results[0]);
        conformance_fill(out, bytes, i);
        conformance_send(self, FIRST, self->next, FIRST + i, out, bytes);
        conformance_recv(self, FIRST + 1, self->previous, FIRST + i, in);
        conformance_expect_message(self, FIRST + 1, in, bytes, i);
        conformance_expect_sent(self, FIRST);
    }
}

static void keep_while_passing(conformance_rank_t *self, uint32_t kept,
                               uint32_t passing, size_t passing_bytes)
{
    size_t stride = kept == MANY ? MANY_BYTES : KEPT_BYTES;
    unsigned char *out = malloc(kept * stride);
    unsigned char *in = malloc(kept * stride);
    conformance_sync(self, 0);
    int64_t allocations = baton__alloc_count();
    for (uint32_t i = 0; i < kept; i++) {
        size_t bytes = kept_bytes(i, kept);
        conformance_fill(out + i * stride, bytes,
                         conformance_key_of(self->rank, i));
        conformance_send(self, i, self->next, i, out + i * stride, bytes);
    }
    pass(self, passing, passing_bytes);
    for (uint32_t i = kept; i-- > 0;) { /* the last message is accepted first */
        conformance_recv(self, kept + i, self->previous, i, in + i * stride);
        conformance_expect_message(self, kept + i, in + i * stride,
                                   kept_bytes(i, kept),
                                   conformance_key_of(self->previous, i));
    }
    conformance_wait_all(self);
    EXPECT(self, self->allocates || baton__alloc_count() == allocations);
    conformance_sync(self, 0);
    conformance_forget(self);
    free(out);
    free(in);
}

/* The counts exceed limits of the MPI transport. There are more long messages
   (KEPT) than it has buffers for long messages of one peer, and more short ones
   (MANY) than its largest window allows. */
void conformance_kept_while_others_pass(conformance_rank_t *self)
{
    keep_while_passing(self, KEPT, 100, 16);
    keep_while_passing(self, 12, 600, PASSING_BYTES);
    keep_while_passing(self, MANY, 0, 0);
}

/* Returns whether a lent message has the data of `key`, and drops the message.
   If the data are not in memory, reads them in parts. If they cannot be read,
   receives them as message number LENT. */
static bool lent_holds(conformance_rank_t *self, baton_message_t *message,
                       size_t bytes, uint32_t key)
{
    enum { LENT = 1000 };
    bool same =
        message->data != NULL && conformance_holds(message->data, bytes, key);
    unsigned char *copy = calloc(bytes, 1);
    const size_t first = bytes / 3;
    baton_status_t status =
        message->data != NULL
            ? BATON_DONE
            : self->transport->read(self->endpoint, message, first,
                                    bytes - first, copy + first);
    if (status == BATON_AGAIN) {
        conformance_accept(self, LENT, message, copy);
        EXPECT(self, conformance_wait(self, LENT).status == BATON_OK);
    } else {
        EXPECT(self, status == BATON_DONE ||
                         (status == BATON_OK &&
                          self->transport->read(self->endpoint, message, 0,
                                                first, copy) == BATON_OK));
        self->transport->drop(self->endpoint, message);
    }
    same = status == BATON_DONE ? same : conformance_holds(copy, bytes, key);
    free(copy);
    return same;
}

/* Takes the previous rank's message of this tag, and makes the transport lend
   it. Returns NULL if the data cannot be read; the message was then dropped. */
static baton_message_t *borrow(conformance_rank_t *self, uint32_t tag)
{
    baton_message_t *message = conformance_take(self, tag);
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

/* A lent message can be read until it is dropped. Until then its send does not
   end and cannot be withdrawn, unless the data were copied. */
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
        int from = self->previous;
        conformance_fill(out, sizes[i], conformance_key_of(self->rank, i));
        bool over = conformance_send(self, i, self->next, i, out, sizes[i]);
        baton_message_t *message = borrow(self, i);
        const unsigned char borrowed = message != NULL;
        unsigned char lent = 0;
        conformance_send(self, SIZES + i, from, TOLD, &borrowed, 1);
        conformance_recv(self, 2 * SIZES + i, self->next, TOLD, &lent);
        conformance_expect_sent(self, SIZES + i);
        conformance_wait(self, 2 * SIZES + i);
        bool withdrawn = lent != 0 && !over && !self->results[i].ended &&
                         conformance_withdraw(self, i);
        if (withdrawn || over || self->results[i].ended) {
            /* From here on this rank may use the memory again. */
            memset(out, 0xee, sizes[i]);
        }
        conformance_sync(self, 0);
        if (message != NULL) {
            EXPECT(self, message->bytes == sizes[i]);
            EXPECT(self, lent_holds(self, message, sizes[i],
                                    conformance_key_of(from, i)));
        }
        if (!withdrawn) {
            conformance_expect_sent(self, i);
        }
    }
    free(out);
}

/* How the receiver treats a message that its sender may withdraw. RECEIVE: it
   has posted a receive for the message. ACCEPT: it accepts the message, after
   the sender has withdrawn it or has got its memory back. LEND: it borrows the
   message, if that arrives in time. */
typedef enum use { RECEIVE, ACCEPT, LEND } use_t;

/* Borrows a message, which means that the transport lends it. Checks its data,
   and drops it. */
static void look_at(conformance_rank_t *self, baton_message_t *message,
                    uint32_t key)
{
    size_t bytes = message->bytes;
    baton_status_t status = self->transport->lend(self->endpoint, message);
    EXPECT(self, status == BATON_DONE || status == BATON_AGAIN ||
                     status == BATON_ERR_CANCELLED);
    if (status == BATON_AGAIN) {
        self->transport->drop(self->endpoint, message);
    }
    EXPECT(self, status != BATON_DONE || lent_holds(self, message, bytes, key));
}

/* Each rank sends messages to the next rank, and soon tries to withdraw them,
   while the next rank treats them as `use` says. Whichever of the two is first,
   the sender learns once how its send has ended, and the receiver once how its
   receive has ended. All data that is received or lent is complete. */
static void race(conformance_rank_t *self, use_t use)
{
    enum { ROUNDS = 60, BYTES = 300000, TAG = 100, IN = 0, OUT = 1 };
    unsigned char *out = malloc(BYTES);
    unsigned char *in = malloc(BYTES);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        size_t bytes = (const size_t[]){BYTES, 3000, 16}[i % 3];
        uint32_t key = conformance_key_of(self->previous, i);
        conformance_forget(self);
        conformance_fill(out, bytes, conformance_key_of(self->rank, i));
        if (use == RECEIVE) {
            conformance_recv(self, IN, self->previous, TAG + i, in);
        }
        bool over =
            conformance_send(self, OUT, self->next, TAG + i, out, bytes);
        for (uint32_t turn = 0; turn < i % 7; turn++) {
            (void)conformance_go_on(self);
        }
        baton_message_t *message =
            use == RECEIVE ? NULL : conformance_arrived(self, TAG + i, TAG + i);
        if (use == LEND && message != NULL) {
            look_at(self, message, key);
        }
        if (!over && !self->results[OUT].ended &&
            !conformance_withdraw(self, OUT)) {
            /* The send has ended, without a withdrawal. */
            conformance_expect_sent(self, OUT);
        }
        memset(out, 0xee, bytes);
        conformance_sync(self, 0);
        if (use == ACCEPT) {
            message = message != NULL
                          ? message
                          : conformance_arrived(self, TAG + i, TAG + i);
            if (message != NULL) {
                conformance_accept(self, IN, message, in);
            }
        }
        if (use == RECEIVE ? !conformance_unpost(self, IN)
                           : use == ACCEPT && message != NULL) {
            conformance_result_t result = conformance_wait(self, IN);
            EXPECT(self, result.status == BATON_ERR_CANCELLED ||
                             (result.status == BATON_OK &&
                              conformance_holds(in, bytes, key)));
        }
    }
    conformance_wait_all(self);
    conformance_sync(self, 0);
    /* A message that was withdrawn may nevertheless arrive. */
    for (int i = 0; i < 100; i++) {
        (void)conformance_go_on(self);
    }
    for (baton_message_t *message;
         (message = conformance_arrived(self, TAG, TAG + ROUNDS)) != NULL;) {
        self->transport->drop(self->endpoint, message);
    }
    free(out);
    free(in);
}

void conformance_withdrawn(conformance_rank_t *self)
{
    race(self, RECEIVE);
    race(self, ACCEPT);
    if (self->transport->lend != NULL) {
        race(self, LEND);
    }
}

/* Notices need no reservation. A notice that finds no capacity is sent
   later. */
void conformance_notices(conformance_rank_t *self)
{
    enum { COUNT = 1500, LENGTHS = BATON_NOTICE_BYTES + 1 };
    unsigned char out[BATON_NOTICE_BYTES];
    unsigned char in[BATON_NOTICE_BYTES];
    uint32_t sent = 0, seen = 0;
    while ((sent < COUNT || seen < COUNT) && self->failure[0] == '\0') {
        const baton_header_t header = {.schedule = 1, .tag = sent};
        conformance_fill(out, sent % LENGTHS, sent);
        baton_status_t status =
            sent == COUNT
                ? BATON_AGAIN
                : self->transport->notify(self->endpoint, self->next, &header,
                                          out, sent % LENGTHS);
        EXPECT(self, status == BATON_DONE || status == BATON_OK ||
                         status == BATON_AGAIN);
        sent += status != BATON_AGAIN;
        if (status == BATON_AGAIN) {
            (void)conformance_go_on(self);
        }
        baton_message_t *message;
        while ((message = conformance_arrived(self, 0, COUNT - 1)) != NULL) {
            size_t length = message->bytes;
            uint32_t tag = message->header.tag;
            EXPECT(self, message->header.schedule == 1);
            EXPECT(self, length == tag % LENGTHS);
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

/* Arms the rank after all events were polled. A peer that was about to wake the
   rank may wake it then, although there is no event left; so this function
   polls and arms again. Returns true if the rank may sleep until it is woken.
   Returns false if some peer cannot wake it, or not yet. */
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

/* A rank, the sleeper, arms, sends to the next rank, and is woken by the
   answer. It may be woken earlier, by a rank that has seen it armed and has
   been preempted since then. If the sleeper is armed for notices only, the rank
   that answers then arms with INSIST, which wakes the sleeper. */
void conformance_wakes_when_armed(conformance_rank_t *self)
{
    static const baton_arm_t hows[] = {BATON_ARM_ALL, BATON_ARM_SOON,
                                       BATON_ARM_NOTICES, BATON_ARM_INSIST};
    enum { ROUNDS = sizeof hows / sizeof hows[0] };
    if (self->size == 1 || self->transport->descriptor(self->endpoint, 0) < 0) {
        return;
    }
    for (int round = 0; round < ROUNDS * self->size; round++) {
        int sleeper = round / ROUNDS;
        int waker = (sleeper + 1) % self->size;
        baton_arm_t how = hows[round % ROUNDS];
        conformance_forget(self);
        conformance_sync(self, waker);
        if (self->rank == sleeper) {
            conformance_recv(self, 0, waker, 12, NULL);
            bool armed = arm(self, how);
            conformance_send(self, 1, waker, 11, NULL, 0);
            while (armed && !readable(self) && self->yield(self)) {
            }
            self->transport->disarm(self->endpoint);
            self->transport->drain(self->endpoint);
            conformance_wait(self, 0);
        } else if (self->rank == waker) {
            conformance_recv(self, 0, sleeper, 11, NULL);
            conformance_wait(self, 0);
            conformance_send(self, 1, sleeper, 12, NULL, 0);
            if (how == BATON_ARM_NOTICES) {
                (void)arm(self, BATON_ARM_INSIST);
                self->transport->disarm(self->endpoint);
            }
        }
        conformance_wait_all(self);
        conformance_sync(self, waker);
    }
}
