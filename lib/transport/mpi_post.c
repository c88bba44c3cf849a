/* Which way a message goes, and how it is sent.

   A direct message is one of MPI's own. Two things are wrong with the longer
   ones.

   Open MPI 4.1.4 with cross-memory attach writes a message that is longer than
   its receive beyond the end of the receive's memory, once the message is too
   large to go eagerly; and cuts one from a rank to itself without an error. So
   no receive is posted for a large message before its size is known:

       sender                        receiver
       Isend body, tag + B  - - ->   (waits inside MPI, unmatched)
       Isend ticket, tag    ----->   meets the posted receive
                                     Mprobe tag + B: there already; its size
                                     Imrecv into the memory, or, when that is
                                     too small, into a sink

   A ticket has no content, only a length that nothing else has: what really has
   it goes with a ticket, too. So any memory can take it, and cut by a smaller
   receive MPI still tells its length. That costs 0.4 us a message. To itself a
   rank sends all but empty messages so.

   And above 256 bytes a send ends only when its receiver has made progress,
   which may be a while where it sleeps or has no processor, and then the sender
   must be woken to see it. So between ranks of a host messages of medium size
   go through slots (slots.h): the length of the ticket tells which, and the
   send is over. Two copies of 64 KiB cost less than the two system calls of
   one by cross-memory attach. */
#include "transport/mpi_internal.h"

static const char ticket[BATON__MPI_LAST_TICKET];

static int post_eager(baton__mpi_t *mpi, baton__mpi_item_t *item,
                      const void *data, size_t bytes, MPI_Request *request,
                      int *failed_out)
{
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, item->peer, (int)item->tag,
                         mpi->comm, request);
    if (code != MPI_SUCCESS) {
        return code;
    }
    int sent = 0;
    *failed_out = MPI_Test(request, &sent, MPI_STATUS_IGNORE);
    item->unrung = !sent; /* held back: later polls put it out */
    return MPI_SUCCESS;
}

static int post_body(baton__mpi_t *mpi, baton__mpi_item_t *item,
                     const void *data, MPI_Request *request, int *failed_out)
{
    int body_tag = (int)(item->tag + mpi->transport.max_tag + 1);
    int code = MPI_Isend(data, (int)item->bytes, MPI_BYTE, item->peer, body_tag,
                         mpi->comm, request);
    if (code != MPI_SUCCESS) {
        return code;
    }
    MPI_Request announcement = MPI_REQUEST_NULL;
    /* To itself a rank has no message of its own that a ticket could be. */
    size_t length = item->peer == mpi->rank ? 1 : BATON__MPI_BODY_TICKET;
    code = post_eager(mpi, item, ticket, length, &announcement, failed_out);
    if (code != MPI_SUCCESS) {
        *failed_out = code;
    }
    if (announcement != MPI_REQUEST_NULL) {
        /* Its memory is constant, so nobody needs to know when it is sent. */
        MPI_Request_free(&announcement);
    }
    return MPI_SUCCESS;
}

int baton__mpi_post(baton__mpi_t *mpi, baton__mpi_item_t *item,
                    const void *data, MPI_Request *request, int *failed_out)
{
    size_t bytes = item->bytes;
    bool self = item->peer == mpi->rank;
    bool near = !self && mpi->bell && mpi->bells[item->peer] >= 0;
    bool plain = self ? bytes == 0 : !baton__mpi_is_ticket(bytes);
    /* No ticket is longer than the message it stands for: where all is in order
       MPI reports no errors, which Open MPI handles badly (baton__mpi_reap). */
    if (near && mpi->slots && bytes > BATON__MPI_INLINE_BYTES &&
        bytes <= BATON__SLOT_BYTES) {
        int slot = baton__slots_put(mpi->slots, data, bytes);
        if (slot >= 0) {
            size_t length = BATON__MPI_SLOT_TICKET + 2 * (size_t)slot;
            int code =
                post_eager(mpi, item, ticket, length, request, failed_out);
            if (code != MPI_SUCCESS) {
                baton__slots_clear(mpi->slots, mpi->bells[mpi->rank], slot);
            }
            return code;
        }
    }
    if (plain && bytes <= BATON__MPI_DIRECT_BYTES) {
        return post_eager(mpi, item, data, bytes, request, failed_out);
    }
    int code = post_body(mpi, item, data, request, failed_out);
    /* Where earlier ones are held back the body may be, too. */
    item->unrung = item->unrung || !near || mpi->unrung > 0;
    return code;
}
