/* The MPI transport: ranks of one communicator.

   Ranks of one host are near: they pass packets through rings in shared memory
   (near.c, ../shm/), and MPI has no part in it. The others are far: packets are
   MPI messages of a communicator of the group's own, and a rank that sleeps is
   woken over a TCP connection (far.c, links.c).

       bytes          to a near rank                  to a far one
       up to 256      in the packet                   in the packet
       up to 64 KiB   in a shm buffer                 an MPI message beside it
       more           read by the receiver (CMA)      an MPI message, pulled

   What finds no credit, buffer or leave to read takes the next way down: the
   last one, KEPT (packet.h), needs nothing but MPI.

   Credits bound what a receiver has to keep: a send that has one is over when
   its packet is on its way, and frees its sender; without one it is over when
   the receiver is done with it. So a peer that is behind costs each pair a
   window of short messages, and each send no more than itself.

   What finds no room in a ring, or in MPI, waits in its peer's outbox, in
   order. A long copy is made a slice at a time, so that no poll takes long.
   Nothing here is polled for that nobody waits for: with near ranks alone and
   no data in motion MPI is not called at all.

   A peer is lost when its link ends without a farewell, its socket is gone, MPI
   refuses to send to it, or MPI_Finalize is called. What was in flight with it
   ends first, with errors, over as many polls as that takes. */
#include "transport/mpi/endpoint.h"

#include <limits.h>

void baton__mpi_lose(baton__mpi_t *mpi, baton__peer_t *peer, const char *detail)
{
    if (!peer->lost) {
        peer->lost = true;
        peer->detail = detail;
        mpi->lost++;
        mpi->lost_any = true;
    }
}

static void tell_lost(baton__mpi_t *mpi, baton__events_t *events)
{
    for (int i = 0; i < mpi->size && mpi->lost > 0; i++) {
        baton__peer_t *peer = &mpi->peers[i];
        if (!peer->lost || peer->told) {
            continue;
        }
        if (!baton__mpi_end_sends(mpi, peer, events) ||
            !baton__mpi_end_pulled(mpi, peer, events) ||
            !baton__far_end(mpi, peer, events) ||
            baton__events_are_full(events)) {
            return; /* the rest in the next poll */
        }
        baton__events_add(events, (baton_event_t){.kind = BATON_EVENT_LOST,
                                                  .status = BATON_ERR_TRANSPORT,
                                                  .peer = i,
                                                  .detail = peer->detail});
        peer->told = true;
        mpi->lost--;
    }
}

size_t baton__mpi_poll(void *endpoint, baton_event_t *out, size_t max)
{
    baton__mpi_t *mpi = endpoint;
    baton__events_t events = {out, 0, max};
    baton__near_poll(mpi, &events);
    if (mpi->listed != NULL) {
        baton__mpi_flush(mpi, &events);
    }
    if (mpi->copying.head != NULL && !baton__events_are_full(&events)) {
        baton__mpi_copy(mpi, &events);
    }
    if (mpi->far.peers > 0 || mpi->far.count > 0) {
        baton__far_poll(mpi, &events);
    }
    if (mpi->lost > 0) {
        tell_lost(mpi, &events);
    }
    return events.count;
}

const baton_transport_t baton__mpi_transport = {
    .size = sizeof(baton_transport_t),
    .name = "mpi",
    .reserve = baton__mpi_reserve,
    .send = baton__mpi_send,
    .notify = baton__mpi_notify,
    .withdraw = baton__mpi_withdraw,
    .poll = baton__mpi_poll,
    .accept = baton__mpi_accept,
    .drop = baton__mpi_drop,
    .descriptor = baton__mpi_descriptor,
    .drain = baton__mpi_drain,
    .arm = baton__mpi_arm,
    .disarm = baton__mpi_disarm,
    .close = baton__mpi_close,
    .max_bytes = INT_MAX,
};
