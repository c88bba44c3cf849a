/* What goes through MPI: packets to other hosts, and when it is called at all;
   data that move beside them are moving.c's.

   Packets come into receives that are posted for any rank. MPI matches what one
   rank sends in the order in which it was sent, with receives in the order in
   which they were posted; so the oldest is looked at alone.

   Sends are tested as they are posted: Open MPI has nearly always copied short
   ones by then, and they are over. */
#include "transport/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <sched.h>
#include <string.h>
#include <time.h>

enum {
    PACKET_TAG = 0,
    /* Polls that find nothing, after which only every eighth looks; and every
       so many, at the links too, if no thread waits at them. */
    QUIET_POLLS = 64,
    LINK_POLLS = 1024,
    /* Who was rung so lately looks for more by itself: see sleep.c. */
    RANG_NS = 400000
};

/* ---- MPI_Finalize ----------------------------------------------------- */

static void lose_all(baton__mpi_t *mpi, const char *detail)
{
    for (int i = 0; i < mpi->size; i++) {
        if (mpi->peers[i].near < 0) {
            baton__mpi_lose(mpi, &mpi->peers[i], detail);
        }
    }
}

/* Whether MPI may be called: not after MPI_Finalize has begun. What is called
   for then is the end of all peers that are reached through MPI. */
bool baton__far_enter(baton__mpi_t *mpi)
{
    baton__far_t *far = &mpi->far;
    /* Pairs with the store and the load in on_finalize(), open.c: one of the
       two sees the other. */
    atomic_fetch_add_explicit(&far->inside, 1, memory_order_seq_cst);
    if (!atomic_load_explicit(&far->over, memory_order_seq_cst)) {
        return true;
    }
    atomic_fetch_sub_explicit(&far->inside, 1, memory_order_release);
    lose_all(mpi, "MPI_Finalize was called on this rank");
    return false;
}

void baton__far_leave(baton__mpi_t *mpi)
{
    atomic_fetch_sub_explicit(&mpi->far.inside, 1, memory_order_release);
}

const char *baton__far_text(baton__mpi_t *mpi, int code)
{
    int length = 0;
    if (MPI_Error_string(code, mpi->far.detail, &length) != MPI_SUCCESS) {
        mpi->far.detail[0] = '\0';
    }
    return mpi->far.detail;
}

/* MPI refuses: what it says is why the peer is lost. */
void baton__far_fail(baton__mpi_t *mpi, int peer, int code)
{
    baton__mpi_lose(mpi, &mpi->peers[peer], baton__far_text(mpi, code));
}

/* ---- packets ---------------------------------------------------------- */

/* Something goes to the peer: if it may be asleep, wakes it. */
static void ring(baton__mpi_t *mpi, baton__peer_t *peer)
{
    uint64_t now = baton__clock_ns();
    mpi->far.now_ns = now;
    mpi->far.quiet = 0;
    if (now - peer->rang_ns > RANG_NS) {
        peer->rang_ns = now;
        baton__links_ring(&peer->link);
    }
}

/* What every packet says: how much its receiver was granted. */
static uint32_t tell_credits(baton__peer_t *peer)
{
    peer->messages.told = peer->messages.given;
    peer->notices.told = peer->notices.given;
    return peer->notices.given << 16 | (peer->messages.given & 0xffff);
}

static void hear_credits(baton__peer_t *peer, uint32_t word)
{
    baton__account_t *messages = &peer->messages;
    baton__account_t *notices = &peer->notices;
    messages->granted += (uint16_t)(word - messages->granted);
    notices->granted +=
        (uint16_t)((word >> 16) - (notices->granted - BATON__MPI_NOTICES));
}

/* Tests the send of a packet: true, its memory is free. In MPI. */
static bool has_left(baton__mpi_t *mpi, uint32_t slot)
{
    baton__far_t *far = &mpi->far;
    int over = 1;
    if (far->departures[slot] == MPI_REQUEST_NULL) {
        return true;
    }
    int code = MPI_Test(&far->departures[slot], &over, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
        far->departures[slot] = MPI_REQUEST_NULL;
        baton__far_fail(mpi, far->destinations[slot], code);
    }
    return code != MPI_SUCCESS || over;
}

bool baton__far_push(baton__mpi_t *mpi, baton__peer_t *peer,
                     baton__packet_t *packet, const void *data, size_t count)
{
    baton__far_t *far = &mpi->far;
    uint32_t slot = far->departure % BATON__MPI_PACKETS;
    baton__packet_t *memory = &far->departed[slot];
    int to = (int)(peer - mpi->peers);
    if (!baton__far_enter(mpi)) {
        return true; /* as sent: the peer is lost */
    }
    bool room = has_left(mpi, slot);
    if (room) {
        packet->word = tell_credits(peer);
        memcpy(memory, packet, BATON__PACKET_HEAD);
        if (count > 0) {
            memcpy(memory->data, data, count);
        }
        far->destinations[slot] = to;
        int code =
            MPI_Isend(memory, (int)(BATON__PACKET_HEAD + count), MPI_BYTE, to,
                      PACKET_TAG, mpi->comm, &far->departures[slot]);
        if (code != MPI_SUCCESS) {
            far->departures[slot] = MPI_REQUEST_NULL;
            baton__far_fail(mpi, to, code);
        } else {
            far->leaving += !has_left(mpi, slot);
        }
        far->departure++;
        peer->packets_sent++;
        ring(mpi, peer);
    }
    baton__far_leave(mpi);
    return room;
}

/* Packets that MPI could not send at once: rings for those that it has. In
   MPI. */
static void see_off(baton__mpi_t *mpi)
{
    baton__far_t *far = &mpi->far;
    far->leaving = 0;
    for (uint32_t slot = 0; slot < BATON__MPI_PACKETS; slot++) {
        if (far->departures[slot] == MPI_REQUEST_NULL) {
            continue;
        }
        if (has_left(mpi, slot)) {
            ring(mpi, &mpi->peers[far->destinations[slot]]);
        } else {
            far->leaving++;
        }
    }
}

void baton__far_credit(baton__mpi_t *mpi, baton__peer_t *peer)
{
    uint32_t messages = peer->messages.given - peer->messages.told;
    uint32_t notices = peer->notices.given - peer->notices.told;
    if (peer->lost || mpi->far.leaves ||
        (2 * messages < mpi->window && 2 * notices < BATON__MPI_NOTICES)) {
        return;
    }
    baton__packet_t packet = {.kind = BATON__PACKET_CREDIT,
                              .source = (uint32_t)mpi->rank};
    if (!baton__far_push(mpi, peer, &packet, NULL, 0)) {
        mpi->far.owes = true;
    }
}

static void credit_all(baton__mpi_t *mpi)
{
    mpi->far.owes = false;
    for (int i = 0; i < mpi->size; i++) {
        if (mpi->peers[i].near < 0) {
            baton__far_credit(mpi, &mpi->peers[i]);
        }
    }
}

static int post_arrival(baton__mpi_t *mpi, uint32_t slot)
{
    return MPI_Irecv(&mpi->far.arrived[slot], sizeof(baton__packet_t), MPI_BYTE,
                     MPI_ANY_SOURCE, PACKET_TAG, mpi->comm,
                     &mpi->far.arrivals[slot]);
}

/* The oldest packet that has come and was not taken; NULL. In MPI. */
static const baton__packet_t *look(baton__mpi_t *mpi)
{
    baton__far_t *far = &mpi->far;
    uint32_t slot = far->arrival % BATON__MPI_PACKETS;
    int come = far->waiting;
    if (!come) {
        MPI_Status status;
        int code = MPI_Test(&far->arrivals[slot], &come, &status);
        if (code != MPI_SUCCESS) {
            lose_all(mpi, baton__far_text(mpi, code));
            come = 0;
        }
        far->waiting = come != 0;
    }
    return come ? &far->arrived[slot] : NULL;
}

/* Takes packets as long as there is room for what they bring. In MPI. */
static bool take_packets(baton__mpi_t *mpi, baton__events_t *events)
{
    baton__far_t *far = &mpi->far;
    bool any = false;
    const baton__packet_t *packet;
    while (!baton__events_are_full(events) && (packet = look(mpi)) != NULL) {
        baton__peer_t *peer = &mpi->peers[packet->source];
        hear_credits(peer, packet->word);
        if (!baton__mpi_take_packet(mpi, packet, events)) {
            break;
        }
        any = true;
        peer->packets_taken++;
        far->waiting = false;
        int code = post_arrival(mpi, far->arrival++ % BATON__MPI_PACKETS);
        if (code != MPI_SUCCESS) {
            lose_all(mpi, baton__far_text(mpi, code));
        }
    }
    if (any) {
        far->now_ns = baton__clock_ns();
    }
    return any;
}

/* ---- links ------------------------------------------------------------ */

static baton__link_t *link_of(void *arg, int peer)
{
    baton__mpi_t *mpi = arg;
    return &mpi->peers[peer].link;
}

static void take_news(void *arg, int peer, baton__link_news_t news,
                      const char *detail)
{
    baton__mpi_t *mpi = arg;
    if (news == BATON__LINK_LOST) {
        baton__mpi_lose(mpi, &mpi->peers[peer], detail);
        return;
    }
    mpi->far.now_ns = baton__clock_ns();
    mpi->far.quiet = 0;
}

void baton__far_contact(baton__mpi_t *mpi, baton__peer_t *peer)
{
    if (peer->near < 0) {
        baton__links_connect(&mpi->far.links, (int)(peer - mpi->peers),
                             &peer->link);
        baton__far_credit(mpi, peer);
    }
}

/* ---- polling ---------------------------------------------------------- */

static void look_at_links(baton__mpi_t *mpi)
{
    baton__far_t *far = &mpi->far;
    if (far->quiet % LINK_POLLS == LINK_POLLS - 1) {
        baton__links_drain(&far->links);
    }
    baton__links_poll(&far->links, link_of, take_news, mpi);
}

void baton__far_poll(baton__mpi_t *mpi, baton__events_t *events)
{
    baton__far_t *far = &mpi->far;
    if (far->peers > 0) {
        look_at_links(mpi);
        if (++far->quiet > QUIET_POLLS && far->count == 0 &&
            far->quiet % 8 != 0) {
            return;
        }
    }
    if (!baton__far_enter(mpi)) {
        return;
    }
    bool any = far->peers > 0 && take_packets(mpi, events);
    if (far->count > 0) {
        any = baton__far_take_moved(mpi, events) || any;
    }
    if (far->leaving > 0) {
        see_off(mpi);
    }
    baton__far_leave(mpi);
    if (any) {
        far->quiet = 0;
    }
    if (far->owes) {
        credit_all(mpi);
    }
}

bool baton__far_has_come(baton__mpi_t *mpi)
{
    baton__far_t *far = &mpi->far;
    if (atomic_load_explicit(&far->links.rang, memory_order_relaxed) ||
        !baton__far_enter(mpi)) {
        return true;
    }
    bool come = look(mpi) != NULL;
    baton__far_leave(mpi);
    return come;
}

/* ---- open, close ------------------------------------------------------ */

baton_status_t baton__far_reserve(baton__mpi_t *mpi, int capacity)
{
    baton__far_t *far = &mpi->far;
    if (capacity <= far->capacity) {
        return BATON_OK;
    }
    MPI_Request *requests = baton__grow(far->requests, (size_t)far->count,
                                        (size_t)capacity, sizeof *requests);
    if (requests == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    far->requests = requests;
    baton__moving_t *moving = baton__grow(far->moving, (size_t)far->count,
                                          (size_t)capacity, sizeof *moving);
    if (moving == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    far->moving = moving;
    far->capacity = capacity;
    return BATON_OK;
}

baton_status_t baton__far_open(baton__mpi_t *mpi)
{
    baton__far_t *far = &mpi->far;
    if (far->peers == 0) {
        return BATON_OK;
    }
    far->arrived = baton__alloc(BATON__MPI_PACKETS, sizeof *far->arrived);
    far->departed = baton__alloc(BATON__MPI_PACKETS, sizeof *far->departed);
    far->sink = baton__alloc(BATON__MPI_BODY_BYTES, 1);
    if (far->arrived == NULL || far->departed == NULL || far->sink == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: no memory for messages between hosts");
    }
    for (uint32_t slot = 0; slot < BATON__MPI_PACKETS; slot++) {
        int code = post_arrival(mpi, slot);
        if (code != MPI_SUCCESS) {
            return baton__mpi_error("MPI_Irecv", code);
        }
    }
    return BATON_OK;
}

static void cancel(MPI_Request *request)
{
    if (*request != MPI_REQUEST_NULL) {
        (void)MPI_Cancel(request);
        (void)MPI_Request_free(request);
    }
}

void baton__far_close(baton__mpi_t *mpi)
{
    baton__far_t *far = &mpi->far;
    if (baton__far_enter(mpi)) {
        for (uint32_t slot = 0; far->peers > 0 && slot < BATON__MPI_PACKETS;
             slot++) {
            cancel(&far->arrivals[slot]);
            cancel(&far->departures[slot]);
        }
        baton__far_leave(mpi);
    }
    for (int i = 0; i < mpi->size; i++) {
        baton__links_leave(&mpi->peers[i].link);
    }
    baton__links_close(&far->links);
    baton__free(far->requests);
    baton__free(far->moving);
    baton__free(far->arrived);
    baton__free(far->departed);
    baton__free(far->sink);
}

/* Takes what comes, and wants none of it. */
static void take_nothing(baton__mpi_t *mpi)
{
    baton_event_t events[16];
    size_t count = baton__mpi_poll(mpi, events, 16);
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == BATON_EVENT_ARRIVED) {
            baton__mpi_drop(mpi, events[i].message);
        }
    }
}

static bool is_drained(const baton__mpi_t *mpi, const uint32_t *expected)
{
    for (int i = 0; i < mpi->size; i++) {
        if (mpi->peers[i].near < 0 &&
            mpi->peers[i].packets_taken != expected[i]) {
            return false;
        }
    }
    return mpi->far.count == 0 && mpi->far.leaving == 0;
}

static void pause_a_little(baton__mpi_t *mpi)
{
    const struct timespec nap = {.tv_nsec = 50000};
    if (++mpi->far.quiet < QUIET_POLLS) {
        (void)sched_yield();
    } else {
        (void)nanosleep(&nap, NULL);
    }
}

/* All ranks tell each other how many packets they have sent; from then on none
   sends any. So none leaves, either, before all have come. */
void baton__far_drain(baton__mpi_t *mpi, uint64_t deadline_ns)
{
    size_t size = (size_t)mpi->size;
    uint32_t *counts = baton__alloc(2 * size, sizeof *counts);
    if (counts == NULL || !baton__far_enter(mpi)) {
        baton__free(counts);
        return;
    }
    MPI_Request request;
    int told = 0;
    mpi->far.leaves = true;
    mpi->far.quiet = 0;
    for (size_t i = 0; i < size; i++) {
        counts[i] = mpi->peers[i].packets_sent;
    }
    int code = MPI_Ialltoall(counts, 1, MPI_UINT32_T, counts + size, 1,
                             MPI_UINT32_T, mpi->comm, &request);
    while (code == MPI_SUCCESS && mpi->lost == 0 &&
           baton__clock_ns() < deadline_ns) {
        code =
            told ? MPI_SUCCESS : MPI_Test(&request, &told, MPI_STATUS_IGNORE);
        take_nothing(mpi);
        if (told && is_drained(mpi, counts + size)) {
            break;
        }
        pause_a_little(mpi);
    }
    baton__far_leave(mpi);
    if (told) {
        baton__free(counts); /* else MPI may still write there */
    }
}
