/* How an MPI endpoint is closed, or cached for the next group of the same
   ranks, and what happens in MPI_Finalize. */
#include "transport/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"

#include <stdatomic.h>

/* While close waits for a rank, it asks that rank at this interval whether the
   rank lives. */
enum { ASK_NS = 250000000 };

/* The endpoint that was closed last, if all its ranks are on this host and have
   left it together. A later group of the same ranks takes it over
   (baton__mpi_take_cached), because closing it and opening another takes far
   longer. The pointer is atomic because threads may create and close groups of
   different ranks at the same time. */
static _Atomic(baton__mpi_t *) cached;

void baton__mpi_on_finalize(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    baton__mpi_t *unused = mpi;
    /* A closed endpoint that is cached for a later group is freed here. */
    if (atomic_compare_exchange_strong_explicit(&cached, &unused, NULL,
                                                memory_order_acq_rel,
                                                memory_order_relaxed)) {
        baton__mpi_discard(mpi, false);
        return;
    }
    baton__log(BATON_LOG_ERROR,
               "mpi: rank %d of %d: MPI_Finalize was called before this group "
               "was destroyed: destroy it first",
               mpi->rank, mpi->size);
    atomic_store_explicit(&mpi->net.finalized, true, memory_order_seq_cst);
    while (baton__answers_is_calling(&mpi->answers)) {
        (void)sched_yield();
    }
}

/* ---- closing ----------------------------------------------------------- */

void baton__mpi_free(baton__mpi_t *mpi)
{
    /* This also takes the links off the list of links that forked children
       close. */
    baton__net_close(mpi);
    baton__answers_close(&mpi->answers);
    baton__host_close(&mpi->host);
    baton__mpi_free_pools(mpi);
    baton__free(mpi->net.reached);
    baton__free(mpi->host_of);
    baton__free(mpi->processes);
    baton__free(mpi->peers);
    baton__free(mpi);
}

void baton__mpi_drop_arrivals(baton__mpi_t *mpi)
{
    baton_event_t events[16];
    size_t count = baton__mpi_poll(mpi, events, 16);
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == BATON_EVENT_ARRIVED) {
            baton__mpi_drop(mpi, events[i].message);
        }
    }
}

/* Sends LAST, the last packet, to the ranks on other hosts, as far as there is
   space. Returns a rank that this rank still waits for: LAST was not sent to
   it, or not received from it, or MPI has not completed a packet to it. Returns
   -1 if there is no such rank. */
static int tell_last(baton__mpi_t *mpi)
{
    int awaited = -1;
    for (int i = 0; i < mpi->size; i++) {
        baton__peer_t *peer = &mpi->peers[i];
        if (peer->local < 0 && !peer->last_sent && peer->outbox.head == NULL) {
            peer->last_sent = baton__net_signal(mpi, peer, BATON__PACKET_LAST);
        }
        awaited = peer->local >= 0 || (peer->last_sent && peer->last_received &&
                                       baton__net_unsent(mpi, peer) == 0)
                      ? awaited
                      : i;
    }
    return awaited;
}

/* Returns false if a rank may still send, or MPI still has packets or data in
   motion: then the communicator must not be freed. Asks the rank that it waits
   for whether it lives, because, without a link to that rank, this rank would
   not notice if it has ended. */
bool baton__mpi_leave(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    if (mpi->net.peers == 0 || mpi->first_lost > 0 || !baton__net_enter(mpi)) {
        return true;
    }
    const uint64_t now = baton__clock_ns();
    mpi->net.asked_ns = mpi->net.closing ? mpi->net.asked_ns : now;
    mpi->net.closing = true;
    const int awaited = tell_last(mpi);
    if (awaited >= 0 && now - mpi->net.asked_ns >= ASK_NS) {
        mpi->net.asked_ns = now;
        baton__mpi_ask(mpi, awaited);
    }
    baton__net_leave(mpi);
    return awaited < 0 && mpi->net.count == 0;
}

/* Drains the communicator before it is freed: takes the packets that the other
   ranks have sent. Returns false if it must not be freed. */
static bool close_drain(baton__mpi_t *mpi, uint64_t deadline_ns)
{
    bool left;
    while (!(left = baton__mpi_leave(mpi)) && baton__clock_ns() < deadline_ns) {
        baton__mpi_drop_arrivals(mpi);
        (void)sched_yield();
    }
    return left && mpi->first_lost == 0;
}

void baton__mpi_discard(baton__mpi_t *mpi, bool in_use)
{
    if (mpi == NULL) {
        return;
    }
    baton__wire_t *wire = mpi->wire;
    mpi->net.closing = true;
    baton__mpi_free(mpi);
    if (wire != NULL) {
        wire->close(wire, in_use);
    }
}

/* Returns true if the endpoint can be cached for another group of the same
   ranks: all are on this host, none was lost, this rank has nothing in motion,
   and there is a wire, which calls baton__mpi_on_finalize when MPI ends. */
static bool is_as_new(const baton__mpi_t *mpi)
{
    return mpi->wire != NULL && mpi->net.peers == 0 && mpi->host.count > 1 &&
           mpi->first_lost == 0 && !mpi->alone && mpi->listed == NULL &&
           mpi->net.count == 0 && mpi->in_use == 0;
}

void baton__mpi_close(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    baton__mpi_flush_bells(mpi);
    if (atomic_load_explicit(&mpi->net.finalized, memory_order_relaxed)) {
        baton__mpi_discard(mpi, true);
        return;
    }
    uint64_t ms = (uint64_t)baton__config_number(BATON__CONFIG_DESTROY_MS);
    bool in_use = mpi->net.peers > 0 && mpi->first_lost == 0 &&
                  !close_drain(mpi, baton__clock_ns() + ms * 1000000);
    mpi->net.closing = true;
    if (is_as_new(mpi)) {
        baton__doorbell_disarm(&mpi->host.doorbell);
        baton__answers_hang_up(&mpi->answers);
        baton__mappings_clear(&mpi->host.mappings);
        baton__segments_clear(&mpi->host.segments);
        mpi = atomic_exchange_explicit(&cached, mpi, memory_order_acq_rel);
    }
    baton__mpi_discard(mpi, in_use);
}

baton__mpi_t *baton__mpi_take_cached(const baton__exchange_t *exchange,
                                     baton_status_t local, const cpu_set_t *own)
{
    baton__mpi_t *mpi =
        atomic_exchange_explicit(&cached, NULL, memory_order_acq_rel);
    if (mpi != NULL && local == BATON_OK && mpi->rank == exchange->rank &&
        mpi->size == exchange->size && CPU_EQUAL(own, &mpi->processors)) {
        return mpi;
    }
    baton__mpi_discard(mpi, false);
    return NULL;
}
