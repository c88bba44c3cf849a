/* The cases of the conformance suite about messages: content, order, size. */
#include "support_conformance.h"

#include "base/alloc.h"
#include <stdlib.h>
#include <string.h>

/* Around the limits of each way that a transport sends messages. */
static const size_t SIZES[] = {0,    1,    31,    47,    256,   257,     961,
                               4032, 4033, 65537, 69568, 69569, 1u << 20};
enum { SIZE_COUNT = sizeof SIZES / sizeof SIZES[0], LARGEST = 1 << 20 };

/* Every size around the ring of ranks; alone: to itself. */
static void every_size(conformance_rank_t *self, bool receive_first)
{
    unsigned char *out = malloc(LARGEST);
    unsigned char *in = malloc(LARGEST);
    for (uint32_t i = 0; i < SIZE_COUNT; i++) {
        size_t bytes = SIZES[i];
        conformance_fill(out, bytes, conformance_key_of(self->rank, i));
        memset(in, 0, bytes);
        if (receive_first) {
            conformance_recv(self, 2 * i, conformance_previous_of(self), 7, in,
                             bytes);
            conformance_sync(self, 0);
            conformance_send(self, 2 * i + 1, conformance_next_of(self), 7, out,
                             bytes);
        } else {
            conformance_send(self, 2 * i + 1, conformance_next_of(self), 7, out,
                             bytes);
            conformance_sync(self, 0);
            conformance_recv(self, 2 * i, conformance_previous_of(self), 7, in,
                             bytes);
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

/* Between ranks 2k and 2k + 1, the answer is what came. */
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
        conformance_recv(self, 2 * i + 1, peer, i, data, bytes);
        conformance_expect_message(self, 2 * i + 1, data, bytes, i);
        if (!first) {
            conformance_send(self, 2 * i, peer, i, data, bytes);
            conformance_expect_sent(self, 2 * i);
        }
    }
    free(data);
}

/* Small and large messages of one tag stay in order. */
enum { ORDERED = 60, ORDERED_BYTES = 6000 };

void conformance_order_within_tag(conformance_rank_t *self)
{
    unsigned char *out = malloc(ORDERED * ORDERED_BYTES);
    unsigned char *in = malloc(ORDERED * ORDERED_BYTES);
    for (uint32_t i = 0; i < ORDERED; i++) {
        size_t bytes = i % 3 == 0 ? ORDERED_BYTES : i % 7;
        conformance_fill(out + i * ORDERED_BYTES, bytes,
                         conformance_key_of(self->rank, i));
        conformance_send(self, i, conformance_next_of(self), 3,
                         out + i * ORDERED_BYTES, bytes);
        if (i % 2 == 1) { /* half of them meet a receive, half wait for it */
            conformance_recv(self, ORDERED + i / 2,
                             conformance_previous_of(self), 3,
                             in + i / 2 * ORDERED_BYTES, ORDERED_BYTES);
        }
    }
    for (uint32_t i = ORDERED / 2; i < ORDERED; i++) {
        conformance_recv(self, ORDERED + i, conformance_previous_of(self), 3,
                         in + i * ORDERED_BYTES, ORDERED_BYTES);
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

/* A message finds the receive of its tag, whatever order both are posted in. */
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
                             tag, in[tag], BYTES);
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
            conformance_recv(self, 2 * i, self->rank, 1, in, bytes);
        }
        conformance_send(self, 2 * i + 1, self->rank, 1, out, bytes);
        conformance_poll(self);
        if (i % 2 == 1) {
            conformance_recv(self, 2 * i, self->rank, 1, in, bytes);
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
        conformance_recv(self, size + peer, (int)peer, 5, in + peer * BYTES,
                         BYTES);
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

enum { MANY = 2000, MANY_BYTES = 24 };

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
                                 in + tag * MANY_BYTES, MANY_BYTES);
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

/* Too long a message is an error at the receiver, writes nothing beyond the
   posted memory, and the tag works afterwards. */
void conformance_too_long(conformance_rank_t *self)
{
    enum { TOO_LONG = 6 };
    static const size_t LENGTHS[TOO_LONG][2] = {
        {300, 100}, {1, 0}, {100000, 1000}, {40000, 39999}, {31, 4}, {33, 4}};
    unsigned char *out = malloc(100000);
    unsigned char *in = malloc(100000);
    conformance_fill(out, 100000, 1);
    for (uint32_t i = 0; i < 2 * TOO_LONG; i++) {
        const size_t *length = LENGTHS[i / 2];
        conformance_forget(self);
        memset(in, 0xee, 100000);
        for (uint32_t half = 0; half < 2; half++) {
            if (half == i % 2) {
                conformance_send(self, 0, conformance_next_of(self), 4, out,
                                 length[0]);
            } else {
                conformance_recv(self, 1, conformance_previous_of(self), 4, in,
                                 length[1]);
            }
            conformance_sync(self, 0);
        }
        conformance_result_t result = conformance_wait(self, 1);
        EXPECT(self, result.status == BATON_ERR_MISMATCH);
        EXPECT(self, result.has_detail);
        EXPECT(self, in[length[1]] == 0xee);
        conformance_expect_sent(self, 0);
        conformance_send(self, 2, conformance_next_of(self), 4, out, 64);
        conformance_recv(self, 3, conformance_previous_of(self), 4, in, 64);
        conformance_expect_message(self, 3, in, 64, 1);
        conformance_expect_sent(self, 2);
    }
    free(out);
    free(in);
}

void conformance_shorter_than_posted(conformance_rank_t *self)
{
    static const size_t LENGTHS[][2] = {{0, 100}, {99, 100}, {70000, 100000}};
    unsigned char *out = malloc(100000);
    unsigned char *in = malloc(100000);
    for (uint32_t i = 0; i < 3; i++) {
        size_t bytes = LENGTHS[i][0];
        conformance_fill(out, bytes, i);
        conformance_recv(self, 2 * i, conformance_previous_of(self), 4, in,
                         LENGTHS[i][1]);
        conformance_send(self, 2 * i + 1, conformance_next_of(self), 4, out,
                         bytes);
        conformance_expect_message(self, 2 * i, in, bytes, i);
        conformance_expect_sent(self, 2 * i + 1);
    }
    free(out);
    free(in);
}
