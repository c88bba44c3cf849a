/* Packets between ranks of a host: through the ring of the receiver. */
#include "transport/mpi/endpoint.h"

#include <string.h>

bool baton__near_push(baton__mpi_t *mpi, baton__peer_t *peer,
                      const baton__packet_t *packet, const void *data,
                      size_t count)
{
    size_t bytes = BATON__PACKET_HEAD + count;
    char *record = baton__ring_claim(baton__host_ring(&mpi->host, peer->near),
                                     bytes, &peer->ring_head);
    if (record == NULL) {
        return false;
    }
    /* All but the ring's own word. */
    memcpy(record + sizeof packet->word,
           (const char *)packet + sizeof packet->word,
           BATON__PACKET_HEAD - sizeof packet->word);
    if (count > 0) {
        memcpy(record + BATON__PACKET_HEAD, data, count);
    }
    baton__ring_commit(record, bytes);
    if (peer->near != mpi->host.index &&
        !baton__bell_ring(&mpi->host.bell, peer->near)) {
        baton__mpi_lose(mpi, peer, "its process has ended");
    }
    return true;
}

void baton__near_poll(baton__mpi_t *mpi, baton__events_t *events)
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
