/* How an MPI endpoint is polled, and how it sleeps.

   Ranks of this host ring its doorbell, those of other hosts its link. What a
   rank on another host has sent comes over MPI and may come after the ring: so
   for a while after a ring this rank looks again after short sleeps. A sender
   that has rung so lately need not ring again at once; RANG_NS in far.c is well
   below this while.

   However late MPI is, nobody sleeps for good who waits for it: a ring tells
   how many packets were sent. Until they have come, and while data are in
   motion, this rank polls, and rings those that it waits for, whose MPI may
   have to be called, too. A sender polls until it has told of all that it has
   sent. */
#include "transport/mpi/endpoint.h"

#include "base/clock.h"
#include "base/config.h"

enum {
    AFTER_RING_NS = 1000000, /* that while */
    AFTER_RING_US = 50,      /* such a sleep */
    MOVING_US = 1000         /* MPI moves data only while it is called */
};

/* ---- polling ----------------------------------------------------------- */

static void poll_near(baton__mpi_t *mpi, baton__events_t *events)
{
    baton__ring_t *ring = baton__host_ring(&mpi->host, mpi->host.index);
    while (!baton__events_are_full(events)) {
        const baton__packet_t *packet = baton__ring_front(ring);
        if (packet == NULL || !baton__mpi_take_packet(mpi, packet, events)) {
            return;
        }
        baton__ring_pop(ring);
    }
}

static bool take_far_packets(baton__mpi_t *mpi, baton__events_t *events)
{
    const baton__packet_t *packet;
    bool any = false;
    while (!baton__events_are_full(events) &&
           (packet = baton__far_front(mpi)) != NULL &&
           baton__mpi_take_packet(mpi, packet, events)) {
        baton__far_pop(mpi);
        any = true;
    }
    if (any) {
        mpi->far.now_ns = baton__clock_ns();
    }
    return any;
}

static bool complete_transfers(baton__mpi_t *mpi, baton__events_t *events)
{
    baton__transfer_t transfer;
    bool any = false;
    while (!baton__events_are_full(events) &&
           baton__far_next_transfer(mpi, &transfer)) {
        if (transfer.send != NULL) {
            baton__mpi_end_send(mpi, transfer.send, transfer.status,
                                transfer.detail, events);
        } else if (transfer.discarded) {
            baton__mpi_release(mpi, transfer.record);
        } else if (transfer.record != NULL) {
            baton__mpi_received(mpi, transfer.record, transfer.bytes,
                                transfer.status, transfer.detail, events);
        }
        any = true;
    }
    return any;
}

static void poll_far(baton__mpi_t *mpi, baton__events_t *events)
{
    if (!baton__far_begin_poll(mpi)) {
        return;
    }
    bool found = mpi->far.peers > 0 && take_far_packets(mpi, events);
    found |= complete_transfers(mpi, events);
    baton__far_end_poll(mpi, found);
}

static void tell_lost(baton__mpi_t *mpi, baton__events_t *events)
{
    for (int i = 0; i < mpi->size && mpi->untold > 0; i++) {
        baton__peer_t *peer = &mpi->peers[i];
        if (!peer->lost || peer->told) {
            continue;
        }
        if (!baton__mpi_end_sends(mpi, peer, events) ||
            !baton__mpi_end_pulled(mpi, peer, events) ||
            !baton__far_end(mpi, peer, events) ||
            baton__events_are_full(events)) {
            return; /* the next poll goes on */
        }
        baton__events_add(events, (baton_event_t){.kind = BATON_EVENT_LOST,
                                                  .status = BATON_ERR_TRANSPORT,
                                                  .peer = i,
                                                  .detail = peer->detail});
        peer->told = true;
        mpi->untold--;
    }
}

static void ring_due(baton__mpi_t *mpi, baton__due_ring_t when)
{
    int gone;
    while (mpi->host.doorbell.due_count > 0 &&
           (gone = baton__doorbell_ring_due(&mpi->host.doorbell, when)) >= 0) {
        for (int i = 0; i < mpi->size; i++) {
            if (mpi->peers[i].near == gone) {
                baton__mpi_lose(mpi, &mpi->peers[i], "its process has ended");
            }
        }
    }
}

void baton__mpi_flush_bells(void *endpoint)
{
    ring_due(endpoint, BATON__DUE_NOW);
}

size_t baton__mpi_poll(void *endpoint, baton_event_t *out, size_t max)
{
    baton__mpi_t *mpi = endpoint;
    baton__events_t events = {out, 0, max};
    poll_near(mpi, &events);
    ring_due(mpi, BATON__DUE_LATER);
    if (baton__mappings_are_stale(&mpi->host.mappings)) {
        baton__mappings_sweep(&mpi->host.mappings);
    }
    if (mpi->listed != NULL) {
        baton__mpi_flush(mpi, &events);
    }
    if (mpi->copying.head != NULL && !baton__events_are_full(&events)) {
        baton__mpi_copy(mpi, &events);
    }
    if (mpi->far.peers > 0 || mpi->far.count > 0) {
        poll_far(mpi, &events);
    }
    if (mpi->untold > 0) {
        tell_lost(mpi, &events);
    }
    return events.count;
}

bool baton__mpi_is_copying(const void *endpoint)
{
    const baton__mpi_t *mpi = endpoint;
    return mpi->copying.head != NULL;
}

/* ---- sleeping ---------------------------------------------------------- */

int baton__mpi_descriptor(void *endpoint, int k)
{
    const baton__mpi_t *mpi = endpoint;
    return k == 0   ? mpi->host.doorbell.socket
           : k == 1 ? mpi->far.links.epoll /* or -1 */
                    : -1;
}

void baton__mpi_drain(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    baton__doorbell_drain(&mpi->host.doorbell);
    baton__links_drain(&mpi->far.links);
}

/* True if every rank on another host that may send something can wake this one.
 */
static bool is_linked(const baton__mpi_t *mpi)
{
    for (int i = 0; i < mpi->size; i++) {
        const baton__peer_t *peer = &mpi->peers[i];
        if (peer->near < 0 && peer->contacted && !peer->lost &&
            peer->link.state != BATON__LINK_OPEN) {
            return false;
        }
    }
    return true;
}

static uint32_t far_sleep_us(baton__mpi_t *mpi, baton_arm_t how)
{
    const baton__far_t *far = &mpi->far;
    uint32_t us = BATON_SLEEP_FOREVER;
    if (far->peers > 0 && baton__clock_ns() - far->now_ns < AFTER_RING_NS) {
        return how == BATON_ARM_NOTICES ? MOVING_US : AFTER_RING_US;
    }
    if ((far->peers > 0 && baton__far_ask(mpi)) || far->count > 0 ||
        far->packets_unsent > 0 || far->untold) {
        return MOVING_US;
    }
    if (far->peers > 0 && !is_linked(mpi)) {
        us = (uint32_t)baton__config_number(BATON__CONFIG_SLEEP_US);
    }
    return us;
}

/* Wakes peers on this host that have not taken what was sent to them. */
static void insist(baton__mpi_t *mpi)
{
    for (int i = 0; i < mpi->size; i++) {
        baton__peer_t *peer = &mpi->peers[i];
        if (peer->near >= 0 && peer->contacted && !peer->lost &&
            !baton__ring_is_empty(baton__host_ring(&mpi->host, peer->near)) &&
            !baton__doorbell_ring(&mpi->host.doorbell, peer->near, true)) {
            baton__mpi_lose(mpi, peer, "its process has ended");
        }
    }
}

bool baton__mpi_arm(void *endpoint, baton_arm_t how, uint32_t *sleep_us_out)
{
    baton__mpi_t *mpi = endpoint;
    bool look = mpi->far.peers > 0;
    if (how == BATON_ARM_INSIST) {
        insist(mpi);
    }
    ring_due(mpi, BATON__DUE_WAIT);
    /* A record may stand in the ring that its producer has not completed, and
       behind it a notice, which has been rung for: then all will ring. */
    const baton__ring_t *ring = baton__host_ring(&mpi->host, mpi->host.index);
    baton__doorbell_arm(&mpi->host.doorbell,
                        how == BATON_ARM_NOTICES && baton__ring_is_empty(ring)
                            ? BATON__BELL_URGENT
                        : how == BATON_ARM_SOON ? BATON__BELL_SOON
                                                : BATON__BELL_ALL);
    if (mpi->copying.head != NULL || mpi->untold > 0 ||
        baton__ring_front(baton__host_ring(&mpi->host, mpi->host.index)) !=
            NULL ||
        (look && baton__far_has_come(mpi))) {
        baton__mpi_disarm(mpi);
        return false;
    }
    uint32_t us = far_sleep_us(mpi, how);
    if (mpi->listed != NULL || mpi->far.owes) { /* nothing tells of room */
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
