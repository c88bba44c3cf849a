/* Endpoints of the MPI transport, in one process and one thread, over a fake
   MPI: which way each message takes, and what happens if there is no room, no
   credit, or no peer any more. test_conformance.c tests the properties that all
   transports share.

   The words are those of packet.h. Near peers are on this host, and far ones on
   others. Packets announce messages, and answer announcements; those for which
   there is no capacity wait in an outbox. An offered message stays in the
   sender's memory, where its receiver reads it. A pulled one is sent by MPI
   when its receiver asks for the data. A body is sent at once, in several
   packets. Each credit allows a peer to send one more message; the window is
   the number of credits at first. To ring a far peer is to wake it over a link,
   and a lifeline is a second connection to it (links.h). To ask a peer is to
   find out whether it still answers (answers.h). */
#include "support/cluster.h"
#include "support/fake_mpi/fake_mpi.h"
#include "support/malloc.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "transport/group.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RESERVED = 1000, LONGEST = 3 * BATON__MPI_SLICE_BYTES, LOG = 8192 };
/* Messages of this size are pulled by ranks of other hosts. */
enum { PULLED_BYTES = BATON__BODY_LONGEST + 1 };

/* The events that poll has returned on a rank. */
typedef struct seen {
    baton_message_t *arrived[LOG];
    baton_event_t ended[LOG], received[LOG], lost[LOG];
    int arrivals, ends, receives, losses, moves;
} seen_t;

static seen_t seen[FAKE_MPI_RANKS];
static unsigned char out[LONGEST], in[LONGEST];

static baton__mpi_t *rank_of(int rank)
{
    return fake_mpi_ranks[rank];
}

static baton__link_t *link_of(int rank, int peer)
{
    return &rank_of(rank)->net.links.at[peer];
}

static baton__peer_t *peer_of(int rank, int peer)
{
    return &rank_of(rank)->peers[peer];
}

/* How long the rank that was armed last may sleep. */
static uint32_t sleep_us;

static bool arm_for(int rank, baton_arm_t what)
{
    sleep_us = BATON_SLEEP_FOREVER;
    return baton__mpi_arm(rank_of(rank), what, &sleep_us);
}

static bool arm(int rank)
{
    return arm_for(rank, BATON_ARM_ALL);
}

static void open_with(fake_mpi_options_t options)
{
    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < LONGEST; i++) {
        out[i] = (unsigned char)(i * 7 + i / 4096 + i / 3000000 * 11);
    }
    fake_mpi_open(&options);
    for (int rank = 0; rank < options.size; rank++) {
        for (int peer = 0; peer < options.size; peer++) {
            support_ok(
                baton__mpi_reserve(rank_of(rank), peer, RESERVED, RESERVED));
        }
    }
}

/* Opens two or three ranks, on one host or each on its own. */
static void open_local(int size, uint32_t window)
{
    open_with((fake_mpi_options_t){.size = size,
                                   .host_ranks = size,
                                   .buffers = BATON__HOST_BUFFERS,
                                   .window = window,
                                   .reads = true});
}

/* Polls once for at most `max` events. */
static size_t poll_some(int rank, size_t max)
{
    baton_event_t events[64];
    seen_t *of = &seen[rank];
    size_t count = baton__mpi_poll(rank_of(rank), events, max);
    assert_true(count <= max);
    for (size_t i = 0; i < count; i++) {
        const baton_event_t *event = &events[i];
        switch (event->kind) {
        case BATON_EVENT_ARRIVED:
            of->arrived[of->arrivals++] = event->message;
            break;
        case BATON_EVENT_SENT:
            of->ended[of->ends++] = *event;
            break;
        case BATON_EVENT_RECEIVED:
            of->received[of->receives++] = *event;
            break;
        case BATON_EVENT_LOST:
            of->lost[of->losses++] = *event;
            break;
        case BATON_EVENT_MOVED:
            of->moves++;
            break;
        }
    }
    return count;
}

/* Polls until nothing more happens. */
static void settle(int rank)
{
    for (int quiet = 0; quiet < 16; quiet++) {
        quiet = poll_some(rank, 64) > 0 ? 0 : quiet;
    }
}

/* Lets all ranks poll, until they have also taken the credits of their
   peers. */
static void settle_all(int size)
{
    for (int round = 0; round < 3; round++) {
        for (int rank = 0; rank < size; rank++) {
            settle(rank);
        }
    }
}

static void open_net(int size, uint32_t window)
{
    open_with(
        (fake_mpi_options_t){.size = size, .host_ranks = 1, .window = window});
    settle_all(size);
}

/* Checks that nothing is in flight: every record is in its pool. */
static void expect_all_free(int rank)
{
    const baton__mpi_t *mpi = rank_of(rank);
    uint32_t sends = 0;
    uint32_t records = 0;
    for (const baton__send_t *at = mpi->free_sends; at != NULL; at = at->next) {
        sends++;
    }
    for (const baton__record_t *at = mpi->free_records; at; at = at->next) {
        records++;
    }
    assert_int_equal(sends, mpi->send_count);
    assert_int_equal(records, mpi->record_count);
}

static baton_status_t post_some(int from, int to, uint32_t node, size_t bytes,
                                bool made)
{
    const baton_header_t header = {.tag = node};
    const baton_token_t token = {.owner = seen, .node = node, .made = made};
    return baton__mpi_send(rank_of(from), token, to, &header, out, bytes);
}

static baton_status_t post(int from, int to, uint32_t node, size_t bytes)
{
    return post_some(from, to, node, bytes, true);
}

/* Calls post() for `count` messages, which are numbered from `first`. */
static void post_all(int from, int to, uint32_t first, int count, size_t bytes,
                     baton_status_t expected)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(post(from, to, first + (uint32_t)i, bytes), expected);
    }
}

static bool withdraw(int rank, uint32_t node)
{
    return baton__mpi_withdraw(rank_of(rank),
                               (baton_token_t){.owner = seen, .node = node});
}

static baton_status_t notify(int from, int to)
{
    const baton_header_t header = {.kind = 1};
    return baton__mpi_notify(rank_of(from), to, &header, out, 8);
}

static baton_status_t take(int rank, int number)
{
    const baton_token_t token = {.owner = in, .node = (uint32_t)number};
    return baton__mpi_accept(rank_of(rank), seen[rank].arrived[number], token,
                             in);
}

/* Takes the messages that arrived from number `first` up to that before
   `end`. */
static void take_all(int rank, int first, int end, baton_status_t expected)
{
    for (int i = first; i < end; i++) {
        assert_int_equal(take(rank, i), expected);
    }
}

static void drop(int rank, int number)
{
    baton__mpi_drop(rank_of(rank), seen[rank].arrived[number]);
}

/* Drops the first `count` messages. */
static void drop_all(int rank, int count)
{
    for (int i = 0; i < count; i++) {
        drop(rank, i);
    }
}

static baton__record_t *record_at(int rank, int number)
{
    assert_true(number < seen[rank].arrivals);
    return (baton__record_t *)((char *)seen[rank].arrived[number] -
                               offsetof(baton__record_t, message));
}

static baton__packet_kind_t kind_at(int rank, int number)
{
    return (baton__packet_kind_t)record_at(rank, number)->kind;
}

static bool came_whole(size_t bytes)
{
    return memcmp(in, out, bytes) == 0;
}

static bool is_ready(int rank, int descriptor, int ms)
{
    struct pollfd wait = {.fd =
                              baton__mpi_descriptor(rank_of(rank), descriptor),
                          .events = POLLIN};
    return poll(&wait, 1, ms) == 1;
}

static bool is_readable(int rank)
{
    return is_ready(rank, 0, 0);
}

/* ---- the way of a message ---------------------------------------------- */

/* Sends, receives and compares a message. Returns the kind of packet that has
   announced it. */
static baton__packet_kind_t way_of(size_t bytes)
{
    int number = seen[1].arrivals;
    int ended = seen[0].ends;
    memset(in, 0, bytes);
    baton_status_t status = post(0, 1, 1, bytes);
    settle(1);
    baton__packet_kind_t kind = kind_at(1, number);
    assert_int_equal(seen[1].arrived[number]->bytes, bytes);
    baton_status_t taken = take(1, number);
    assert_true(taken == BATON_DONE || taken == BATON_OK);
    settle_all(2);
    assert_true(came_whole(bytes));
    assert_int_equal(seen[0].ends - ended, status == BATON_DONE ? 0 : 1);
    expect_all_free(0);
    expect_all_free(1);
    return kind;
}

TEST(test_mpi_near_ways_have_exact_limits)
{
    open_local(2, 0);
    assert_int_equal(way_of(0), BATON__PACKET_SHORT);
    assert_int_equal(way_of(BATON__SHORT_BYTES), BATON__PACKET_SHORT);
    assert_int_equal(way_of(BATON__SHORT_BYTES + 1), BATON__PACKET_BUFFER);
    assert_int_equal(way_of(BATON__HOST_BUFFER_BYTES), BATON__PACKET_BUFFER);
    assert_int_equal(way_of(BATON__HOST_BUFFER_BYTES + 1), BATON__PACKET_OFFER);
    assert_int_equal(way_of(BATON__MPI_SLICE_BYTES + 1), BATON__PACKET_OFFER);
    open_with((fake_mpi_options_t){.size = 2, .host_ranks = 2, .reads = true});
    assert_int_equal(way_of(BATON__SHORT_BYTES), BATON__PACKET_SHORT);
    assert_int_equal(way_of(BATON__SHORT_BYTES + 1), BATON__PACKET_OFFER);
    open_with((fake_mpi_options_t){.size = 2, .host_ranks = 2});
    assert_int_equal(way_of(BATON__SHORT_BYTES), BATON__PACKET_SHORT);
    assert_int_equal(way_of(BATON__SHORT_BYTES + 1), BATON__PACKET_RTS);
    assert_int_equal(way_of(LONGEST), BATON__PACKET_RTS);
}

TEST(test_mpi_far_ways_have_exact_limits)
{
    open_net(2, 0);
    assert_int_equal(way_of(0), BATON__PACKET_SHORT);
    assert_int_equal(way_of(BATON__SHORT_BYTES), BATON__PACKET_SHORT);
    assert_int_equal(way_of(BATON__SHORT_BYTES + 1), BATON__PACKET_BODY);
    assert_int_equal(way_of(BATON__FIRST_BYTES), BATON__PACKET_BODY);
    assert_int_equal(way_of(BATON__FIRST_BYTES + 1), BATON__PACKET_BODY);
    assert_int_equal(way_of(BATON__BODY_BYTES), BATON__PACKET_BODY);
    assert_int_equal(way_of(BATON__BODY_BYTES + 1), BATON__PACKET_BODY);
    assert_int_equal(way_of(BATON__BODY_LONGEST), BATON__PACKET_BODY);
    assert_int_equal(way_of(BATON__BODY_LONGEST + 1), BATON__PACKET_RTS);
    assert_int_equal(way_of(LONGEST), BATON__PACKET_RTS);
    assert_int_equal(fake_mpi_unreceived(), 0);
}

/* A long message is pulled in several parts, whose length the receiver chooses.
   There may be more parts than can be in transfer at a time. */
TEST(test_mpi_pulls_in_parts)
{
    enum { PART = LONGEST / 20 };
    for (size_t eager = 0; eager <= LONGEST; eager += LONGEST) {
        open_net(2, 0);
        fake_mpi_eager_bytes = eager;
        rank_of(1)->net.part_bytes = PART;
        assert_int_equal(way_of(PART), BATON__PACKET_RTS);
        assert_int_equal(way_of(PART + 1), BATON__PACKET_RTS);
        assert_int_equal(way_of(LONGEST), BATON__PACKET_RTS);
        assert_true(LONGEST / PART > 2 * BATON__MPI_PARTS);
        assert_int_equal(fake_mpi_unreceived(), 0);
    }
}

/* From 16 KiB on, a message in a segment is read in place. So is a longer one
   in other memory, if its sender is patient. */
TEST(test_mpi_segments_are_read_in_place)
{
    open_local(2, 0);
    baton__mpi_t *mpi = rank_of(0);
    char *block = baton__mpi_allocate(mpi, LONGEST);
    assert_non_null(block);
    memcpy(block, out, LONGEST);
    const baton_header_t header = {.tag = 0};
    const size_t sizes[] = {BATON__MPI_DIRECT_BYTES - 1,
                            BATON__MPI_DIRECT_BYTES, LONGEST};
    for (int i = 0; i < 3; i++) {
        (void)baton__mpi_send(mpi, (baton_token_t){.node = 1}, 1, &header,
                              block, sizes[i]);
        settle(1);
        assert_int_equal(kind_at(1, i),
                         i == 0 ? BATON__PACKET_BUFFER : BATON__PACKET_OFFER);
        baton_message_t *message = seen[1].arrived[i];
        assert_int_equal(baton__mpi_lend(rank_of(1), message), BATON_DONE);
        assert_non_null(message->data);
        assert_ptr_not_equal(message->data, block);
        assert_memory_equal(message->data, block, sizes[i]);
        drop(1, i);
        settle(0);
        assert_int_equal(seen[0].ends, i);
    }
    /* The message is pulled if its receiver can't map the segment. */
    (void)baton__mpi_send(mpi, (baton_token_t){.node = 1}, 1, &header, block,
                          LONGEST);
    settle(1);
    record_at(1, 3)->place += 1000;
    rank_of(1)->reads = false;
    memset(in, 0, sizeof in);
    assert_int_equal(take(1, 3), BATON_OK);
    settle(0);
    settle(1);
    assert_true(came_whole(LONGEST));
    assert_int_equal(seen[1].receives, 1);
    baton__mpi_deallocate(mpi, block);
    for (size_t more = 0; more < 2; more++) {
        const baton_token_t token = {.node = 1, .patient = true};
        assert_int_equal(baton__mpi_send(mpi, token, 1, &header, out,
                                         BATON__MPI_DIRECT_BYTES + more),
                         more > 0 ? BATON_OK : BATON_DONE);
    }
}

/* Above 64 KiB each poll copies one slice. The receiver does not sleep
   meanwhile, and the sender's memory is in use until the last slice was
   copied. */
TEST(test_mpi_long_copies_are_made_in_slices)
{
    open_with((fake_mpi_options_t){.size = 2, .host_ranks = 2, .reads = true});
    assert_int_equal(post(0, 1, 1, BATON__MPI_AT_ONCE_BYTES), BATON_OK);
    assert_int_equal(post(0, 1, 2, LONGEST), BATON_OK);
    settle(1);
    assert_int_equal(take(1, 0), BATON_DONE);
    assert_false(baton__mpi_is_copying(rank_of(1)));
    assert_int_equal(take(1, 1), BATON_OK);
    settle(0);
    assert_int_equal(seen[0].ends, 1);
    for (int slice = 1; slice <= 3; slice++) {
        assert_true(baton__mpi_is_copying(rank_of(1)));
        assert_false(arm(1));
        (void)poll_some(1, 64);
        assert_int_equal(seen[1].receives, slice == 3);
        assert_int_equal(in[slice * BATON__MPI_SLICE_BYTES - 1],
                         out[slice * BATON__MPI_SLICE_BYTES - 1]);
    }
    settle(0);
    assert_true(came_whole(LONGEST));
    assert_int_equal(seen[0].ends, 2);
    assert_true(arm(1));
}

/* ---- posted receives ---------------------------------------------------- */

enum { PUT_LEAST = BATON__MPI_OWN_BYTES + 1 };

static baton_token_t put_token(uint32_t node)
{
    return (baton_token_t){.owner = in, .node = node};
}

/* Posts a receive on rank 1 for message `node` from rank 0. */
static bool post_receive(uint32_t node, size_t bytes)
{
    const baton_header_t header = {.tag = node};
    memset(in, 0, sizeof in);
    return baton__mpi_post_receive(rank_of(1), put_token(node), 0, &header, in,
                                   bytes);
}

static bool withdraw_receive(uint32_t node)
{
    return baton__mpi_withdraw_receive(rank_of(1), put_token(node), 0);
}

/* Expects that the receive, the only one on rank 1 so far, has ended. */
static void expect_received(uint32_t node, baton_status_t status)
{
    assert_int_equal(seen[1].receives, 1);
    assert_int_equal(seen[1].received[0].token.node, node);
    assert_int_equal(seen[1].received[0].status, status);
    assert_int_equal(seen[1].arrivals,
                     status == BATON_OK ? 0 : seen[1].arrivals);
    assert_true(withdraw_receive(node));
    expect_all_free(0);
    expect_all_free(1);
}

/* Lets rank 1 accept a message for which it has already posted a receive. */
static baton_status_t take_posted(uint32_t node, int number)
{
    return baton__mpi_accept(rank_of(1), seen[1].arrived[number],
                             put_token(node), in);
}

/* Expects that the only message, which was accepted as message 7, has arrived
   complete. */
static void expect_read(void)
{
    settle_all(2);
    assert_true(came_whole(100000));
    assert_int_equal(seen[0].ends, 1);
    seen[1].arrivals = 0;
    expect_received(7, BATON_OK);
}

/* A sender fills receives that were posted: a short one at once, and a long one
   in slices. */
TEST(test_mpi_fills_posted_receives)
{
    const size_t sizes[] = {PUT_LEAST, BATON__MPI_AT_ONCE_BYTES, LONGEST};
    for (int i = 0; i < 3; i++) {
        open_local(2, 0);
        rank_of(1)->put_bytes = LONGEST;
        /* The generation of the receive's place may wrap. */
        rank_of(1)->host.posted[7].generation = i == 0 ? UINT32_MAX - 3 : 0;
        assert_false(post_receive(7, PUT_LEAST - 1));
        assert_false(post_receive(7, LONGEST + 1));
        assert_false(baton__mpi_post_receive(rank_of(1), put_token(7), 1,
                                             &(baton_header_t){.tag = 7}, in,
                                             /* A receive from the rank itself
                                                is not posted. */
                                             LONGEST));
        assert_true(post_receive(7, sizes[i]));
        assert_int_equal(post(0, 1, 7, sizes[i]),
                         sizes[i] == LONGEST ? BATON_OK : BATON_DONE);
        while (baton__mpi_is_copying(rank_of(0))) {
            assert_false(withdraw(0, 7));
            assert_false(withdraw_receive(7));
            assert_false(arm(0));
            (void)poll_some(0, 64);
        }
        /* The receive can't be withdrawn before its packet was taken. */
        assert_false(withdraw_receive(7));
        settle(1);
        assert_true(came_whole(sizes[i]));
        assert_int_equal(seen[0].ends, sizes[i] == LONGEST);
        expect_received(7, BATON_OK);
    }
}

/* A message that does not fit a posted receive arrives in the ordinary way. A
   receive that was withdrawn is not written. */
TEST(test_mpi_fills_no_other_receives)
{
    open_local(2, 0);
    assert_true(post_receive(7, 100000));
    assert_int_equal(post(0, 1, 7, 100001), BATON_OK);
    assert_int_equal(post(0, 1, 7 + BATON__HOST_POSTS, 100000), BATON_OK);
    /* This receive would need the place that receive 7 has. */
    assert_false(post_receive(7 + BATON__HOST_POSTS, 100000));
    settle(1);
    assert_int_equal(seen[1].arrivals, 2);
    assert_true(withdraw_receive(7));
    assert_int_equal(post(0, 1, 7, 100000), BATON_OK);
    settle(1);
    assert_int_equal(in[0] | in[99999], 0);
    drop(1, 0);
    drop(1, 1);
    assert_true(post_receive(7, 100000));
    /* This ends the receive that was posted. */
    assert_int_equal(take_posted(7, 2), BATON_OK);
    assert_true(post_receive(7 + BATON__HOST_POSTS, 100000));
    assert_true(withdraw_receive(7 + BATON__HOST_POSTS));
    settle_all(2);
    assert_true(came_whole(100000));
    assert_int_equal(seen[0].ends, 3);
}

/* A receive is posted after the message was offered. If the sender polls, the
   receiver asks it to write. If the sender sleeps, the receiver reads. A sender
   that polls may still be armed for notices. */
TEST(test_mpi_asks_for_what_was_offered)
{
    for (int sleeps = 0; sleeps < 2; sleeps++) {
        open_local(2, 0);
        rank_of(1)->asks = true;
        assert_int_equal(post(0, 1, 7, 100000), BATON_OK);
        assert_true(arm_for(0, sleeps ? BATON_ARM_ALL : BATON_ARM_NOTICES));
        settle(1);
        assert_true(post_receive(7, 100000));
        assert_int_equal(take_posted(7, 0), BATON_OK);
        assert_int_equal(withdraw_receive(7), sleeps == 1);
        assert_int_equal(baton__mpi_is_copying(rank_of(1)), sleeps == 1);
        assert_false(withdraw(0, 7));
        expect_read();
    }
}

/* Data that are not the result of a reduction (`made` of the token is false)
   are offered, and read by the receiver, whether the receive was posted before
   or not. */
TEST(test_mpi_reads_what_was_not_made)
{
    for (int before = 0; before < 2; before++) {
        open_local(2, 0);
        rank_of(1)->asks = true;
        assert_true(before == 0 || post_receive(7, 100000));
        assert_int_equal(post_some(0, 1, 7, 100000, false), BATON_OK);
        settle(1);
        assert_int_equal(kind_at(1, 0), BATON__PACKET_OFFER);
        assert_true(before == 1 || post_receive(7, 100000));
        assert_int_equal(take_posted(7, 0), BATON_OK);
        assert_true(baton__mpi_is_copying(rank_of(1)));
        expect_read();
    }
}

/* While the ring is full, the sender tries again from time to time, but it may
   sleep. */
TEST(test_mpi_tells_of_a_put_when_there_is_room)
{
    const baton__packet_t filler = {.kind = BATON__PACKET_CREDIT};
    open_local(2, 0);
    assert_true(post_receive(7, PUT_LEAST));
    while (baton__mpi_push_local(rank_of(0), peer_of(0, 1), &filler, NULL, 0)) {
    }
    assert_int_equal(post(0, 1, 7, PUT_LEAST), BATON_OK);
    settle(0);
    assert_int_equal(seen[0].ends, 0);
    assert_true(arm(0));
    assert_int_not_equal(sleep_us, BATON_SLEEP_FOREVER);
    settle_all(2);
    assert_int_equal(seen[0].ends, 1);
    expect_received(7, BATON_OK);
}

static void settle_loss(int rank, int peer);

/* The sender of a posted receive is lost; the receiver is lost while its
   receive is filled; and the target of the receive can't be written. */
TEST(test_mpi_puts_end_with_their_peers)
{
    for (int loser = 0; loser < 2; loser++) {
        open_local(2, 0);
        assert_true(post_receive(7, LONGEST));
        assert_int_equal(post(0, 1, 7, LONGEST), BATON_OK);
        /* The filling of this receive has not begun. */
        assert_true(loser == 0 || post_receive(8, LONGEST));
        baton__mpi_lose(rank_of(loser), peer_of(loser, 1 - loser),
                        BATON_ERR_TRANSPORT, "gone");
        if (loser == 1) {
            settle_loss(1, 0);
        }
        settle(loser);
        assert_int_equal(seen[loser].losses, 1);
        assert_int_equal(seen[0].ends, loser == 0);
        assert_int_equal(seen[1].receives, loser == 1);
        assert_true(loser == 0 || withdraw_receive(8));
        assert_false(loser == 1 && post_receive(9, LONGEST));
        settle_all(2); /* a packet that arrives later finds no receive */
        assert_int_equal(seen[1].receives, loser == 1);
    }
    void *page =
        mmap(NULL, LONGEST, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    open_local(2, 0);
    const baton_header_t header = {.tag = 7};
    assert_true(baton__mpi_post_receive(rank_of(1), put_token(7), 0, &header,
                                        page, LONGEST));
    assert_int_equal(post(0, 1, 7, LONGEST), BATON_OK);
    settle_all(2);
    assert_int_equal(seen[0].ends, 1);
    expect_received(7, BATON_ERR_TRANSPORT);
    assert_non_null(strstr(seen[1].received[0].detail, "can't write"));
    (void)munmap(page, LONGEST);
}

/* ---- copies that are refused ------------------------------------------- */

/* Sends a message from rank 0 to rank 1, whose receive is posted or not. The
   data come in parts. If the message is longer than a slice, the parts begin
   once a slice was copied. */
static void begin_parts(size_t bytes, bool puts)
{
    open_with((fake_mpi_options_t){.size = 2, .host_ranks = 2, .reads = true});
    fake_mpi_refusal = bytes > BATON__MPI_SLICE_BYTES ? 0 : EPERM;
    assert_true(!puts || post_receive(7, bytes));
    assert_int_equal(post(0, 1, 7, bytes), BATON_OK);
    if (!puts) {
        settle(1);
        memset(in, 0, sizeof in);
        assert_int_equal(take_posted(7, 0), BATON_OK);
    }
    (void)poll_some(puts ? 0 : 1, 64);
    fake_mpi_refusal = EPERM;
    (void)poll_some(puts ? 0 : 1, 64);
    (void)poll_some(0, 64);
    assert_false(withdraw(0, 7));
    assert_false(puts && withdraw_receive(7));
}

TEST(test_mpi_sends_parts_of_what_it_may_not_copy)
{
    const size_t sizes[] = {PUT_LEAST, BATON__MPI_AT_ONCE_BYTES,
                            BATON__MPI_AT_ONCE_BYTES + 1, LONGEST};
    for (int i = 0; i < 8; i++) {
        const size_t bytes = sizes[i / 2];
        uint32_t us = BATON_SLEEP_FOREVER;
        begin_parts(bytes, i % 2 == 1);
        assert_true(baton__mpi_arm(rank_of(0), BATON_ARM_ALL, &us));
        assert_true(bytes == PUT_LEAST || us < BATON_SLEEP_FOREVER);
        baton__mpi_disarm(rank_of(0));
        while (seen[0].ends == 0 || seen[1].receives == 0) {
            (void)poll_some(0, 64);
            (void)poll_some(1, 64);
        }
        assert_true(came_whole(bytes));
        assert_true(bytes < LONGEST || seen[0].moves > 0);
        seen[1].arrivals = 0;
        expect_received(7, BATON_OK);
    }
}

/* Each time, the parts fill the whole ring. */
TEST(test_mpi_notices_overtake_parts)
{
    begin_parts(LONGEST, false);
    baton_status_t status = BATON_AGAIN;
    for (int i = 0; i < 4 && status == BATON_AGAIN; i++) {
        (void)poll_some(1, 64);
        (void)poll_some(0, 64);
        status = notify(0, 1);
    }
    assert_int_equal(status, BATON_DONE);
    assert_int_equal(seen[0].ends, 0);
}

TEST(test_mpi_parts_end_with_their_peers)
{
    for (int i = 0; i < 4; i++) {
        const int loser = i % 2;
        begin_parts(LONGEST, i / 2 == 1);
        (void)poll_some(1, 64);
        baton__mpi_lose(rank_of(loser), peer_of(loser, 1 - loser),
                        BATON_ERR_TRANSPORT, "gone");
        settle(loser);
        assert_int_equal(seen[loser].losses, 1);
        assert_int_equal(seen[0].ends, loser == 0);
        assert_int_equal(seen[1].receives, loser == 1);
        memset(in, 0, sizeof in);
        settle_all(2); /* parts that arrive later are not written anywhere */
        assert_int_equal(seen[1].receives, loser == 1);
        assert_true(loser == 0 || in[0] + in[sizeof in / 2] == 0);
    }
}

/* After the receiver has lost the permission to read the peer's memory,
   messages that were lent to it are received or dropped, and no more are
   lent. */
TEST(test_mpi_receives_what_it_may_not_read)
{
    open_local(2, 0);
    post_all(0, 1, 0, 3, 100000, BATON_OK);
    settle(1);
    for (int i = 0; i < 2; i++) {
        baton_message_t *message = seen[1].arrived[i];
        assert_int_equal(baton__mpi_lend(rank_of(1), message), BATON_DONE);
        fake_mpi_refusal = EPERM;
        assert_int_equal(baton__mpi_read(rank_of(1), message, 5, 10, in),
                         BATON_AGAIN);
        fake_mpi_refusal = 0;
        peer_of(1, 0)->refused = i == 1;
    }
    assert_int_equal(baton__mpi_lend(rank_of(1), seen[1].arrived[2]),
                     BATON_AGAIN);
    assert_int_equal(take(1, 1), BATON_OK);
    drop(1, 0);
    drop(1, 2);
    while (seen[0].ends < 3 || seen[1].receives == 0) {
        (void)poll_some(0, 64);
        (void)poll_some(1, 64);
    }
    assert_true(came_whole(100000));
    expect_all_free(0);
    expect_all_free(1);
}

/* ---- buffers, credits, notices, rings ----------------------------------- */

/* A buffer is free again when its own reader no longer needs it. */
TEST(test_mpi_buffers_are_freed_by_their_readers)
{
    enum { BYTES = 1000 };
    open_local(3, 0);
    for (uint32_t i = 0; i < BATON__HOST_BUFFERS; i++) {
        memset(out, (int)i + 1, BYTES);
        assert_int_equal(post(0, 1 + (int)(i % 2), i, BYTES), BATON_DONE);
    }
    assert_int_equal(post(0, 1, 8, BYTES), BATON_OK);
    settle(1);
    settle(2);
    assert_int_equal(kind_at(1, 4), BATON__PACKET_OFFER);
    drop(2, 1); /* this message is in the fourth buffer */
    memset(out, 99, BYTES);
    assert_int_equal(post(0, 2, 9, BYTES), BATON_DONE);
    assert_int_equal(post(0, 2, 10, BYTES), BATON_OK);
    settle(2);
    assert_int_equal(((const char *)seen[2].arrived[4]->data)[0], 99);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(((const char *)seen[1].arrived[i]->data)[0],
                         2 * i + 1);
        assert_true(i == 1 ||
                    ((const char *)seen[2].arrived[i]->data)[0] == 2 * i + 2);
    }
}

/* There is no memory for the third buffer. */
TEST(test_mpi_goes_without_buffers_that_have_no_memory)
{
    open_local(2, 0);
    baton__host_t *host = &rank_of(0)->host;
    (void)munmap(baton__host_buffer(host, host->index, 2),
                 sizeof(baton__host_buffer_t));
    assert_int_equal(post(0, 1, 0, 1000), BATON_DONE);
    assert_int_equal(post(0, 1, 1, 1000), BATON_DONE);
    assert_int_equal(post(0, 1, 2, 1000), BATON_OK);
    settle(1);
    assert_int_equal(kind_at(1, 2), BATON__PACKET_OFFER);
    drop(1, 0);
    assert_int_equal(post(0, 1, 3, 1000), BATON_DONE);
}

TEST(test_mpi_host_without_a_file_is_refused)
{
    baton__host_t host;
    assert_int_equal(baton__host_open(&host, -1, 2, 0, 0), BATON_ERR_SYSTEM);
}

/* If the ring has no room for a packet, the packet's buffer is free again. */
TEST(test_mpi_full_ring_keeps_no_buffer)
{
    open_local(2, 4096);
    uint32_t sent = 0;
    for (size_t bytes = BATON__SHORT_BYTES; bytes > 0; bytes -= 8) {
        while (post(0, 1, sent, bytes) == BATON_DONE) {
            sent++;
        }
        assert_true(withdraw(0, sent));
    }
    assert_true(sent > 50 && sent < 4096);
    for (uint32_t i = 0; i < 2 * BATON__HOST_BUFFERS; i++) {
        assert_int_equal(post(0, 1, 5000 + i, 1000), BATON_OK);
        (void)poll_some(0, 64);
        assert_true(arm(0));
        /* The rank must poll, since no event reports that there is room. */
        assert_true(sleep_us < BATON_SLEEP_FOREVER);
        baton__mpi_disarm(rank_of(0));
    }
    settle(1);
    settle(0);
    settle(1);
    assert_int_equal(seen[1].arrivals, (int)sent + 2 * BATON__HOST_BUFFERS);
    for (int i = 0; i < 2 * BATON__HOST_BUFFERS; i++) {
        assert_int_equal(seen[1].arrived[(int)sent + i]->header.tag, 5000 + i);
        assert_int_equal(kind_at(1, (int)sent + i), i < BATON__HOST_BUFFERS
                                                        ? BATON__PACKET_BUFFER
                                                        : BATON__PACKET_OFFER);
    }
    assert_int_equal(seen[0].ends, BATON__HOST_BUFFERS);
}

static void expect_window(int window)
{
    post_all(0, 1, 0, window, 16, BATON_DONE);
    assert_int_equal(post(0, 1, 50, 16), BATON_OK);
    settle_all(2);
    assert_int_equal(seen[0].ends, 0);
    take_all(1, 0, window + 1, BATON_DONE);
    settle_all(2);
    assert_int_equal(seen[0].ends, 1);
    assert_int_equal(seen[0].ended[0].token.node, 50);
    post_all(0, 1, 0, window, 16, BATON_DONE); /* the whole window is free */
    assert_int_equal(post(0, 1, 51, 16), BATON_OK);
}

/* Beyond the window, a short send ends only when its receiver no longer needs
   the message. */
TEST(test_mpi_credits_are_a_window)
{
    open_local(2, 4);
    /* A second reservation does not add a second window. */
    for (int i = 0; i < 2; i++) {
        support_ok(baton__mpi_reserve(rank_of(1), 0, 0, 1));
    }
    expect_window(4);
    open_net(2, 4);
    expect_window(4);
}

static void expect_notices(void)
{
    for (int round = 0; round < 3; round++) {
        int first = seen[1].arrivals;
        for (int i = 0; i < BATON__MPI_NOTICES; i++) {
            assert_int_equal(notify(0, 1), BATON_DONE);
        }
        assert_int_equal(notify(0, 1), BATON_AGAIN);
        assert_int_equal(post(0, 1, 1, 16), BATON_DONE);
        settle_all(2);
        assert_int_equal(notify(0, 1), BATON_AGAIN);
        take_all(1, first, seen[1].arrivals, BATON_DONE);
        settle_all(2);
    }
}

TEST(test_mpi_notices_are_counted_apart)
{
    open_local(2, 0);
    expect_notices();
    open_net(2, 0);
    expect_notices();
}

/* Credits stay right when their counts wrap in a packet's word. */
TEST(test_mpi_far_credits_wrap)
{
    enum { ROUNDS = 3000, WINDOW = 3 };
    open_net(2, WINDOW);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        seen[1].arrivals = 0;
        assert_int_equal(post(0, 1, 1, i % 3 == 0 ? 300 : 3), BATON_DONE);
        assert_int_equal(post(0, 1, 2, 3), BATON_DONE);
        assert_int_equal(notify(0, 1), BATON_DONE);
        settle(1);
        assert_int_equal(seen[1].arrivals, 3);
        drop_all(1, 3);
        (void)poll_some(1, 64);
        (void)poll_some(0, 64);
    }
    assert_int_equal(peer_of(0, 1)->bodies.sent, ROUNDS / 3);
}

static void expect_kept(size_t bytes, int most)
{
    open_net(2, 64);
    for (int i = 0; i < most; i++) {
        out[0] = (unsigned char)i;
        assert_int_equal(post(0, 1, (uint32_t)i, bytes), BATON_DONE);
    }
    /* This message is pulled. */
    assert_int_equal(post(0, 1, 100, bytes), BATON_OK);
    settle(1);
    assert_int_equal(kind_at(1, most), BATON__PACKET_RTS);
    out[0] = 99;
    for (int i = most - 1; i > 0; i -= 2) {
        drop(1, i);
    }
    settle_all(2); /* half of the buffers are reported as free at once */
    post_all(0, 1, 101, most / 2, bytes, BATON_DONE);
    assert_int_equal(post(0, 1, 200, bytes), BATON_OK);
    settle(1);
    for (int i = 0; i < most; i += 2) {
        assert_int_equal(take(1, i), BATON_DONE);
        assert_int_equal(in[0], i);
    }
    for (int i = most + 1; i <= most + most / 2; i++) {
        /* This message is sent as a body. */
        assert_int_equal(take(1, i), BATON_DONE);
        assert_true(came_whole(bytes));
    }
    drop(1, most);
    drop(1, most + most / 2 + 1);
    settle_all(2);
    assert_int_equal(peer_of(0, 1)->bodies.limit,
                     BATON__MPI_BODIES + peer_of(0, 1)->bodies.sent);
    expect_all_free(1);
}

/* A rank sends no more bodies than the peer can keep. Buffers that the peer no
   longer uses become free in any order, and a packet reports them. */
TEST(test_mpi_far_bodies_are_kept)
{
    expect_kept(300, BATON__MPI_BODIES);
    expect_kept(BATON__BODY_LONGEST, BATON__MPI_BODIES / BATON__BODY_BUFFERS);
    assert_int_equal(post(0, 1, 1, 300), BATON_DONE);
    post_all(0, 1, 2, BATON__MPI_BODIES / BATON__BODY_BUFFERS - 1,
             BATON__BODY_LONGEST, BATON_DONE);
    assert_int_equal(post(0, 1, 3, BATON__BODY_LONGEST), BATON_OK);
}

/* The next message reports credits if it is sent at once. Otherwise a packet
   does, before this rank sleeps, or after a few polls that find nothing. */
TEST(test_mpi_far_messages_tell_of_credits)
{
    open_net(2, 0);
    for (int round = 0; round < 2; round++) {
        uint32_t before = peer_of(1, 0)->packets_sent;
        for (int i = 0; i < BATON__MPI_BODIES / 2; i++) {
            assert_int_equal(post(0, 1, 1, 300), BATON_DONE);
            (void)poll_some(1, 64);
            drop(1, seen[1].arrivals - 1);
        }
        (void)poll_some(1, 64);
        assert_int_equal(peer_of(1, 0)->packets_sent, before);
        if (round == 0) {
            assert_int_equal(post(1, 0, 1, 8), BATON_DONE);
        } else {
            (void)arm(1);
        }
        assert_int_equal(peer_of(1, 0)->packets_sent, before + 1);
    }
}

/* A rank that reports credits reports them to all peers that wait for some,
   even if the next peer does not wait yet. */
TEST(test_mpi_far_credits_are_told_to_all)
{
    enum { WINDOW = 4 };
    open_net(3, WINDOW);
    for (int round = 0; round < 2; round++) {
        const int counts[] = {WINDOW, 0, round == 0 ? WINDOW : 1};
        seen[1].arrivals = 0;
        for (int peer = 0; peer < 3; peer += 2) {
            post_all(peer, 1, 0, counts[peer], 8, BATON_DONE);
            settle(1);
        }
        drop_all(1, counts[0] + counts[2]);
        settle(1);
        settle(0);
        settle(2);
        assert_int_equal(peer_of(0, 1)->messages.limit, (round + 2) * WINDOW);
        assert_int_equal(peer_of(2, 1)->messages.limit, 2 * WINDOW);
    }
}

/* A peer that takes no more packets does not hold back the credits of other
   peers. */
TEST(test_mpi_far_credits_overtake_who_takes_nothing)
{
    enum { WINDOW = BATON__MPI_PACKETS, HALF = WINDOW / 2 };
    open_net(3, WINDOW);
    for (int peer = 0; peer < 3; peer += 2) {
        post_all(peer, 1, 0, HALF, 8, BATON_DONE);
        settle(1);
    }
    fake_mpi_stop(true);
    while (post(1, 0, 1, 8) == BATON_DONE) {
    }
    drop_all(1, WINDOW);
    settle(1);
    assert_true(rank_of(1)->net.credits_due);
    assert_int_equal(peer_of(1, 0)->messages.reported, WINDOW);
    assert_int_equal(peer_of(1, 2)->messages.reported, WINDOW + HALF);
    fake_mpi_stop(false);
    settle_all(3);
    assert_int_equal(peer_of(0, 1)->messages.limit, WINDOW + HALF);
}

/* At most four messages are pulled from a peer at a time. */
TEST(test_mpi_far_pulls_are_bounded)
{
    enum { COUNT = 7, BYTES = PULLED_BYTES };
    open_net(2, 0);
    post_all(0, 1, 0, COUNT, BYTES, BATON_OK);
    settle(1);
    take_all(1, 0, COUNT, BATON_OK);
    assert_int_equal(peer_of(1, 0)->pulling, BATON__MPI_PULLS);
    settle_all(2);
    assert_int_equal(seen[1].receives, COUNT);
    assert_int_equal(seen[0].ends, COUNT);
    assert_int_equal(peer_of(1, 0)->pulling, 0);
}

/* Packets for which MPI has no room wait in order, and credits that could not
   be sent are sent later. */
TEST(test_mpi_far_packets_wait_for_room)
{
    enum { COUNT = BATON__MPI_PACKETS + 5 };
    enum { WINDOW = 2 * COUNT };
    open_net(2, WINDOW);
    fake_mpi_stop(true);
    for (uint32_t i = 0; i < COUNT; i++) {
        /* Beyond this number of packets sends wait, and a body is tried
           again. */
        bool full = i >= BATON__MPI_PACKETS;
        assert_int_equal(post(0, 1, i, i == BATON__MPI_PACKETS ? 300 : 8),
                         full ? BATON_OK : BATON_DONE);
    }
    settle(0);
    assert_int_equal(peer_of(0, 1)->bodies.sent, 0);
    assert_true(arm(0));
    assert_true(sleep_us < BATON_SLEEP_FOREVER);
    assert_int_equal(notify(0, 1), BATON_AGAIN);
    fake_mpi_stop(false);
    settle_all(2);
    assert_int_equal(seen[1].arrivals, COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(seen[1].arrived[i]->header.tag, i);
    }
    assert_int_equal(seen[0].ends, 5);
    assert_int_equal(peer_of(0, 1)->bodies.sent, 1);
    assert_int_equal(rank_of(0)->net.packets_unsent, 0);
    fake_mpi_stop(true);
    post_all(1, 0, 0, BATON__MPI_PACKETS, 8, BATON_DONE);
    drop_all(1, COUNT);
    settle(1); /* there is no room for a packet with the credits */
    assert_true(rank_of(1)->net.credits_due);
    (void)poll(NULL, 0, 5);
    support_set_variable("BATON_SLEEP_US", "20");
    /* The rank must poll soon, since no event reports that there is room. */
    assert_true(arm(1));
    assert_int_equal(sleep_us, 20);
    support_set_variable("BATON_SLEEP_US", NULL);
    fake_mpi_stop(false);
    settle_all(2);
    assert_int_equal(peer_of(1, 0)->messages.granted,
                     peer_of(1, 0)->messages.reported);
    assert_int_equal(peer_of(0, 1)->messages.limit, WINDOW + COUNT);
}

/* Of the sends that wait for an answer, only few are announced at once. The
   others follow in order. (A round in which this thread was interrupted is not
   counted.) */
static void expect_bound(size_t bytes, int credited)
{
    enum { COUNT = 40, ROUNDS = 50 };
    bool bounded = false;
    for (int round = 0; round < ROUNDS && !bounded; round++) {
        open_local(2, (uint32_t)credited);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(post(0, 1, (uint32_t)i, bytes),
                             i < credited ? BATON_DONE : BATON_OK);
        }
        assert_true(peer_of(0, 1)->announced >= BATON__MPI_ANNOUNCED);
        bounded = peer_of(0, 1)->announced < COUNT / 2;
        for (int i = 0; i < COUNT; i++) {
            for (int k = 0; k < 100000 && seen[1].arrivals <= i; k++) {
                (void)poll_some(0, 64);
                (void)poll_some(1, 64);
            }
            assert_int_equal(seen[1].arrived[i]->header.tag, i);
            drop(1, i);
        }
        settle_all(2);
        assert_int_equal(seen[0].ends, COUNT - credited);
        assert_int_equal(peer_of(0, 1)->announced, 0);
    }
    assert_true(bounded);
}

TEST(test_mpi_announced_sends_are_bounded)
{
    expect_bound(100000, 0);
    expect_bound(8, 2);
}

/* ---- withdrawing ------------------------------------------------------- */

/* Fills MPI, so that sends wait in the outbox: 7 sends, which are numbered from
   100. */
static void fill_outbox(void)
{
    memset(seen, 0, sizeof seen);
    fake_mpi_stop(true);
    post_all(0, 1, 0, BATON__MPI_PACKETS, 8, BATON_DONE);
    post_all(0, 1, 100, 7, 8, BATON_OK);
}

/* Lets MPI send everything, and expects messages with these numbers to arrive.
   The first poll has room for few events. A notice does not overtake the
   messages. */
static void expect_numbers(const uint32_t *numbers, int count)
{
    fake_mpi_stop(false);
    assert_int_equal(notify(0, 1), BATON_AGAIN);
    for (int i = 0; i < count; i++) {
        (void)poll_some(0, 1);
    }
    settle_all(2);
    assert_int_equal(seen[1].arrivals, BATON__MPI_PACKETS + count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(seen[1].arrived[BATON__MPI_PACKETS + i]->header.tag,
                         numbers[i]);
        assert_int_equal(seen[0].ended[i].token.node, numbers[i]);
    }
    assert_int_equal(seen[0].ends, count);
    assert_null(peer_of(0, 1)->outbox.head);
    assert_null(rank_of(0)->listed);
    drop_all(1, seen[1].arrivals);
    settle_all(2);
    expect_all_free(0);
    expect_all_free(1);
}

TEST(test_mpi_withdraws_anywhere_in_the_outbox)
{
    open_net(2, 256);
    fill_outbox();
    assert_true(withdraw(0, 103)); /* from the middle of the outbox */
    assert_true(withdraw(0, 100)); /* the first */
    assert_true(withdraw(0, 106)); /* the last */
    assert_true(withdraw(0, 105)); /* and the one before it */
    assert_false(withdraw(0, 105));
    assert_false(withdraw(0, 0)); /* this one has been sent */
    post_all(0, 1, 200, 2, 8, BATON_OK);
    expect_numbers((const uint32_t[]){101, 102, 104, 200, 201}, 5);
    fill_outbox();
    for (uint32_t i = 0; i < 7; i++) {
        assert_true(withdraw(0, 100 + i));
    }
    assert_null(peer_of(0, 1)->outbox.head);
    post_all(0, 1, 300, 2, 8, BATON_OK);
    expect_numbers((const uint32_t[]){300, 301}, 2);
}

/* A recovery withdraws the sends of all schedules, in any order. If each
   withdrawal searched all sends, this would take seconds. */
TEST(test_mpi_withdraws_many_sends_soon)
{
    enum { MANY = 20000, STRIDE = 7919 }; /* numbers without a common divisor */
    open_net(2, 256);
    support_ok(baton__mpi_reserve(rank_of(0), 1, MANY, 0));
    fill_outbox();
    post_all(0, 1, 1000, MANY, 8, BATON_OK);
    const uint64_t before = baton__clock_thread_ns();
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(withdraw(0, 1000 + i * STRIDE % MANY));
    }
    assert_true(baton__clock_thread_ns() - before < 200000000);
    expect_numbers((const uint32_t[]){100, 101, 102, 103, 104, 105, 106}, 7);
}

/* Announced sends are either withdrawn by the sender or accepted by the
   receiver. */
TEST(test_mpi_withdraws_several_offers)
{
    enum { BYTES = PULLED_BYTES };
    open_local(2, 0);
    post_all(0, 1, 0, 6, BYTES, BATON_OK);
    settle(1);
    assert_int_equal(take(1, 2), BATON_OK); /* this one is being copied */
    assert_true(withdraw(0, 5));
    assert_true(withdraw(0, 0));
    assert_false(withdraw(0, 2));
    assert_true(withdraw(0, 3));
    assert_int_equal(baton__mpi_lend(rank_of(1), seen[1].arrived[1]),
                     BATON_DONE);
    assert_false(withdraw(0, 1));
    /* The records are used again for other sends. */
    post_all(0, 1, 10, 3, BYTES, BATON_OK);
    assert_int_equal(take(1, 0), BATON_ERR_CANCELLED);
    assert_int_equal(baton__mpi_lend(rank_of(1), seen[1].arrived[3]),
                     BATON_ERR_CANCELLED);
    drop(1, 5); /* this answers a send that was withdrawn */
    settle_all(2);
    assert_int_equal(seen[0].ends, 1); /* only the send that was copied */
    assert_int_equal(seen[0].ended[0].token.node, 2);
    drop(1, 1);
    drop(1, 4);
    settle_all(2);
    assert_int_equal(seen[0].ends, 3);
    assert_int_equal(seen[1].arrivals, 9);
    for (int i = 6; i < 9; i++) {
        assert_int_equal(take(1, i), BATON_OK);
        settle_all(2);
    }
    assert_int_equal(seen[0].ends, 6);
    assert_int_equal(peer_of(0, 1)->announced, 0);
    expect_all_free(0);
    expect_all_free(1);
}

/* A message that is withdrawn before it was pulled transfers no data. */
TEST(test_mpi_far_withdraws_what_is_pulled)
{
    enum { BYTES = PULLED_BYTES };
    open_net(2, 0);
    post_all(0, 1, 1, 2, BYTES, BATON_OK);
    settle(1);
    assert_true(withdraw(0, 1));
    /* This send takes the record of the withdrawn one. */
    assert_int_equal(post(0, 1, 3, BYTES), BATON_OK);
    take_all(1, 0, 2, BATON_OK);
    fake_mpi_eager_bytes = 0;
    (void)poll_some(0, 64);       /* this takes both answers */
    assert_false(withdraw(0, 2)); /* the data are already being sent */
    settle_all(2);
    assert_int_equal(seen[1].receives, 2);
    for (int i = 0; i < 2; i++) {
        const baton_event_t *event = &seen[1].received[i];
        assert_int_equal(event->status, event->token.node == 0
                                            ? BATON_ERR_CANCELLED
                                            : BATON_OK);
    }
    assert_int_equal(seen[0].ends, 1);
    assert_int_equal(seen[0].ended[0].token.node, 2);
    assert_true(withdraw(0, 3));
}

/* ---- sleeping ---------------------------------------------------------- */

TEST(test_mpi_near_wakes_who_is_armed)
{
    open_local(2, 0);
    assert_true(arm(1));
    assert_int_equal(sleep_us, BATON_SLEEP_FOREVER);
    assert_false(is_readable(1));
    assert_int_equal(post(0, 1, 1, 8), BATON_DONE);
    assert_true(is_readable(1));
    baton__mpi_drain(rank_of(1));
    assert_false(is_readable(1));
    /* The receiver is woken only once. */
    assert_int_equal(post(0, 1, 2, 8), BATON_DONE);
    assert_false(is_readable(1));
    assert_false(arm(1)); /* two messages have arrived */
    assert_int_equal(post(0, 1, 3, 8), BATON_DONE);
    assert_false(is_readable(1)); /* the receiver was not armed */
    settle(1);
    assert_true(arm(1));
    baton__mpi_disarm(rank_of(1));
    assert_int_equal(notify(0, 1), BATON_DONE);
    assert_false(is_readable(1));
    /* The end of a send wakes its sender. */
    settle(1);
    assert_int_equal(post(0, 1, 4, 100000), BATON_OK);
    settle(1);
    assert_true(arm(0));
    drop(1, seen[1].arrivals - 1);
    assert_true(is_readable(0));
}

/* A peer may be armed for notices only. If there is no room for a notice, the
   peer is woken to make room. */
TEST(test_mpi_near_wakes_who_has_no_room_for_a_notice)
{
    open_local(2, 4096);
    assert_true(arm_for(1, BATON_ARM_NOTICES));
    while (post(0, 1, 1, BATON__SHORT_BYTES) == BATON_DONE) {
    }
    assert_true(withdraw(0, 1));
    assert_false(is_readable(1));
    assert_int_equal(notify(0, 1), BATON_AGAIN);
    assert_true(is_readable(1));
}

/* Opens three ranks, each on its own host, and links between them. */
static void open_linked(void)
{
    open_with((fake_mpi_options_t){.size = 3, .host_ranks = 1, .links = true});
    for (int i = 0; i < 1000 && link_of(1, 0)->state != BATON__LINK_OPEN; i++) {
        for (int rank = 0; rank < 2; rank++) {
            baton__mpi_drain(rank_of(rank));
            settle(rank);
        }
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(link_of(0, 1)->state, BATON__LINK_OPEN);
    assert_int_equal(link_of(1, 0)->state, BATON__LINK_OPEN);
}

/* Lets 5 ms pass in which no rank polls, and then takes the rings that have
   arrived. */
static void pass_time(int rank)
{
    (void)poll(NULL, 0, 5);
    baton__mpi_drain(rank_of(rank));
    settle(rank);
}

/* Opens linked ranks, and lets time pass, so that nothing has happened on the
   links recently. */
static void open_quiet(void)
{
    open_linked();
    pass_time(0); /* the rank no longer polls because of a recent ring */
    pass_time(1);
    (void)poll(NULL, 0, 5);
}

static bool is_rung(int rank, int ms)
{
    return is_ready(rank, 1, ms);
}

/* Returns the longest time for which the rank would sleep now. */
static uint32_t sleep_of(int rank)
{
    assert_true(arm(rank));
    baton__mpi_disarm(rank_of(rank));
    return sleep_us;
}

/* Open MPI 4 aborts, or never returns, after a send to a process that has
   ended. So a rank sends nothing to a peer once its link says that the peer has
   ended, even before the loss is reported. */
TEST(test_mpi_far_sends_nothing_to_who_has_ended)
{
    open_quiet();
    const uint32_t before = peer_of(0, 1)->packets_sent;
    assert_int_equal(shutdown(link_of(1, 0)->fd, SHUT_WR), 0);
    (void)poll(NULL, 0, 5);
    assert_int_equal(post(0, 1, 1, 8), BATON_OK);
    settle(0);
    assert_int_equal(seen[0].losses, 1);
    assert_int_equal(peer_of(0, 1)->packets_sent, before);
}

/* Resets the link from rank 0 to rank 1, over which rank 0 then sends. The
   lifeline stays open. */
static void reset_link(void)
{
    const struct linger at_once = {.l_onoff = 1};
    const uint32_t before = peer_of(0, 1)->packets_sent;
    assert_int_equal(setsockopt(link_of(1, 0)->fd, SOL_SOCKET, SO_LINGER,
                                &at_once, sizeof at_once),
                     0);
    baton__descriptor_close(&link_of(1, 0)->fd);
    (void)poll(NULL, 0, 5);
    assert_int_equal(post(0, 1, 1, 8), BATON_OK);
    settle(0);
    assert_int_equal(link_of(0, 1)->state, BATON__LINK_NONE);
    assert_int_equal(peer_of(0, 1)->packets_sent, before);
    assert_int_equal(seen[0].losses, 0);
}

/* Nothing is sent over a link that was reset, since the peer may have ended.
   But a firewall may have reset it. So packets are sent again if no loss
   follows: soon, if there is a lifeline. */
TEST(test_mpi_far_sends_nothing_behind_a_reset)
{
    open_quiet();
    const uint32_t before = peer_of(0, 1)->packets_sent;
    reset_link();
    const uint64_t soon_ns = baton__clock_ns() - BATON__LIFELINE_NS - 1;
    assert_true(link_of(0, 1)->lifeline_open);
    link_of(0, 1)->lifeline_open = false;
    link_of(0, 1)->reset_ns = soon_ns;
    settle(0);
    assert_int_equal(peer_of(0, 1)->packets_sent, before);
    link_of(0, 1)->lifeline_open = true;
    settle(0);
    assert_int_equal(peer_of(0, 1)->packets_sent, before + 1);
    uint16_t port; /* the port of this rank, at which no other rank answers */
    baton__answers_t *answers = &rank_of(0)->answers;
    support_ok(baton__answers_open(answers, baton__links_listen(NULL, 3, &port),
                                   0, 3, NULL));
    answers->places[1].port = port;
    answers->asked[1].asked_ns = baton__clock_ns();
    /* The rank asks at once, and makes the link anew. */
    baton__mpi_ask(rank_of(0), 1);
    assert_int_not_equal(link_of(0, 1)->state, BATON__LINK_NONE);
    assert_true(answers->asked[1].silent_ns > 0);
    baton__answers_close(answers);
}

/* A peer that answers after the reset lives, so packets go on at once. Each
   question is asked over MPI, too: the peer learns that this rank lives. */
TEST(test_mpi_far_sends_to_who_answers_behind_a_reset)
{
    uint16_t ports[2];
    open_quiet();
    baton__answers_t *answers[] = {&rank_of(0)->answers, &rank_of(1)->answers};
    for (int i = 0; i < 2; i++) {
        int listener =
            baton__links_listen(&rank_of(i)->net.links.places[i], 3, &ports[i]);
        support_ok(baton__answers_open(answers[i], listener, i, 3, NULL));
    }
    answers[0]->places[1] = answers[1]->places[1];
    answers[0]->places[1].port = ports[1];
    const uint32_t before = peer_of(0, 1)->packets_sent;
    baton__mpi_ask(rank_of(0), 1);
    assert_int_equal(peer_of(0, 1)->packets_sent, before + 1);
    reset_link();
    link_of(0, 1)->lifeline_open = false;
    const uint64_t reset_ns = link_of(0, 1)->reset_ns;
    while (baton__answers_lived_at(answers[0], 1) <= reset_ns) {
        settle(1);
        assert_int_equal(seen[1].arrivals, 0);
        (void)poll(NULL, 0, 1);
        baton__mpi_ask(rank_of(0), 1);
    }
    settle(0);
    settle(1);
    assert_int_equal(seen[1].arrivals, 1);
    for (int i = 0; i < 2; i++) {
        baton__answers_close(answers[i]);
    }
}

/* A silent rank is lost if its host refuses connections, unless there was a
   lifeline to the rank: then it may be a firewall that refuses them. */
TEST(test_mpi_far_refused_rank_with_a_lifeline_lives)
{
    enum { ASKS = 20 };
    static const uint64_t silent_ns = UINT64_C(10000000000);
    uint16_t port, nobody;
    open_quiet();
    baton__answers_t *answers = &rank_of(0)->answers;
    support_ok(baton__answers_open(answers, baton__links_listen(NULL, 3, &port),
                                   0, 3, NULL));
    int listener = baton__links_listen(NULL, 3, &nobody);
    (void)close(listener);
    answers->timeout_ns = 1000 * silent_ns;
    answers->places[1].port = nobody;
    assert_true(link_of(0, 1)->lifeline_made);
    for (int with = 1; with >= 0; with--) {
        for (int i = 0; i < ASKS; i++) {
            answers->asked[1].silent_ns = silent_ns;
            baton__mpi_ask(rank_of(0), 1);
            (void)poll(NULL, 0, 1);
        }
        settle(0);
        assert_int_equal(seen[0].losses, 1 - with);
        link_of(0, 1)->lifeline_made = false;
    }
    assert_non_null(strstr(seen[0].lost[0].detail, "are refused"));
    baton__answers_close(answers);
}

/* Makes rank `peer` doubtful to `rank`: rank 2 is lost, and there is no link.
 */
static void doubt(int rank, int peer)
{
    baton__mpi_lose(rank_of(rank), peer_of(rank, 2), BATON_ERR_TRANSPORT,
                    "lost");
    settle(rank);
    link_of(rank, peer)->state = BATON__LINK_NONE;
    link_of(rank, peer)->lifeline_open = false;
}

/* After a loss, a peer without a link may have ended, too. It gets only one
   packet, DOUBT, and the others if it makes a link, or if no loss follows. */
TEST(test_mpi_far_sends_one_packet_to_who_may_have_ended)
{
    open_quiet();
    baton__link_t *link = link_of(0, 1);
    const uint32_t before = peer_of(0, 1)->packets_sent;
    doubt(0, 1);
    post_all(0, 1, 1, 2, 8, BATON_OK);
    settle(0);
    assert_int_equal(peer_of(0, 1)->packets_sent, before + 1);
    link->state = BATON__LINK_OPEN;
    settle(0);
    assert_int_equal(peer_of(0, 1)->packets_sent, before + 3);
    link->state = BATON__LINK_NONE;
    assert_int_equal(post(0, 1, 3, 8), BATON_OK);
    rank_of(0)->last_lost_ns = 1;
    settle(0);
    assert_int_equal(peer_of(0, 1)->packets_sent, before + 4);
    link->state = BATON__LINK_OPEN;
}

/* Of two ranks without a link one doubts the other after a loss, or each
   doubts the other. Each shows that it lives, and then all messages come. */
TEST(test_mpi_far_doubts_until_the_peer_replies)
{
    enum { MANY = 3 };
    open_quiet();
    doubt(0, 1);
    assert_int_equal(post(0, 1, MANY + 1, 8), BATON_OK);
    settle_all(2);
    settle_all(2);
    assert_int_equal(seen[1].arrivals, 1);
    doubt(1, 0);
    rank_of(0)->last_lost_ns = rank_of(1)->last_lost_ns = baton__clock_ns();
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(post(0, 1, i + 1, 8), BATON_OK);
        assert_int_equal(post(1, 0, i + 1, 8), BATON_OK);
    }
    settle_all(2);
    settle_all(2);
    assert_int_equal(seen[0].arrivals, MANY);
    assert_int_equal(seen[1].arrivals, MANY + 1);
    /* A reply for which there was no free slot is sent later. */
    peer_of(0, 1)->lived_ns = 0;
    peer_of(1, 0)->reply_due = rank_of(1)->net.credits_due = true;
    assert_true(arm(1));
    settle(0);
    assert_true(peer_of(0, 1)->lived_ns > 0);
    assert_false(peer_of(1, 0)->reply_due);
    link_of(0, 1)->state = link_of(1, 0)->state = BATON__LINK_OPEN;
}

/* MPI may hold back a message that it reports as sent, until the sender calls
   MPI again. By then the sender may sleep. So a rank that waits for the message
   wakes the sender. */
TEST(test_mpi_far_late_messages_wake_their_sender)
{
    enum { LONG = PULLED_BYTES, LATE_MS = 5 };
    open_quiet();
    fake_mpi_stop(true);
    assert_int_equal(post(0, 1, 1, 8), BATON_DONE);
    /* It is too soon for another ring. */
    assert_int_equal(post(0, 1, 2, LONG), BATON_OK);
    pass_time(0);
    pass_time(1);
    for (int i = 0; i < 3; i++) {
        (void)poll(NULL, 0, LATE_MS);
        assert_true(sleep_of(1) <= 1000);
        assert_true(is_rung(0, 5000));
        pass_time(0);
        assert_true(sleep_of(0) <= 1000); /* the rank polls for a while */
    }
    fake_mpi_stop(false);
    settle_all(2);
    assert_int_equal(seen[1].arrivals, 2);
    drop(1, 0);
    /* The rank also wakes the sender if it awaits data. */
    fake_mpi_stop(true);
    assert_int_equal(take(1, 1), BATON_OK);
    pass_time(0);
    (void)poll(NULL, 0, LATE_MS);
    assert_true(sleep_of(1) <= 1000);
    assert_true(is_rung(0, 5000));
    fake_mpi_stop(false);
    pass_time(0);
    pass_time(1);
    assert_int_equal(seen[1].receives, 1);
    /* Now nothing remains to be reported, and both ranks may sleep. */
    pass_time(0);
    pass_time(1);
    (void)poll(NULL, 0, LATE_MS);
    assert_int_equal(sleep_of(0), BATON__MPI_ASKED_US);
    assert_int_equal(sleep_of(1), BATON__MPI_ASKED_US);
    assert_false(is_rung(0, 0) || is_rung(1, 0));
}

/* A peer that answers is awake, so the link need not report packets to it. */
TEST(test_mpi_far_answers_ring_for_their_sender)
{
    uint64_t before = 0;
    open_quiet();
    /* The first round reports older packets. */
    for (int round = 0; round < 2; round++) {
        before = baton__clock_ns();
        assert_int_equal(post(0, 1, 1, 8), BATON_DONE);
        /* It is too soon for another ring. */
        assert_int_equal(post(0, 1, 2, 8), BATON_DONE);
        settle(1);
        assert_int_equal(post(1, 0, 3, 8), BATON_DONE);
        peer_of(0, 1)->woken_ns = 0;
        settle(0);
    }
    assert_true(peer_of(0, 1)->woken_ns >= before);
    assert_int_equal(link_of(0, 1)->reported, peer_of(0, 1)->packets_sent);
    /* Without an answer, the link reports packets, even those that came too
       soon after another one for a ring of their own. */
    pass_time(0);
    pass_time(1);
    pass_time(0);
    assert_int_equal(post(0, 1, 1, 8), BATON_DONE);
    assert_int_equal(post(0, 1, 2, 8), BATON_DONE);
    for (int i = 0;
         i < 1000 && link_of(1, 0)->announced != peer_of(0, 1)->packets_sent;
         i++) {
        pass_time(0);
        pass_time(1);
    }
    assert_int_equal(link_of(1, 0)->announced, peer_of(0, 1)->packets_sent);
}

TEST(test_mpi_far_sleeps_as_its_links_allow)
{
    open_quiet();
    assert_true(arm(1));
    assert_int_equal(sleep_us, BATON__MPI_ASKED_US);
    assert_int_equal(post(0, 1, 1, 8), BATON_DONE);
    assert_true(is_rung(1, 5000));
    baton__mpi_drain(rank_of(1));
    assert_false(arm(1)); /* the ring of the link was for this message */
    settle(1);
    assert_int_equal(seen[1].arrivals, 1);
    if (arm(1)) { /* another message may follow the ring */
        assert_true(sleep_us < 1000);
    }
    (void)poll(NULL, 0, 5);
    assert_true(arm(1));
    baton__links_wake(&rank_of(0)->net.links, 1,
                      /* The ring arrives before its message. */
                      peer_of(0, 1)->packets_sent);
    assert_true(is_rung(1, 5000));
    baton__mpi_drain(rank_of(1));
    assert_false(arm(1));
    settle(1);
    /* If MPI has not sent packets and data yet, the rank must call MPI. */
    fake_mpi_stop(true);
    assert_int_equal(post(0, 1, 9, 8), BATON_DONE);
    (void)poll(NULL, 0, 5);
    assert_true(arm(0));
    assert_true(sleep_us <= 1000);
    fake_mpi_stop(false);
    settle_all(2);
    drop(1, 1);
    settle_all(2);
    assert_int_equal(post(0, 1, 2, PULLED_BYTES), BATON_OK);
    settle(1);
    assert_int_equal(take(1, 2), BATON_OK);
    assert_int_equal(notify(1, 0), BATON_DONE);
    /* The message is pulled, and the notice is sent with it. */
    (void)poll_some(0, 64);
    fake_mpi_stop(true);
    settle(0);
    assert_false(withdraw(0, 2)); /* MPI already has the data */
    (void)poll(NULL, 0, 5);
    assert_true(arm(0));
    assert_true(sleep_us <= 1000);
    fake_mpi_stop(false);
    settle_all(2);
    assert_int_equal(seen[0].ends, 1);
    /* Without a link, the rank looks for messages from time to time. */
    link_of(1, 0)->state = BATON__LINK_ENDED;
    (void)poll(NULL, 0, 5);
    (void)arm(1);
    assert_true(sleep_us < BATON__MPI_ASKED_US);
    link_of(1, 0)->state = BATON__LINK_OPEN;
}

/* ---- lost peers ---------------------------------------------------------- */

/* Polls for one event at a time. The loss comes last. */
static void settle_loss(int rank, int peer)
{
    int before = seen[rank].losses;
    for (int i = 0; i < 200 && seen[rank].losses == before; i++) {
        (void)poll_some(rank, 1);
    }
    assert_int_equal(seen[rank].losses, before + 1);
    assert_int_equal(seen[rank].lost[before].peer, peer);
    assert_non_null(seen[rank].lost[before].detail);
    int ends = seen[rank].ends;
    int receives = seen[rank].receives;
    settle(rank);
    assert_int_equal(seen[rank].losses, before + 1);
    assert_true(seen[rank].ends == ends && seen[rank].receives == receives);
}

static void expect_failed_ends(int rank, int count)
{
    assert_int_equal(seen[rank].ends, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(seen[rank].ended[i].status, BATON_ERR_TRANSPORT);
    }
}

/* If the process of a rank has ended, the first rank that would wake it
   notices. */
TEST(test_mpi_near_peer_is_lost)
{
    open_local(3, 0);
    assert_int_equal(post(0, 2, 1, 100000), BATON_OK);
    post_all(0, 1, 2, 3, PULLED_BYTES, BATON_OK);
    settle(1);
    assert_true(arm(1));
    assert_int_equal(post(0, 1, 5, 16), BATON_DONE);
    rank_of(0)->host.liveness.ended[1] = true; /* drain sets this */
    rank_of(0)->host.liveness.any_ended = true;
    rank_of(0)->host.processors[1] = 1;
    assert_false(arm(0));
    settle_loss(0, 1);
    /* A rank that has ended no longer polls. */
    assert_int_equal(rank_of(0)->host.processors[1], 0);
    expect_failed_ends(0, 3);
    assert_true(arm(0));
    assert_int_equal(post(0, 1, 6, 16), BATON_ERR_TRANSPORT);
    assert_int_equal(notify(0, 1), BATON_ERR_TRANSPORT);
    assert_int_equal(post(0, 2, 7, 16), BATON_DONE);
    settle(2);
    drop(2, 0);
    settle(0);
    assert_int_equal(seen[0].ends, 4);
    assert_int_equal(seen[0].ended[3].token.node, 1);
}

/* A rank that reads the memory of a process finds that this process has ended:
   while a message is copied in slices, or at once, and while it is lent. */
TEST(test_mpi_near_peer_ends_while_it_is_read)
{
    enum { AT_ONCE = BATON__MPI_AT_ONCE_BYTES };
    for (int how = 0; how < 3; how++) {
        open_local(2, 0);
        /* This makes every message be offered. */
        rank_of(0)->buffered_bytes = 0;
        assert_int_equal(post(0, 1, 1, how == 0 ? 2 * AT_ONCE : AT_ONCE),
                         BATON_OK);
        settle(1);
        assert_int_equal(kind_at(1, 0), BATON__PACKET_OFFER);
        pid_t ended = fork();
        if (ended == 0) {
            _exit(0);
        }
        assert_int_equal(waitpid(ended, NULL, 0), ended);
        rank_of(0)->host.doorbell.states[0].process = (uint32_t)ended;
        if (how == 0) {
            assert_int_equal(take(1, 0), BATON_OK);
        } else if (how == 1) {
            assert_int_equal(take(1, 0), BATON_ERR_TRANSPORT);
        } else {
            baton_message_t *message = seen[1].arrived[0];
            assert_int_equal(baton__mpi_lend(rank_of(1), message), BATON_DONE);
            assert_int_equal(
                baton__mpi_read(rank_of(1), message, 0, AT_ONCE, in),
                BATON_ERR_TRANSPORT);
            drop(1, 0);
        }
        if (how > 0) {
            support_says(" is gone: its process has ended");
        }
        settle(1);
        assert_int_equal(seen[1].receives, how == 0);
        if (how == 0) {
            assert_string_equal(seen[1].received[0].detail,
                                "its process has ended");
        }
        assert_int_equal(seen[1].losses, 1);
        assert_int_equal(seen[1].lost[0].peer, 0);
    }
}

/* The peer is lost while everything is in progress: sends are announced, in
   transfer and queued; four messages are pulled, more wait to be pulled, and
   one was not accepted; and answers are in the outbox. */
TEST(test_mpi_far_peer_is_lost_in_motion)
{
    enum { LONG = PULLED_BYTES, MIDDLE = 5000, PULLED = 6 };
    open_net(3, 16);
    fake_mpi_eager_bytes = MIDDLE + 100; /* MPI sends only packets at once */
    assert_int_equal(post(1, 0, 201, LONG), BATON_OK);
    assert_int_equal(post(1, 2, 202, LONG), BATON_OK);
    settle(0);
    settle(2);
    assert_int_equal(take(0, 0), BATON_OK);
    assert_int_equal(take(2, 0), BATON_OK);
    post_all(0, 1, 0, PULLED + 2, LONG, BATON_OK);
    post_all(0, 1, 50, 3, MIDDLE, BATON_DONE);
    for (int i = 0; i < PULLED + 5; i++) {
        (void)poll_some(1, 64); /* data for both ranks wait for the next poll */
    }
    assert_int_equal(seen[1].arrivals, PULLED + 5);
    fake_mpi_stop(true);
    settle(1);
    /* Three parts of each message that rank 1 sends are in transfer. */
    assert_int_equal(rank_of(1)->net.count, 6);
    assert_int_equal(post(1, 0, 200, LONG), BATON_OK);
    int failing = 2;
    for (uint32_t i = 0; i < 100 && seen[1].losses == 0; i++) {
        failing += post(1, 0, 300 + i, 8) == BATON_OK;
    }
    assert_non_null(peer_of(1, 0)->outbox.head);
    take_all(1, 0, PULLED, BATON_OK);
    drop(1, PULLED); /* the answer waits in the outbox */
    assert_int_equal(take(1, PULLED + 2), BATON_DONE);
    drop(1, PULLED + 3);
    baton__net_fail(rank_of(1), 0, MPI_ERR_OTHER);
    baton__net_fail(rank_of(1), 0, MPI_ERR_OTHER);
    settle_loss(1, 0);
    expect_failed_ends(1, failing);
    assert_int_equal(seen[1].receives, PULLED);
    for (int i = 0; i < PULLED; i++) {
        assert_int_equal(seen[1].received[i].status, BATON_ERR_TRANSPORT);
    }
    assert_int_equal(take(1, PULLED + 1), BATON_ERR_TRANSPORT);
    drop(1, PULLED + 4);
    assert_null(rank_of(1)->peers[0].outbox.head);
    assert_int_equal(rank_of(1)->unreported, 0);
    /* The message for the other peer goes on. The sends to the lost peer end in
       MPI, but are not reported again. */
    fake_mpi_eager_bytes = 65536;
    fake_mpi_stop(false);
    settle(2);
    settle(1);
    assert_int_equal(seen[1].ends, failing + 1);
    assert_int_equal(seen[1].ended[failing].token.node, 202);
    assert_int_equal(seen[1].ended[failing].status, BATON_OK);
    expect_all_free(1);
}

/* Some packets of a body have not arrived when the peer is lost. No event
   reports the body. */
TEST(test_mpi_far_peer_is_lost_within_a_body)
{
    for (uint32_t come = 1; come <= 3; come++) {
        open_net(2, 0);
        fake_mpi_deliveries = (int)come;
        assert_int_equal(post(0, 1, 1, BATON__BODY_LONGEST), BATON_DONE);
        settle(1);
        baton__net_fail(rank_of(1), 0, MPI_ERR_OTHER);
        settle_loss(1, 0);
        assert_int_equal(seen[1].arrivals, come == 3);
        assert_true(come < 3 || take(1, 0) == BATON_DONE);
        assert_int_equal(peer_of(1, 0)->bodies.granted,
                         BATON__MPI_BODIES + (come == 1 ? 1 : 2));
        expect_all_free(1);
    }
}

/* The peer lives, and asks whether it is lost. */
TEST(test_mpi_far_peer_that_was_lost_is_told)
{
    open_net(2, 0);
    baton__mpi_lose(rank_of(1), peer_of(1, 0), BATON_ERR_TIMEOUT, "silent");
    (void)baton__net_signal(rank_of(0), peer_of(0, 1), BATON__PACKET_ASK);
    settle(1);
    settle_loss(0, 1);
    assert_ptr_equal(seen[0].lost[0].detail, baton__disowned);
}

/* A rank that learns that a peer has lost it doesn't tell that peer that it is
   lost, too: the peer goes on. */
TEST(test_mpi_far_peer_that_was_lost_tells_nobody)
{
    open_quiet();
    baton__mpi_lose(rank_of(0), peer_of(0, 1), BATON_ERR_TIMEOUT,
                    baton__disowned);
    pass_time(1);
    assert_int_equal(seen[1].losses, 0);
    assert_false(baton__links_lose(&rank_of(1)->net.links, 0));
}

/* Packets that MPI can't send to one peer leave room for packets to others.
   Once that peer is lost, they take no room any more. */
TEST(test_mpi_far_peer_that_takes_nothing)
{
    enum { TAKEN = BATON__MPI_POSTED };
    enum { KEPT = BATON__MPI_PACKETS / 2, WINDOW = 4 * TAKEN };
    open_net(3, WINDOW);
    fake_mpi_eager_bytes = 0;
    post_all(0, 1, 0, TAKEN + KEPT, 8, BATON_DONE);
    post_all(0, 1, TAKEN + KEPT, KEPT, 8, BATON_OK);
    post_all(0, 2, 0, TAKEN + KEPT / 2, 8, BATON_DONE);
    assert_int_equal(post(0, 2, TAKEN + KEPT / 2, 8), BATON_OK);
    settle(2);
    settle(0);
    assert_int_equal(rank_of(0)->net.packets_unsent, KEPT);
    settle(2);
    assert_int_equal(seen[2].arrivals, TAKEN + KEPT / 2 + 1);
    /* The next place is taken by a packet to the first peer. Other places are
       free. */
    uint32_t more = 0;
    while (rank_of(0)->net.next_send % BATON__MPI_PACKETS != 0) {
        assert_int_equal(post(0, 2, TAKEN + KEPT + more++, 8), BATON_DONE);
    }
    settle(2);
    settle(0);
    assert_int_equal(notify(0, 2), BATON_DONE);
    baton__net_fail(rank_of(0), 1, MPI_ERR_OTHER);
    settle_loss(0, 1);
    assert_int_equal(rank_of(0)->net.packets_unsent, 0);
    settle(2);
    assert_int_equal(seen[2].arrivals, TAKEN + KEPT / 2 + 2 + more);
}

/* A peer dies while MPI transfers its message, which never ends. Messages of
   other ranks are not held back. The packets of each rank are taken in
   order. */
TEST(test_mpi_far_peer_dies_while_it_sends)
{
    enum { MORE = 3 * BATON__MPI_POSTED };
    open_net(3, 0);
    fake_mpi_eager_bytes = 1000;
    fake_mpi_hold(1U << 1 | 1U << 2);
    for (int from = 1; from < 3; from++) {
        assert_int_equal(post(from, 0, 0, 5000), BATON_DONE);
        assert_int_equal(post(from, 0, 1, 8), BATON_DONE);
    }
    settle(0);
    assert_int_equal(seen[0].arrivals, 0);
    baton__net_fail(rank_of(0), 1, MPI_ERR_OTHER);
    settle_loss(0, 1);
    assert_int_equal(seen[0].arrivals, 0);
    fake_mpi_hold(1U << 1);
    settle(0);
    for (uint32_t i = 2; i < MORE; i++) {
        assert_int_equal(seen[0].arrivals, i);
        assert_int_equal(seen[0].arrived[i - 1]->peer, 2);
        assert_int_equal(seen[0].arrived[i - 1]->header.tag, i - 1);
        drop(0, (int)i - 1);
        assert_int_equal(post(2, 0, i, 8), BATON_DONE);
        settle(0);
        settle(2);
    }
    assert_true(arm(0));
}

/* Unfinished packets of two dead peers occupy all posted receives; others are
   posted in their place. */
TEST(test_mpi_far_peers_die_while_they_send)
{
    open_net(4, 0);
    fake_mpi_eager_bytes = 1000;
    fake_mpi_hold(1U << 1 | 1U << 2);
    for (uint32_t i = 0; i < BATON__MPI_POSTED; i++) {
        assert_int_equal(post(1 + (int)i % 2, 0, i / 2, 5000), BATON_DONE);
    }
    for (int dead = 1; dead < 3; dead++) {
        baton__net_fail(rank_of(0), dead, MPI_ERR_OTHER);
        settle_loss(0, dead);
    }
    for (uint32_t i = 0; i < 2 * BATON__MPI_POSTED; i++) {
        assert_int_equal(post(3, 0, i, 8), BATON_DONE);
        settle(0);
        assert_int_equal(seen[0].arrivals, i + 1);
        drop(0, (int)i);
        settle(3);
    }
}

/* Data that are pulled are sent after the answers to the messages that arrived
   in the same poll. Until then the send can be withdrawn, or ends with its
   peer. */
TEST(test_mpi_far_pulled_data_go_last)
{
    for (int lost = 0; lost < 2; lost++) {
        open_net(2, 0);
        post_all(0, 1, 1, 3, PULLED_BYTES, BATON_OK);
        settle(1);
        take_all(1, 0, 3, BATON_OK);
        assert_int_equal(post(1, 0, 7, PULLED_BYTES), BATON_OK);
        (void)poll_some(0, 64);
        assert_int_equal(seen[0].arrivals, 1);
        assert_false(arm(0));
        assert_true(withdraw(0, 2));
        if (lost) {
            baton__net_fail(rank_of(0), 1, MPI_ERR_OTHER);
            settle_loss(0, 1);
            expect_failed_ends(0, 2);
        }
        drop(0, 0);
        settle_all(2);
        assert_int_equal(seen[0].ends, 2);
        assert_int_equal(seen[1].receives, lost ? 1 : 3);
        expect_all_free(0);
    }
}

/* MPI refuses to send a packet, a body, or an answer. */
TEST(test_mpi_far_errors_lose_the_peer)
{
    for (int way = 0; way < 3; way++) {
        static const size_t sizes[] = {8, 5000, 100000};
        open_net(2, 0);
        assert_int_equal(post(1, 0, 7, PULLED_BYTES), BATON_OK);
        settle(0);
        fake_mpi_failing_sends = 1;
        if (way == 2) {
            assert_int_equal(take(0, 0), BATON_OK);
        } else {
            (void)post(0, 1, 1, sizes[way]);
        }
        fake_mpi_failing_sends = 0;
        assert_false(arm(0));
        settle_loss(0, 1);
        assert_int_equal(seen[0].receives, way == 2);
        assert_string_equal(seen[0].lost[0].detail, "MPI was told to fail");
    }
}

/* After MPI_Finalize has begun, no function of MPI is called. Peers on other
   hosts are lost. */
TEST(test_mpi_far_sends_nothing_behind_finalize)
{
    open_net(2, 0);
    atomic_store(&rank_of(0)->net.finalized, true);
    (void)post(0, 1, 1, 8);
    assert_int_equal(fake_mpi_unreceived(), 0);
    settle_loss(0, 1);
    assert_false(baton__answers_is_calling(&rank_of(0)->answers));
}

/* A receive that has continued after an error has a packet, and is posted
   again. */
TEST(test_mpi_far_receives_go_on)
{
    for (int lost = 0; lost < 2; lost++) {
        open_net(3, 0);
        if (lost) {
            baton__net_fail(rank_of(0), 1, MPI_ERR_OTHER);
            settle_loss(0, 1);
        }
        fake_mpi_failing_receives = 2;
        for (uint32_t i = 0; i < 2 * BATON__MPI_PACKETS; i++) {
            assert_int_equal(post(2, 0, i, 8), BATON_DONE);
            settle(0);
            assert_int_equal(seen[0].arrivals, i + 1);
            drop(0, (int)i);
            settle(2);
        }
        assert_int_equal(seen[0].losses, lost);
    }
}

/* A peer is lost when its link ends, or when it says farewell before this rank
   closes. The farewell may say that the peer leaves because of a loss, and of
   which rank: then that rank is lost here first. */
TEST(test_mpi_far_link_ends)
{
    static const char *const details[] = {
        "its process has ended", "it has closed its group",
        "it has lost rank 2, and closed its group"};
    for (int farewell = 0; farewell < 3; farewell++) {
        open_linked();
        baton__links_t *links = &rank_of(1)->net.links;
        if (farewell) {
            links->gives_up = farewell == 2;
            links->blamed = links->gives_up ? 3 : 0;
            baton__links_close(links);
        } else {
            /* Unread bytes would make the kernel reset the connection. */
            baton__mpi_drain(rank_of(1));
            settle(1);
            (void)close(link_of(1, 0)->fd);
            link_of(1, 0)->state = BATON__LINK_ENDED;
        }
        for (int i = 0; i < 100 && link_of(0, 1)->state != BATON__LINK_ENDED;
             i++) {
            (void)poll(NULL, 0, 1);
            baton__mpi_drain(rank_of(0));
            settle(0);
        }
        int last = farewell == 2;
        assert_int_equal(seen[0].losses, last + 1);
        assert_int_equal(seen[0].lost[0].peer, 1 + last);
        assert_string_equal(seen[0].lost[last].detail, details[farewell]);
    }
}

/* A rank of this host is lost because of its answer, or because it does not
   answer, or because another rank has answered that it is lost. The loss says
   why. */
TEST(test_mpi_near_answers_say_why_a_rank_is_lost)
{
    enum { ENDED, DISOWNS, INSIDE, SILENT, REPORTS, WAYS };
    static const char *const details[] = {
        "its process has ended, or it has closed its group", baton__disowned,
        ("its engine has been in a call of MPI for 700 ms "
         "(BATON_PEER_TIMEOUT_MS)"),
        "it has not answered for 20 ms (BATON_PEER_TIMEOUT_MS)",
        "another rank has lost it"};
    static const char *const timeouts_ms[] = {"1000000", "1000000", "700", "20",
                                              "1000000"};
    for (int way = 0; way < WAYS; way++) {
        uint16_t port;
        support_set_variable("BATON_PEER_TIMEOUT_MS", timeouts_ms[way]);
        open_local(3, 0);
        baton__answers_t *asks = &rank_of(0)->answers;
        baton__answers_t *answers = &rank_of(1)->answers;
        support_ok(baton__answers_open(
            asks, baton__links_listen(NULL, 3, &port), 0, 3, NULL));
        int listener = baton__links_listen(NULL, 3, &port);
        if (way != SILENT) {
            support_ok(baton__answers_open(answers, listener, 1, 3, NULL));
            asks->places[1] = answers->places[1];
        }
        asks->places[1].port = port;
        if (way == ENDED) {
            baton__answers_close(answers);
        } else if (way == DISOWNS) {
            baton__answers_lose(answers, 0, false);
        } else if (way == REPORTS) {
            baton__answers_lose(answers, 2, false);
        } else if (way == INSIDE) {
            baton__answers_count(&answers->begun);
        }
        while (seen[0].losses == 0) {
            asks->asked[1].asked_ns = 0;
            baton__mpi_ask(rank_of(0), 1);
            (void)poll_some(0, 1);
            (void)poll(NULL, 0, 1);
        }
        assert_int_equal(seen[0].lost[0].peer, way == REPORTS ? 2 : 1);
        assert_string_equal(seen[0].lost[0].detail, details[way]);
        assert_int_equal(seen[0].lost[0].status, way == ENDED
                                                     ? BATON_ERR_TRANSPORT
                                                     : BATON_ERR_TIMEOUT);
        baton__answers_close(asks);
        if (way == SILENT) {
            baton__descriptor_close(&listener);
        } else {
            baton__answers_close(answers);
        }
    }
    support_set_variable("BATON_PEER_TIMEOUT_MS", NULL);
}

/* ---- reserving ----------------------------------------------------------- */

TEST(test_mpi_sends_beyond_the_reserve_are_refused)
{
    fake_mpi_open(
        &(fake_mpi_options_t){.size = 2, .host_ranks = 2, .reads = true});
    uint32_t posted = 0;
    for (int64_t sends = 0; sends <= INT_MAX; sends += INT_MAX) {
        support_fails(baton__mpi_reserve(rank_of(0), 1, sends, INT_MAX - sends),
                      BATON_ERR_NO_MEMORY, "messages in flight are too many");
    }
    support_ok(baton__mpi_reserve(rank_of(0), 1, 20, 0));
    support_ok(baton__mpi_reserve(rank_of(1), 0, 0, 20));
    while (post(0, 1, posted, 100000) == BATON_OK) {
        posted++;
    }
    assert_int_equal(posted, 20);
    assert_true(withdraw(0, 0));
    int64_t nth = 0;
    baton_status_t status = BATON_ERR_NO_MEMORY;
    /* In each round another allocation fails. */
    while (status == BATON_ERR_NO_MEMORY) {
        const int64_t live = malloc_live;
        baton__alloc_fail_nth(++nth);
        status = baton__mpi_reserve(rank_of(0), 1, 10, 0);
        baton__alloc_fail_nth(0);
        assert_true(status == BATON_OK || malloc_live == live ||
                    !MALLOC_SEES_ALL);
    }
    assert_true(status == BATON_OK && nth > 5);
    for (uint32_t i = 1; i < posted; i++) {
        assert_true(withdraw(0, i)); /* each is found among more sends */
    }
    assert_int_equal(post(0, 1, posted, 100000), BATON_OK);
}

/* There is a record for every message that a peer may send without an
   answer. */
TEST(test_mpi_windows_have_records)
{
    enum { WINDOW = 64 };
    fake_mpi_open(&(fake_mpi_options_t){
        .size = 2, .host_ranks = 2, .window = WINDOW, .reads = true});
    memset(seen, 0, sizeof seen);
    for (int rank = 0; rank < 2; rank++) {
        support_ok(baton__mpi_reserve(rank_of(rank), 1 - rank, 1, 0));
    }
    post_all(0, 1, 0, WINDOW, 8, BATON_DONE);
    assert_int_equal(post(0, 1, WINDOW, 8), BATON_OK);
    assert_true(withdraw(0, WINDOW));
    for (int i = 0; i < BATON__MPI_NOTICES; i++) {
        assert_int_equal(notify(0, 1), BATON_DONE);
    }
    settle(1);
    assert_true(seen[1].arrivals >= WINDOW + BATON__MPI_NOTICES);
}

/* Only a limited number of sends have a place among the offers. The others are
   pulled or, if MPI must not be called, wait for a place. */
TEST(test_mpi_sends_without_an_offer_are_pulled)
{
    open_with((fake_mpi_options_t){.size = 2, .host_ranks = 2, .reads = true});
    assert_int_equal(way_of(100000), BATON__PACKET_OFFER);
    support_ok(baton__mpi_reserve(rank_of(0), 1, BATON__HOST_OFFERS, 0));
    assert_int_equal(way_of(100000), BATON__PACKET_OFFER);
    baton__send_t *low = rank_of(0)->free_sends;
    while (rank_of(0)->free_sends->id < BATON__HOST_OFFERS) {
        rank_of(0)->free_sends = rank_of(0)->free_sends->next;
    }
    assert_int_equal(post(0, 1, 1, 100000), BATON_OK);
    settle(1);
    assert_int_equal(kind_at(1, 2), BATON__PACKET_RTS);
    rank_of(0)->keeps_off = true;
    assert_int_equal(post(0, 1, 1, 100000), BATON_OK);
    settle(1);
    assert_int_equal(seen[1].arrivals, 3);
    low->next = NULL;
    rank_of(0)->free_sends = low;
    settle_all(2);
    assert_int_equal(kind_at(1, 3), BATON__PACKET_OFFER);
    /* Answers and parts make places free, so they do not wait for one. */
    assert_int_equal(post(0, 1, 2, 100000), BATON_OK);
    assert_int_equal(post(1, 0, 3, 100000), BATON_OK);
    settle_all(2);
    assert_int_equal(seen[1].arrivals, 4);
    assert_int_equal(take(0, 0), BATON_OK);
    settle_all(2);
    assert_int_equal(seen[1].ends, 1);
    fake_mpi_refusal = EPERM;
    assert_int_equal(take(1, 3), BATON_OK);
    for (int i = 0; i < 1000; i++) {
        (void)poll_some(i % 2, 64);
    }
    assert_int_equal(kind_at(1, 4), BATON__PACKET_OFFER);
}

static int close_ranks(void **state)
{
    fake_mpi_close();
    return 0;
}

RUN_TESTS_BETWEEN(NULL, close_ranks)
