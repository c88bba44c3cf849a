/* How an MPI endpoint is polled, and how it sleeps.

   Ranks of this host wake a sleeping rank by its doorbell, and ranks on other
   hosts by a link. A packet from another host comes over MPI, and may come
   after the wake-up. So for some time after a wake-up (AFTER_WAKE_NS) the rank
   looks again after short sleeps. A sender need not wake the rank a second time
   during that time; WOKEN_NS in net.c is well below it.

   However late MPI is, no waiting rank sleeps for good: a wake-up says how many
   packets were sent. Until these packets have come, and while data is in
   motion, the rank polls, and wakes the ranks that it waits for, because MPI
   may have to be called there, too. A sender polls until it has announced all
   packets that it has sent. Functions marked "In MPI" must be called between
   baton__net_enter and baton__net_leave. */
#include "transport/mpi/endpoint.h"

#include "base/clock.h"
#include "base/config.h"
#include "transport/group.h"

#include <string.h>

enum {
    /* After this many polls that found nothing, only every eighth poll tests
       MPI. One poll in LINK_POLLS also drains the links, in case no thread
       waits on them. */
    QUIET_POLLS = 64,
    LINK_POLLS = 1024,
    /* Credits are reported in a packet of their own only after this many polls
       that found nothing: in an exchange of messages this rank's next message
       soon carries them anyway. */
    CREDIT_POLLS = 8,
    /* How long after a wake-up this rank looks for packets again and again. */
    AFTER_WAKE_NS = 1000000,
    AFTER_WAKE_US = 50, /* the sleep between two of these looks */
    /* The sleep between looks if no epoch waits for a message. It is as long as
       LEFT_US in progress/driving/engine.c, the time after which the progress
       thread takes over work that a caller has left. Because the two are equal,
       a program that starts and waits in turn does not set the engine's timer
       anew each time. */
    LATER_US = 2000,
    /* The longest sleep while MPI has data or packets in motion: MPI moves them
       only while it is called. */
    MOVING_US = 1000,
    /* If a rank's host refuses connections, either the rank's process has ended
       and the kernel refuses them, or a firewall does. If this rank has ever
       had a lifeline (links.h) to that rank, the end of the process would have
       ended the lifeline, so a firewall is assumed. A rank without a lifeline
       counts as ended only after it has been silent for this long, or for half
       of BATON_PEER_TIMEOUT_MS if that is less. */
    REFUSED_NS = 2000000000,
    /* One poll in this many drains the descriptors of liveness.h. */
    LIVENESS_POLLS = 1024,
    /* One poll in this many calls baton__host_spread. */
    SPREAD_POLLS = 64
};

/* ---- packets and data that come over MPI ------------------------------- */

/* Tests the oldest receive for packets; after a loss, tests all of them (the
   head of net.c says why). In MPI. */
static void test_arrivals(baton__mpi_t *mpi)
{
    baton__net_t *net = &mpi->net;
    int at;
    int code;
    do {
        bool come = false;
        size_t bytes;
        const int first =
            mpi->first_lost > 0 ? 0 : (int)(net->arrival % net->receives);
        baton__request_t *receives = &net->arrivals[first];
        code = mpi->wire->test(mpi->wire,
                               mpi->first_lost > 0 ? (int)net->receives : 1,
                               receives, &at, &come, &bytes);
        if (code != 0 && come && at >= 0 && receives[at] != 0) {
            /* The receive had stayed posted after an error (see `goes_on` in
               wire.h), and was complete before this test. Open MPI
               5.0.7 would report the old error at each further test, so the
               request is freed. */
            code = mpi->wire->release(mpi->wire, &receives[at]);
        }
    } while (mpi->first_lost > 0 && at >= 0 && code == 0);
    if (code != 0 &&
        (mpi->wire->goes_on == NULL || !mpi->wire->goes_on(mpi->wire, code))) {
        baton__net_lose_all(mpi, baton__net_text(mpi, code));
    }
}

/* True if the receive in this slot has got a packet that comes next after the
   packets taken from its sender. With `of_lost`, true if it has got any packet
   of a lost sender, because that sender's earlier packets may never be
   complete. */
static bool is_next(const baton__mpi_t *mpi, uint32_t slot, bool of_lost)
{
    const baton__packet_t *packet = &mpi->net.arrived[slot]->head.packet;
    if (mpi->net.arrivals[slot] != 0) {
        return false;
    }
    const baton__peer_t *peer = &mpi->peers[packet->source];
    return of_lost ? peer->lost : packet->word == peer->packets_taken;
}

/* Returns the packet of the first receive for which is_next is true, among
   `count` receives from the oldest on. Returns NULL if there is none. */
static const baton__net_packet_t *find_packet(baton__mpi_t *mpi, uint32_t count,
                                              bool of_lost)
{
    baton__net_t *net = &mpi->net;
    for (uint32_t i = 0; i < count && !net->cut; i++) {
        uint32_t slot = (net->arrival + i) % net->receives;
        if (is_next(mpi, slot, of_lost)) {
            net->arrival = slot;
            return &net->arrived[slot]->head;
        }
    }
    return NULL;
}

/* Returns the oldest packet that has come and was not taken, or NULL. In
   MPI. */
static const baton__net_packet_t *oldest_packet(baton__mpi_t *mpi)
{
    baton__net_t *net = &mpi->net;
    test_arrivals(mpi);
    const baton__net_packet_t *come =
        find_packet(mpi, mpi->first_lost > 0 ? net->receives : 1, false);
    if (come == NULL && mpi->first_lost > 0) {
        come = find_packet(mpi, net->receives, true);
    }
    if (come == NULL && mpi->first_lost > 0 && !net->cut) {
        baton__net_add_arrival(mpi);
    }
    return come;
}

static bool take_net_packet(baton__mpi_t *mpi)
{
    baton__net_t *net = &mpi->net;
    const baton__net_packet_t *come =
        baton__events_are_full(mpi) ? NULL : oldest_packet(mpi);
    if (come == NULL) {
        return false;
    }
    baton__peer_t *peer = &mpi->peers[come->packet.source];
    peer->messages.limit = come->messages;
    peer->notices.limit = come->notices;
    peer->bodies.limit = come->bodies;
    peer->has_sent = true;
    /* A packet that is not its sender's next one is dropped: the sender is
       lost. */
    if (come->packet.word == peer->packets_taken) {
        if (!baton__mpi_take_packet(mpi, &come->packet)) {
            return false;
        }
        peer->packets_taken++;
    }
    baton__net_taken(mpi, peer, come->taken);
    int code = baton__net_post_arrival(mpi, net->arrival++ % net->receives);
    if (code != 0) {
        baton__net_lose_all(mpi, baton__net_text(mpi, code));
    }
    return true;
}

/* Handles a completed receive of a record's data. If the message was withdrawn
   before it was pulled, each of its receives gets an empty MPI message. */
static void poll_take_part(baton__mpi_t *mpi, baton__record_t *record,
                           size_t bytes)
{
    record->arrived += bytes;
    record->parts--;
    if (bytes > 0) {
        baton__net_receive(mpi, record);
    }
    if (record->parts == 0) {
        baton__mpi_received(mpi, record);
    } else {
        baton__events_moved(mpi, record->token);
    }
}

static bool complete_transfer(baton__mpi_t *mpi)
{
    baton__net_t *net = &mpi->net;
    int at;
    bool done;
    size_t bytes;
    if (net->count == 0 || baton__events_are_full(mpi)) {
        return false;
    }
    int code = mpi->wire->test(mpi->wire, net->count, net->requests, &at, &done,
                               &bytes);
    if (at < 0) {
        return false; /* no receive is complete, or there are no requests */
    }
    const baton__transfer_t transfer = net->transfers[at];
    if (code != 0 && (transfer.send != NULL || transfer.record != NULL)) {
        /* The transfer stays in the list until all transfers with the peer are
           ended. */
        net->requests[at] = 0;
        baton__net_fail(mpi,
                        transfer.send != NULL ? transfer.send->peer
                                              : transfer.record->message.peer,
                        code);
        return true;
    }
    net->count--;
    net->requests[at] = net->requests[net->count];
    net->transfers[at] = net->transfers[net->count];
    if (transfer.send != NULL) {
        transfer.send->parts--;
        if (!baton__net_send(mpi, transfer.send)) {
            baton__mpi_end_send(mpi, transfer.send, BATON_OK, NULL);
        } else {
            baton__events_moved(mpi, transfer.send->token);
        }
        /* If both fields are NULL, the send or record has ended with the loss
           of its peer. */
    } else if (transfer.record != NULL) {
        mpi->peers[transfer.record->message.peer].has_sent = true;
        poll_take_part(mpi, transfer.record, bytes);
    }
    return true;
}

/* Called when a peer's farewell comes before this rank closes its group. Marks
   the peer as lost. If the peer has left because of a loss, it waits for no
   other rank, and the last packets, in which it reports that loss, may not
   come. So its farewell names the lost rank, which is marked as lost, too. */
static void lose_closed(baton__mpi_t *mpi, int peer)
{
    const uint32_t blamed = mpi->net.links.at[peer].blamed;
    if (blamed > 0 && blamed <= (uint32_t)mpi->size &&
        blamed != (uint32_t)mpi->rank + 1) {
        baton__mpi_lose(mpi, &mpi->peers[blamed - 1], BATON_ERR_TIMEOUT,
                        "another rank has lost it, and left");
    }
    baton__mpi_lose(mpi, &mpi->peers[peer],
                    blamed == (uint32_t)mpi->rank + 1 ? BATON_ERR_TIMEOUT
                                                      : BATON_ERR_TRANSPORT,
                    blamed > 0 && blamed == mpi->first_lost
                        ? mpi->closed
                        : "it has closed its group");
}

static void poll_links(baton__mpi_t *mpi)
{
    baton__net_t *net = &mpi->net;
    if (net->quiet % LINK_POLLS == LINK_POLLS - 1) {
        baton__links_drain(&net->links);
    }
    if (!baton__links_poll(&net->links)) {
        return;
    }
    net->now_ns = baton__clock_ns();
    net->quiet = 0;
    /* Wakes peers that were sent packets before they had a link. */
    baton__net_wake_due(mpi);
    for (int i = 0; i < mpi->size; i++) {
        const baton__link_t *link = &net->links.at[i];
        if (link->disowned) {
            baton__mpi_lose(mpi, &mpi->peers[i], BATON_ERR_TIMEOUT,
                            baton__disowned);
        } else if (link->lost != NULL) {
            baton__mpi_lose(mpi, &mpi->peers[i], BATON_ERR_TRANSPORT,
                            link->lost);
        } else if (link->farewell && (!net->closing || link->gave_up)) {
            lose_closed(mpi, i);
        }
    }
}

static void poll_net(baton__mpi_t *mpi)
{
    baton__net_t *net = &mpi->net;
    bool packets = false;
    bool transfers = false;
    if (net->peers > 0) {
        poll_links(mpi);
        if (++net->quiet > QUIET_POLLS && net->count == 0 &&
            net->quiet % 8 != 0 && !net->closing) {
            return;
        }
    }
    if (!baton__net_enter(mpi)) {
        return;
    }
    while (net->peers > 0 && take_net_packet(mpi)) {
        packets = true;
        /* A further test that finds nothing would cost as much as a test that
           finds a packet, and the caller polls again anyway. */
        if (mpi->events.count > 0) {
            break;
        }
    }
    while (complete_transfer(mpi)) {
        transfers = true;
    }
    if (net->packets_unsent > 0) {
        baton__net_test_packets(mpi);
    }
    baton__net_leave(mpi);
    net->now_ns = packets ? baton__clock_ns() : net->now_ns;
    net->quiet = packets || transfers ? 0 : net->quiet;
    if (net->credits_due && net->quiet >= CREDIT_POLLS) {
        baton__net_report_credits(mpi);
    }
    if (net->wakes_due) {
        baton__net_wake_due(mpi);
    }
}

/* True if a link is marked as touched (links.h), or if a packet has come, which
   is not taken here. With `later`, MPI is not tested for packets: this rank
   polls again soon anyway, because a packet may come without a wake-up even
   after a test. */
static bool has_come(baton__mpi_t *mpi, bool later)
{
    if (atomic_load_explicit(&mpi->net.links.touched, memory_order_relaxed)) {
        return true;
    }
    if (later) {
        return false;
    }
    if (!baton__net_enter(mpi)) {
        return true;
    }
    bool come = oldest_packet(mpi) != NULL;
    baton__net_leave(mpi);
    return come;
}

/* ---- polling ----------------------------------------------------------- */

static void poll_local(baton__mpi_t *mpi)
{
    baton__inbox_t *inbox = &mpi->host.inbox;
    while (!baton__events_are_full(mpi)) {
        const baton__packet_t *packet = baton__inbox_front(inbox);
        if (packet == NULL && mpi->host.reserved > 0) {
            /* The next send that needs a buffer reads this flag. It is in
               another processor's cache, because the rank that has read the
               buffer wrote the flag last. */
            __builtin_prefetch(
                &baton__host_buffer(&mpi->host, mpi->host.index, 0)->full);
        }
        if (packet == NULL || !baton__mpi_take_packet(mpi, packet)) {
            return;
        }
        baton__inbox_pop(inbox);
    }
}

static void report_lost(baton__mpi_t *mpi)
{
    for (int k = -1; k < mpi->size && mpi->unreported > 0; k++) {
        /* The rank that was lost first is reported first: it is the cause. */
        int i = k >= 0 ? k : (int)mpi->first_lost - 1;
        baton__peer_t *peer = &mpi->peers[i];
        if (!peer->lost || peer->reported) {
            continue;
        }
        if (!baton__mpi_end_sends(mpi, peer) ||
            !baton__mpi_end_pulled(mpi, peer) ||
            !baton__mpi_end_posted(mpi, peer) || !baton__net_end(mpi, peer) ||
            baton__events_are_full(mpi)) {
            return; /* the next poll continues from here */
        }
        bool own = peer->local < 0 && mpi->net.cut;
        baton__events_add(
            mpi, (baton_event_t){.kind = BATON_EVENT_LOST,
                                 .status = own ? BATON_ERR_STATE : peer->status,
                                 .peer = i,
                                 .detail = peer->detail});
        peer->reported = true;
        mpi->unreported--;
    }
}

static void wake_due(baton__mpi_t *mpi, baton__due_ring_t when)
{
    if (mpi->host.doorbell.due_count > 0) {
        baton__doorbell_ring_due(&mpi->host.doorbell, when);
    }
}

/* Marks peers on this host as lost if their processes have ended. From time to
   time drains the descriptors of liveness.h, in case no thread sleeps on
   them. */
static void look_for_ended(baton__mpi_t *mpi)
{
    int ended;
    if (++mpi->polls % LIVENESS_POLLS == 0) {
        baton__liveness_drain(&mpi->host.liveness);
    }
    if (mpi->polls % SPREAD_POLLS == 0 && mpi->host.count > 1) {
        baton__host_spread(&mpi->host);
    }
    while ((ended = baton__liveness_next(&mpi->host.liveness)) >= 0) {
        atomic_store_explicit(&mpi->host.processors[ended], 0,
                              memory_order_relaxed);
        for (int i = 0; i < mpi->size; i++) {
            if (mpi->peers[i].local == ended) {
                baton__mpi_lose(mpi, &mpi->peers[i], BATON_ERR_TRANSPORT,
                                "its process has ended");
            }
        }
    }
}

/* True if a rank of this host has lost this one, and so may have freed memory
   that this rank still reads. */
static bool is_left(const baton__mpi_t *mpi)
{
    int other = 0;
    while (other < mpi->host.count &&
           !baton__host_is_lost_to(&mpi->host, other)) {
        other++;
    }
    return other < mpi->host.count;
}

void baton__mpi_flush_bells(void *endpoint)
{
    wake_due(endpoint, BATON__DUE_NOW);
}

size_t baton__mpi_poll(void *endpoint, baton_event_t *out, size_t max)
{
    baton__mpi_t *mpi = endpoint;
    mpi->events.out = out;
    mpi->events.count = 0;
    mpi->events.max = max;
    look_for_ended(mpi);
    const bool lost = mpi->unreported > 0;
    /* Messages that were sent before a loss are delivered before the loss. */
    poll_local(mpi);
    wake_due(mpi, BATON__DUE_LATER);
    if (baton__mappings_are_stale(&mpi->host.mappings) && !is_left(mpi)) {
        baton__mappings_sweep(&mpi->host.mappings);
    }
    if (mpi->listed != NULL) {
        baton__mpi_flush(mpi);
    }
    if (mpi->copying.head != NULL && !baton__events_are_full(mpi)) {
        baton__mpi_copy(mpi);
    }
    baton__send_t *put = mpi->putting.head;
    if (put != NULL && !baton__events_are_full(mpi)) {
        if (mpi->peers[put->peer].refused && put->moved < put->bytes) {
            baton__sends_remove(&mpi->putting, put);
            baton__mpi_part(mpi, put, put->post);
        } else if (baton__mpi_put(mpi, put)) {
            baton__mpi_end_send(mpi, put, BATON_OK, NULL);
        } else if (baton__mpi_has_put(mpi)) {
            baton__events_moved(mpi, put->token);
        }
    }
    if (mpi->net.peers > 0 || mpi->net.count > 0) {
        poll_net(mpi);
    }
    if (lost) {
        report_lost(mpi);
    }
    if (mpi->net.pulled.head != NULL &&
        (mpi->events.count == 0 || out[0].kind == BATON_EVENT_MOVED)) {
        baton__mpi_send_pulled(mpi);
    }
    return mpi->events.count;
}

bool baton__mpi_is_copying(const void *endpoint)
{
    const baton__mpi_t *mpi = endpoint;
    return mpi->copying.head != NULL || baton__mpi_has_put(mpi);
}

/* ---- asking ------------------------------------------------------------ */

/* True if the address of some rank on the peer's host was found to be right. */
static bool is_reached(const baton__mpi_t *mpi, int peer)
{
    bool reached = mpi->host_of[peer] == mpi->host_of[mpi->rank];
    for (int i = 0; i < mpi->size && !reached; i++) {
        reached = (mpi->net.reached[i] || mpi->net.links.at[i].opened) &&
                  mpi->host_of[i] == mpi->host_of[peer];
    }
    return reached;
}

bool baton__mpi_answers_at(const baton__mpi_t *mpi, int peer,
                           struct sockaddr_storage *out, socklen_t *bytes_out)
{
    uint16_t port = mpi->answers.listener < 0
                        ? 0
                        : (uint16_t)mpi->answers.places[peer].port;
    if (mpi->peers[peer].local >= 0) {
        *(struct sockaddr_in *)out =
            (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_port = port,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        *bytes_out = sizeof(struct sockaddr_in);
        return port != 0;
    }
    const baton__link_place_t *places = mpi->net.links.places;
    return port != 0 && places != NULL &&
           baton__links_address(&places[mpi->rank], &places[peer], port, out,
                                bytes_out);
}

/* Marks the ranks as lost that other ranks have reported as lost. */
static void heed_answer(baton__mpi_t *mpi)
{
    int rank = -1;
    mpi->answers.any_lost = false;
    while ((rank = baton__answers_next_lost(&mpi->answers, rank + 1)) >= 0) {
        baton__mpi_lose(mpi, &mpi->peers[rank], BATON_ERR_TIMEOUT,
                        "another rank has lost it");
    }
}

/* Called when the host of a silent rank refuses connections. Returns true if
   the reason must be that the rank's process has ended, and not a firewall: the
   link of a rank on that host was reset, or a rank there has ended lately. */
static bool poll_has_ended(const baton__mpi_t *mpi, int peer)
{
    const uint64_t now = baton__clock_ns();
    bool found = false;
    for (int i = 0; i < mpi->size && !found; i++) {
        const baton__peer_t *mate = &mpi->peers[i];
        bool ended = mate->lost && mate->status == BATON_ERR_TRANSPORT &&
                     now - mate->lost_ns < 2 * mpi->answers.timeout_ns;
        found = mpi->host_of[i] == mpi->host_of[peer] &&
                (ended || mpi->net.links.at[i].reset_ns > 0);
    }
    return found;
}

/* Asks a rank on another host whether it lives. Anything that comes from the
   rank over MPI counts as an answer, too. The rank is also asked over MPI,
   again and again until it answers, because a firewall may stop this rank's
   connections to it. If a firewall stops only its connections to this rank, the
   packet that asks tells it that this rank lives. */
static baton__reply_t ask_remote(baton__mpi_t *mpi, int peer,
                                 const struct sockaddr *to, socklen_t bytes)
{
    baton__peer_t *remote = &mpi->peers[peer];
    baton__asked_t *asked = &mpi->answers.asked[peer];
    if (remote->has_sent && asked->silent_ns > 0) {
        asked->silent_ns = 1;
    }
    remote->has_sent = false;
    if (!baton__links_is_open(&mpi->net.links, peer)) {
        /* Makes baton__answers_ask ask the peer at once, which wakes the
           peer. */
        asked->asked_ns = 0;
        baton__links_connect(&mpi->net.links, peer);
    }
    const uint64_t before_ns = asked->asked_ns;
    baton__reply_t reply = baton__answers_ask(&mpi->answers, peer, to, bytes);
    if (!is_reached(mpi, peer)) {
        return reply == BATON__REPLY_DISOWNED ? reply : BATON__REPLY_NONE;
    }
    if ((asked->silent_ns > 1 || asked->asked_ns != before_ns) &&
        baton__net_unsent(mpi, remote) == 0) {
        (void)baton__net_signal(mpi, remote, BATON__PACKET_ASK);
    }
    if (reply != BATON__REPLY_REFUSED || asked->silent_ns == 0) {
        return reply;
    }
    const uint64_t half = mpi->answers.timeout_ns / 2;
    const uint64_t wait_ns = half == 0 || half > REFUSED_NS ? REFUSED_NS : half;
    return mpi->net.links.at[peer].lifeline_made || asked->silent_ns < wait_ns
               ? BATON__REPLY_NONE
               : reply;
}

/* Returns the text that says why a peer is lost after baton__answers_ask has
   returned `reply` for it. */
static const char *why_lost(const baton__mpi_t *mpi, baton__reply_t reply,
                            bool remote)
{
    const char *const texts[] = {
        [BATON__REPLY_DISOWNED] = baton__disowned,
        [BATON__REPLY_LATE] = mpi->answers.silent,
        [BATON__REPLY_INSIDE] = mpi->answers.inside,
        [BATON__REPLY_REFUSED] =
            remote ? "its process has ended, or it has closed its group, or "
                     "connections to it are refused"
                   : "its process has ended, or it has closed its group"};
    return texts[reply];
}

void baton__mpi_ask(void *endpoint, int peer)
{
    baton__mpi_t *mpi = endpoint;
    struct sockaddr_storage to = {0};
    socklen_t bytes;
    if (mpi->peers[peer].lost || peer == mpi->rank ||
        !baton__mpi_answers_at(mpi, peer, &to, &bytes)) {
        return;
    }
    /* There is no firewall between ranks of one host. */
    const bool remote = mpi->host_of[peer] != mpi->host_of[mpi->rank];
    const struct sockaddr *at = (const struct sockaddr *)&to;
    baton__reply_t reply =
        remote ? ask_remote(mpi, peer, at, bytes)
               : baton__answers_ask(&mpi->answers, peer, at, bytes);
    if (mpi->answers.any_lost) {
        heed_answer(mpi);
    }
    const bool ended =
        reply == BATON__REPLY_REFUSED && (!remote || poll_has_ended(mpi, peer));
    if (reply != BATON__REPLY_NONE) {
        baton__mpi_lose(mpi, &mpi->peers[peer],
                        ended ? BATON_ERR_TRANSPORT : BATON_ERR_TIMEOUT,
                        why_lost(mpi, reply, remote));
    }
}

/* ---- sleeping ---------------------------------------------------------- */

int baton__mpi_descriptor(void *endpoint, int k)
{
    const baton__mpi_t *mpi = endpoint;
    const int all[] = {mpi->host.doorbell.socket, mpi->host.liveness.epoll,
                       mpi->net.links.epoll};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i] >= 0 && k-- == 0) {
            return all[i];
        }
    }
    return -1;
}

void baton__mpi_drain(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    /* If a wake-up had come by the doorbell, `liveness` is not drained now,
       which saves a system call; the next call of this function drains it. */
    if (!baton__doorbell_drain(&mpi->host.doorbell)) {
        baton__liveness_drain(&mpi->host.liveness);
    }
    baton__links_drain(&mpi->net.links);
}

/* True if every rank on another host that may send something has a link to this
   rank, by which it can wake this rank. (If a firewall has reset the link and
   only the other rank has noticed that, the link is of no use, but this rank
   can't know.) */
static bool is_linked(const baton__mpi_t *mpi)
{
    for (int i = 0; i < mpi->size; i++) {
        const baton__peer_t *peer = &mpi->peers[i];
        if (peer->local < 0 && peer->contacted && !peer->lost &&
            !baton__links_is_open(&mpi->net.links, i)) {
            return false;
        }
    }
    return true;
}

/* Returns the longest time for which this rank may sleep without looking at its
   messages to and from other hosts. `recent` means that a message arrived so
   recently that the next one may come without a wake-up. */
static uint32_t net_sleep_us(baton__mpi_t *mpi, baton_arm_t how, bool recent)
{
    const baton__net_t *net = &mpi->net;
    if (recent) {
        return how == BATON_ARM_NOTICES ? LATER_US : AFTER_WAKE_US;
    }
    if ((net->peers > 0 && baton__net_ask(mpi)) || net->count > 0 ||
        net->packets_unsent > 0 || net->wakes_due) {
        return MOVING_US;
    }
    if (net->peers == 0) {
        return BATON_SLEEP_FOREVER;
    }
    return is_linked(mpi)
               ? BATON__MPI_ASKED_US
               : (uint32_t)baton__config_number(BATON__CONFIG_SLEEP_US);
}

/* Wakes peers on this host that have not taken all packets from their rings. */
static void poll_insist(baton__mpi_t *mpi)
{
    for (int i = 0; i < mpi->size; i++) {
        const baton__peer_t *peer = &mpi->peers[i];
        if (peer->local >= 0 && peer->contacted && !peer->lost &&
            !baton__ring_is_empty(&peer->ring)) {
            baton__doorbell_ring(&mpi->host.doorbell, peer->local, true);
        }
    }
}

bool baton__mpi_arm(void *endpoint, baton_arm_t how, uint32_t *sleep_us_out)
{
    static const baton__bell_t bells[] = {[BATON_ARM_NOTICES] =
                                              BATON__BELL_URGENT,
                                          [BATON_ARM_SOON] = BATON__BELL_SOON,
                                          [BATON_ARM_ALL] = BATON__BELL_ALL,
                                          [BATON_ARM_INSIST] = BATON__BELL_ALL};
    baton__mpi_t *mpi = endpoint;
    if (how == BATON_ARM_INSIST) {
        poll_insist(mpi);
    }
    bool recent = mpi->net.peers > 0 &&
                  baton__clock_ns() - mpi->net.now_ns < AFTER_WAKE_NS;
    wake_due(mpi, BATON__DUE_WAIT);
    if (mpi->net.credits_due) {
        baton__net_report_credits(mpi);
    }
    baton__doorbell_arm(&mpi->host.doorbell, bells[how]);
    if (baton__mpi_is_copying(mpi) || mpi->net.pulled.head != NULL ||
        mpi->unreported > 0 || baton__inbox_front(&mpi->host.inbox) != NULL ||
        atomic_load_explicit(&mpi->host.liveness.any_ended,
                             memory_order_relaxed) ||
        (mpi->net.peers > 0 &&
         has_come(mpi, recent && how == BATON_ARM_NOTICES))) {
        baton__mpi_disarm(mpi);
        return false;
    }
    uint32_t us = net_sleep_us(mpi, how, recent);
    /* No wake-up reports that a ring or MPI has space again. */
    if (mpi->listed != NULL || mpi->putting.head != NULL ||
        mpi->net.credits_due) {
        uint32_t often = (uint32_t)baton__config_number(BATON__CONFIG_SLEEP_US);
        us = us < often ? us : often;
    }
    *sleep_us_out = us;
    return true;
}

void baton__mpi_disarm(void *endpoint)
{
    const baton__mpi_t *mpi = endpoint;
    baton__doorbell_disarm(&mpi->host.doorbell);
}
