/* Sending in MPI groups: how a message is announced, how it waits for space,
   and how its receiver's answers are handled. */
#include "transport/mpi/endpoint.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

#include <string.h>

/* The states of an offer, which are the lower bits of the offer's word. The
   upper bits are the generation of the send. See also receive.c. */
enum { OFFER_NONE, OFFER_MADE };

static uint32_t offer_word(const baton__send_t *send, uint32_t state)
{
    return send->generation << 2 | state;
}

/* ---- credits ---------------------------------------------------------- */

static bool has_credit(baton__peer_t *peer, bool notice)
{
    baton__flow_t *flow = notice ? &peer->notices : &peer->messages;
    if (flow->limit == flow->sent && peer->local >= 0) {
        const baton__credit_t *credit = peer->ring.credit;
        /* Pairs with the release in give_credit, receive.c, and in
           grant_window, pool.c. */
        flow->limit = notice ? BATON__MPI_NOTICES +
                                   atomic_load_explicit(&credit->notices,
                                                        memory_order_acquire)
                             : atomic_load_explicit(&credit->messages,
                                                    memory_order_acquire);
    }
    return flow->limit != flow->sent;
}

/* ---- announcing ------------------------------------------------------- */

typedef enum outcome {
    /* the send must wait in the outbox: there is no space, or it is delayed */
    NO_SPACE,
    ENDED,     /* the send is complete */
    ANNOUNCED, /* the send completes when the peer has answered */
    /* The send completes when its data is written; the peer need not answer. */
    PUTTING
} outcome_t;

/* True if the peer should first answer some of the sends that were announced to
   it, so that the data in flight stays in caches and buffers. But the peer may
   be able to answer only after it has got a later message. So sends are only
   delayed: one more is let through every BATON__MPI_PATIENCE_NS. */
static bool mpi_send_delays(baton__peer_t *peer)
{
    if (peer->announced < BATON__MPI_ANNOUNCED) {
        return false;
    }
    uint64_t now = baton__clock_ns();
    bool delays = now - peer->exceeded_ns < BATON__MPI_PATIENCE_NS;
    peer->exceeded_ns = delays ? peer->exceeded_ns : now;
    return delays;
}

/* Sends a packet with `count` bytes of data. Returns false if there is no space
   for it, or if it can't be sent now (baton__net_push). */
static bool mpi_send_push(baton__mpi_t *mpi, baton__peer_t *peer,
                          const baton__packet_t *packet, const void *data,
                          size_t count)
{
    return peer->local >= 0
               ? baton__mpi_push_local(mpi, peer, packet, data, count)
               : baton__net_push(mpi, peer, packet, data, count);
}

/* Sends the data in the packet, or in the same MPI message. */
static outcome_t send_along(baton__mpi_t *mpi, baton__peer_t *peer,
                            const baton__send_t *send, baton__packet_t *packet,
                            bool credited)
{
    packet->flags = credited ? BATON__PACKET_CREDITED : 0;
    if ((!credited && mpi_send_delays(peer)) ||
        !mpi_send_push(mpi, peer, packet, send->data, send->bytes)) {
        return NO_SPACE;
    }
    peer->messages.sent += credited;
    return credited ? ENDED : ANNOUNCED;
}

/* Copies the data into a free shm buffer. Returns the buffer's index, or -1. */
static int fill_buffer(baton__mpi_t *mpi, const void *data, size_t bytes)
{
    baton__host_t *host = &mpi->host;
    for (int i = 0; baton__host_reserve(host, i); i++) {
        baton__host_buffer_t *buffer =
            baton__host_buffer(host, host->index, (uint32_t)i);
        /* Pairs with the release store in mpi_receive_release, receive.c: once
           this load returns 0, the receiver has read the buffer. */
        if (atomic_load_explicit(&buffer->full, memory_order_acquire) == 0) {
            atomic_store_explicit(&buffer->full, 1, memory_order_relaxed);
            memcpy(buffer->data, data, bytes);
            return i;
        }
    }
    return -1;
}

static outcome_t send_in_buffer(baton__mpi_t *mpi, baton__peer_t *peer,
                                baton__packet_t *packet, int buffer)
{
    packet->kind = BATON__PACKET_BUFFER;
    packet->flags = BATON__PACKET_CREDITED;
    packet->place = (uint32_t)buffer;
    if (!mpi_send_push(mpi, peer, packet, NULL, 0)) {
        atomic_store_explicit(
            &baton__host_buffer(&mpi->host, mpi->host.index, (uint32_t)buffer)
                 ->full,
            0, memory_order_relaxed);
        return NO_SPACE;
    }
    peer->messages.sent++;
    return ENDED;
}

static outcome_t send_offer(baton__mpi_t *mpi, baton__peer_t *peer,
                            const baton__send_t *send, baton__packet_t *packet,
                            uint32_t segment)
{
    uint64_t address = (uint64_t)(uintptr_t)send->data;
    packet->kind = BATON__PACKET_OFFER;
    packet->flags = send->token.made ? BATON__PACKET_MADE : 0;
    packet->place = segment;
    /* The receiver reads this word after it has taken the packet, and so after
       this store. Relaxed order therefore suffices. */
    atomic_store_explicit(
        baton__host_offer(&mpi->host, mpi->host.index, send->id),
        offer_word(send, OFFER_MADE), memory_order_relaxed);
    return mpi_send_push(mpi, peer, packet, &address, sizeof address)
               ? ANNOUNCED
               : NO_SPACE;
}

/* Returns the id of the segment in which the peer can read the data. Returns 0
   if baton__segments_share finds none, if the peer is this rank itself, or if
   the message is so short that a copy costs less than waiting for the peer's
   answer. */
static uint32_t segment_of(baton__mpi_t *mpi, const baton__peer_t *peer,
                           const void *data, size_t bytes)
{
    return bytes < BATON__MPI_DIRECT_BYTES || peer->local == mpi->host.index
               ? 0
               : baton__segments_share(&mpi->host.segments, peer->local, data,
                                       bytes);
}

/* Gives the send an id below BATON__HOST_OFFERS, because only such an id has a
   word for an offer in shared memory: exchanges the ids and generations of this
   send and a free one. Returns false if all such ids are in use. */
static bool mpi_send_renumber(baton__mpi_t *mpi, baton__send_t *send)
{
    baton__send_t *other = mpi->free_sends;
    while (other != NULL && other->id >= BATON__HOST_OFFERS) {
        other = other->next;
    }
    if (other != NULL) {
        const baton__send_t was = *send;
        send->id = other->id;
        send->generation = other->generation;
        other->id = was.id;
        other->generation = was.generation;
        mpi->sends[send->id] = send;
        mpi->sends[other->id] = other;
        mpi->is_hashed = false;
    }
    return other != NULL;
}

static outcome_t send_long(baton__mpi_t *mpi, baton__peer_t *peer,
                           baton__send_t *send, baton__packet_t *packet,
                           bool credited)
{
    bool local = peer->local >= 0;
    uint32_t segment =
        local ? segment_of(mpi, peer, send->data, send->bytes) : 0;
    bool waits = mpi->reads && send->token.patient &&
                 send->bytes > BATON__MPI_DIRECT_BYTES;
    if (local && credited && segment == 0 && !waits &&
        send->bytes <= mpi->buffered_bytes) {
        int buffer = fill_buffer(mpi, send->data, send->bytes);
        if (buffer >= 0) {
            return send_in_buffer(mpi, peer, packet, buffer);
        }
    }
    uint32_t buffers = baton__body_buffers(send->bytes);
    if (!local && credited && send->bytes <= BATON__BODY_LONGEST &&
        peer->bodies.limit - peer->bodies.sent >= buffers) {
        packet->kind = BATON__PACKET_BODY;
        outcome_t outcome = send_along(mpi, peer, send, packet, true);
        peer->bodies.sent += outcome == ENDED ? buffers : 0;
        return outcome;
    }
    if (mpi_send_delays(peer)) {
        return NO_SPACE;
    }
    if (local && mpi->keeps_off && send->id >= BATON__HOST_OFFERS &&
        !mpi_send_renumber(mpi, send)) {
        return NO_SPACE;
    }
    if (local && (mpi->reads || segment != 0) &&
        send->id < BATON__HOST_OFFERS) {
        packet->id = send->id;
        packet->generation = send->generation;
        return send_offer(mpi, peer, send, packet, segment);
    }
    packet->kind = BATON__PACKET_RTS;
    return mpi_send_push(mpi, peer, packet, NULL, 0) ? ANNOUNCED : NO_SPACE;
}

static outcome_t announce(baton__mpi_t *mpi, baton__send_t *send)
{
    baton__peer_t *peer = &mpi->peers[send->peer];
    baton__packet_t packet;
    packet.kind = BATON__PACKET_SHORT;
    packet.flags = 0;
    packet.source = (uint32_t)mpi->rank;
    packet.id = send->id;
    packet.bytes = send->bytes;
    packet.header = send->header;
    packet.place = 0;
    packet.generation = send->generation;
    if (peer->local >= 0 && baton__mpi_begin_put(mpi, send)) {
        return send->bytes <= BATON__MPI_AT_ONCE_BYTES && !peer->refused &&
                       baton__mpi_put(mpi, send)
                   ? ENDED
                   : PUTTING;
    }
    bool credited = has_credit(peer, false);
    outcome_t outcome = send->bytes <= BATON__SHORT_BYTES
                            ? send_along(mpi, peer, send, &packet, credited)
                            : send_long(mpi, peer, send, &packet, credited);
    if (outcome == ANNOUNCED) {
        send->kind = packet.kind;
        send->state = BATON__SEND_ANNOUNCED;
        send->counted = true;
        peer->announced++;
    }
    return outcome;
}

/* ---- outboxes --------------------------------------------------------- */

/* True if sends wait in the outbox to be announced. Messages that are sent
   later, also notices, must not overtake them. */
static bool has_queued(const baton__peer_t *peer)
{
    return (peer->last_reply != NULL ? peer->last_reply->next
                                     : peer->outbox.head) != NULL;
}

/* Puts an entry into the peer's outbox after `previous`, or first if `previous`
   is NULL. */
static void outbox_insert(baton__mpi_t *mpi, baton__peer_t *peer,
                          baton__outgoing_t *previous, baton__outgoing_t *out)
{
    baton__outbox_t *outbox = &peer->outbox;
    baton__outgoing_t **link =
        previous != NULL ? &previous->next : &outbox->head;
    out->previous = previous;
    out->next = *link;
    *link = out;
    *(out->next != NULL ? &out->next->previous : &outbox->tail) = out;
    if (!peer->listed) {
        peer->listed = true;
        peer->next_listed = mpi->listed;
        mpi->listed = peer;
    }
}

static void outbox_remove(baton__outbox_t *outbox, baton__outgoing_t *out)
{
    *(out == outbox->head ? &outbox->head : &out->previous->next) = out->next;
    *(out->next != NULL ? &out->next->previous : &outbox->tail) = out->previous;
}

static void queue(baton__mpi_t *mpi, baton__peer_t *peer, baton__send_t *send)
{
    const baton__outbox_t *outbox = &peer->outbox;
    send->state = BATON__SEND_QUEUED;
    send->out.answers = false;
    outbox_insert(mpi, peer, outbox->head != NULL ? outbox->tail : NULL,
                  &send->out);
}

/* Queues an answer, or a send whose data goes in parts. The entry is put after
   earlier entries of these two kinds and before all other sends, because the
   other sends may be waiting for the peer to act on this entry. */
static void queue_reply(baton__mpi_t *mpi, baton__peer_t *peer,
                        baton__outgoing_t *out)
{
    outbox_insert(mpi, peer, peer->last_reply, out);
    peer->last_reply = out;
}

static bool lets_put(const baton__record_t *record)
{
    return record->answer == BATON__PACKET_CTS &&
           record->kind == BATON__PACKET_OFFER;
}

/* True if the record is free after its answer was sent. */
static bool is_last(const baton__record_t *record)
{
    return record->answer == BATON__PACKET_FIN || lets_put(record);
}

static bool push_answer(baton__mpi_t *mpi, baton__record_t *record)
{
    baton__peer_t *peer = &mpi->peers[record->message.peer];
    baton__packet_t packet = {.kind = record->answer,
                              .source = (uint32_t)mpi->rank,
                              .id = record->id,
                              .generation = record->generation,
                              .place = record->place};
    if (record->answer == BATON__PACKET_CTS) {
        packet.flags = (uint16_t)record->parts;
        packet.bytes = record->part;
    }
    if (!mpi_send_push(mpi, peer, &packet, &record->address,
                       lets_put(record) ? sizeof record->address : 0)) {
        return false;
    }
    if (is_last(record)) {
        baton__mpi_give_record(mpi, record);
    }
    return true;
}

void baton__mpi_answer(baton__mpi_t *mpi, baton__record_t *record,
                       baton__packet_kind_t answer)
{
    baton__peer_t *peer = &mpi->peers[record->message.peer];
    record->answer = (uint16_t)answer;
    if (peer->lost || mpi->net.closing) {
        if (is_last(record)) {
            baton__mpi_give_record(mpi, record);
        }
        return;
    }
    if (peer->outbox.head != NULL || !push_answer(mpi, record)) {
        record->out.answers = true;
        queue_reply(mpi, peer, &record->out);
    }
}

/* ---- parts ------------------------------------------------------------ */

void baton__mpi_part(baton__mpi_t *mpi, baton__send_t *send, uint32_t post)
{
    send->state = BATON__SEND_IN_PARTS;
    send->post = post;
    send->moved = 0;
    send->out.answers = false;
    queue_reply(mpi, &mpi->peers[send->peer], &send->out);
}

/* Sends as many parts as there is space for, up to a slice. If a notice waits,
   sends no part this time, so that the notice finds space. Parts do not use shm
   buffers: a part that waits for a buffer might wait for a peer that waits for
   this rank. */
static outcome_t send_parts(baton__mpi_t *mpi, baton__peer_t *peer,
                            baton__send_t *send)
{
    const size_t before = send->moved;
    baton__packet_t packet = {.kind = BATON__PACKET_PART,
                              .source = (uint32_t)mpi->rank,
                              .id = send->id,
                              .place = send->post,
                              .generation = send->posted};
    if (peer->notice_due) {
        peer->notice_due = false;
        return NO_SPACE;
    }
    do {
        const size_t left = send->bytes - send->moved;
        packet.bytes = left < BATON__SHORT_BYTES ? left : BATON__SHORT_BYTES;
        if (!mpi_send_push(mpi, peer, &packet,
                           (const char *)send->data + send->moved,
                           packet.bytes)) {
            break;
        }
        send->moved += packet.bytes;
    } while (send->moved < send->bytes &&
             send->moved - before < BATON__MPI_SLICE_BYTES);
    if (send->moved < send->bytes && send->moved > before) {
        baton__events_moved(mpi, send->token);
    }
    return send->moved < send->bytes ? NO_SPACE : ENDED;
}

static outcome_t flush_send(baton__mpi_t *mpi, baton__peer_t *peer,
                            baton__send_t *send)
{
    if (baton__events_are_full(mpi)) {
        return NO_SPACE;
    }
    return send->state == BATON__SEND_IN_PARTS ? send_parts(mpi, peer, send)
                                               : announce(mpi, send);
}

/* Sends the first entry of the outbox. Returns false if there is no space for
   it. */
static bool flush_first(baton__mpi_t *mpi, baton__peer_t *peer)
{
    baton__outgoing_t *out = peer->outbox.head;
    baton__outgoing_t *next = out->next;
    if (out->answers) {
        if (!push_answer(mpi, (baton__record_t *)out)) {
            return false;
        }
    } else {
        baton__send_t *send = (baton__send_t *)out;
        outcome_t outcome = flush_send(mpi, peer, send);
        if (outcome == NO_SPACE) {
            return false;
        }
        if (outcome == ENDED) {
            baton__mpi_end_send(mpi, send, BATON_OK, NULL);
        }
    }
    peer->outbox.head = next;
    peer->last_reply = peer->last_reply == out ? NULL : peer->last_reply;
    return true;
}

void baton__mpi_flush(baton__mpi_t *mpi)
{
    baton__peer_t **link = &mpi->listed;
    while (*link != NULL) {
        baton__peer_t *peer = *link;
        while (peer->outbox.head != NULL && !peer->lost &&
               flush_first(mpi, peer)) {
        }
        if (peer->outbox.head == NULL) {
            peer->listed = false;
            *link = peer->next_listed;
        } else {
            link = &peer->next_listed;
        }
    }
}

/* ---- the port's functions --------------------------------------------- */

static baton_status_t check_peer(const baton__mpi_t *mpi, int peer)
{
    return !mpi->peers[peer].lost ? BATON_OK
                                  : baton__mpi_fail_peer(mpi, peer, NULL);
}

baton_status_t baton__mpi_send(void *endpoint, baton_token_t token, int peer,
                               const baton_header_t *header, const void *data,
                               size_t bytes)
{
    baton__mpi_t *mpi = endpoint;
    baton_status_t status = check_peer(mpi, peer);
    if (status != BATON_OK) {
        return status;
    }
    baton__send_t *send = baton__mpi_take_send(mpi);
    if (send == NULL) {
        return baton__error(BATON_ERR_LIMIT,
                            "mpi: rank %d has %u sends in flight, more than it "
                            "reserved",
                            mpi->rank, mpi->send_count);
    }
    send->token = token;
    send->header = *header;
    send->data = data;
    send->bytes = bytes;
    send->peer = peer;
    outcome_t outcome =
        mpi->peers[peer].outbox.head == NULL ? announce(mpi, send) : NO_SPACE;
    if (outcome == ENDED) {
        baton__mpi_give_send(mpi, send);
        return BATON_DONE;
    }
    if (outcome == NO_SPACE) {
        queue(mpi, &mpi->peers[peer], send);
    }
    return BATON_OK;
}

baton_status_t baton__mpi_notify(void *endpoint, int peer,
                                 const baton_header_t *header, const void *data,
                                 size_t bytes)
{
    baton__mpi_t *mpi = endpoint;
    baton_status_t status = check_peer(mpi, peer);
    if (status != BATON_OK) {
        return status;
    }
    baton__peer_t *other = &mpi->peers[peer];
    if (other->last_sent) {
        return BATON_DONE; /* the peer leaves the group, and needs no notice */
    }
    baton__packet_t packet = {.kind = BATON__PACKET_SHORT,
                              .flags = BATON__PACKET_NOTICE,
                              .source = (uint32_t)mpi->rank,
                              .bytes = bytes,
                              .header = *header};
    bool may = !has_queued(other) && has_credit(other, true);
    if (!may || !mpi_send_push(mpi, other, &packet, data, bytes)) {
        other->notice_due |= may;
        /* The ring may be full until the peer wakes and reads it. */
        if (other->local >= 0) {
            baton__doorbell_ring_now(&mpi->host.doorbell, other->local);
        }
        return BATON_AGAIN;
    }
    other->notices.sent++;
    return BATON_DONE;
}

/* Takes back an announced send. Returns false if the receiver has taken the
   send's offer. */
static bool mpi_send_take_back(const baton__mpi_t *mpi,
                               const baton__send_t *send)
{
    uint32_t made = offer_word(send, OFFER_MADE);
    return send->kind != BATON__PACKET_OFFER ||
           atomic_compare_exchange_strong_explicit(
               baton__host_offer(&mpi->host, mpi->host.index, send->id), &made,
               OFFER_NONE, memory_order_relaxed, memory_order_relaxed);
}

/* Returns the head of the list of the sends whose tokens have this token's
   hash. The lists form a hash table with as many lists as there are send
   records; each record has the head of one list. */
static baton__send_t **hash_list_of(const baton__mpi_t *mpi,
                                    baton_token_t token)
{
    uint64_t hash = baton__mix((uintptr_t)token.owner + token.node);
    return &mpi->sends[hash % mpi->send_count]->hash_list;
}

/* Puts all sends in flight into the hash table of tokens. */
static void hash_sends(baton__mpi_t *mpi)
{
    for (uint32_t i = 0; i < mpi->send_count; i++) {
        mpi->sends[i]->hash_list = NULL;
    }
    for (uint32_t i = 0; i < mpi->send_count; i++) {
        baton__send_t *send = mpi->sends[i];
        if (send->state != BATON__SEND_FREE) {
            baton__send_t **list = hash_list_of(mpi, send->token);
            send->same_hash = *list;
            *list = send;
        }
    }
    mpi->is_hashed = true;
}

/* The transport's withdraw. Finds the send in the hash table of tokens. Sends
   are withdrawn only after failures and cancels, so the table is filled only
   then, and is valid until the next send begins. Without the table a recovery,
   which withdraws all sends of a group, would search all sends for each of
   them. */
bool baton__mpi_withdraw(void *endpoint, baton_token_t token)
{
    baton__mpi_t *mpi = endpoint;
    if (!mpi->is_hashed) {
        hash_sends(mpi);
    }
    for (baton__send_t *send = mpi->send_count > 0 ? *hash_list_of(mpi, token)
                                                   : NULL;
         send != NULL; send = send->same_hash) {
        if (send->state == BATON__SEND_FREE ||
            send->token.owner != token.owner ||
            send->token.node != token.node) {
            continue;
        }
        if (send->state == BATON__SEND_MOVING ||
            send->state == BATON__SEND_PUTTING ||
            send->state == BATON__SEND_IN_PARTS ||
            (send->state == BATON__SEND_ANNOUNCED &&
             !mpi_send_take_back(mpi, send))) {
            return false;
        }
        if (send->state == BATON__SEND_QUEUED) {
            outbox_remove(&mpi->peers[send->peer].outbox, &send->out);
        } else if (send->state == BATON__SEND_PULLED) {
            baton__sends_remove(&mpi->net.pulled, send);
            baton__net_send_nothing(mpi, send->peer, send->tag, send->asked);
        }
        baton__mpi_give_send(mpi, send);
        return true;
    }
    return false;
}

/* ---- completion -------------------------------------------------- */

/* Returns the send that a peer answers; NULL if it was withdrawn. */
static baton__send_t *mpi_send_find(const baton__mpi_t *mpi,
                                    const baton__packet_t *packet)
{
    baton__send_t *send =
        packet->id < mpi->send_count ? mpi->sends[packet->id] : NULL;
    return send != NULL && send->state == BATON__SEND_ANNOUNCED &&
                   send->generation == packet->generation
               ? send
               : NULL;
}

void baton__mpi_take_fin(baton__mpi_t *mpi, const baton__packet_t *packet)
{
    baton__send_t *send = mpi_send_find(mpi, packet);
    if (send != NULL) {
        baton__mpi_end_send(mpi, send, BATON_OK, NULL);
    }
}

void baton__mpi_take_cts(baton__mpi_t *mpi, const baton__packet_t *packet)
{
    baton__send_t *send = mpi_send_find(mpi, packet);
    if (send != NULL && packet->kind == BATON__PACKET_COPY) {
        send->posted = send->generation;
        baton__mpi_part(mpi, send, BATON__HOST_POSTS);
    } else if (send != NULL && send->kind == BATON__PACKET_OFFER &&
               packet->flags == 0) { /* if `flags` is not 0, the peer pulls */
        /* The peer asks this rank to write the data. */
        baton__mpi_start_put(mpi, send, packet->place, (uint32_t)packet->bytes,
                             packet->address);
    } else if (send == NULL && packet->kind == BATON__PACKET_CTS) {
        baton__net_send_nothing(mpi, (int)packet->source, packet->place,
                                packet->flags);
    } else if (send != NULL) {
        send->state = BATON__SEND_PULLED;
        send->tag = packet->place;
        send->part = packet->bytes;
        send->asked = packet->flags;
        send->moved = 0;
        send->parts = 0;
        baton__sends_append(&mpi->net.pulled, send);
    }
}

void baton__mpi_send_pulled(baton__mpi_t *mpi)
{
    while (mpi->net.pulled.head != NULL && !baton__events_are_full(mpi)) {
        baton__send_t *send = baton__sends_take(&mpi->net.pulled);
        if (!baton__net_send(mpi, send)) {
            baton__mpi_end_send(mpi, send, BATON_OK, NULL);
        }
    }
}

bool baton__mpi_end_sends(baton__mpi_t *mpi, baton__peer_t *peer)
{
    /* last_reply may be one of the sends that end below. */
    peer->last_reply = NULL;
    for (uint32_t i = 0; i < mpi->send_count; i++) {
        baton__send_t *send = mpi->sends[i];
        if (send->state == BATON__SEND_FREE ||
            &mpi->peers[send->peer] != peer) {
            continue;
        }
        if (baton__events_are_full(mpi)) {
            return false;
        }
        if (send->state == BATON__SEND_QUEUED ||
            send->state == BATON__SEND_IN_PARTS) {
            outbox_remove(&peer->outbox, &send->out);
        }
        baton__sends_remove(&mpi->net.pulled, send);
        baton__sends_remove(&mpi->putting, send);
        baton__net_forget(&mpi->net, send);
        baton__mpi_end_send(mpi, send, BATON_ERR_TRANSPORT, peer->detail);
    }
    /* The outbox now has answers only. */
    while (peer->outbox.head != NULL) {
        baton__record_t *record = (baton__record_t *)peer->outbox.head;
        peer->outbox.head = record->out.next;
        if (is_last(record)) {
            baton__mpi_give_record(mpi, record);
        }
    }
    return true;
}
