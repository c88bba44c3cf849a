/* The conformance cases about messages: content, order and size. */
#include "support/conformance.h"

#include "support/random.h"

#include <stdlib.h>
#include <string.h>

/* Sizes just below and above the limits of the transports' protocols. */
static const size_t SIZES[] = {0,    1,    31,    47,    256,   257,     961,
                               4032, 4033, 65537, 69568, 69569, 1u << 20};
enum { SIZE_COUNT = sizeof SIZES / sizeof SIZES[0], LARGEST = 1 << 20 };

/* Messages of each size go around the ring of ranks, two of each size. When the
   first arrives its receive is posted already; the second arrives before its
   receive is posted. If there is one rank, it sends to itself. */
void conformance_sizes(conformance_rank_t *self)
{
    unsigned char *out = malloc(LARGEST);
    unsigned char *in = malloc(LARGEST);
    for (uint32_t i = 0; i < 2 * SIZE_COUNT; i++) {
        size_t bytes = SIZES[i / 2];
        conformance_fill(out, bytes, conformance_key_of(self->rank, i));
        memset(in, 0, bytes);
        if (i % 2 == 0) {
            conformance_recv(self, 2 * i, self->previous, 7, in);
            conformance_sync(self, 0);
            conformance_send(self, 2 * i + 1, self->next, 7, out, bytes);
        } else {
            conformance_send(self, 2 * i + 1, self->next, 7, out, bytes);
            conformance_sync(self, 0);
            conformance_recv(self, 2 * i, self->previous, 7, in);
        }
        conformance_expect_message(self, 2 * i, in, bytes,
                                   conformance_key_of(self->previous, i));
        conformance_expect_sent(self, 2 * i + 1);
    }
    free(out);
    free(in);
}

/* All messages from a peer arrive in the order in which they were sent,
   whatever their sizes and tags are. */
void conformance_order_of_arrival(conformance_rank_t *self)
{
    enum { COUNT = 90, BYTES = 70000 };
    if (self->transport->unordered) {
        return;
    }
    unsigned char *out = calloc(1, BYTES);
    for (uint32_t i = 0; i < COUNT; i++) {
        size_t bytes = (const size_t[]){BYTES, 900, 16}[i % 3];
        conformance_send(self, i, self->next, i, out, bytes);
    }
    for (uint32_t seen = 0; seen < COUNT && conformance_await(self);) {
        baton_message_t *message;
        while ((message = conformance_arrived(self, 0, COUNT - 1)) != NULL) {
            EXPECT(self, message->header.tag == seen);
            seen++;
            self->transport->drop(self->endpoint, message);
        }
    }
    conformance_wait_all(self);
    conformance_sync(self, 0);
    free(out);
}

/* Headers arrive unchanged. A message that is dropped ends its send, and has no
   other effect. */
void conformance_headers_arrive_as_sent(conformance_rank_t *self)
{
    const baton_token_t token = {.owner = self};
    const baton_header_t header = {.schedule = UINT64_C(0x123456789abcdef0),
                                   .epoch = UINT64_C(0xfedcba9876543210),
                                   .tag = 77,
                                   .incarnation = 0xabcd,
                                   .kind = 0x1234};
    unsigned char *out = calloc(1, LARGEST);
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        size_t bytes = SIZES[i];
        conformance_forget(self);
        baton_status_t status = self->transport->send(
            self->endpoint, token, self->next, &header, out, bytes);
        EXPECT(self, status == BATON_OK || status == BATON_DONE);
        self->posted += status == BATON_OK;
        baton_message_t *message = conformance_take(self, 77);
        if (message == NULL) {
            break;
        }
        EXPECT(self, message->peer == self->previous);
        EXPECT(self, message->header.schedule == header.schedule);
        EXPECT(self, message->header.epoch == header.epoch);
        EXPECT(self, message->header.incarnation == header.incarnation);
        EXPECT(self, message->header.kind == header.kind);
        EXPECT(self, message->bytes == bytes);
        self->transport->drop(self->endpoint, message);
        conformance_wait_all(self);
    }
    free(out);
}

/* Each rank sends a list of messages to each rank, including itself. Sender and
   receiver compute the same list from the seed. A rank posts the sends and
   receives of each list in the list's order, and goes from list to list at
   random. Reservations grow before the last messages. */
enum { STORM = 40, STORM_TAGS = 5, STORM_BYTES = 9000, MORE = 20000 };

typedef struct traffic {
    int peer;
    bool receive;
    uint32_t next; /* the next message's index in the list */
    support_random_t list;
    void *data[STORM];
    size_t bytes[STORM];
} traffic_t;

static void post_next(conformance_rank_t *self, traffic_t *traffic,
                      uint32_t node)
{
    uint32_t tag = (uint32_t)support_random_below(&traffic->list, STORM_TAGS);
    uint64_t kind = support_random_below(&traffic->list, 8);
    uint32_t number = traffic->next++;
    size_t bytes =
        kind == 0
            ? SIZES[support_random_below(&traffic->list, SIZE_COUNT)]
            : support_random_below(&traffic->list, kind < 4 ? STORM_BYTES : 64);
    void *data = calloc(1, bytes + 1);
    traffic->data[number] = data;
    traffic->bytes[number] = bytes;
    tag = self->transport->unordered ? number : tag;
    if (traffic->receive) {
        conformance_recv(self, node, traffic->peer, tag, data);
    } else {
        conformance_fill(data, bytes, conformance_key_of(self->rank, number));
        conformance_send(self, node, traffic->peer, tag, data, bytes);
    }
}

static bool reserve_more(conformance_rank_t *self, int64_t count)
{
    return self->transport->reserve(self->endpoint, self->next, count, count) ==
           BATON_OK;
}

void conformance_random_traffic(conformance_rank_t *self)
{
    uint32_t lists = (uint32_t)self->size * 2;
    traffic_t *traffic = calloc(lists, sizeof *traffic);
    support_random_t own =
        support_random(self->seed, 1000000 + (uint64_t)self->rank);
    for (uint32_t i = 0; i < lists; i++) {
        uint64_t peer = i / 2, rank = (uint64_t)self->rank;
        bool receive = i % 2 == 1;
        uint64_t list = receive ? peer * 1000 + rank : rank * 1000 + peer;
        traffic[i] = (traffic_t){.peer = (int)peer,
                                 .receive = receive,
                                 .list = support_random(self->seed, list)};
    }
    for (uint32_t left = lists * STORM; left > 0;) {
        uint32_t i = (uint32_t)support_random_below(&own, lists);
        if (traffic[i].next < STORM) {
            post_next(self, &traffic[i], i * STORM + traffic[i].next);
            left--;
            EXPECT(self, left != STORM || reserve_more(self, MORE));
        }
        if (support_random_below(&own, 4) == 0) {
            conformance_poll(self);
            (void)self->yield(self);
        }
    }
    conformance_wait_all(self);
    EXPECT(self, reserve_more(self, -MORE));
    for (uint32_t node = 0; node < lists * STORM; node++) {
        traffic_t *of = &traffic[node / STORM];
        if (of->receive) {
            conformance_expect_message(
                self, node, of->data[node % STORM], of->bytes[node % STORM],
                conformance_key_of(of->peer, node % STORM));
        }
        free(of->data[node % STORM]);
    }
    free(traffic);
}
