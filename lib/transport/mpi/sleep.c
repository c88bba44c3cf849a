/* How a rank of an MPI group sleeps.

   Near ranks wake it by its bell, far ones by their link. What a far one has
   sent comes over MPI, on another way than the ring, and may come later: so for
   a while after a ring this rank looks again after short sleeps. Who has rung
   so lately need not ring again; far.c keeps that well below this while. */
#include "transport/mpi/endpoint.h"

#include "base/clock.h"
#include "base/config.h"

enum {
    RANG_NS = 1000000, /* that while */
    RANG_US = 50,      /* such a sleep */
    MOVING_US = 1000   /* MPI moves data, and only when it is called */
};

int baton__mpi_descriptor(void *endpoint, int k)
{
    const baton__mpi_t *mpi = endpoint;
    return k == 0   ? mpi->host.bell.socket
           : k == 1 ? mpi->far.links.epoll /* or -1 */
                    : -1;
}

void baton__mpi_drain(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    baton__bell_drain(&mpi->host.bell);
    baton__links_drain(&mpi->far.links);
}

/* Whether every far rank that may send something can wake this one. */
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

static uint32_t far_sleep_us(const baton__mpi_t *mpi)
{
    const baton__far_t *far = &mpi->far;
    uint32_t us = BATON_SLEEP_FOREVER;
    if (far->peers > 0 && baton__clock_ns() - far->now_ns < RANG_NS) {
        return RANG_US;
    }
    if (far->count > 0 || far->leaving > 0) {
        return MOVING_US;
    }
    if (far->peers > 0 && !is_linked(mpi)) {
        us = (uint32_t)baton__config_number(BATON__CONFIG_SLEEP_US);
    }
    return us;
}

bool baton__mpi_arm(void *endpoint, uint32_t *sleep_us_out)
{
    baton__mpi_t *mpi = endpoint;
    bool look = mpi->far.peers > 0;
    baton__bell_arm(&mpi->host.bell);
    if (mpi->copying.head != NULL || mpi->lost > 0 ||
        baton__ring_front(baton__host_ring(&mpi->host, mpi->host.index)) !=
            NULL ||
        (look && baton__far_has_come(mpi))) {
        baton__mpi_disarm(mpi);
        return false;
    }
    uint32_t us = far_sleep_us(mpi);
    if (mpi->listed != NULL || mpi->far.owes) { /* no one tells of room */
        uint32_t often = (uint32_t)baton__config_number(BATON__CONFIG_SLEEP_US);
        us = us < often ? us : often;
    }
    *sleep_us_out = us;
    return true;
}

void baton__mpi_disarm(void *endpoint)
{
    const baton__mpi_t *mpi = endpoint;
    baton__bell_disarm(&mpi->host.bell);
}
