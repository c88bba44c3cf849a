/* Links between ranks on different hosts, through sockets in one process: which
   rank connects, which event wakes which rank, and how a rank learns that a
   link has ended. To ring a peer is to wake it: the rank writes to the link how
   many packets it has sent. A lifeline is a second connection, on which nothing
   is sent: it ends when the peer's process has ended (links.h). */
#include "base/clock.h"
#include "base/descriptor.h"
#include "support/cluster.h"
#include "transport/mpi/links.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, NONCE = 12345, PATIENCE_MS = 5000 };

typedef struct end {
    baton__links_t links;
    int found; /* number of polls that have found something */
} end_t;

static end_t ends[RANKS];

static baton__link_t *link_of(int rank, int peer)
{
    return &ends[rank].links.at[peer];
}

static int open_ends(void **state)
{
    memset(ends, 0, sizeof ends);
    for (int i = 0; i < RANKS; i++) {
        baton__links_init(&ends[i].links);
        support_ok(baton__links_open(&ends[i].links, i, RANKS, true));
        assert_true(ends[i].links.places[i].port != 0);
    }
    for (int i = 0; i < RANKS; i++) {
        ends[i].links.nonce = NONCE;
        for (int j = 0; j < RANKS; j++) {
            ends[i].links.places[j] = ends[j].links.places[j];
        }
    }
    return 0;
}

static int close_ends(void **state)
{
    for (int i = 0; i < RANKS; i++) {
        baton__links_close(&ends[i].links);
    }
    return 0;
}

#define LINKS_TEST(name) TEST_BETWEEN(name, open_ends, close_ends)

/* Waits until something has happened at this end. Returns false if nothing
   does. */
static bool is_woken(int rank, int ms)
{
    struct pollfd wait = {.fd = ends[rank].links.epoll, .events = POLLIN};
    return poll(&wait, 1, ms) == 1;
}

static void look(int rank)
{
    baton__links_drain(&ends[rank].links);
    ends[rank].found += baton__links_poll(&ends[rank].links);
}

/* Lets both ends go on until rank `b` has the link that rank `a` has made. */
static void connect_ends(int a, int b)
{
    baton__links_connect(&ends[a].links, b);
    for (int i = 0; i < 100 && link_of(b, a)->state != BATON__LINK_OPEN; i++) {
        (void)is_woken(a, 10);
        look(a);
        (void)is_woken(b, 10);
        look(b);
    }
    assert_int_equal(link_of(a, b)->state, BATON__LINK_OPEN);
    assert_int_equal(link_of(b, a)->state, BATON__LINK_OPEN);
}

/* Ends the link and the lifeline as the kernel does when a process ends. */
static void end_process(int rank, int peer)
{
    baton__link_t *link = link_of(rank, peer);
    baton__descriptor_close(&link->fd);
    baton__descriptor_close(&link->lifeline);
    link->lifeline_open = false;
    link->state = BATON__LINK_ENDED;
}

/* Lets `rank` look at its links until nothing more arrives. */
static void settle(int rank)
{
    while (is_woken(rank, 20)) {
        look(rank);
    }
}

LINKS_TEST(test_links_lower_rank_connects)
{
    baton__links_connect(&ends[1].links, 0);
    assert_int_equal(link_of(1, 0)->state, BATON__LINK_NONE);
    connect_ends(0, 1);
    int fd = link_of(0, 1)->fd;
    baton__links_connect(&ends[0].links, 1); /* the link is there already */
    assert_int_equal(link_of(0, 1)->fd, fd);
    assert_int_equal(link_of(2, 0)->state, BATON__LINK_NONE);
}

/* A ring that is sent before there is a link would be lost. So when the link is
   made, both ends are rung. */
LINKS_TEST(test_links_ring_when_they_are_made)
{
    connect_ends(0, 2);
    settle(0);
    settle(2);
    assert_true(ends[0].found > 0);
    assert_true(ends[2].found > 0);
    assert_int_equal(ends[1].found, 0);
}

LINKS_TEST(test_links_ring_wakes_that_peer)
{
    connect_ends(0, 1);
    connect_ends(0, 2);
    connect_ends(1, 2);
    for (int i = 0; i < RANKS; i++) {
        settle(i);
        ends[i].found = 0;
    }
    for (int round = 1; round <= 3; round++) {
        baton__links_wake(&ends[2].links, 1, 1);
        assert_true(is_woken(1, PATIENCE_MS));
        look(1);
        assert_int_equal(ends[1].found, round);
        assert_false(is_woken(1, 0));
    }
    /* A ring that was not read yet does not prevent the next one from being
       seen. */
    baton__links_wake(&ends[2].links, 1, 1);
    baton__links_wake(&ends[0].links, 1, 1);
    assert_true(is_woken(1, PATIENCE_MS));
    settle(1);
    assert_true(ends[1].found > 3);
    assert_false(is_woken(0, 0));
    /* One thread drains the descriptor, and another looks at the links
       later. */
    baton__links_wake(&ends[0].links, 1, 1);
    assert_true(is_woken(1, PATIENCE_MS));
    baton__links_drain(&ends[1].links);
    baton__links_drain(&ends[1].links);
    assert_false(is_woken(1, 0));
    assert_true(baton__links_poll(&ends[1].links));
}

/* A ring says how many packets were sent, even if it arrives in two halves. */
LINKS_TEST(test_links_rings_tell_how_much_was_sent)
{
    connect_ends(0, 1);
    baton__links_wake(&ends[0].links, 1, 7);
    assert_int_equal(link_of(0, 1)->reported, 7);
    settle(1);
    assert_int_equal(link_of(1, 0)->announced, 7);
    for (uint64_t count = 8; count < 10; count++) {
        const char *word = (const char *)&count;
        assert_int_equal(send(link_of(0, 1)->fd, word, 3, 0), 3);
        settle(1);
        assert_int_equal(link_of(1, 0)->announced, count - 1);
        assert_int_equal(send(link_of(0, 1)->fd, word + 3, 5, 0), 5);
        settle(1);
        assert_int_equal(link_of(1, 0)->announced, count);
    }
    baton__links_close(&ends[0].links);
    settle(1);
    assert_int_equal(link_of(1, 0)->announced, 9);
    assert_null(link_of(1, 0)->lost);
}

/* A ring for which the socket has no room is not sent, and does not garble the
   rings after it. */
LINKS_TEST(test_links_full_of_rings)
{
    enum { MANY = 10000000 };
    uint32_t count = 0;
    connect_ends(0, 1);
    settle(1);
    while (count < MANY && link_of(0, 1)->reported == count) {
        baton__links_wake(&ends[0].links, 1, ++count);
    }
    assert_int_equal(link_of(0, 1)->reported, count - 1);
    settle(1);
    assert_int_equal(link_of(1, 0)->announced, count - 1);
    baton__links_wake(&ends[0].links, 1, count);
    settle(1);
    assert_int_equal(link_of(1, 0)->announced, count);
}

/* A peer that says farewell is not lost, even if it has rung before. The
   farewell says whether the peer leaves because of a loss. A peer whose process
   ends is lost. */
TEST(test_links_end_with_and_without_farewell)
{
    (void)open_ends(state);
    connect_ends(0, 1);
    connect_ends(0, 2);
    settle(0);
    baton__links_wake(&ends[1].links, 0, 1);
    baton__links_close(&ends[1].links);
    assert_true(is_woken(0, PATIENCE_MS));
    settle(0);
    assert_int_equal(link_of(0, 1)->state, BATON__LINK_ENDED);
    assert_null(link_of(0, 1)->lost);
    assert_true(link_of(0, 1)->farewell && !link_of(0, 1)->gave_up);
    assert_int_equal(link_of(0, 1)->announced, 1);
    end_process(2, 0);
    assert_true(is_woken(0, PATIENCE_MS));
    settle(0);
    assert_int_equal(link_of(0, 2)->state, BATON__LINK_ENDED);
    assert_string_equal(link_of(0, 2)->lost, "its process has ended");
    baton__links_wake(&ends[0].links, 2, 1); /* this has no effect */
    (void)close_ends(state);
    (void)open_ends(state);
    connect_ends(0, 1);
    ends[1].links.gives_up = true;
    ends[1].links.blamed = 3;
    baton__links_close(&ends[1].links);
    assert_true(is_woken(0, PATIENCE_MS));
    settle(0);
    assert_true(link_of(0, 1)->gave_up && link_of(0, 1)->blamed == 3);
    (void)close_ends(state);
}

/* A child process that lives on does not keep the link open. */
LINKS_TEST(test_links_end_though_a_child_lives)
{
    int gate[2];
    connect_ends(0, 1);
    assert_int_equal(pipe(gate), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        (void)close(gate[1]);
        _exit((int)read(gate[0], &byte, 1)); /* blocks until the test is over */
    }
    settle(1);
    end_process(0, 1);
    if (is_woken(1, PATIENCE_MS)) {
        settle(1);
    }
    assert_non_null(link_of(1, 0)->lost);
    assert_true(link_of(1, 0)->lifeline_ended);
    (void)close(gate[1]);
    (void)close(gate[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* A rank is told that a peer has lost it. When the rank then loses that peer,
   too, it knows that the peer has lost it before. */
LINKS_TEST(test_links_tell_who_is_lost)
{
    connect_ends(0, 1);
    settle(0);
    ends[0].found = 0;
    for (int i = 1; i < RANKS; i++) {
        assert_false(baton__links_lose(&ends[i].links, 0));
        assert_true(is_woken(0, PATIENCE_MS));
        settle(0);
        assert_true(ends[0].found >= i);
        assert_true(link_of(0, i)->disowned);
        assert_int_equal(link_of(0, 2)->disowned, i == 2);
        assert_true(baton__links_lose(&ends[0].links, i));
    }
}

/* If a process ends with unread bytes, the kernel resets its connections. A
   firewall may also reset connections of a process that lives. That process
   makes another connection, although the peer has not noticed the reset. */
LINKS_TEST(test_links_reset_is_no_loss)
{
    connect_ends(1, 2);
    settle(1);
    settle(2);
    baton__links_wake(&ends[1].links, 2, 1);
    assert_true(is_woken(2, PATIENCE_MS));
    baton__descriptor_close(&link_of(2, 1)->fd);
    assert_true(is_woken(1, PATIENCE_MS));
    settle(1);
    assert_null(link_of(1, 2)->lost);
    link_of(2, 1)->state = BATON__LINK_NONE;
    for (int i = 0; i < 2; i++) {
        baton__links_connect(&ends[1].links, 2);
        settle(1);
        settle(2);
        baton__links_wake(&ends[1].links, 2, 7);
        settle(2);
        assert_int_equal(link_of(2, 1)->announced, 7);
        /* The descriptor of the first connection stays open. */
        link_of(1, 2)->fd = dup(link_of(1, 2)->fd);
        link_of(1, 2)->state = BATON__LINK_NONE;
        link_of(2, 1)->announced = 0;
    }
    assert_null(link_of(2, 1)->lost);
}

/* Ends the process of rank 2 after its link to rank 1 was reset. */
static void end_after_reset(bool much_later)
{
    connect_ends(1, 2);
    settle(1);
    settle(2);
    assert_true(baton__links_has_lifeline(&ends[1].links, 2));
    assert_true(baton__links_has_lifeline(&ends[2].links, 1));
    int alive = 0;
    socklen_t bytes = sizeof alive;
    assert_int_equal(getsockopt(link_of(1, 2)->lifeline, SOL_SOCKET,
                                SO_KEEPALIVE, &alive, &bytes),
                     0);
    assert_int_equal(alive, 1);
    baton__links_wake(&ends[1].links, 2, 1);
    assert_true(is_woken(2, PATIENCE_MS));
    /* the connection is closed with an unread ring */
    baton__descriptor_close(&link_of(2, 1)->fd);
    assert_true(is_woken(1, PATIENCE_MS));
    settle(1);
    assert_int_equal(link_of(1, 2)->state, BATON__LINK_NONE);
    assert_null(link_of(1, 2)->lost);
    assert_true(baton__links_is_sound(&ends[1].links, 2));
    link_of(1, 2)->reset_ns =
        much_later ? 1 : baton__clock_ns() + BATON__LIFELINE_NS;
    end_process(2, 1);
    assert_true(is_woken(1, PATIENCE_MS));
    assert_false(baton__links_is_sound(&ends[1].links, 2));
    settle(1);
    assert_int_equal(link_of(1, 2)->state, BATON__LINK_ENDED);
}

/* After a reset, the lifeline shows whether the peer's process has ended. If
   the reset is long ago, the peer may have said farewell in vain. */
LINKS_TEST(test_links_lifeline_shows_an_end_after_a_reset)
{
    end_after_reset(false);
    assert_string_equal(link_of(1, 2)->lost, "its process has ended");
    (void)close_ends(state);
    (void)open_ends(state);
    end_after_reset(true);
    assert_string_equal(link_of(1, 2)->lost,
                        "its process has ended, or it has closed its group");
}

/* If the lifeline ends first, the link's end still brings the farewell. A
   lifeline that is reset says nothing; a new link has a new one. */
LINKS_TEST(test_links_lifeline_ends_alone)
{
    const struct linger at_once = {.l_onoff = 1};
    connect_ends(0, 1);
    connect_ends(1, 2);
    settle(0);
    settle(1);
    settle(2);
    baton__descriptor_close(&link_of(1, 0)->lifeline);
    assert_true(is_woken(0, PATIENCE_MS));
    settle(0);
    assert_int_equal(link_of(0, 1)->state, BATON__LINK_OPEN);
    assert_int_equal(setsockopt(link_of(2, 1)->lifeline, SOL_SOCKET, SO_LINGER,
                                &at_once, sizeof at_once),
                     0);
    baton__descriptor_close(&link_of(2, 1)->lifeline);
    assert_true(is_woken(1, PATIENCE_MS));
    settle(1);
    assert_false(baton__links_has_lifeline(&ends[1].links, 2));
    assert_false(link_of(1, 2)->lifeline_ended);
    baton__descriptor_close(&link_of(2, 1)->fd);
    link_of(2, 1)->state = link_of(1, 2)->state = BATON__LINK_NONE;
    baton__descriptor_close(&link_of(1, 2)->fd);
    connect_ends(1, 2);
    settle(1);
    settle(2);
    assert_true(baton__links_has_lifeline(&ends[1].links, 2));
    assert_true(baton__links_has_lifeline(&ends[2].links, 1));
    baton__links_close(&ends[1].links);
    assert_true(is_woken(0, PATIENCE_MS));
    settle(0);
    assert_true(link_of(0, 1)->farewell);
    assert_null(link_of(0, 1)->lost);
}

static int connect_stranger(int rank)
{
    const baton__link_place_t *place = &ends[rank].links.places[rank];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = place->port};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static bool was_closed(int fd, int rank)
{
    for (int i = 0; i < 100; i++) {
        char byte;
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        look(rank);
        if (poll(&wait, 1, 20) == 1) {
            return recv(fd, &byte, 1, 0) <= 0;
        }
    }
    return false;
}

/* A connection gets no link if it does not know the nonce, or does not come
   from a lower rank. */
LINKS_TEST(test_links_of_strangers_are_refused)
{
    static const struct {
        uint64_t nonce;
        uint32_t from, to;
        size_t bytes;
    } greetings[] = {{NONCE + 1, 0, 1, 16}, {NONCE, 0, 2, 16},
                     {NONCE, 1, 1, 16},     {NONCE, 2, 1, 16},
                     {NONCE, 77, 1, 16},    {NONCE, 0, 1, 15}};
    for (size_t i = 0; i < sizeof greetings / sizeof greetings[0]; i++) {
        int fd = connect_stranger(1);
        assert_true(send(fd, &greetings[i], greetings[i].bytes, 0) > 0);
        assert_true(was_closed(fd, 1));
        (void)close(fd);
        for (int peer = 0; peer < RANKS; peer++) {
            assert_int_equal(link_of(1, peer)->state, BATON__LINK_NONE);
        }
    }
}

/* Connections that say nothing take up places until they end. */
LINKS_TEST(test_links_behind_silent_connections)
{
    int silent[BATON__LINK_PENDING];
    for (int i = 0; i < BATON__LINK_PENDING; i++) {
        silent[i] = connect_stranger(1);
        look(1);
    }
    settle(1);
    baton__links_connect(&ends[0].links, 1);
    settle(0);
    settle(1);
    assert_int_equal(link_of(1, 0)->state, BATON__LINK_NONE);
    (void)close(silent[3]);
    for (int i = 0; i < 100 && link_of(1, 0)->state != BATON__LINK_OPEN; i++) {
        (void)is_woken(1, 10);
        look(1);
    }
    assert_int_equal(link_of(1, 0)->state, BATON__LINK_OPEN);
    for (int i = 0; i < BATON__LINK_PENDING; i++) {
        (void)close(silent[i]);
    }
}

/* A peer that can't be reached has no link, and is not lost, either. */
LINKS_TEST(test_links_to_nobody)
{
    ends[0].links.places[1].port = 0;
    baton__links_connect(&ends[0].links, 1);
    assert_int_equal(link_of(0, 1)->state, BATON__LINK_NONE);
    (void)close(ends[2].links.listener);
    ends[2].links.listener = -1;
    baton__links_connect(&ends[0].links, 2);
    settle(0);
    assert_int_equal(link_of(0, 2)->state, BATON__LINK_NONE);
    assert_null(link_of(0, 2)->lost);
}

static baton__link_address_t address(unsigned last, unsigned third, int prefix)
{
    return (baton__link_address_t){
        .family = AF_INET,
        .prefix = (uint16_t)prefix,
        .bytes = {127, 0, (unsigned char)third, (unsigned char)last}};
}

/* A peer has several addresses. The rank connects to the one in a network of
   its own, since the others lead nowhere. */
LINKS_TEST(test_links_choose_the_common_network)
{
    baton__link_place_t *mine = &ends[0].links.places[0];
    baton__link_place_t *its = &ends[0].links.places[1];
    memset(mine->addresses, 0, sizeof mine->addresses);
    memset(its->addresses, 0, sizeof its->addresses);
    mine->addresses[0] = address(1, 64, 18);
    mine->addresses[1] = address(1, 16, 20);
    its->addresses[0] = (baton__link_address_t){
        .family = AF_INET, .prefix = 20, .bytes = {192, 0, 2, 1}};
    its->addresses[1] = address(5, 32, 20);
    /* Only this address is in the second network. */
    its->addresses[2] = address(9, 17, 20);
    baton__links_connect(&ends[0].links, 1);
    struct sockaddr_in to;
    socklen_t bytes = sizeof to;
    assert_true(link_of(0, 1)->fd >= 0);
    settle(0);
    assert_int_equal(
        getpeername(link_of(0, 1)->fd, (struct sockaddr *)&to, &bytes), 0);
    assert_memory_equal(&to.sin_addr, its->addresses[2].bytes, 4);
}
