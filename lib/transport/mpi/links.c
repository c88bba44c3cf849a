/* Links; see links.h.

   Of two ranks the lower one connects. The first message on the connection has
   the group's nonce and the numbers of both ranks. A rank that has lost another
   one connects to it once more, only to say so: the kernel keeps that
   connection for a process that is stopped, even after its sender has left the
   group. All descriptors are in one edge-triggered epoll. So any thread can
   drain the epoll, and the driver looks at the links later. */
#include "transport/mpi/links.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* The first message on a connection. */
typedef struct greeting {
    uint64_t nonce;
    uint32_t from, to; /* ranks; a flag may be added to `to` */
} greeting_t;

/* Flags in a greeting. DISOWNS: `from` has lost `to`, and there will be no
   link. LIFELINE: the connection is the lifeline. */
static const uint32_t DISOWNS = UINT32_C(1) << 31;
static const uint32_t LIFELINE = UINT32_C(1) << 30;

/* A lost rank is told over a new connection that it counts as lost.
   DISOWN_MS is the longest wait for that connection. If one could not be made,
   the wait for each later one is DISOWN_LATER_MS, because many ranks may be out
   of reach. */
enum { DISOWN_MS = 20, DISOWN_LATER_MS = 1 };

/* The time, in seconds, after which the kernel sends something over an idle
   lifeline. Many firewalls forget connections that are idle for some
   minutes. */
enum { LIFELINE_IDLE_S = 60 };

/* After the greeting, words are sent: the number of packets that the writer has
   sent, or one of these farewells. links->blamed is added to
   FAREWELL_AFTER_LOSS. */
static const uint64_t FAREWELL = UINT64_C(1) << 32;
static const uint64_t FAREWELL_AFTER_LOSS = UINT64_C(3) << 32;

/* The numbers (data.fd) in the epoll's events: LISTENER for the listener,
   PENDING for a connection that has not sent its greeting. Other numbers are
   the ranks of peers. */
enum { LISTENER = -1, PENDING = -2 };

/* ---- addresses -------------------------------------------------------- */

static uint16_t links_count_bits(const char *mask, size_t bytes)
{
    uint16_t bits = 0;
    for (size_t i = 0; i < bytes; i++) {
        bits = (uint16_t)(bits + __builtin_popcount((unsigned char)mask[i]));
    }
    return bits;
}

static size_t links_bytes_of(int family)
{
    return family == AF_INET ? 4 : 16;
}

/* Returns a pointer to the bytes of the address in a socket address. */
static char *bytes_in(void *address, int family)
{
    return (char *)address + (family == AF_INET
                                  ? offsetof(struct sockaddr_in, sin_addr)
                                  : offsetof(struct sockaddr_in6, sin6_addr));
}

static socklen_t socket_address(const baton__link_address_t *address,
                                uint16_t port, struct sockaddr_storage *out)
{
    *out = (struct sockaddr_storage){.ss_family = address->family};
    /* sin6_port is at the same offset as sin_port. */
    ((struct sockaddr_in *)out)->sin_port = port;
    memcpy(bytes_in(out, address->family), address->bytes,
           links_bytes_of(address->family));
    return address->family == AF_INET ? sizeof(struct sockaddr_in)
                                      : sizeof(struct sockaddr_in6);
}

/* True if other hosts can reach this interface by this address. With
   `loopback`, true if the address is one of the loopback interface. */
static bool serves(const struct ifaddrs *at, bool loopback)
{
    if (at->ifa_addr == NULL || at->ifa_netmask == NULL ||
        (at->ifa_flags & IFF_UP) == 0 ||
        ((at->ifa_flags & IFF_LOOPBACK) != 0) != loopback) {
        return false;
    }
    int family = at->ifa_addr->sa_family;
    return family == AF_INET ||
           (family == AF_INET6 &&
            !IN6_IS_ADDR_LINKLOCAL(
                (struct in6_addr *)(void *)bytes_in(at->ifa_addr, family)));
}

static void find_addresses(baton__link_place_t *place, bool loopback)
{
    struct ifaddrs *all = NULL;
    int count = 0;
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *at = all;
         at != NULL && count < BATON__LINK_ADDRESSES; at = at->ifa_next) {
        if (!serves(at, loopback)) {
            continue;
        }
        baton__link_address_t *address = &place->addresses[count++];
        int family = at->ifa_addr->sa_family;
        address->family = (uint16_t)family;
        address->prefix = links_count_bits(bytes_in(at->ifa_netmask, family),
                                           links_bytes_of(family));
        memcpy(address->bytes, bytes_in(at->ifa_addr, family),
               links_bytes_of(family));
    }
    freeifaddrs(all);
}

void baton__links_find(baton__link_place_t *place, bool alone)
{
    find_addresses(place, false);
    if (alone && place->addresses[0].family == 0) {
        find_addresses(place, true);
    }
}

static bool same_network(const baton__link_address_t *a,
                         const baton__link_address_t *b)
{
    const unsigned whole = a->prefix / 8, rest = a->prefix % 8;
    return a->family != 0 && a->family == b->family && a->prefix == b->prefix &&
           memcmp(a->bytes, b->bytes, whole) == 0 &&
           (rest == 0 ||
            (a->bytes[whole] ^ b->bytes[whole]) >> (8 - rest) == 0);
}

/* Returns an address of the peer in a network that this rank is in, too. If
   there is none, returns the peer's first address; NULL if the peer has no
   address. */
static const baton__link_address_t *
choose_address(const baton__link_place_t *mine, const baton__link_place_t *his)
{
    for (int i = 0; i < BATON__LINK_ADDRESSES; i++) {
        for (int j = 0; j < BATON__LINK_ADDRESSES; j++) {
            if (same_network(&his->addresses[i], &mine->addresses[j])) {
                return &his->addresses[i];
            }
        }
    }
    return his->addresses[0].family != 0 ? &his->addresses[0] : NULL;
}

/* ---- processes that fork ---------------------------------------------- */

/* A forked child that lives on, such as a data loader, would keep its parent's
   connections open, and no peer would notice that the parent has ended. So the
   child closes the connections at once. (exec closes them by itself.) */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static baton__open_links_t all_open;

static void before_fork(void)
{
    (void)pthread_mutex_lock(&open_lock);
}

static void after_fork(void)
{
    (void)pthread_mutex_unlock(&open_lock);
}

static void close_in_child(void)
{
    for (baton__links_t *links = all_open.head; links != NULL;
         links = links->next) {
        for (int i = 0; i < links->size; i++) {
            baton__descriptor_close(&links->at[i].fd);
            baton__descriptor_close(&links->at[i].lifeline);
        }
        for (int i = 0; i < BATON__LINK_PENDING; i++) {
            baton__descriptor_close(&links->pending[i]);
        }
        baton__descriptor_close(&links->listener);
        baton__descriptor_close(&links->answers);
    }
    after_fork();
}

static void handle_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, close_in_child);
}

void baton__links_list(baton__links_t *links)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, handle_forks);
    (void)pthread_mutex_lock(&open_lock);
    baton__open_links_append(&all_open, links);
    (void)pthread_mutex_unlock(&open_lock);
}

static void unlist(const baton__links_t *links)
{
    (void)pthread_mutex_lock(&open_lock);
    baton__open_links_remove(&all_open, links);
    (void)pthread_mutex_unlock(&open_lock);
}

/* ---- open, close ------------------------------------------------------ */

static bool watch(const baton__links_t *links, int fd, int peer)
{
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = peer};
    return epoll_ctl(links->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ||
           (errno == EEXIST &&
            epoll_ctl(links->epoll, EPOLL_CTL_MOD, fd, &event) == 0);
}

int baton__links_listen(const baton__link_place_t *place, int backlog,
                        uint16_t *port_out)
{
    baton__link_address_t any = {.family = AF_INET};
    if (place == NULL) {
        memcpy(any.bytes, &(in_addr_t){htonl(INADDR_LOOPBACK)}, 4);
    }
    for (int i = 0; place != NULL && i < BATON__LINK_ADDRESSES; i++) {
        any.family =
            place->addresses[i].family == AF_INET6 ? AF_INET6 : any.family;
    }
    struct sockaddr_storage at;
    socklen_t bytes = socket_address(&any, 0, &at);
    int off = 0;
    int listener = baton__descriptor_move(
        socket(any.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (listener < 0) {
        return -1;
    }
    /* The listener accepts IPv4 connections, too. */
    if (any.family == AF_INET6) {
        (void)setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(listener, (struct sockaddr *)&at, bytes) != 0 ||
        listen(listener, backlog) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &bytes) != 0) {
        baton__descriptor_close(&listener);
        return -1;
    }
    *port_out = ((struct sockaddr_in *)&at)->sin_port;
    return listener;
}

void baton__links_init(baton__links_t *links)
{
    *links = (baton__links_t){.listener = -1, .epoll = -1, .answers = -1};
    for (int i = 0; i < BATON__LINK_PENDING; i++) {
        links->pending[i] = -1;
    }
}

baton_status_t baton__links_open(baton__links_t *links, int rank, int size,
                                 bool alone)
{
    links->rank = rank;
    links->size = size;
    links->at = baton__alloc((size_t)size, sizeof *links->at);
    links->places = baton__alloc((size_t)size, sizeof *links->places);
    if (links->at == NULL || links->places == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: no memory for links to %d ranks", size);
    }
    for (int i = 0; i < size; i++) {
        links->at[i].fd = links->at[i].lifeline = -1;
    }
    baton__links_list(links);
    baton__link_place_t *own = &links->places[rank];
    baton__links_find(own, alone);
    links->epoll = baton__descriptor_move(epoll_create1(EPOLL_CLOEXEC));
    if (own->addresses[0].family != 0) {
        links->listener = baton__links_listen(own, size, &own->port);
    }
    if (links->epoll < 0 || links->listener < 0 ||
        !watch(links, links->listener, LISTENER)) {
        own->port = 0;
        baton__descriptor_close(&links->listener);
        baton__descriptor_close(&links->epoll);
    }
    return BATON_OK;
}

/* ---- one link --------------------------------------------------------- */

static void keep_alive(int fd)
{
    int on = 1, idle_s = LIFELINE_IDLE_S;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
}

static void links_end(baton__link_t *link)
{
    /* This also removes the descriptor from the epoll. */
    baton__descriptor_close(&link->fd);
    link->state = BATON__LINK_ENDED;
}

/* Closes a link that could not be made, or that was reset by the peer's end or
   by a firewall. Another link can then be made. */
static void be_broken(baton__link_t *link, int error)
{
    links_end(link);
    link->state = BATON__LINK_NONE;
    if (error == ECONNRESET) {
        link->reset_ns = baton__clock_ns();
    }
    link->error = 0;
    link->in_bytes = link->out_bytes = 0;
}

bool baton__links_address(const baton__link_place_t *mine,
                          const baton__link_place_t *his, uint16_t port,
                          struct sockaddr_storage *out, socklen_t *bytes_out)
{
    const baton__link_address_t *address = choose_address(mine, his);
    *bytes_out = address == NULL ? 0 : socket_address(address, port, out);
    return address != NULL;
}

int baton__links_begin(const struct sockaddr *to, socklen_t bytes)
{
    int fd = baton__descriptor_move(
        socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd >= 0 && connect(fd, to, bytes) != 0 && errno != EINPROGRESS) {
        baton__descriptor_close(&fd);
    }
    return fd;
}

/* Begins to connect to the peer's listener. Returns a descriptor, or -1. */
static int begin_to(const baton__links_t *links, int peer)
{
    const baton__link_place_t *places = links->places;
    struct sockaddr_storage to;
    socklen_t bytes;
    return baton__links_address(&places[links->rank], &places[peer],
                                places[peer].port, &to, &bytes)
               ? baton__links_begin((const struct sockaddr *)&to, bytes)
               : -1;
}

/* Does what begin_to does, and watches the descriptor for the peer. */
static int connect_to(const baton__links_t *links, int peer)
{
    int fd = begin_to(links, peer);
    if (fd >= 0 && !watch(links, fd, peer)) {
        baton__descriptor_close(&fd);
    }
    return fd;
}

void baton__links_connect(baton__links_t *links, int peer)
{
    if (links->listener < 0 || peer < links->rank ||
        links->at[peer].state != BATON__LINK_NONE ||
        links->places[peer].port == 0) {
        return;
    }
    baton__link_t *link = &links->at[peer];
    link->fd = connect_to(links, peer);
    if (link->fd >= 0) {
        link->state = BATON__LINK_CONNECTING;
    }
}

/* Writes the bytes of the word in `out` that are not written yet. Returns false
   if some bytes are left. An error that a write reports is kept in `error`,
   because a later read does not report the error, but only the end of the
   link. */
static bool flush(baton__link_t *link)
{
    const unsigned char *rest = link->out + BATON__LINK_WORD - link->out_bytes;
    ssize_t sent = link->out_bytes == 0 ? 0
                                        : send(link->fd, rest, link->out_bytes,
                                               MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != EPIPE) {
        link->error = errno;
    }
    link->out_bytes -= (size_t)(sent > 0 ? sent : 0);
    return link->out_bytes == 0;
}

/* Writes a word. Returns false if not all of it was written. The remaining
   bytes are written later, but if no byte was written, the word is
   forgotten. */
static bool write_word(baton__link_t *link, uint64_t word)
{
    if (!flush(link)) {
        return false;
    }
    memcpy(link->out, &word, sizeof word);
    link->out_bytes = sizeof word;
    bool written = flush(link);
    if (link->out_bytes == sizeof word) {
        link->out_bytes = 0;
    }
    return written;
}

void baton__links_wake(const baton__links_t *links, int peer,
                       uint32_t packets_sent)
{
    if (baton__links_is_open(links, peer) &&
        write_word(&links->at[peer], packets_sent)) {
        links->at[peer].reported = packets_sent;
    }
}

/* Marks the link as touched: it, or its lifeline, has an event that the next
   baton__links_poll handles. */
static void links_touch(baton__links_t *links, int peer)
{
    atomic_store_explicit(&links->at[peer].touched, true, memory_order_release);
    atomic_store_explicit(&links->touched, true, memory_order_release);
}

bool baton__links_is_sound(baton__links_t *links, int peer)
{
    struct pollfd end = {.events = POLLRDHUP};
    const bool open = baton__links_is_open(links, peer);
    if (!open && !baton__links_has_lifeline(links, peer)) {
        return true;
    }
    end.fd = open ? links->at[peer].fd : links->at[peer].lifeline;
    if (poll(&end, 1, 0) != 1) {
        return true;
    }
    links_touch(links, peer);
    return false;
}

/* ---- events on links -------------------------------------------------- */

/* Returns false if the greeting was not sent. */
static bool send_greeting(const baton__links_t *links, int fd, int peer,
                          uint32_t flags)
{
    const greeting_t greeting = {links->nonce, (uint32_t)links->rank,
                                 (uint32_t)peer | flags};
    return send(fd, &greeting, sizeof greeting, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           sizeof greeting;
}

/* Sends the greeting if the connection is established. Returns false if the
   connection is not established yet, or if it has failed; a failed connection
   is closed. */
static bool greet(const baton__links_t *links, int *fd, int peer,
                  uint32_t flags)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    struct sockaddr_storage to;
    socklen_t to_bytes = sizeof to;
    bool sound = getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 &&
                 error == 0;
    if (sound && getpeername(*fd, (struct sockaddr *)&to, &to_bytes) != 0) {
        return false;
    }
    sound = sound && send_greeting(links, *fd, peer, flags);
    if (!sound) {
        baton__descriptor_close(fd);
    }
    return sound;
}

static void be_open(baton__link_t *link)
{
    int on = 1;
    /* The kernel then sends each word at once. */
    (void)setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    link->state = BATON__LINK_OPEN;
    link->opened = true;
    link->reset_ns = 0;
}

/* Handles a connection that is established, or has failed. */
static void finish_connecting(const baton__links_t *links, int peer,
                              baton__link_t *link)
{
    if (greet(links, &link->fd, peer, 0)) {
        be_open(link);
        if (link->lifeline < 0) {
            link->lifeline = connect_to(links, peer);
            keep_alive(link->lifeline);
        }
    } else if (link->fd < 0) {
        be_broken(link, 0);
    }
}

/* Accepts a connection, which its greeting will identify. Returns -1 if no
   connection has come. */
static int accept_connection(const baton__links_t *links)
{
    for (;;) {
        int fd = baton__descriptor_move(
            accept4(links->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd < 0 || watch(links, fd, PENDING)) {
            return fd;
        }
        baton__descriptor_close(&fd);
    }
}

/* Returns the rank that has sent a greeting; -1 if the greeting is not from a
   rank of this group. */
static int sender_of(const baton__links_t *links, const greeting_t *greeting)
{
    const bool disowns = (greeting->to & DISOWNS) != 0;
    const int end = disowns ? links->size : links->rank;
    const uint32_t to = greeting->to & ~(DISOWNS | LIFELINE);
    return greeting->nonce == links->nonce && to == (uint32_t)links->rank &&
                   greeting->from < (uint32_t)end
               ? (int)greeting->from
               : -1;
}

/* Makes a connection a link. Returns false, and closes the connection, if there
   can be no link. */
static bool make_link(const baton__links_t *links, int fd, int peer)
{
    baton__link_t *link = &links->at[peer];
    if (link->state == BATON__LINK_OPEN) {
        /* The peer has connected again, so it has found this link broken. */
        be_broken(link, 0);
    }
    if (link->state != BATON__LINK_NONE || !watch(links, fd, peer)) {
        baton__descriptor_close(&fd);
        return false;
    }
    link->fd = fd;
    be_open(link);
    return true;
}

/* Uses or closes a connection on which the greeting of `peer` has come; -1: the
   greeting was not from a rank of this group. Returns true if a link was made,
   or if the peer says that it has lost this rank. */
static bool use_connection(const baton__links_t *links, int fd, int peer,
                           uint32_t flags)
{
    if (peer < 0 || (flags & DISOWNS) != 0) {
        baton__descriptor_close(&fd);
        if (peer >= 0) {
            links->at[peer].disowned = true;
        }
        return peer >= 0;
    }
    if ((flags & LIFELINE) == 0) {
        return make_link(links, fd, peer);
    }
    baton__link_t *link = &links->at[peer];
    baton__descriptor_close(&link->lifeline);
    link->lifeline = fd;
    link->lifeline_open = link->lifeline_made = true;
    /* A lifeline that can't be watched is not closed, since the peer would take
       it for ended. It is still looked at before each packet. */
    (void)watch(links, fd, peer);
    return false;
}

/* Takes all connections that have come, and waits in `pending` for greetings
   that have not. Returns the number of links that were made, and of ranks that
   say that they have lost this one. */
static int take_connections(baton__links_t *links)
{
    int found = 0;
    bool more = true; /* another connection may have come */
    for (int i = 0; i < BATON__LINK_PENDING; i++) {
        int *fd = &links->pending[i];
        while (*fd >= 0 || (more && (*fd = accept_connection(links)) >= 0)) {
            greeting_t greeting = {0};
            ssize_t got = recv(*fd, &greeting, sizeof greeting, MSG_DONTWAIT);
            if (got < 0 && errno == EAGAIN) {
                break;
            }
            int peer =
                got == sizeof greeting ? sender_of(links, &greeting) : -1;
            int taken = *fd;
            *fd = -1;
            found += use_connection(links, taken, peer, greeting.to);
        }
        more = more && *fd >= 0;
    }
    return found;
}

static void take_byte(baton__link_t *link, unsigned char byte)
{
    uint64_t word;
    link->in[link->in_bytes++] = byte;
    if (link->in_bytes == sizeof word) {
        link->in_bytes = 0;
        memcpy(&word, link->in, sizeof word);
        if (word < FAREWELL) {
            link->announced = (uint32_t)word;
        } else {
            link->farewell = true;
            link->gave_up = word >= FAREWELL_AFTER_LOSS;
            link->blamed = (uint32_t)word;
        }
    }
}

/* Reads all bytes that have come, and sets *woken_out to true if there are any.
   Returns -1 if the link is still open, 0 if the peer has closed it, and else
   the error with which the link has ended. */
static int read_all(baton__link_t *link, bool *woken_out)
{
    unsigned char bytes[32 * BATON__LINK_WORD];
    for (;;) {
        ssize_t got = recv(link->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return errno == EAGAIN ? -1 : errno;
        }
        if (got == 0) {
            return 0;
        }
        *woken_out = true;
        for (ssize_t i = 0; i < got; i++) {
            take_byte(link, bytes[i]);
        }
    }
}

/* Handles the lifeline of a touched link. Returns true if the peer is lost.
   While the link is open, the end of the lifeline does not count as a loss: the
   link will end, too, perhaps after a farewell, which says that the peer closes
   its group. */
static bool look_at_lifeline(const baton__links_t *links, int peer)
{
    baton__link_t *link = &links->at[peer];
    char byte;
    if (link->lifeline >= 0 && !link->lifeline_open) {
        link->lifeline_open = greet(links, &link->lifeline, peer, LIFELINE);
        link->lifeline_made |= link->lifeline_open;
    }
    if (link->lifeline_open) {
        ssize_t got = recv(link->lifeline, &byte, 1, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            link->lifeline_ended = got == 0;
            link->lifeline_open = false;
            baton__descriptor_close(&link->lifeline);
        }
    }
    if (!link->lifeline_ended || link->state == BATON__LINK_OPEN ||
        link->state == BATON__LINK_ENDED) {
        return false;
    }
    /* If the link was reset longer ago, it was a firewall that reset it. No
       farewell could come over the link since, so the peer may have closed its
       group without ending. */
    const bool together =
        baton__clock_ns() < link->reset_ns + BATON__LIFELINE_NS;
    links_end(link);
    link->lost = together ? "its process has ended"
                          : "its process has ended, or it has closed its group";
    return true;
}

/* Handles one touched link. Returns true if the link was made, or if the peer
   has woken this rank or is lost. */
static bool look_at_link(const baton__links_t *links, int peer)
{
    baton__link_t *link = &links->at[peer];
    bool made = false;
    bool woken = false;
    if (link->state == BATON__LINK_CONNECTING) {
        finish_connecting(links, peer, link);
        made = link->state == BATON__LINK_OPEN;
    }
    if (link->state != BATON__LINK_OPEN) {
        return made;
    }
    int error = read_all(link, &woken);
    if (error < 0) {
        return made || woken;
    }
    error = link->error != 0 ? link->error : error;
    /* EPIPE or a farewell shows that the peer has closed the link. */
    if (error != 0 && error != EPIPE && !link->farewell) {
        be_broken(link, error);
        return made || woken;
    }
    links_end(link);
    if (!link->farewell) {
        link->lost = "its process has ended";
    }
    return made || woken || link->lost != NULL;
}

bool baton__links_poll(baton__links_t *links)
{
    if (links->listener < 0 ||
        !atomic_load_explicit(&links->touched, memory_order_relaxed) ||
        !atomic_exchange_explicit(&links->touched, false,
                                  memory_order_acquire)) {
        return false;
    }
    int found = take_connections(links);
    for (int peer = 0; peer < links->size; peer++) {
        _Atomic bool *touched = &links->at[peer].touched;
        if (atomic_load_explicit(touched, memory_order_relaxed) &&
            atomic_exchange_explicit(touched, false, memory_order_acquire)) {
            found += look_at_link(links, peer);
            found += look_at_lifeline(links, peer);
        }
    }
    return found > 0;
}

bool baton__links_lose(baton__links_t *links, int peer)
{
    if (links->listener < 0 || links->places[peer].port == 0) {
        return false;
    }
    (void)take_connections(links);
    if (links->at[peer].disowned) {
        return true;
    }
    struct pollfd made = {.fd = begin_to(links, peer), .events = POLLOUT};
    if (made.fd >= 0) {
        links->hurries |=
            poll(&made, 1, links->hurries ? DISOWN_LATER_MS : DISOWN_MS) == 0;
        (void)send_greeting(links, made.fd, peer, DISOWNS);
    }
    baton__descriptor_close(&made.fd);
    return false;
}

static void links_leave(baton__link_t *link, uint64_t farewell)
{
    bool woken = false;
    if (link->state == BATON__LINK_OPEN) {
        (void)write_word(link, farewell);
        /* Closing a socket with unread bytes would reset the connection. */
        (void)read_all(link, &woken);
    }
    if (link->state == BATON__LINK_OPEN ||
        link->state == BATON__LINK_CONNECTING) {
        links_end(link);
    }
    baton__descriptor_close(&link->lifeline);
}

void baton__links_close(baton__links_t *links)
{
    uint64_t farewell =
        links->gives_up ? FAREWELL_AFTER_LOSS + links->blamed : FAREWELL;
    unlist(links);
    for (int peer = 0; links->at != NULL && peer < links->size; peer++) {
        links_leave(&links->at[peer], farewell);
    }
    for (int i = 0; i < BATON__LINK_PENDING; i++) {
        baton__descriptor_close(&links->pending[i]);
    }
    baton__descriptor_close(&links->listener);
    baton__descriptor_close(&links->epoll);
    baton__free(links->at);
    baton__free(links->places);
    baton__links_init(links);
}

void baton__links_drain(baton__links_t *links)
{
    struct epoll_event events[16];
    int count;
    if (links->epoll < 0) {
        return;
    }
    do {
        count = epoll_wait(links->epoll, events, 16, 0);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd >= 0) {
                links_touch(links, events[i].data.fd);
            }
        }
        if (count > 0) {
            atomic_store_explicit(&links->touched, true, memory_order_release);
        }
    } while (count == 16);
}
