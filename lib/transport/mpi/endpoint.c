/* The parts that the whole MPI transport uses: records of sends and of arrived
   messages, and functions about peers and MPI. */
#include "transport/mpi/endpoint.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/group.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- records ----------------------------------------------------------- */

baton__send_t *baton__mpi_take_send(baton__mpi_t *mpi)
{
    baton__send_t *send = mpi->free_sends;
    if (send != NULL) {
        mpi->free_sends = send->next;
        mpi->is_hashed = false;
        mpi->in_use++;
    }
    return send;
}

void baton__mpi_give_send(baton__mpi_t *mpi, baton__send_t *send)
{
    if (send->counted) {
        mpi->peers[send->peer].announced--;
        send->counted = false;
    }
    send->state = BATON__SEND_FREE;
    send->generation++;
    send->next = mpi->free_sends;
    mpi->free_sends = send;
    mpi->in_use--;
}

baton__record_t *baton__mpi_take_record(baton__mpi_t *mpi)
{
    baton__record_t *record = mpi->free_records;
    if (record != NULL) {
        mpi->free_records = record->next;
        mpi->in_use++;
    }
    return record;
}

void baton__mpi_give_record(baton__mpi_t *mpi, baton__record_t *record)
{
    record->next = mpi->free_records;
    mpi->free_records = record;
    mpi->in_use--;
}

/* ---- sends ------------------------------------------------------------ */

bool baton__mpi_push_local(baton__mpi_t *mpi, baton__peer_t *peer,
                           const baton__packet_t *packet, const void *data,
                           size_t count)
{
    size_t bytes = BATON__PACKET_HEAD + count;
    char *record = baton__ring_claim(&peer->ring, bytes);
    if (record == NULL) {
        return false;
    }
    /* Copies all but the word that the ring uses. */
    memcpy(record + sizeof packet->word,
           (const char *)packet + sizeof packet->word,
           BATON__PACKET_HEAD - sizeof packet->word);
    if (count > 0) {
        memcpy(record + BATON__PACKET_HEAD, data, count);
    }
    baton__ring_commit(&peer->ring);
    if (peer->local != mpi->host.index) {
        baton__doorbell_ring(&mpi->host.doorbell, peer->local,
                             (packet->flags & BATON__PACKET_NOTICE) != 0);
    }
    return true;
}

void baton__mpi_end_send(baton__mpi_t *mpi, baton__send_t *send,
                         baton_status_t status, const char *detail)
{
    baton__events_add(mpi, (baton_event_t){.kind = BATON_EVENT_SENT,
                                           .status = status,
                                           .token = send->token,
                                           .detail = detail});
    baton__mpi_give_send(mpi, send);
}

/* ---- peers, MPI -------------------------------------------------------- */

/* Called when a peer is lost. Tells the peer that it counts as lost, because
   its process may only be stopped, and continue later. If the peer were not
   told, it might find after it has continued that this rank has ended
   meanwhile, and go on without this rank. (A lost rank of this host counts as
   ended, because no partition divides a host.)

   Returns true if the peer had lost this rank before, because this rank was
   stopped. If this rank knows that already (`known`), it does not tell a peer
   on another host that the peer is lost: the peer, and the ranks that have not
   lost it, may go on. */
static bool endpoint_is_disowned(baton__mpi_t *mpi, const baton__peer_t *peer,
                                 bool known)
{
    if (peer->local >= 0) {
        return baton__host_lose(&mpi->host, peer->local);
    }
    if (mpi->net.cut || peer->lost || known) {
        return false;
    }
    /* baton__links_lose may make links; their peers must be told the number of
       packets, too. */
    mpi->net.wakes_due = true;
    return baton__links_lose(&mpi->net.links, (int)(peer - mpi->peers));
}

void baton__mpi_lose(baton__mpi_t *mpi, baton__peer_t *peer,
                     baton_status_t status, const char *detail)
{
    uint32_t rank = (uint32_t)(peer - mpi->peers);
    if (endpoint_is_disowned(mpi, peer, detail == baton__disowned)) {
        status = BATON_ERR_TIMEOUT;
        detail = baton__disowned;
    }
    bool left_out = mpi->net.cut || detail == baton__disowned;
    /* The loss of a peer is reported a second time only if MPI noticed it
       first, and the status is another one now: MPI can't tell whether the
       peer's process has ended. If the peer was lost by a time-out, its end is
       not reported: before its end it may have gone on with other ranks. */
    bool same = peer->status == status || peer->detail != mpi->net.detail;
    if (peer->lost && same) {
        return;
    }
    mpi->unreported += !peer->lost || peer->reported;
    peer->reported = false;
    peer->status = status;
    peer->detail = detail;
    if (peer->lost) {
        return;
    }
    peer->lost = true;
    peer->lost_ns = mpi->last_lost_ns = baton__clock_ns();
    if (mpi->first_lost == 0) {
        mpi->first_lost = rank + 1;
        (void)snprintf(mpi->closed, sizeof mpi->closed,
                       "it has lost rank %u, and closed its group", rank);
        mpi->net.links.gives_up = true;
        mpi->net.links.blamed = left_out ? 0 : rank + 1;
    }
    baton__answers_lose(&mpi->answers, (int)rank, left_out);
}

/* A copy also fails with EFAULT if the peer has freed the memory, and with
   ESRCH if the peer's process has ended. Neither shows that the system refuses
   the copy. */
bool baton__mpi_is_refused(baton__mpi_t *mpi, baton__peer_t *peer, int error)
{
    if (error == 0 || error == EFAULT || error == ESRCH) {
        return false;
    }
    peer->refused = true;
    if (!atomic_exchange_explicit(mpi->host.refused, true,
                                  memory_order_relaxed)) {
        int rank = (int)(peer - mpi->peers);
        baton__log(BATON_LOG_WARN,
                   "mpi: rank %d may no longer access the memory of rank %d "
                   "(process %d): process_vm_readv or process_vm_writev: %s "
                   "(a sandbox, another user, PR_SET_DUMPABLE, ptrace_scope?). "
                   "Its messages are copied twice from now on: permit it, set "
                   "BATON_CMA=0, or use baton_memory_alloc",
                   mpi->rank, rank, mpi->processes[rank].number,
                   strerror(error));
    }
    return true;
}

baton_status_t baton__mpi_fail_peer(const baton__mpi_t *mpi, int peer,
                                    const char *wrong)
{
    const bool lost = mpi->peers[peer].lost;
    return baton__error(
        BATON_ERR_TRANSPORT, "mpi: rank %d (host %.32s, process %d)%s: %s",
        peer, mpi->processes[peer].host, mpi->processes[peer].number,
        lost ? " is gone" : "", lost ? mpi->peers[peer].detail : wrong);
}
