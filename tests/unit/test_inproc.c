/* The limits and errors of the inproc transport. test_conformance.c tests the
   properties that all transports share. All ranks take turns in one thread. */
#include "support/cluster.h"
#include "transport/inproc/rank.h"

#include <poll.h>
#include <time.h>

enum {
    RANKS = 2,
    /* A message of BYTES is sent by reference. */
    BYTES = BATON__INPROC_COPY_BYTES + 1,
    LONG = 3 * BATON__INPROC_SLICE_BYTES + 1
};

typedef struct pair {
    baton_inproc_t *medium;
    const baton_transport_t *port;
    void *ends[RANKS];
} pair_t;

static const baton_header_t header = {.schedule = 5, .epoch = 3, .tag = 1};

static pair_t open_pair(int64_t messages)
{
    pair_t pair;
    support_ok(baton_inproc_create(RANKS, &pair.medium));
    for (int i = 0; i < RANKS; i++) {
        support_ok(
            baton__inproc_join(pair.medium, i, &pair.port, &pair.ends[i]));
        support_ok(pair.port->reserve(pair.ends[i], 1 - i, messages, messages));
    }
    return pair;
}

static void close_pair(pair_t *pair)
{
    for (int i = 0; i < RANKS; i++) {
        pair->port->close(pair->ends[i]);
    }
    support_ok(baton_inproc_destroy(pair->medium));
}

static baton_token_t token(uint32_t node)
{
    return (baton_token_t){.node = node};
}

/* Posts a send from rank 0 to rank 1. */
static baton_status_t post(pair_t *pair, uint32_t node, const void *data,
                           size_t bytes)
{
    return pair->port->send(pair->ends[0], token(node), 1, &header, data,
                            bytes);
}

/* Returns the next event of a rank. */
static baton_event_t poll_one(pair_t *pair, int rank)
{
    baton_event_t event;
    assert_int_equal(pair->port->poll(pair->ends[rank], &event, 1), 1);
    return event;
}

static bool is_quiet(pair_t *pair, int rank)
{
    baton_event_t event;
    return pair->port->poll(pair->ends[rank], &event, 1) == 0;
}

/* ---- the medium ------------------------------------------------------- */

/* After a rank's close, another endpoint can be opened for the rank. A medium
   that is in use is not destroyed. */
TEST(test_inproc_ranks_join_once)
{
    pair_t pair = open_pair(1);
    const baton_transport_t *port;
    void *end;
    support_expect(baton_inproc_create(0, &pair.medium), BATON_ERR_INVALID);
    support_expect(baton__inproc_join(NULL, 0, &port, &end), BATON_ERR_INVALID);
    for (int rank = -1; rank <= RANKS; rank++) {
        support_fails(baton__inproc_join(pair.medium, rank, &port, &end),
                      BATON_ERR_INVALID,
                      rank >= 0 && rank < RANKS ? "joined already" : "0 to 1");
    }
    pair.port->close(pair.ends[1]);
    support_ok(baton__inproc_join(pair.medium, 1, &pair.port, &pair.ends[1]));
    pair.port->close(pair.ends[0]);
    support_fails(baton_inproc_destroy(pair.medium), BATON_ERR_BUSY, "rank 1");
    pair.port->close(pair.ends[1]);
    support_ok(baton_inproc_destroy(pair.medium));
}

/* ---- limits ----------------------------------------------------------- */

TEST(test_inproc_sends_beyond_the_reserve_are_errors)
{
    static unsigned char out[BYTES];
    pair_t pair = open_pair(1);
    baton_status_t status = BATON_OK;
    uint32_t posted = 0;
    while (!status && posted < 1000) {
        status = post(&pair, posted++, out, BYTES);
    }
    support_expect(status, BATON_ERR_LIMIT);
    assert_true(posted > 1);
    for (uint32_t node = 0; node + 1 < posted; node++) {
        assert_true(pair.port->withdraw(pair.ends[0], token(node)));
    }
    close_pair(&pair);
}

/* Returns the processor time in ns of `count` withdrawals, whose order is not
   that of the sends. */
static double withdraw_all(uint32_t count)
{
    struct timespec from, to;
    pair_t pair = open_pair(count + 1);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(post(&pair, i, NULL, BYTES), BATON_OK);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(pair.port->withdraw(pair.ends[0], token(i * 7 % count)));
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    assert_int_equal(post(&pair, count, NULL, BYTES), BATON_OK);
    assert_true(pair.port->withdraw(pair.ends[0], token(count)));
    close_pair(&pair);
    return (double)(to.tv_sec - from.tv_sec) * 1e9 +
           (double)(to.tv_nsec - from.tv_nsec);
}

/* 16 times as many sends take about 16 times as long: they would take 256 times
   as long if each withdrawal searched all sends. */
TEST(test_inproc_withdrawals_take_constant_time)
{
    /* The least of three, since the first may include page faults. */
    double few = 1e18;
    for (int i = 0; i < 3; i++) {
        const double ns = withdraw_all(1 << 10);
        few = ns < few ? ns : few;
    }
    assert_true(withdraw_all(1 << 14) < 100 * few);
}

TEST(test_inproc_copies_are_bounded)
{
    enum { SENDS = 3 * BATON__INPROC_COPIES_MOST };
    pair_t pair = open_pair(SENDS - BATON__INPROC_COPIES_MOST);
    uint32_t copied = 0;
    for (uint32_t node = 0; node < SENDS; node++) {
        copied += post(&pair, node, NULL, 0) == BATON_DONE;
    }
    assert_in_range(copied, 1, BATON__INPROC_COPIES_MOST);
    assert_int_equal(pair.port->notify(pair.ends[0], 1, &header, NULL, 0),
                     BATON_AGAIN);
    for (uint32_t node = 0; node < SENDS; node++) {
        pair.port->drop(pair.ends[1], poll_one(&pair, 1).message);
    }
    for (uint32_t node = copied; node < SENDS; node++) {
        baton_event_t sent = poll_one(&pair, 0);
        assert_int_equal(sent.kind, BATON_EVENT_SENT);
        assert_int_equal(sent.token.node, node);
    }
    assert_true(is_quiet(&pair, 0));
    assert_int_equal(pair.port->notify(pair.ends[0], 1, &header, NULL, 0),
                     BATON_DONE);
    close_pair(&pair);
}

/* ---- messages --------------------------------------------------------- */

/* Each poll copies a slice. Meanwhile neither rank sleeps, and the send
 * continues. */
TEST(test_inproc_a_long_copy_is_made_in_slices)
{
    unsigned char *out = support_alloc(1, LONG);
    unsigned char *in = support_alloc(1, LONG);
    memset(out, 42, LONG);
    pair_t pair = open_pair(2);
    support_ok(post(&pair, 0, out, LONG));
    baton_message_t *message = poll_one(&pair, 1).message;
    support_ok(pair.port->accept(pair.ends[1], message, token(9), in));
    for (int slice = 0; slice < 3; slice++) {
        uint32_t us;
        assert_false(pair.port->arm(pair.ends[1], BATON_ARM_ALL, &us));
        assert_false(pair.port->withdraw(pair.ends[0], token(0)));
        assert_true(is_quiet(&pair, 1));
        assert_true(is_quiet(&pair, 0));
        assert_int_equal(in[LONG - 1], 0);
    }
    baton_event_t received = poll_one(&pair, 1);
    assert_int_equal(received.kind, BATON_EVENT_RECEIVED);
    assert_int_equal(received.status, BATON_OK);
    assert_int_equal(received.token.node, 9);
    assert_memory_equal(in, out, LONG);
    assert_int_equal(poll_one(&pair, 0).kind, BATON_EVENT_SENT);
    close_pair(&pair);
    free(out);
    free(in);
}

TEST(test_inproc_a_short_message_outlives_its_sender)
{
    pair_t pair = open_pair(2);
    unsigned char byte = 9;
    assert_int_equal(post(&pair, 0, &byte, 1), BATON_DONE);
    pair.port->close(pair.ends[0]);
    byte = 0;
    baton_event_t arrived = poll_one(&pair, 1);
    assert_int_equal(
        pair.port->accept(pair.ends[1], arrived.message, token(1), &byte),
        BATON_DONE);
    assert_int_equal(byte, 9);
    pair.port->close(pair.ends[1]);
    support_ok(baton_inproc_destroy(pair.medium));
}

/* Sends to a rank that leaves, and to one that has left. */
TEST(test_inproc_sends_to_who_is_gone_end)
{
    static unsigned char out[BYTES];
    pair_t pair = open_pair(2);
    support_ok(post(&pair, 0, out, BYTES));
    pair.port->close(pair.ends[1]);
    assert_int_equal(poll_one(&pair, 0).token.node, 0);
    support_ok(post(&pair, 1, out, BYTES));
    assert_int_equal(poll_one(&pair, 0).token.node, 1);
    uint32_t us;
    assert_false(
        /* The loss is an event, so the rank must not sleep. */
        pair.port->arm(pair.ends[0], BATON_ARM_ALL, &us));
    baton_event_t event = poll_one(&pair, 0);
    assert_int_equal(event.kind, BATON_EVENT_LOST);
    assert_int_equal(event.peer, 1);
    assert_int_equal(post(&pair, 2, out, 1), BATON_DONE);
    assert_true(is_quiet(&pair, 0)); /* the loss is reported only once */
    pair.port->close(pair.ends[0]);
    support_ok(baton_inproc_destroy(pair.medium));
}

/* A message of up to a slice is copied when it is accepted. A message of up to
   256 bytes is copied when it is sent. */
TEST(test_inproc_limits_are_exact)
{
    static unsigned char out[BATON__INPROC_SLICE_BYTES + 1];
    static unsigned char in[BATON__INPROC_SLICE_BYTES + 1];
    static const size_t sizes[] = {
        BATON__INPROC_COPY_BYTES, BATON__INPROC_COPY_BYTES + 1,
        BATON__INPROC_SLICE_BYTES, BATON__INPROC_SLICE_BYTES + 1};
    pair_t pair = open_pair(2);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(post(&pair, i, out, sizes[i]),
                         i == 0 ? BATON_DONE : BATON_OK);
        baton_message_t *message = poll_one(&pair, 1).message;
        assert_int_equal(pair.port->accept(pair.ends[1], message, token(i), in),
                         i == 3 ? BATON_OK : BATON_DONE);
        while (!is_quiet(&pair, 1)) {
        }
        while (!is_quiet(&pair, 0)) {
        }
    }
    close_pair(&pair);
}

/* Each time there are as many sends in flight as were reserved, however the
   last ones have ended. */
TEST(test_inproc_reserved_sends_come_back)
{
    enum { SENDS = 1000, ENDS = 4 };
    static unsigned char out[BYTES];
    static unsigned char in[BYTES];
    static baton_message_t *messages[SENDS];
    pair_t pair = open_pair(SENDS);
    for (uint32_t way = 0; way < 2 * ENDS; way++) {
        for (uint32_t i = 0; i < SENDS; i++) {
            support_ok(post(&pair, i, out, BYTES));
        }
        for (uint32_t i = 0; i < SENDS; i++) {
            messages[i] = poll_one(&pair, 1).message;
        }
        for (uint32_t i = 0; i < SENDS; i++) {
            bool withdrawn = way % ENDS == 0;
            bool lent = way % ENDS == 1;
            if (withdrawn) {
                assert_true(pair.port->withdraw(pair.ends[0], token(i)));
            }
            if (lent) {
                assert_int_equal(pair.port->lend(pair.ends[1], messages[i]),
                                 BATON_DONE);
                assert_ptr_equal(messages[i]->data, out);
                assert_false(pair.port->withdraw(pair.ends[0], token(i)));
            }
            if (way % ENDS < 2 && !(withdrawn && way >= ENDS)) {
                pair.port->drop(pair.ends[1], messages[i]);
            } else {
                assert_int_equal(
                    pair.port->accept(pair.ends[1], messages[i], token(i), in),
                    withdrawn ? BATON_ERR_CANCELLED : BATON_DONE);
            }
            assert_true(withdrawn ||
                        poll_one(&pair, 0).kind == BATON_EVENT_SENT);
        }
        assert_true(is_quiet(&pair, 0));
    }
    close_pair(&pair);
}

/* ---- sleep ------------------------------------------------------------ */

static bool rings(pair_t *pair, int rank)
{
    struct pollfd event = {.fd = pair->port->descriptor(pair->ends[rank], 0),
                           .events = POLLIN};
    return poll(&event, 1, 0) == 1;
}

/* A message wakes the receiver once, while it is armed. The end of a large send
   wakes the sender. */
TEST(test_inproc_bell_rings_once_when_armed)
{
    static unsigned char out[BYTES];
    static unsigned char in[BYTES];
    pair_t pair = open_pair(4);
    uint32_t us = 0;
    assert_int_equal(pair.port->descriptor(pair.ends[1], 1), -1);
    assert_true(pair.port->arm(pair.ends[1], BATON_ARM_ALL, &us));
    assert_int_equal(us, BATON_SLEEP_FOREVER);
    assert_false(rings(&pair, 1));
    (void)post(&pair, 0, NULL, 0);
    assert_true(rings(&pair, 1));
    pair.port->drain(pair.ends[1]);
    (void)post(&pair, 1, NULL, 0);
    assert_false(rings(&pair, 1)); /* the first wake-up has disarmed it */
    for (int i = 0; i < 2; i++) {
        assert_false(pair.port->arm(pair.ends[1], BATON_ARM_ALL, &us));
        pair.port->drop(pair.ends[1], poll_one(&pair, 1).message);
    }
    assert_true(pair.port->arm(pair.ends[1], BATON_ARM_ALL, &us));
    pair.port->disarm(pair.ends[1]);
    support_ok(post(&pair, 2, out, BYTES));
    assert_false(rings(&pair, 1));
    assert_true(pair.port->arm(pair.ends[0], BATON_ARM_ALL, &us));
    baton_message_t *message = poll_one(&pair, 1).message;
    assert_false(rings(&pair, 0));
    assert_int_equal(pair.port->accept(pair.ends[1], message, token(0), in),
                     BATON_DONE);
    assert_true(rings(&pair, 0));
    assert_int_equal(poll_one(&pair, 0).kind, BATON_EVENT_SENT);
    close_pair(&pair);
}
