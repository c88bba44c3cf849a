/* Posted receives, into which senders write the data.

   A receive is posted in shared memory. Its place there follows from its
   message's header, so that the sender has to look at only one cache line. If
   the receive is posted when the message is sent, the sender copies the data
   (process_vm_writev), and there is neither an offer nor an answer:

       receiver                              sender
       fills the post
       state = MADE         release -> acquire  finds the post of its message
                                             state = TAKEN
                                             writes the data
       takes the packet     <--------------  PUT
       state = NONE

   Only data that the sender has just reduced (token.made) is written. The
   sender writes it from its cache, and need not read the target's cache lines
   first. A receiver that copies instead waits for each line to come out of the
   sender's cache: on 2 cores of a Xeon, 512 KiB that were just written take 38
   to 49 us to read, and 15 to 20 us to write. Other data is read, which all
   receivers do at the same time. If it were written, a sender that comes last
   would first fill its peers' receives, and only then would the peers fill its
   own: all-to-alls of 128 KiB a rank take 9 us if data is read, and 18 us if it
   is written.

   Where ranks share processors, a message that fits into a buffer goes through
   one: the sender continues in its time slice, and the receiver copies the
   message in its own time slice. With 8 ranks on 2 processors, all-reduces of
   32 to 64 KiB took 1.1 to 1.4 times as long when the data was written.

   If an offer came before the receive was posted, and the sender polls, the
   receiver answers the offer by CTS with the target's address. Otherwise the
   receiver reads the data.

   The state is a part of the post's `word` (shm/host.h). A receiver that
   withdraws changes it from MADE to NONE; if it is already TAKEN, the receiver
   waits for the PUT. It stops waiting when the sender is lost, because a
   process that has ended writes nothing. A sender that was stopped, and taken
   for dead, writes nothing, either, when it is continued, unless it was stopped
   immediately before its system call.

   A sender that the system no longer lets write into the target sends PARTs
   instead, which the receiver copies. */
#include "transport/mpi/endpoint.h"

#include "transport/group.h"

#include <errno.h>
#include <string.h>

/* The states, which take two bits of the word, so that the generation above
   them can wrap. */
enum { POST_NONE, POST_MADE, POST_TAKEN, POST_STATES = 4 };

/* Changes a post's state within one generation. Returns false if the post is in
   another state or generation. */
static bool change(baton__host_post_t *post, uint32_t generation, uint32_t from,
                   uint32_t to)
{
    uint32_t word = generation + from;
    return atomic_compare_exchange_strong_explicit(
        &post->word, &word, generation + to, memory_order_acq_rel,
        memory_order_relaxed);
}

/* Returns the index of a message's post. Consecutive messages of a schedule
   have different indices. */
static uint32_t put_place_of(const baton_header_t *header)
{
    return (header->tag + (uint32_t)header->schedule) % BATON__HOST_POSTS;
}

static bool put_is_same(const baton_header_t *a, const baton_header_t *b)
{
    return a->schedule == b->schedule && a->epoch == b->epoch &&
           a->tag == b->tag && a->incarnation == b->incarnation &&
           a->kind == b->kind;
}

/* ---- the receiver ------------------------------------------------------ */

static baton__host_post_t *post_from(const baton__mpi_t *mpi,
                                     const baton__peer_t *peer, uint32_t place)
{
    return &baton__host_posts(&mpi->host, mpi->host.index, peer->local)[place];
}

static baton__host_posted_t *
posted_from(const baton__mpi_t *mpi, const baton__peer_t *peer, uint32_t place)
{
    return &mpi->host.posted[(uint32_t)peer->local * BATON__HOST_POSTS + place];
}

bool baton__mpi_post_receive(void *endpoint, baton_token_t token, int peer,
                             const baton_header_t *header, void *target,
                             size_t bytes)
{
    baton__mpi_t *mpi = endpoint;
    const baton__peer_t *from = &mpi->peers[peer];
    if (from->local < 0 || from->local == mpi->host.index || from->lost ||
        bytes <= mpi->put_above || bytes > mpi->put_bytes) {
        return false;
    }
    uint32_t place = put_place_of(header);
    baton__host_posted_t *posted = posted_from(mpi, from, place);
    if (posted->target != NULL) {
        return false;
    }
    posted->token = token;
    posted->target = target;
    posted->left = bytes;
    posted->generation += POST_STATES;
    baton__host_post_t *post = post_from(mpi, from, place);
    post->header = *header;
    post->address = (uint64_t)(uintptr_t)target;
    post->bytes = bytes;
    /* Pairs with the load in baton__mpi_begin_put. */
    atomic_store_explicit(&post->word, posted->generation + POST_MADE,
                          memory_order_release);
    return true;
}

/* Returns the index of a receive's post; BATON__HOST_POSTS if the receive is
   not posted. */
static uint32_t put_find(const baton__mpi_t *mpi, const baton__peer_t *peer,
                         baton_token_t token)
{
    uint32_t place = peer->local >= 0 ? 0 : BATON__HOST_POSTS;
    for (; place < BATON__HOST_POSTS; place++) {
        const baton__host_posted_t *posted = posted_from(mpi, peer, place);
        if (posted->target != NULL && posted->token.owner == token.owner &&
            posted->token.node == token.node) {
            break;
        }
    }
    return place;
}

/* Withdraws the receive that is posted in this place. Returns false if the
   sender has taken the post. */
static bool put_withdraw(const baton__mpi_t *mpi, const baton__peer_t *peer,
                         uint32_t place)
{
    baton__host_posted_t *posted = posted_from(mpi, peer, place);
    if (!change(post_from(mpi, peer, place), posted->generation, POST_MADE,
                POST_NONE)) {
        return false;
    }
    posted->target = NULL;
    return true;
}

bool baton__mpi_withdraw_receive(void *endpoint, baton_token_t token, int peer)
{
    const baton__mpi_t *mpi = endpoint;
    const baton__peer_t *from = &mpi->peers[peer];
    uint32_t place = put_find(mpi, from, token);
    return place == BATON__HOST_POSTS || put_withdraw(mpi, from, place);
}

bool baton__mpi_end_post(const baton__mpi_t *mpi,
                         const baton_message_t *message, baton_token_t token)
{
    const baton__peer_t *peer = &mpi->peers[message->peer];
    uint32_t place = put_find(mpi, peer, token);
    return place < BATON__HOST_POSTS && put_withdraw(mpi, peer, place);
}

/* Returns false if the sender has not just reduced the data, if the sender
   would need a time slice of a shared processor to write, or if the sender
   would have to be woken. In these cases this rank is done sooner if it reads
   the data itself. */
bool baton__mpi_ask_put(baton__mpi_t *mpi, baton__record_t *record)
{
    const baton__peer_t *peer = &mpi->peers[record->message.peer];
    uint32_t place = put_place_of(&record->message.header);
    if (!mpi->asks || (record->flags & BATON__PACKET_MADE) == 0 ||
        !baton__doorbell_polls(&mpi->host.doorbell.states[peer->local])) {
        return false;
    }
    baton__host_posted_t *posted = posted_from(mpi, peer, place);
    posted->token = record->token;
    posted->target = record->target;
    posted->left = record->message.bytes;
    atomic_store_explicit(&post_from(mpi, peer, place)->word,
                          posted->generation + POST_TAKEN,
                          memory_order_relaxed);
    record->place = place;
    record->part = posted->generation;
    record->parts = 0;
    record->address = (uint64_t)(uintptr_t)record->target;
    return true;
}

void baton__mpi_take_put(baton__mpi_t *mpi, const baton__packet_t *packet)
{
    const baton__peer_t *peer = &mpi->peers[packet->source];
    baton__host_posted_t *posted = posted_from(mpi, peer, packet->place);
    if (posted->target == NULL ||
        !change(post_from(mpi, peer, packet->place), packet->generation,
                POST_TAKEN, POST_NONE)) {
        return; /* the receive has ended with the loss of the peer */
    }
    posted->target = NULL;
    baton__events_received(
        mpi, posted->token, packet->bytes > 0 ? BATON_OK : BATON_ERR_TRANSPORT,
        packet->bytes > 0 ? NULL
                          : "the sender can't write into this rank's memory "
                            "(is the receive's memory freed, or read-only?)");
}

void baton__mpi_take_put_part(baton__mpi_t *mpi, const baton__packet_t *packet)
{
    const baton__peer_t *peer = &mpi->peers[packet->source];
    baton__host_posted_t *posted = posted_from(mpi, peer, packet->place);
    if (posted->target == NULL || posted->generation != packet->generation) {
        return; /* the receive has ended with the loss of the peer */
    }
    memcpy(posted->target, packet->data, packet->bytes);
    posted->target += packet->bytes;
    posted->left -= packet->bytes;
    if (posted->left > 0) {
        baton__events_moved(mpi, posted->token);
    } else {
        baton__mpi_take_put(mpi, packet);
    }
}

bool baton__mpi_end_posted(baton__mpi_t *mpi, baton__peer_t *peer)
{
    for (uint32_t i = 0; peer->local >= 0 && i < BATON__HOST_POSTS; i++) {
        baton__host_posted_t *posted = posted_from(mpi, peer, i);
        if (posted->target == NULL || put_withdraw(mpi, peer, i)) {
            continue;
        }
        if (baton__events_are_full(mpi)) {
            return false;
        }
        (void)change(post_from(mpi, peer, i), posted->generation, POST_TAKEN,
                     POST_NONE);
        posted->target = NULL;
        baton__events_received(mpi, posted->token, BATON_ERR_TRANSPORT,
                               peer->detail);
    }
    return true;
}

/* ---- the sender --------------------------------------------------------- */

void baton__mpi_start_put(baton__mpi_t *mpi, baton__send_t *send,
                          uint32_t place, uint32_t generation, uint64_t address)
{
    send->state = BATON__SEND_PUTTING;
    send->post = place;
    send->posted = generation;
    send->address = address;
    send->moved = 0;
    baton__sends_append(&mpi->putting, send);
}

bool baton__mpi_begin_put(baton__mpi_t *mpi, baton__send_t *send)
{
    const baton__peer_t *peer = &mpi->peers[send->peer];
    if (!send->token.made || send->bytes <= mpi->put_above) {
        return false;
    }
    uint32_t place = put_place_of(&send->header);
    baton__host_post_t *post =
        &baton__host_posts(&mpi->host, peer->local, mpi->host.index)[place];
    uint32_t word = atomic_load_explicit(&post->word, memory_order_acquire);
    const uint32_t generation = word - POST_MADE;
    if (word % POST_STATES != POST_MADE ||
        !put_is_same(&post->header, &send->header) ||
        post->bytes != send->bytes) {
        return false;
    }
    /* If this change of the state fails, the receive was withdrawn meanwhile.
       Then the fields that were read may be those of another receive. */
    uint64_t address = post->address;
    bool taken = change(post, generation, POST_MADE, POST_TAKEN);
    if (taken) {
        baton__mpi_start_put(mpi, send, place, generation, address);
    }
    return taken;
}

bool baton__mpi_put(baton__mpi_t *mpi, baton__send_t *send)
{
    baton__peer_t *peer = &mpi->peers[send->peer];
    size_t bytes = send->bytes - send->moved;
    if (baton__host_is_lost_to(&mpi->host, peer->local)) {
        baton__mpi_lose(mpi, peer, BATON_ERR_TIMEOUT, baton__disowned);
        return false;
    }
    bytes = bytes < BATON__MPI_SLICE_BYTES ? bytes : BATON__MPI_SLICE_BYTES;
    int error = bytes == 0
                    ? 0
                    : baton__host_write(
                          &mpi->host, peer->local, send->address + send->moved,
                          (const char *)send->data + send->moved, bytes);
    if (error == ESRCH) {
        baton__mpi_lose(mpi, peer, BATON_ERR_TRANSPORT,
                        "its process has ended");
        return false;
    }
    if (baton__mpi_is_refused(mpi, peer, error)) {
        return false;
    }
    send->moved += bytes;
    if (error != 0) {
        send->bytes = send->moved = 0;
    }
    const baton__packet_t packet = {.kind = BATON__PACKET_PUT,
                                    .source = (uint32_t)mpi->rank,
                                    .bytes = send->bytes,
                                    .place = send->post,
                                    .generation = send->posted};
    if (send->moved < send->bytes ||
        !baton__mpi_push_local(mpi, peer, &packet, NULL, 0)) {
        return false;
    }
    baton__sends_remove(&mpi->putting, send);
    return true;
}

bool baton__mpi_has_put(const baton__mpi_t *mpi)
{
    const baton__send_t *first = mpi->putting.head;
    return first != NULL && first->moved < first->bytes;
}
