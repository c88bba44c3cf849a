/* The cases of the conformance suite about the states of a message and of a
   rank: withdrawing, completing early, resting, reserving; and a storm. */
#include "support_conformance.h"

#include "support_random.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* A withdrawn receive is gone: the next message of its tag meets the next. */
void conformance_withdraw_unmatched(conformance_rank_t *self)
{
    unsigned char out[2][64];
    unsigned char in[3][64];
    conformance_fill(out[0], 64, conformance_key_of(self->rank, 0));
    conformance_fill(out[1], 64, conformance_key_of(self->rank, 1));
    for (uint32_t i = 0; i < 3; i++) {
        memset(in[i], 0, 64);
        conformance_recv(self, i, conformance_previous_of(self), 9, in[i], 64);
    }
    conformance_poll(self);
    EXPECT(self, conformance_withdraw(self, 1));
    EXPECT(self, !conformance_withdraw(self, 1));
    conformance_sync(self, 0);
    conformance_send(self, 10, conformance_next_of(self), 9, out[0], 64);
    conformance_send(self, 11, conformance_next_of(self), 9, out[1], 64);
    conformance_expect_message(
        self, 0, in[0], 64,
        conformance_key_of(conformance_previous_of(self), 0));
    conformance_expect_message(
        self, 2, in[2], 64,
        conformance_key_of(conformance_previous_of(self), 1));
    EXPECT(self, !self->results[1].arrived && in[1][0] == 0);
    conformance_wait_all(self);
}

/* Whoever wins, the message arrives once. */
void conformance_withdraw_races(conformance_rank_t *self)
{
    enum { ROUNDS = 200, BYTES = 2000 };
    unsigned char out[BYTES];
    unsigned char in[BYTES];
    for (uint32_t i = 0; i < ROUNDS; i++) {
        size_t bytes = i % 2 ? BYTES : 16;
        conformance_forget(self);
        conformance_fill(out, bytes, conformance_key_of(self->rank, i));
        conformance_recv(self, 0, conformance_previous_of(self), 2, in, BYTES);
        conformance_send(self, 1, conformance_next_of(self), 2, out, bytes);
        for (uint32_t turn = 0; turn < i % 5; turn++) {
            (void)self->yield(self);
        }
        uint32_t node = 0;
        if (conformance_withdraw(self, 0)) {
            node = 2;
            conformance_recv(self, node, conformance_previous_of(self), 2, in,
                             BYTES);
        }
        conformance_expect_message(
            self, node, in, bytes,
            conformance_key_of(conformance_previous_of(self), i));
        conformance_expect_sent(self, 1);
    }
}

/* Nobody posts a receive before every rank's send has completed. */
enum { EAGER_MOST = 1 << 20 };

void conformance_eager_needs_no_receiver(conformance_rank_t *self)
{
    size_t bytes = self->transport->eager_bytes;
    if (bytes > EAGER_MOST) { /* of any size */
        bytes = EAGER_MOST;
    }
    unsigned char *out = malloc(bytes);
    unsigned char *in = malloc(2 * bytes);
    conformance_fill(out, bytes, conformance_key_of(self->rank, 0));
    conformance_send(self, 0, conformance_next_of(self), 6, out, bytes);
    conformance_send(self, 1, self->rank, 8, out, bytes);
    conformance_expect_sent(self, 0);
    conformance_expect_sent(self, 1);
    conformance_sync(self, 0);
    memset(out, 0, bytes); /* it is the sender's again */
    conformance_recv(self, 2, conformance_previous_of(self), 6, in, bytes);
    conformance_recv(self, 3, self->rank, 8, in + bytes, bytes);
    conformance_expect_message(
        self, 2, in, bytes,
        conformance_key_of(conformance_previous_of(self), 0));
    conformance_expect_message(self, 3, in + bytes, bytes,
                               conformance_key_of(self->rank, 0));
    free(out);
    free(in);
}

static bool readable(const conformance_rank_t *self)
{
    struct pollfd wait = {.fd = self->transport->descriptor(self->endpoint),
                          .events = POLLIN};
    return poll(&wait, 1, 0) == 1;
}

/* One rank rests, tells another, and is rung by its answer; awake, it is not.
   The messages of all others go to the ringer alone meanwhile. */
static void sleep_and_ring(conformance_rank_t *self, int sleeper, int ringer)
{
    const baton_transport_t *port = self->transport;
    unsigned char data[2][16];
    if (self->rank == ringer) {
        conformance_fill(data[0], 16, 1);
        for (uint32_t i = 0; i < 2; i++) {
            conformance_recv(self, 2 * i, sleeper, 11, NULL, 0);
            conformance_wait(self, 2 * i);
            conformance_send(self, 2 * i + 1, sleeper, 12, data[0], 16);
            conformance_expect_sent(self, 2 * i + 1);
        }
    } else if (self->rank == sleeper) {
        port->hush(self->endpoint);
        EXPECT(self, !readable(self));
        conformance_recv(self, 0, ringer, 12, data[0], 16);
        EXPECT(self, port->rest(self->endpoint) == BATON_SLEEP_FOREVER);
        for (int i = 0; i < 16; i++) {
            conformance_poll(self);
        }
        EXPECT(self, port->sleep(self->endpoint));
        conformance_send(self, 1, ringer, 11, NULL, 0);
        while (!readable(self) && self->yield(self)) {
        }
        port->awake(self->endpoint);
        port->hush(self->endpoint);
        EXPECT(self, !readable(self));
        conformance_expect_message(self, 0, data[0], 16, 1);
        conformance_recv(self, 2, ringer, 12, data[1], 16);
        conformance_send(self, 3, ringer, 11, NULL, 0);
        conformance_expect_message(self, 2, data[1], 16, 1);
        EXPECT(self, !readable(self));
        conformance_wait_all(self);
    }
    conformance_sync(self, ringer);
}

void conformance_bell_rings_when_resting(conformance_rank_t *self)
{
    if (self->size == 1 || self->transport->descriptor(self->endpoint) < 0) {
        return;
    }
    for (int sleeper = 0; sleeper < self->size; sleeper++) {
        int ringer = (sleeper + 1) % self->size;
        for (int round = 0; round < 5; round++) {
            conformance_forget(self);
            conformance_sync(self, ringer);
            sleep_and_ring(self, sleeper, ringer);
        }
    }
}

/* Messages in flight survive that their room grows. */
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
                             in + i * BYTES, BYTES);
        }
    }
    baton_status_t status = self->transport->reserve(self->endpoint, MORE);
    EXPECT(self, status == BATON_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        if (i % 2) {
            conformance_recv(self, COUNT + i, conformance_previous_of(self), i,
                             in + i * BYTES, BYTES);
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
    status = self->transport->reserve(self->endpoint, -MORE);
    EXPECT(self, status == BATON_OK);
    free(out);
    free(in);
}

/* Each rank sends to each a list that both draw from the seed; a rank posts its
   sends and receives in an order of its own, in order within a tag. */
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
    size_t most = support_random_below(&traffic->list, 2) ? STORM_BYTES : 64;
    size_t bytes = support_random_below(&traffic->list, most + 1);
    uint32_t number = traffic->next++;
    if (traffic->receive) {
        memset(data, 0, bytes);
        conformance_recv(self, node, traffic->peer, tag, data, bytes);
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
