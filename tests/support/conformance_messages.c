/* The cases of the conformance suite about messages: content, order, size. */
#include "support/conformance.h"

#include "base/alloc.h"
#include <stdlib.h>
#include <string.h>

/* Sizes around the limits of each protocol of the transports. */
static const size_t SIZES[] = {0,    1,    31,    47,    256,   257,     961,
                               4032, 4033, 65537, 69568, 69569, 1u << 20};
enum { SIZE_COUNT = sizeof SIZES / sizeof SIZES[0], LARGEST = 1 << 20 };

/* Messages of every size around the ring of ranks. A single rank sends to
 * itself.
 */
static void every_size(conformance_rank_t *self, bool receive_first)
{
    unsigned char *out = malloc(LARGEST);
    unsigned char *in = malloc(LARGEST);
    for (uint32_t i = 0; i < SIZE_COUNT; i++) {
        size_t bytes = SIZES[i];
        conformance_fill(out, bytes, conformance_key_of(self->rank, i));
        memset(in, 0, bytes);
        if (receive_first) {
            conformance_recv(self, 2 * i, conformance_previous_of(self), 7, in);
            conformance_sync(self, 0);
            conformance_send(self, 2 * i + 1, conformance_next_of(self), 7, out,
                             bytes);
        } else {
            conformance_send(self, 2 * i + 1, conformance_next_of(self), 7, out,
                             bytes);
            conformance_sync(self, 0);
            conformance_recv(self, 2 * i, conformance_previous_of(self), 7, in);
        }
        conformance_expect_message(
            self, 2 * i, in, bytes,
            conformance_key_of(conformance_previous_of(self), i));
        conformance_expect_sent(self, 2 * i + 1);
    }
    free(out);
    free(in);
}

void conformance_sizes_receive_first(conformance_rank_t *self)
{
    every_size(self, true);
}

void conformance_sizes_send_first(conformance_rank_t *self)
{
    every_size(self, false);
}

/* Ranks 2k and 2k + 1 answer with the message that came. */
void conformance_ping_pong(conformance_rank_t *self)
{
    int peer = self->rank ^ 1;
    if (peer >= self->size) {
        return;
    }
    unsigned char *data = malloc(LARGEST);
    bool first = self->rank < peer;
    for (uint32_t i = 0; i < SIZE_COUNT; i++) {
        size_t bytes = SIZES[i];
        if (first) {
            conformance_fill(data, bytes, i);
            conformance_send(self, 2 * i, peer, i, data, bytes);
            conformance_expect_sent(self, 2 * i);
            memset(data, 0, bytes);
        }
        conformance_recv(self, 2 * i + 1, peer, i, data);
        conformance_expect_message(self, 2 * i + 1, data, bytes, i);
        if (!first) {
            conformance_send(self, 2 * i, peer, i, data, bytes);
            conformance_expect_sent(self, 2 * i);
        }
    }
    free(data);
}

/* All messages of a peer arrive in the order sent, whatever their size and tag.
 */
void conformance_order_of_arrival(conformance_rank_t *self)
{
    enum { COUNT = 90, BYTES = 70000 };
    if (self->transport->unordered) {
        return;
    }
    unsigned char *out = calloc(1, BYTES);
    for (uint32_t i = 0; i < COUNT; i++) {
        size_t bytes = i % 3 == 0 ? BYTES : i % 3 == 1 ? 900 : 16;
        conformance_send(self, i, conformance_next_of(self), i, out, bytes);
    }
    for (uint32_t seen = 0; seen < COUNT && conformance_await(self);) {
        baton_message_t **link = &self->arrived;
        while (*link != NULL) {
            baton_message_t *message = *link;
            if (message->header.tag >= COUNT) { /* a sync's */
                link = &message->next;
                continue;
            }
            *link = message->next;
            EXPECT(self, message->header.tag == seen);
            seen++;
            self->transport->drop(self->endpoint, message);
        }
    }
    conformance_wait_all(self);
    conformance_sync(self, 0);
    free(out);
}

/* Small and large messages of one tag stay in order. */
enum { ORDERED = 60, ORDERED_BYTES = 6000 };

void conformance_order_within_tag(conformance_rank_t *self)
{
    if (self->transport->unordered) {
        return;
    }
    unsigned char *out = malloc(ORDERED * ORDERED_BYTES);
    unsigned char *in = malloc(ORDERED * ORDERED_BYTES);
    for (uint32_t i = 0; i < ORDERED; i++) {
        size_t bytes = i % 3 == 0 ? ORDERED_BYTES : i % 7;
        conformance_fill(out + i * ORDERED_BYTES, bytes,
                         conformance_key_of(self->rank, i));
        conformance_send(self, i, conformance_next_of(self), 3,
                         out + i * ORDERED_BYTES, bytes);
        if (i % 2 == 1) { /* half of them find a receive posted */
            conformance_recv(self, ORDERED + i / 2,
                             conformance_previous_of(self), 3,
                             in + i / 2 * ORDERED_BYTES);
        }
    }
    for (uint32_t i = ORDERED / 2; i < ORDERED; i++) {
        conformance_recv(self, ORDERED + i, conformance_previous_of(self), 3,
                         in + i * ORDERED_BYTES);
    }
    for (uint32_t i = 0; i < ORDERED; i++) {
        size_t bytes = i % 3 == 0 ? ORDERED_BYTES : i % 7;
        conformance_expect_message(
            self, ORDERED + i, in + i * ORDERED_BYTES, bytes,
            conformance_key_of(conformance_previous_of(self), i));
    }
    conformance_wait_all(self);
    free(out);
    free(in);
}

/* A message finds the receive of its tag in whatever order both are posted. */
void conformance_tags_in_any_order(conformance_rank_t *self)
{
    enum { TAGS = 101, BYTES = 300 };
    unsigned char out[TAGS][BYTES];
    unsigned char in[TAGS][BYTES];
    for (uint32_t round = 0; round < 2; round++) {
        conformance_forget(self);
        for (uint32_t i = 0; i < TAGS; i++) {
            uint32_t tag = i * 37 % TAGS;
            conformance_fill(out[tag], BYTES,
                             conformance_key_of(self->rank, tag));
            conformance_send(self, tag, conformance_next_of(self), tag,
                             out[tag], BYTES);
        }
        if (round == 0) {
            conformance_sync(self, 0);
        }
        for (uint32_t i = 0; i < TAGS; i++) {
            uint32_t tag = i * 64 % TAGS;
            conformance_recv(self, TAGS + tag, conformance_previous_of(self),
                             tag, in[tag]);
        }
        for (uint32_t tag = 0; tag < TAGS; tag++) {
            conformance_expect_message(
                self, TAGS + tag, in[tag], BYTES,
                conformance_key_of(conformance_previous_of(self), tag));
        }
        conformance_wait_all(self);
    }
}

void conformance_messages_to_self(conformance_rank_t *self)
{
    unsigned char *out = malloc(LARGEST);
    unsigned char *in = malloc(LARGEST);
    for (uint32_t i = 0; i < SIZE_COUNT; i++) {
        size_t bytes = SIZES[i];
        conformance_fill(out, bytes, i);
        if (i % 2 == 0) {
            conformance_recv(self, 2 * i, self->rank, 1, in);
        }
        conformance_send(self, 2 * i + 1, self->rank, 1, out, bytes);
        conformance_poll(self);
        if (i % 2 == 1) {
            conformance_recv(self, 2 * i, self->rank, 1, in);
        }
        conformance_expect_message(self, 2 * i, in, bytes, i);
        conformance_expect_sent(self, 2 * i + 1);
    }
    free(out);
    free(in);
}

void conformance_all_pairs(conformance_rank_t *self)
{
    enum { BYTES = 5000 };
    uint32_t size = (uint32_t)self->size;
    unsigned char *out = malloc(size * BYTES);
    unsigned char *in = malloc(size * BYTES);
    for (uint32_t peer = 0; peer < size; peer++) {
        conformance_fill(out + peer * BYTES, BYTES - peer,
                         conformance_key_of(self->rank, peer));
        conformance_send(self, peer, (int)peer, 5, out + peer * BYTES,
                         BYTES - peer);
        conformance_recv(self, size + peer, (int)peer, 5, in + peer * BYTES);
    }
    for (uint32_t peer = 0; peer < size; peer++) {
        conformance_expect_message(
            self, size + peer, in + peer * BYTES, BYTES - (size_t)self->rank,
            conformance_key_of((int)peer, (uint32_t)self->rank));
    }
    conformance_wait_all(self);
    free(out);
    free(in);
}

enum { MANY = 600, MANY_BYTES = 24 };

/* Posts and completes MANY messages each way; nothing allocates meanwhile. */
static void many(conformance_rank_t *self, bool send_first)
{
    unsigned char *out = calloc(MANY, MANY_BYTES);
    unsigned char *in = calloc(MANY, MANY_BYTES);
    for (uint32_t i = 0; i < MANY; i++) {
        conformance_fill(out + i * MANY_BYTES, MANY_BYTES,
                         conformance_key_of(self->rank, i));
    }
    conformance_sync(self, 0);
    int64_t allocations = baton__alloc_count();
    for (uint32_t half = 0; half < 2; half++) {
        bool sends = (half == 0) == send_first;
        for (uint32_t i = 0; i < MANY; i++) {
            if (sends) {
                conformance_send(self, i, conformance_next_of(self), i,
                                 out + i * MANY_BYTES, MANY_BYTES);
            } else {
                uint32_t tag = MANY - 1 - i;
                conformance_recv(self, MANY + tag,
                                 conformance_previous_of(self), tag,
                                 in + tag * MANY_BYTES);
            }
        }
        if (half == 0) {
            conformance_sync(self, 0);
        }
    }
    conformance_wait_all(self);
    EXPECT(self, self->allocates || baton__alloc_count() == allocations);
    conformance_sync(self, 0);
    for (uint32_t i = 0; i < MANY; i++) {
        conformance_expect_message(
            self, MANY + i, in + i * MANY_BYTES, MANY_BYTES,
            conformance_key_of(conformance_previous_of(self), i));
    }
    free(out);
    free(in);
}

void conformance_many_sends_first(conformance_rank_t *self)
{
    many(self, true);
}

void conformance_many_receives_first(conformance_rank_t *self)
{
    many(self, false);
}

void conformance_headers_arrive_as_sent(conformance_rank_t *self)
{
    const baton_token_t token = {.owner = self};
    const baton_header_t header = {.schedule = UINT64_C(0x123456789abcdef0),
                                   .epoch = UINT64_C(0xfedcba9876543210),
                                   .tag = 77,
                                   .incarnation = 0xabcd,
                                   .kind = 0x1234};
    static const size_t sizes[] = {0, 1, 300, 5000, 200000};
    unsigned char *out = calloc(1, 200000);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        conformance_forget(self);
        baton_status_t status = self->transport->send(self->endpoint, token,
                                                      conformance_next_of(self),
                                                      &header, out, sizes[i]);
        EXPECT(self, status == BATON_OK || status == BATON_DONE);
        self->posted += status == BATON_OK;
        baton_message_t *message =
            conformance_take(self, conformance_previous_of(self), 77);
        if (message == NULL) {
            break;
        }
        EXPECT(self, message->header.schedule == header.schedule);
        EXPECT(self, message->header.epoch == header.epoch);
        EXPECT(self, message->header.incarnation == header.incarnation);
        EXPECT(self, message->header.kind == header.kind);
        EXPECT(self, message->bytes == sizes[i]);
        self->transport->drop(self->endpoint, message);
        conformance_wait_all(self);
        conformance_sync(self, 0);
    }
    free(out);
}
