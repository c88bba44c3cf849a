/* Receiving in MPI groups: how an arrived packet is handled, where a message's
   data goes, and how its sender is answered. */
#include "transport/mpi/endpoint.h"

#include "base/clock.h"
#include "transport/group.h"

#include <errno.h>
#include <string.h>

/* The states of an offer; see send.c. An offer that was taken must be
   answered. */
enum { OFFER_MADE = 1, OFFER_TAKEN };

/* How much of a buffer's data is prefetched from the sender's cache while the
   engine looks for the message's receive: as many cache lines as a processor
   loads at a time. */
enum { FETCHED_BYTES = 16 * 64 };

/* ---- arrival ---------------------------------------------------------- */

/* Takes a packet's part of its message. Returns the address of the message's
   data if it already is, in one piece, in memory that this rank can read;
   otherwise NULL. */
static const void *take_content(baton__mpi_t *mpi, baton__record_t *record,
                                const baton__packet_t *packet)
{
    if (packet->kind == BATON__PACKET_SHORT) {
        memcpy(record->data, packet->data, packet->bytes);
        return record->data;
    }
    if (packet->kind == BATON__PACKET_BUFFER) {
        const char *data =
            baton__host_buffer(&mpi->host, mpi->peers[packet->source].local,
                               packet->place)
                ->data;
        for (size_t i = 0; i < packet->bytes && i < FETCHED_BYTES; i += 64) {
            __builtin_prefetch(data + i);
        }
        return data;
    }
    if (packet->kind == BATON__PACKET_BODY) {
        baton__net_keep(mpi, record);
        return packet->bytes <= BATON__BODY_BYTES
                   ? record->bodies[0]->bytes + BATON__NET_PACKET_HEAD
                   : NULL;
    }
    if (packet->kind == BATON__PACKET_OFFER) {
        record->address = packet->address;
    }
    return NULL;
}

static bool mpi_receive_arrive(baton__mpi_t *mpi, const baton__packet_t *packet)
{
    baton__record_t *record = baton__mpi_take_record(mpi);
    if (record == NULL) {
        return false;
    }
    record->kind = packet->kind;
    record->flags = packet->flags;
    record->id = packet->id;
    record->generation = packet->generation;
    record->place = packet->place;
    record->copied = record->arrived = 0;
    record->parts = record->body_count = 0;
    record->message.header = packet->header;
    record->message.bytes = packet->bytes;
    record->message.peer = (int)packet->source;
    record->message.data = take_content(mpi, record, packet);
    if (packet->kind == BATON__PACKET_BODY && record->arrived < packet->bytes) {
        mpi->peers[packet->source].begun = record;
        return true;
    }
    baton__events_add(mpi, (baton_event_t){.kind = BATON_EVENT_ARRIVED,
                                           .message = &record->message});
    return true;
}

/* Handles TAIL: more data of a body. */
static void take_tail(baton__mpi_t *mpi, const baton__packet_t *packet)
{
    baton__peer_t *peer = &mpi->peers[packet->source];
    baton__record_t *record = peer->begun;
    if (record == NULL) {
        return; /* the message has ended with the loss of the peer */
    }
    baton__net_keep(mpi, record);
    if (record->arrived == record->message.bytes) {
        peer->begun = NULL;
        baton__events_add(mpi, (baton_event_t){.kind = BATON_EVENT_ARRIVED,
                                               .message = &record->message});
    }
}

/* Handles PART: the next data of an offer that this rank could not read. */
static void mpi_receive_take_part(baton__mpi_t *mpi,
                                  const baton__packet_t *packet)
{
    baton__records_t *in_parts = &mpi->peers[packet->source].in_parts;
    baton__record_t *record = in_parts->head;
    while (record != NULL && (record->id != packet->id ||
                              record->generation != packet->generation)) {
        record = record->next;
    }
    if (record == NULL) {
        return; /* the message has ended with the loss of the peer */
    }
    memcpy(record->target + record->arrived, packet->data, packet->bytes);
    record->arrived += packet->bytes;
    if (record->arrived < record->message.bytes) {
        baton__events_moved(mpi, record->token);
    } else {
        baton__records_remove(in_parts, record);
        baton__events_received(mpi, record->token, BATON_OK, NULL);
        baton__mpi_give_record(mpi, record);
    }
}

bool baton__mpi_take_packet(baton__mpi_t *mpi, const baton__packet_t *packet)
{
    baton__peer_t *peer = &mpi->peers[packet->source];
    switch ((baton__packet_kind_t)packet->kind) {
    case BATON__PACKET_SHORT:
    case BATON__PACKET_BUFFER:
    case BATON__PACKET_OFFER:
    case BATON__PACKET_BODY:
    case BATON__PACKET_RTS:
        return mpi_receive_arrive(mpi, packet);
    case BATON__PACKET_TAIL:
        take_tail(mpi, packet);
        break;
    case BATON__PACKET_PUT:
        baton__mpi_take_put(mpi, packet);
        break;
    case BATON__PACKET_FIN:
        baton__mpi_take_fin(mpi, packet);
        break;
    case BATON__PACKET_CTS:
    case BATON__PACKET_COPY:
        baton__mpi_take_cts(mpi, packet);
        break;
    case BATON__PACKET_PART:
        (packet->place < BATON__HOST_POSTS
             ? baton__mpi_take_put_part
             : mpi_receive_take_part)(mpi, packet);
        break;
    case BATON__PACKET_LAST:
        peer->last_received = true;
        break;
    case BATON__PACKET_ASK:
        /* If the reply can't be sent now, the peer asks again later. */
        (void)baton__net_signal(mpi, peer, BATON__PACKET_CREDIT);
        break;
    case BATON__PACKET_DOUBT:
        peer->lived_ns = baton__clock_ns();
        peer->reply_due = !baton__net_signal(mpi, peer, BATON__PACKET_LIVES);
        mpi->net.credits_due |= peer->reply_due;
        break;
    case BATON__PACKET_LIVES:
    case BATON__PACKET_CREDIT:
        if (packet->kind == BATON__PACKET_LIVES) {
            peer->lived_ns = peer->doubted_ns;
        }
        if ((packet->flags & BATON__PACKET_DISOWNS) != 0) {
            baton__mpi_lose(mpi, peer, BATON_ERR_TIMEOUT, baton__disowned);
        }
        break;
    }
    return true;
}

/* ---- answers -------------------------------------------- */

static void give_credit(baton__mpi_t *mpi, baton__peer_t *peer, bool notice)
{
    if (peer->local >= 0) {
        baton__credit_t *credit =
            baton__host_credit(&mpi->host, mpi->host.index, peer->local);
        _Atomic uint32_t *count = notice ? &credit->notices : &credit->messages;
        uint32_t given = atomic_load_explicit(count, memory_order_relaxed);
        /* Only this rank writes the count. The store pairs with the acquire
           load in has_credit, send.c: when the sender sees the new count, the
           record is free again. */
        atomic_store_explicit(count, given + 1, memory_order_release);
        return;
    }
    (notice ? &peer->notices : &peer->messages)->granted++;
    mpi->net.credits_due |= baton__net_owes_credits(mpi, peer);
}

/* Finishes a message: frees its buffers, and gives its sender a credit, or
   FIN. */
static void mpi_receive_release(baton__mpi_t *mpi, baton__record_t *record)
{
    baton__peer_t *peer = &mpi->peers[record->message.peer];
    if (record->kind == BATON__PACKET_BUFFER) {
        /* Pairs with the acquire load in fill_buffer, send.c: when the sender
           sees the 0, the buffer was read. */
        atomic_store_explicit(
            &baton__host_buffer(&mpi->host, peer->local, record->place)->full,
            0, memory_order_release);
    }
    baton__net_give_body(mpi, record);
    if ((record->flags & (BATON__PACKET_CREDITED | BATON__PACKET_NOTICE)) !=
        0) {
        bool notice = (record->flags & BATON__PACKET_NOTICE) != 0;
        baton__mpi_give_record(mpi, record);
        give_credit(mpi, peer, notice);
    } else {
        baton__mpi_answer(mpi, record, BATON__PACKET_FIN);
    }
}

/* ---- offers ----------------------------------------------------------- */

/* Takes an offer. Returns false if its sender has taken it back. */
static bool take_offer(const baton__mpi_t *mpi, const baton__record_t *record)
{
    uint32_t made = record->generation << 2 | OFFER_MADE;
    int local = mpi->peers[record->message.peer].local;
    return atomic_compare_exchange_strong_explicit(
        baton__host_offer(&mpi->host, local, record->id), &made,
        record->generation << 2 | OFFER_TAKEN, memory_order_relaxed,
        memory_order_relaxed);
}

/* Returns the address at which this rank can read the data of an offer in
   place. Returns NULL if it can read the data only by CMA, or not at all. */
static const char *source_of(baton__mpi_t *mpi, const baton__record_t *record)
{
    int local = mpi->peers[record->message.peer].local;
    if (local == mpi->host.index) {
        return (const char *)(uintptr_t)record->address;
    }
    return record->place == 0
               ? NULL
               : baton__mappings_find(&mpi->host.mappings, local, record->place,
                                      record->address, record->message.bytes);
}

/* Asks the sender to send the data of an offer in PARTs. The offer was taken,
   but its data can't be read. */
static void ask_parts(baton__mpi_t *mpi, baton__record_t *record)
{
    record->arrived = 0;
    baton__records_append(&mpi->peers[record->message.peer].in_parts, record);
    baton__mpi_answer(mpi, record, BATON__PACKET_COPY);
}

/* Called when data of an offer has been read in its sender's memory. Returns
   false, and marks the sender as lost, if the sender has lost this rank: this
   rank was stopped meanwhile, and the sender's application may have changed the
   data since. */
static bool was_there(baton__mpi_t *mpi, const baton__record_t *record)
{
    baton__peer_t *peer = &mpi->peers[record->message.peer];
    bool there = record->kind != BATON__PACKET_OFFER ||
                 !baton__host_is_lost_to(&mpi->host, peer->local);
    if (!there) {
        baton__mpi_lose(mpi, peer, BATON_ERR_TIMEOUT, baton__disowned);
    }
    return there;
}

/* Reads a part of a message from its sender's memory by CMA. Returns NULL, or a
   sentence that says what is wrong. If the sender's process has ended, the
   sender is marked as lost. If the system refuses the copy, the record's kind
   becomes COPY. */
static const char *read_source(baton__mpi_t *mpi, baton__record_t *record,
                               size_t offset, size_t bytes, void *target)
{
    baton__peer_t *peer = &mpi->peers[record->message.peer];
    int error = baton__host_read(&mpi->host, peer->local, target,
                                 record->address + offset, bytes);
    if (error == ESRCH) {
        baton__mpi_lose(mpi, peer, BATON_ERR_TRANSPORT,
                        "its process has ended");
    }
    if (baton__mpi_is_refused(mpi, peer, error) && !peer->lost) {
        record->kind = BATON__PACKET_COPY;
    }
    if (error == 0 && was_there(mpi, record)) {
        return NULL;
    }
    return peer->lost ? peer->detail
                      : "its memory can't be read: was a vector freed before "
                        "its epoch ended? Keep vectors until wait has returned";
}

static const char *mpi_receive_copy_slice(baton__mpi_t *mpi,
                                          baton__record_t *record)
{
    size_t bytes = record->message.bytes - record->copied;
    char *target = record->target + record->copied;
    const char *wrong = NULL;
    bytes = bytes < BATON__MPI_SLICE_BYTES ? bytes : BATON__MPI_SLICE_BYTES;
    if (record->source != NULL) {
        memcpy(target, record->source + record->copied, bytes);
        wrong = was_there(mpi, record)
                    ? NULL
                    : mpi->peers[record->message.peer].detail;
    } else {
        wrong = read_source(mpi, record, record->copied, bytes, target);
    }
    record->copied += bytes;
    return wrong;
}

void baton__mpi_copy(baton__mpi_t *mpi)
{
    baton__record_t *record = mpi->copying.head;
    const char *wrong = mpi_receive_copy_slice(mpi, record);
    if (wrong == NULL && record->copied < record->message.bytes) {
        baton__events_moved(mpi, record->token);
        return;
    }
    (void)baton__records_take(&mpi->copying);
    if (record->kind == BATON__PACKET_COPY) {
        ask_parts(mpi, record);
        return;
    }
    baton__events_received(mpi, record->token,
                           wrong == NULL ? BATON_OK : BATON_ERR_TRANSPORT,
                           wrong);
    mpi_receive_release(mpi, record);
}

static baton_status_t accept_offer(baton__mpi_t *mpi, baton__record_t *record,
                                   bool posted)
{
    if (!take_offer(mpi, record)) {
        baton__mpi_give_record(mpi, record);
        return BATON_ERR_CANCELLED;
    }
    if (posted && baton__mpi_ask_put(mpi, record)) {
        baton__mpi_answer(mpi, record, BATON__PACKET_CTS);
        return BATON_OK;
    }
    int peer = record->message.peer;
    const char *wrong = NULL;
    if (record->source == NULL && mpi->peers[peer].refused) {
        record->kind = BATON__PACKET_COPY;
    } else if (record->message.bytes > BATON__MPI_AT_ONCE_BYTES) {
        baton__records_append(&mpi->copying, record);
        return BATON_OK;
    } else {
        wrong = mpi_receive_copy_slice(mpi, record);
    }
    if (record->kind == BATON__PACKET_COPY) {
        ask_parts(mpi, record);
        return BATON_OK;
    }
    mpi_receive_release(mpi, record);
    return wrong == NULL ? BATON_DONE : baton__mpi_fail_peer(mpi, peer, wrong);
}

/* ---- data in MPI messages ------------------------------------- */

/* Starts to pull the next messages from the peer, as long as fewer than
   BATON__MPI_PULLS of its messages are being pulled. */
static void pull_next(baton__mpi_t *mpi, baton__peer_t *peer)
{
    while (peer->pulling < BATON__MPI_PULLS && peer->pulled.head != NULL) {
        baton__record_t *record = baton__records_take(&peer->pulled);
        peer->pulling++;
        record->place = 1 + peer->next_pull++ % BATON__MPI_TAGS;
        record->part = mpi->net.part_bytes;
        baton__net_receive(mpi, record);
        baton__mpi_answer(mpi, record, BATON__PACKET_CTS);
    }
}

void baton__mpi_received(baton__mpi_t *mpi, baton__record_t *record)
{
    baton__peer_t *peer = &mpi->peers[record->message.peer];
    bool whole = record->arrived == record->message.bytes;
    baton__events_received(mpi, record->token,
                           whole ? BATON_OK : BATON_ERR_CANCELLED, NULL);
    baton__mpi_give_record(mpi, record);
    peer->pulling--;
    pull_next(mpi, peer);
}

/* ---- the port's functions --------------------------------------------- */

static baton__record_t *mpi_receive_record_of(const baton_message_t *message)
{
    return (baton__record_t *)((char *)(uintptr_t)message -
                               offsetof(baton__record_t, message));
}

baton_status_t baton__mpi_accept(void *endpoint, baton_message_t *message,
                                 baton_token_t token, void *target)
{
    baton__mpi_t *mpi = endpoint;
    baton__record_t *record = mpi_receive_record_of(message);
    bool posted = message->bytes > mpi->put_above &&
                  baton__mpi_end_post(mpi, message, token);
    if (message->data != NULL || message->bytes == 0 ||
        record->body_count > 0) {
        if (record->body_count > 0) {
            baton__net_copy_body(record, target);
        } else if (message->bytes > 0) {
            memcpy(target, message->data, message->bytes);
        }
        mpi_receive_release(mpi, record);
        return BATON_DONE;
    }
    record->token = token;
    record->target = target;
    if (mpi->peers[message->peer].lost) {
        baton__mpi_give_record(mpi, record);
        return baton__mpi_fail_peer(mpi, message->peer, NULL);
    }
    /* The message was lent to the engine, but baton__mpi_read could not read
       it, because the system has refused the copy. */
    if (record->kind == BATON__PACKET_COPY) {
        ask_parts(mpi, record);
        return BATON_OK;
    }
    if (record->kind == BATON__PACKET_OFFER) {
        record->source = source_of(mpi, record);
        if (record->source != NULL || mpi->reads) {
            return accept_offer(mpi, record, posted);
        }
        /* This rank can't map the segment, and may not read the sender's
           memory, so the data comes in MPI messages. */
        record->kind = BATON__PACKET_RTS;
    }
    baton__peer_t *peer = &mpi->peers[message->peer];
    baton__records_append(&peer->pulled, record);
    pull_next(mpi, peer);
    return BATON_OK;
}

baton_status_t baton__mpi_lend(void *endpoint, baton_message_t *message)
{
    baton__mpi_t *mpi = endpoint;
    baton__record_t *record = mpi_receive_record_of(message);
    bool readable = message->data != NULL;
    if (!readable && record->kind == BATON__PACKET_OFFER &&
        !mpi->peers[message->peer].lost) {
        message->data = source_of(mpi, record);
        readable = message->data != NULL ||
                   (mpi->reads && !mpi->peers[message->peer].refused);
        if (readable && !take_offer(mpi, record)) {
            baton__mpi_give_record(mpi, record);
            return BATON_ERR_CANCELLED;
        }
    }
    return readable ? BATON_DONE : BATON_AGAIN;
}

baton_status_t baton__mpi_read(void *endpoint, const baton_message_t *message,
                               size_t offset, size_t bytes, void *target)
{
    baton__record_t *record = mpi_receive_record_of(message);
    const char *wrong = read_source(endpoint, record, offset, bytes, target);
    if (wrong == NULL) {
        return BATON_OK;
    }
    return record->kind == BATON__PACKET_COPY
               ? BATON_AGAIN
               : baton__mpi_fail_peer(endpoint, message->peer, wrong);
}

void *baton__mpi_allocate(void *endpoint, size_t bytes)
{
    baton__mpi_t *mpi = endpoint;
    return baton__segments_allocate(&mpi->host.segments, bytes);
}

void baton__mpi_deallocate(void *endpoint, void *memory)
{
    baton__mpi_t *mpi = endpoint;
    baton__segments_release(&mpi->host.segments, memory);
}

void baton__mpi_drop(void *endpoint, baton_message_t *message)
{
    mpi_receive_release(endpoint, mpi_receive_record_of(message));
}

bool baton__mpi_end_pulled(baton__mpi_t *mpi, baton__peer_t *peer)
{
    while (peer->pulled.head != NULL || peer->in_parts.head != NULL) {
        if (baton__events_are_full(mpi)) {
            return false;
        }
        baton__record_t *record = baton__records_take(
            peer->pulled.head != NULL ? &peer->pulled : &peer->in_parts);
        baton__events_received(mpi, record->token, BATON_ERR_TRANSPORT,
                               peer->detail);
        baton__mpi_give_record(mpi, record);
    }
    return true;
}
