/* Communication through MPI: packets to ranks on other hosts, and the data of
   messages that are too long for a packet. poll.c tests what is in motion.

   Packets come into receives that are posted for any source. MPI matches the
   messages of one rank in the order in which they were sent, with receives in
   the order in which they were posted. So only the oldest receive is tested.
   After a peer was lost, all receives are tested: MPI may have begun to receive
   a message of that peer, and never complete it. Later receives may then be
   complete first, so packets are numbered.

   A message that is not too long follows its packet in the same MPI message,
   because two MPI messages take two system calls on each side, and up to twice
   as long. The data stays in the buffer where MPI has put it until the engine
   is done with it, and another buffer takes that buffer's place. A peer sends
   no more bodies than there are buffers.

   A send is tested as soon as it is posted: Open MPI has nearly always copied a
   short message by then, and the send is complete.

   Functions marked "In MPI" must be called between baton__net_enter and
   baton__net_leave. */
#include "transport/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"

#include <string.h>

enum {
    PACKET_TAG = 0,
    /* A peer that was woken more recently than this is not woken again, since
       it still polls by itself: see poll.c. */
    WOKEN_NS = 400000,
    /* The interval at which this rank wakes a peer from which it awaits data or
       packets. */
    ASK_NS = 1000000,
    /* How long packets to a peer that may have ended are held back. After this
       time a peer that has ended is known to have ended (see REFUSED_NS in
       poll.c). A peer that is not lost by then counts as living: it has no link
       because a firewall prevents one. */
    DOUBT_NS = 2000000000
};

static size_t net_part_of(size_t part, size_t left)
{
    return left < part ? left : part;
}

/* ---- device memory ----------------------------------------------------- */

/* True only for messages that are pulled (endpoint.h): those to or from an
   inter-node peer that are longer than BATON__BODY_LONGEST. Their data goes
   from the sender's memory to the receiver's through MPI alone, so the memory
   may be a device's if MPI is GPU-aware. CPUs copy or read the data of all
   other messages, so it must be in main memory. */
bool baton__mpi_takes_device(void *endpoint, int peer, size_t bytes)
{
    const baton__mpi_t *mpi = endpoint;
    return bytes > BATON__BODY_LONGEST && mpi->peers[peer].local < 0 &&
           mpi->wire->takes_device;
}

/* ---- MPI_Finalize ------------------------------------------------------ */

void baton__net_lose_all(baton__mpi_t *mpi, const char *detail)
{
    mpi->net.cut = true;
    for (int i = 0; i < mpi->size; i++) {
        if (mpi->peers[i].local < 0) {
            baton__mpi_lose(mpi, &mpi->peers[i], BATON_ERR_TIMEOUT, detail);
        }
    }
}

bool baton__net_enter(baton__mpi_t *mpi)
{
    /* Pairs with the store and the load in baton__mpi_on_finalize, close.c: at
       least one of the two threads sees the other's store. */
    baton__answers_count(&mpi->answers.begun);
    if (!atomic_load_explicit(&mpi->net.finalized, memory_order_seq_cst)) {
        return true;
    }
    baton__net_leave(mpi);
    baton__net_lose_all(mpi, "MPI_Finalize was called on this rank");
    return false;
}

void baton__net_leave(baton__mpi_t *mpi)
{
    baton__answers_count(&mpi->answers.returned);
}

const char *baton__net_text(baton__mpi_t *mpi, int code)
{
    mpi->wire->text(code, mpi->net.detail);
    return mpi->net.detail;
}

void baton__net_fail(baton__mpi_t *mpi, int peer, int code)
{
    baton__mpi_lose(mpi, &mpi->peers[peer], BATON_ERR_TIMEOUT,
                    baton__net_text(mpi, code));
}

/* ---- packets out ------------------------------------------------------- */

/* True if the peer has a link, and was not told over it of all packets that
   were sent to the peer. */
static bool net_count_is_due(const baton__mpi_t *mpi, int peer)
{
    const baton__links_t *links = &mpi->net.links;
    return baton__links_is_open(links, peer) &&
           links->at[peer].reported != mpi->peers[peer].packets_sent;
}

/* Wakes the peer, unless it was woken less than `since_ns` ago. */
static void wake_after(baton__mpi_t *mpi, int rank, uint64_t now,
                       uint64_t since_ns)
{
    baton__peer_t *peer = &mpi->peers[rank];
    if (now - peer->woken_ns > since_ns) {
        peer->woken_ns = now;
        baton__links_wake(&mpi->net.links, rank, peer->packets_sent);
    }
    mpi->net.wakes_due |= net_count_is_due(mpi, rank);
}

/* Called when something was sent to the peer. Wakes the peer if it may be
   asleep. */
static void net_wake(baton__mpi_t *mpi, int rank)
{
    mpi->net.now_ns = baton__clock_ns();
    mpi->net.quiet = 0;
    wake_after(mpi, rank, mpi->net.now_ns, WOKEN_NS);
}

/* A peer that has taken a packet was awake after the packet was sent. This
   counts as a wake-up at the time of sending. So ranks that answer each other
   need no wake-ups, each of which would also wake the peer's progress thread
   while another thread of the peer waits. */
void baton__net_taken(baton__mpi_t *mpi, baton__peer_t *peer, uint32_t taken)
{
    int rank = (int)(peer - mpi->peers);
    baton__link_t *links = mpi->net.links.at;
    if (peer->probe != 0 && (int32_t)(taken - peer->probe) >= 0) {
        if (peer->probe_ns > peer->woken_ns) {
            peer->woken_ns = peer->probe_ns;
        }
        peer->probe = 0;
    }
    if (links != NULL && (int32_t)(taken - links[rank].reported) > 0) {
        links[rank].reported = taken;
    }
}

void baton__net_wake_due(baton__mpi_t *mpi)
{
    uint64_t now = baton__clock_ns();
    mpi->net.wakes_due = false;
    for (int i = 0; i < mpi->size; i++) {
        if (net_count_is_due(mpi, i)) {
            wake_after(mpi, i, now, WOKEN_NS);
        }
    }
}

/* True if the peer has announced more packets than this rank has taken. */
static bool owes_packets(const baton__mpi_t *mpi, int peer)
{
    const baton__links_t *links = &mpi->net.links;
    return baton__links_is_open(links, peer) &&
           (int32_t)(links->at[peer].announced -
                     mpi->peers[peer].packets_taken) > 0;
}

/* Wakes the peers from which this rank awaits packets or data, because a peer
   that sleeps may have to call MPI first: Open MPI 4.1.4 reports a short send
   as complete when it has only queued the message, and writes the message when
   the sender next calls MPI. */
bool baton__net_ask(baton__mpi_t *mpi)
{
    const baton__net_t *net = &mpi->net;
    uint64_t now = baton__clock_ns();
    bool any = false;
    for (int i = 0; i < mpi->size; i++) {
        if (owes_packets(mpi, i)) {
            any = true;
            wake_after(mpi, i, now, ASK_NS);
        }
    }
    for (int i = 0; i < net->count; i++) {
        const baton__record_t *record = net->transfers[i].record;
        if (record != NULL) {
            any = true;
            wake_after(mpi, record->message.peer, now, ASK_NS);
        }
    }
    return any;
}

/* Tests the send in a slot of net.sends. Returns true if the slot is free. In
   MPI. */
static bool is_sent(baton__mpi_t *mpi, uint32_t slot)
{
    baton__net_t *net = &mpi->net;
    int at;
    bool complete = true;
    size_t bytes;
    if (net->sends[slot] == 0) {
        return true;
    }
    int code = mpi->wire->test(mpi->wire, 1, &net->sends[slot], &at, &complete,
                               &bytes);
    if (code != 0) {
        net->sends[slot] = 0;
        baton__net_fail(mpi, net->destinations[slot], code);
    }
    return code != 0 || complete;
}

size_t baton__net_unsent(const baton__mpi_t *mpi, const baton__peer_t *peer)
{
    const baton__net_t *net = &mpi->net;
    size_t unsent = 0;
    for (uint32_t i = 0; i < BATON__MPI_PACKETS && net->packets_unsent > 0;
         i++) {
        unsent += net->sends[i] != 0 &&
                  net->destinations[i] == (int)(peer - mpi->peers);
    }
    return unsent;
}

/* Returns true if `packets` slots of net.sends are free, and stores the first
   of them. A body's packets are sent all together or not at all. Slots are
   freed in any order, so sends that MPI can't complete occupy only their own
   slots. In MPI. */
static bool find_slots(baton__mpi_t *mpi, size_t packets, uint32_t *slot_out)
{
    size_t found = 0;
    for (uint32_t i = 0; i < BATON__MPI_PACKETS && found < packets; i++) {
        uint32_t slot = (mpi->net.next_send + i) % BATON__MPI_PACKETS;
        if (is_sent(mpi, slot) && found++ == 0) {
            *slot_out = slot;
        }
    }
    return found == packets;
}

/* Sends a packet from a free slot. In MPI. */
static void push_packet(baton__mpi_t *mpi, baton__peer_t *peer, uint32_t slot,
                        const baton__packet_t *packet, const void *data,
                        size_t count)
{
    baton__net_t *net = &mpi->net;
    baton__net_packet_t *memory = &net->send_buffers[slot]->head;
    int to = (int)(peer - mpi->peers);
    memory->messages = peer->messages.reported = peer->messages.granted;
    memory->notices = peer->notices.reported = peer->notices.granted;
    memory->bodies = peer->bodies.reported = peer->bodies.granted;
    memory->taken = peer->packets_taken;
    memcpy(&memory->packet, packet, BATON__PACKET_HEAD);
    memory->packet.word = peer->packets_sent;
    if (count > 0) {
        memcpy(net->send_buffers[slot]->bytes + BATON__NET_PACKET_HEAD, data,
               count);
    }
    net->destinations[slot] = to;
    int code =
        mpi->wire->send(mpi->wire, memory, BATON__NET_PACKET_HEAD + count, to,
                        PACKET_TAG, &net->sends[slot]);
    if (code != 0) {
        net->sends[slot] = 0;
        baton__net_fail(mpi, to, code);
    } else {
        bool unsent = !is_sent(mpi, slot);
        net->packets_unsent += unsent;
        /* A slot that is free again is used next, because it is in cache. */
        net->next_send = slot + unsent;
    }
    peer->packets_sent++;
}

/* Returns false if a packet to the peer must wait, because the peer's process
   may have ended and this rank would learn that soon. A send to an ended
   process makes Open MPI 4 close its connection. The next send then makes MPI
   abort this process, or loop for good. So a peer that may have ended, and has
   not answered this rank since, gets no packet if its link was reset, and
   otherwise one packet, DOUBT. A peer whose lifeline (links.h) stays open
   lives. In MPI. */
static bool net_may_send(baton__mpi_t *mpi, baton__peer_t *peer)
{
    const int rank = (int)(peer - mpi->peers);
    baton__links_t *links = &mpi->net.links;
    if (!baton__links_is_sound(links, rank)) {
        return false;
    }
    if (links->listener < 0 || baton__links_is_open(links, rank)) {
        return true;
    }
    /* A peer without a link may have ended since its link was reset or, if that
       is later, since a rank was last lost. 0: nothing suggests that it has
       ended. */
    uint64_t since = links->at[rank].reset_ns;
    since = mpi->last_lost_ns > since ? mpi->last_lost_ns : since;
    uint64_t now = since == 0 ? 0 : baton__clock_ns();
    uint64_t doubt =
        baton__links_has_lifeline(links, rank) ? BATON__LIFELINE_NS : DOUBT_NS;
    if (since == 0 || now - since > doubt ||
        baton__answers_lived_at(&mpi->answers, rank) > since ||
        peer->lived_ns >= since) {
        return true;
    }
    const baton__packet_t doubts = {.kind = BATON__PACKET_DOUBT,
                                    .source = (uint32_t)mpi->rank};
    uint32_t slot;
    if (links->at[rank].reset_ns == 0 && peer->doubted_ns < since &&
        find_slots(mpi, 1, &slot)) {
        peer->doubted_ns = now;
        push_packet(mpi, peer, slot, &doubts, NULL, 0);
    }
    return false;
}

bool baton__net_push(baton__mpi_t *mpi, baton__peer_t *peer,
                     const baton__packet_t *packet, const void *data,
                     size_t count)
{
    const baton__packet_t tail = {.kind = BATON__PACKET_TAIL,
                                  .source = packet->source};
    uint32_t slot;
    size_t packets = count == 0 ? 1 : (count - 1) / BATON__FIRST_BYTES + 1;
    /* A peer's packets may not take all slots: as many slots as they occupy
       must stay free for other peers. */
    size_t others = mpi->net.peers > 1 ? baton__net_unsent(mpi, peer) : 0;
    if (!baton__net_enter(mpi)) {
        return true; /* All inter-node peers are lost, so the packet counts as
                        sent. */
    }
    bool may =
        find_slots(mpi, packets + others, &slot) && net_may_send(mpi, peer);
    if (may) {
        for (size_t i = 0; i < packets && find_slots(mpi, 1, &slot); i++) {
            size_t at = i * BATON__FIRST_BYTES;
            push_packet(mpi, peer, slot, i == 0 ? packet : &tail,
                        i == 0 ? data : (const char *)data + at,
                        net_part_of(BATON__FIRST_BYTES, count - at));
        }
        net_wake(mpi, (int)(peer - mpi->peers));
        if (peer->probe == 0) {
            peer->probe = peer->packets_sent;
            peer->probe_ns = mpi->net.now_ns;
        }
    }
    baton__net_leave(mpi);
    return may;
}

/* Tests the sends that MPI could not complete at once, and wakes the peers of
   those that are complete now. In MPI. */
void baton__net_test_packets(baton__mpi_t *mpi)
{
    baton__net_t *net = &mpi->net;
    net->packets_unsent = 0;
    for (uint32_t slot = 0; slot < BATON__MPI_PACKETS; slot++) {
        if (net->sends[slot] != 0 && is_sent(mpi, slot)) {
            net_wake(mpi, net->destinations[slot]);
        }
        net->packets_unsent += net->sends[slot] != 0;
    }
}

bool baton__net_owes_credits(const baton__mpi_t *mpi, const baton__peer_t *peer)
{
    uint32_t messages = peer->messages.granted - peer->messages.reported;
    uint32_t notices = peer->notices.granted - peer->notices.reported;
    uint32_t bodies = peer->bodies.granted - peer->bodies.reported;
    return peer->local < 0 && !peer->lost && !mpi->net.closing &&
           (2 * messages >= mpi->window || 2 * notices >= BATON__MPI_NOTICES ||
            2 * bodies >= BATON__MPI_BODIES);
}

bool baton__net_signal(baton__mpi_t *mpi, baton__peer_t *peer,
                       baton__packet_kind_t kind)
{
    const baton__packet_t packet = {.kind = (uint16_t)kind,
                                    .flags =
                                        peer->lost ? BATON__PACKET_DISOWNS : 0,
                                    .source = (uint32_t)mpi->rank};
    return (peer->last_sent && kind != BATON__PACKET_ASK) ||
           baton__net_push(mpi, peer, &packet, NULL, 0);
}

void baton__net_report_credits(baton__mpi_t *mpi)
{
    mpi->net.credits_due = false;
    for (int i = 0; i < mpi->size; i++) {
        baton__peer_t *peer = &mpi->peers[i];
        if (peer->reply_due) {
            peer->reply_due =
                !baton__net_signal(mpi, peer, BATON__PACKET_LIVES);
            mpi->net.credits_due |= peer->reply_due;
        } else if (baton__net_owes_credits(mpi, peer) &&
                   !baton__net_signal(mpi, peer, BATON__PACKET_CREDIT)) {
            mpi->net.credits_due = true; /* the packet could not be sent now */
        }
    }
}

/* ---- packets in -------------------------------------------------------- */

/* Allocates `count` buffers. Returns the first of them; NULL if there is no
   memory. */
static baton__net_buffer_t *allocate_buffers(baton__net_t *net, size_t count)
{
    baton__net_buffer_t *buffers = baton__alloc(count, sizeof *buffers);
    if (buffers != NULL) {
        buffers->allocated_before = net->allocated;
        net->allocated = buffers;
    }
    return buffers;
}

int baton__net_post_arrival(baton__mpi_t *mpi, uint32_t slot)
{
    baton__net_buffer_t *buffer = mpi->net.arrived[slot];
    return mpi->wire->receive(mpi->wire, buffer->bytes, sizeof buffer->bytes,
                              BATON__WIRE_ANY, PACKET_TAG,
                              &mpi->net.arrivals[slot]);
}

void baton__net_add_arrival(baton__mpi_t *mpi)
{
    baton__net_t *net = &mpi->net;
    uint32_t slot = net->receives;
    bool waits = false;
    if (slot == BATON__MPI_RECEIVES ||
        mpi->wire->probe(mpi->wire, PACKET_TAG, &waits) != 0 || !waits) {
        return;
    }
    if (net->arrived[slot] == NULL) {
        net->arrived[slot] = allocate_buffers(net, 1);
    }
    if (net->arrived[slot] != NULL && baton__net_post_arrival(mpi, slot) == 0) {
        net->receives++;
    }
}

static void give_buffer(baton__net_t *net, baton__net_buffer_t *buffer)
{
    buffer->next = net->free;
    net->free = buffer;
}

void baton__net_keep(baton__mpi_t *mpi, baton__record_t *record)
{
    baton__net_t *net = &mpi->net;
    baton__net_buffer_t **arrived = &net->arrived[net->arrival % net->receives];
    uint32_t k = record->body_count;
    size_t bytes = net_part_of(BATON__FIRST_BYTES,
                               record->message.bytes - record->arrived);
    record->arrived += bytes;
    if (k == baton__body_buffers(record->message.bytes)) {
        memcpy(record->bodies[k - 1]->bytes + BATON__NET_PACKET_HEAD +
                   BATON__FIRST_BYTES,
               (*arrived)->bytes + BATON__NET_PACKET_HEAD, bytes);
    } else {
        record->bodies[record->body_count++] = *arrived;
        *arrived = net->free;
        net->free = net->free->next;
    }
}

void baton__net_copy_body(const baton__record_t *record, char *target)
{
    for (uint32_t i = 0; i < record->body_count; i++) {
        size_t at = (size_t)i * BATON__FIRST_BYTES;
        memcpy(target + at, record->bodies[i]->bytes + BATON__NET_PACKET_HEAD,
               i + 1 < record->body_count ? BATON__FIRST_BYTES
                                          : record->message.bytes - at);
    }
}

void baton__net_give_body(baton__mpi_t *mpi, baton__record_t *record)
{
    mpi->peers[record->message.peer].bodies.granted += record->body_count;
    while (record->body_count > 0) {
        give_buffer(&mpi->net, record->bodies[--record->body_count]);
    }
}

/* ---- transfers of data ------------------------------------------------- */

static baton__request_t *add_transfer(baton__net_t *net, baton__send_t *send,
                                      baton__record_t *record)
{
    net->transfers[net->count] =
        (baton__transfer_t){.send = send, .record = record};
    net->requests[net->count] = 0;
    return &net->requests[net->count++];
}

bool baton__net_reserve(baton__net_t *net, uint32_t messages)
{
    size_t capacity = (size_t)messages * BATON__MPI_PARTS;
    return baton__extend(&net->requests, (size_t)net->count, capacity,
                         sizeof *net->requests) &&
           baton__extend(&net->transfers, (size_t)net->count, capacity,
                         sizeof *net->transfers);
}

/* The data goes in MPI messages of one size, which the receiver has chosen;
   only the last one may be shorter. All have the same tag, and MPI keeps their
   order. Several are in motion at a time, so that MPI always has data to move,
   in both directions. With Open MPI 4.1.4 over TCP between two hosts, an
   exchange of 1 MiB takes 700 us as one message, for which MPI uses another
   protocol, and 270 us as eager messages. */
bool baton__net_send(baton__mpi_t *mpi, baton__send_t *send)
{
    int code = 0;
    send->state = BATON__SEND_MOVING;
    if (!baton__net_enter(mpi)) {
        return true; /* the send ends when its peer is reported lost */
    }
    for (int i = 0; i <= BATON__MPI_PARTS && send->parts < BATON__MPI_PARTS &&
                    send->moved < send->bytes && code == 0;
         i++) {
        baton__request_t request;
        int at;
        bool complete = false;
        size_t got;
        size_t part = net_part_of(send->part, send->bytes - send->moved);
        code =
            mpi->wire->send(mpi->wire, (const char *)send->data + send->moved,
                            part, send->peer, (int)send->tag, &request);
        /* After BATON__MPI_PARTS sends that were complete at once, one more is
           made and not tested. It counts as in motion, so the next poll tests
           it and continues with the data. */
        if (code == 0 && i < BATON__MPI_PARTS) {
            code =
                mpi->wire->test(mpi->wire, 1, &request, &at, &complete, &got);
        }
        send->moved += part;
        if (code == 0 && !complete) {
            *add_transfer(&mpi->net, send, NULL) = request;
            send->parts++;
        }
    }
    if (code != 0) {
        baton__net_fail(mpi, send->peer, code);
    }
    baton__net_leave(mpi);
    return code != 0 || send->parts > 0;
}

void baton__net_send_nothing(baton__mpi_t *mpi, int peer, uint32_t tag,
                             uint32_t parts)
{
    baton__request_t request;
    int code = 0;
    if (!baton__net_enter(mpi)) {
        return;
    }
    for (uint32_t i = 0; i < parts && code == 0; i++) {
        code = mpi->wire->send(mpi->wire, NULL, 0, peer, (int)tag, &request);
        if (code == 0) {
            /* MPI completes the send by itself. */
            code = mpi->wire->release(mpi->wire, &request);
        }
    }
    if (code != 0) {
        baton__net_fail(mpi, peer, code);
    }
    baton__net_leave(mpi);
}

void baton__net_receive(baton__mpi_t *mpi, baton__record_t *record)
{
    int peer = record->message.peer;
    int code = 0;
    if (!baton__net_enter(mpi)) {
        return;
    }
    while (record->parts < BATON__MPI_PARTS &&
           record->copied < record->message.bytes && code == 0) {
        baton__request_t *request = add_transfer(&mpi->net, NULL, record);
        size_t part =
            net_part_of(record->part, record->message.bytes - record->copied);
        code = mpi->wire->receive(mpi->wire, record->target + record->copied,
                                  part, peer, (int)record->place, request);
        record->copied += part;
        record->parts++;
        if (code != 0) {
            baton__net_fail(mpi, peer, code);
        }
    }
    baton__net_leave(mpi);
}

void baton__net_forget(baton__net_t *net, const void *ended)
{
    for (int i = 0; i < net->count; i++) {
        baton__transfer_t *transfer = &net->transfers[i];
        transfer->send = transfer->send == ended ? NULL : transfer->send;
        transfer->record = transfer->record == ended ? NULL : transfer->record;
    }
}

/* MPI may never complete the sends of packets to a lost peer, so their buffers
   stay with MPI. Other buffers take their place, if there is memory. */
static void abandon_packets(baton__mpi_t *mpi, int peer)
{
    baton__net_t *net = &mpi->net;
    for (uint32_t slot = 0; slot < BATON__MPI_PACKETS; slot++) {
        if (net->destinations[slot] != peer || net->sends[slot] == 0 ||
            !baton__net_enter(mpi)) {
            continue;
        }
        baton__net_buffer_t *buffer = allocate_buffers(net, 1);
        if (buffer != NULL) {
            (void)mpi->wire->release(mpi->wire, &net->sends[slot]);
            net->send_buffers[slot] = buffer;
        }
        baton__net_leave(mpi);
    }
}

/* Transfers with the lost peer stay in motion in MPI, but are detached from
   their receives, which end here. (baton__mpi_end_sends has ended the sends.)
 */
bool baton__net_end(baton__mpi_t *mpi, baton__peer_t *peer)
{
    baton__net_t *net = &mpi->net;
    int rank = (int)(peer - mpi->peers);
    abandon_packets(mpi, rank);
    if (peer->begun != NULL) {
        baton__net_give_body(mpi, peer->begun);
        baton__mpi_give_record(mpi, peer->begun);
        peer->begun = NULL;
    }
    for (int i = 0; i < net->count; i++) {
        baton__record_t *record = net->transfers[i].record;
        if (record == NULL || record->message.peer != rank) {
            continue;
        }
        if (baton__events_are_full(mpi)) {
            return false;
        }
        baton__events_received(mpi, record->token, BATON_ERR_TRANSPORT,
                               peer->detail);
        baton__net_forget(net, record);
        baton__mpi_give_record(mpi, record);
    }
    return true;
}

static baton_status_t net_no_memory(void)
{
    return baton__error(BATON_ERR_NO_MEMORY,
                        "mpi: no memory for messages between hosts");
}

baton_status_t baton__net_reserve_bodies(baton__mpi_t *mpi, baton__peer_t *peer)
{
    if (peer->local >= 0) {
        return BATON_OK;
    }
    baton__net_buffer_t *buffers =
        allocate_buffers(&mpi->net, BATON__MPI_BODIES);
    if (buffers == NULL) {
        return net_no_memory();
    }
    for (int i = 0; i < BATON__MPI_BODIES; i++) {
        give_buffer(&mpi->net, &buffers[i]);
    }
    peer->bodies.granted = BATON__MPI_BODIES;
    return BATON_OK;
}

void baton__net_contact(baton__mpi_t *mpi, baton__peer_t *peer)
{
    if (peer->local < 0) {
        baton__links_connect(&mpi->net.links, (int)(peer - mpi->peers));
        baton__net_report_credits(mpi);
    }
}

/* ---- opening and closing ----------------------------------------------- */

baton_status_t baton__net_open(baton__mpi_t *mpi)
{
    baton__net_t *net = &mpi->net;
    if (net->peers == 0) {
        return BATON_OK;
    }
    baton__net_buffer_t *buffers =
        allocate_buffers(net, (size_t)BATON__MPI_PACKETS + BATON__MPI_POSTED);
    if (buffers == NULL) {
        return net_no_memory();
    }
    for (uint32_t slot = 0; slot < BATON__MPI_PACKETS; slot++) {
        net->send_buffers[slot] = &buffers[BATON__MPI_POSTED + slot];
    }
    net->receives = BATON__MPI_POSTED;
    for (uint32_t slot = 0; slot < BATON__MPI_POSTED; slot++) {
        net->arrived[slot] = &buffers[slot];
        int code = baton__net_post_arrival(mpi, slot);
        if (code != 0) {
            return baton__error(BATON_ERR_TRANSPORT, "mpi: a receive: %s",
                                baton__net_text(mpi, code));
        }
    }
    return BATON_OK;
}

static void cancel(baton__wire_t *wire, baton__request_t *requests,
                   uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        wire->cancel(wire, &requests[i]);
    }
}

void baton__net_close(baton__mpi_t *mpi)
{
    baton__net_t *net = &mpi->net;
    if (mpi->wire != NULL && baton__net_enter(mpi)) {
        cancel(mpi->wire, net->arrivals, net->receives);
        cancel(mpi->wire, net->sends, BATON__MPI_PACKETS);
        baton__net_leave(mpi);
    }
    baton__links_close(&net->links);
    baton__free(net->requests);
    baton__free(net->transfers);
    while (net->allocated != NULL) {
        baton__net_buffer_t *buffers = net->allocated;
        net->allocated = buffers->allocated_before;
        baton__free(buffers);
    }
}
