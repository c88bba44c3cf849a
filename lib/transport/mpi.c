/* The MPI transport: nonblocking messages of a communicator of its own.

   Large messages are announced by a small one first: see mpi_large.c.

   What is in flight is a compact array of requests, polled with MPI_Testsome:
   a finished one is replaced by the last. MPI_Testsome either finds finished
   requests or makes progress, but does not look again after it has; so when the
   first call finds nothing a second one looks at what the first moved.

   Requests are not persistent: MPI_Start of a receive saved 10 to 15 ns of 100
   over MPI_Irecv here (Open MPI 4.1.4), and a persistent send costs more than
   MPI_Isend, which has a path of its own for small messages.

   Small sends are tested once as they are posted: nearly always they are done
   then, and never enter the array.

   Doorbells. A send rings its peer after MPI_Isend. But Open MPI keeps a
   message back while the way to a sleeping peer is full (after 63 small ones,
   measured), and puts it out in a later poll: so the peer is rung again when a
   send completes that was not done as it was posted, and, for sends that
   complete only after the receiver did something, from time to time while they
   are in flight. */
#include "transport/mpi_internal.h"

#include "base/error.h"

#include <limits.h>
#include <string.h>

enum {
    /* From a rank to itself: 1024 less a header of 56. */
    EAGER_BYTES = 960,
    RING_AGAIN_POLLS = 1024
};

/* ---- what is in flight ------------------------------------------------ */

/* Whether one more message can be posted. */
static baton_status_t check(const baton__mpi_t *mpi, int peer, uint32_t tag,
                            size_t bytes)
{
    if (peer < 0 || peer >= mpi->size || tag > mpi->transport.max_tag ||
        bytes > mpi->transport.max_bytes) {
        return baton__error(BATON_ERR_INVALID,
                            "mpi: peer %d of %d, tag %u of %u, %zu bytes of "
                            "%zu",
                            peer, mpi->size, tag, mpi->transport.max_tag, bytes,
                            mpi->transport.max_bytes);
    }
    if (mpi->count + mpi->done_count - mpi->done_at >= mpi->capacity) {
        return baton__error(BATON_ERR_LIMIT,
                            "mpi: rank %d has %d messages in flight, more than "
                            "it reserved",
                            mpi->rank, mpi->capacity);
    }
    return BATON_OK;
}

static void ring(baton__mpi_t *mpi, int peer)
{
    if (mpi->bell && mpi->bells[peer] >= 0 && peer != mpi->rank) {
        baton__doorbell_ring(mpi->bell, mpi->bells[peer]);
    }
}

/* ---- progress ---------------------------------------------------------- */

/* MPI can't say any more what becomes of the messages: they all failed. */
static void fail_all(baton__mpi_t *mpi, int code)
{
    (void)baton__mpi_error("MPI_Testsome", code);
    for (int i = 0; i < mpi->count; i++) {
        mpi->done[mpi->done_count++] =
            baton__mpi_outcome(mpi, &mpi->items[i], MPI_STATUS_IGNORE, code);
    }
    mpi->count = 0;
    mpi->sends = 0;
}

/* One MPI_Testsome; moves what finished to the done list. */
static void test_some(baton__mpi_t *mpi)
{
    int finished = 0;
    int code = MPI_Testsome(mpi->count, mpi->requests, &finished, mpi->indices,
                            mpi->statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
        fail_all(mpi, code);
        return;
    }
    if (finished == MPI_UNDEFINED) {
        finished = 0;
    }
    for (int i = 0; i < finished; i++) {
        const baton__mpi_item_t *item = &mpi->items[mpi->indices[i]];
        if (!item->receive) {
            ring(mpi, item->peer);
        }
    }
    finished = baton__mpi_settle(mpi, finished, code != MPI_SUCCESS);
    if (finished > 0) {
        baton__mpi_close_holes(mpi, finished);
    }
}

/* See the top of this file. At powers of two, so that a peer that is late for
   long isn't woken often for nothing. */
static void ring_again(baton__mpi_t *mpi)
{
    uint32_t polls = ++mpi->idle_polls;
    if (polls >= RING_AGAIN_POLLS && (polls & (polls - 1)) == 0 &&
        mpi->sends > 0) {
        for (int i = 0; i < mpi->count; i++) {
            if (!mpi->items[i].receive) {
                ring(mpi, mpi->items[i].peer);
            }
        }
    }
}

static size_t mpi_poll(void *endpoint, baton_completion_t *out, size_t max)
{
    baton__mpi_t *mpi = endpoint;
    if (mpi->done_at == mpi->done_count) {
        mpi->done_at = 0;
        mpi->done_count = 0;
    }
    if (mpi->count > 0 && mpi->done_at == 0) {
        test_some(mpi);
        if (mpi->done_count == 0) {
            test_some(mpi);
        }
        if (mpi->done_count == 0) {
            ring_again(mpi);
            return 0;
        }
        mpi->idle_polls = 0;
    }
    size_t count = (size_t)(mpi->done_count - mpi->done_at);
    count = count < max ? count : max;
    memcpy(out, mpi->done + mpi->done_at, count * sizeof *out);
    mpi->done_at += (int)count;
    return count;
}

/* ---- posting -------------------------------------------------------- */

static baton_status_t mpi_send(void *endpoint, baton_token_t token, int peer,
                               uint32_t tag, const void *data, size_t bytes)
{
    baton__mpi_t *mpi = endpoint;
    baton_status_t status = check(mpi, peer, tag, bytes);
    if (status) {
        return status;
    }
    MPI_Request *request = &mpi->requests[mpi->count];
    bool large = baton__mpi_is_large(mpi, peer, bytes);
    int code = large
                   ? baton__mpi_send_large(mpi, peer, tag, data, bytes, request)
                   : MPI_Isend(data, (int)bytes, MPI_BYTE, peer, (int)tag,
                               mpi->comm, request);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Isend", code);
    }
    int at = mpi->count++;
    mpi->items[at] =
        (baton__mpi_item_t){.token = token, .bytes = bytes, .peer = peer};
    mpi->sends++;
    if (!large) {
        int finished = 0;
        code = MPI_Test(request, &finished, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) {
            baton__mpi_finish(mpi, at, MPI_STATUS_IGNORE, code);
            mpi->count--;
        } else if (finished) {
            mpi->count--;
            mpi->sends--;
            ring(mpi, peer);
            return BATON_DONE;
        }
    }
    ring(mpi, peer);
    return BATON_OK;
}

static baton_status_t mpi_recv(void *endpoint, baton_token_t token, int peer,
                               uint32_t tag, void *data, size_t bytes)
{
    baton__mpi_t *mpi = endpoint;
    baton_status_t status = check(mpi, peer, tag, bytes);
    if (status) {
        return status;
    }
    int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, (int)tag, mpi->comm,
                         &mpi->requests[mpi->count]);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Irecv", code);
    }
    mpi->items[mpi->count++] = (baton__mpi_item_t){.token = token,
                                                   .data = data,
                                                   .bytes = bytes,
                                                   .peer = peer,
                                                   .tag = tag,
                                                   .serial = mpi->serial++,
                                                   .receive = true};
    return BATON_OK;
}

/* Never blocks: where MPI does not finish a cancelled receive at once, its
   completion comes with a later poll. So does that of one that met its message,
   since only there large ones are taken in order. */
static bool mpi_withdraw(void *endpoint, baton_token_t token)
{
    baton__mpi_t *mpi = endpoint;
    int at = 0;
    while (at < mpi->count && !(mpi->items[at].receive &&
                                mpi->items[at].token.owner == token.owner &&
                                mpi->items[at].token.node == token.node)) {
        at++;
    }
    if (at == mpi->count) {
        return false;
    }
    if (mpi->items[at].body || MPI_Cancel(&mpi->requests[at]) != MPI_SUCCESS) {
        return false;
    }
    mpi->items[at].cancelled = true;
    MPI_Status status;
    int finished = 0;
    int cancelled = 0;
    if (MPI_Request_get_status(mpi->requests[at], &finished, &status) ==
            MPI_SUCCESS &&
        finished) {
        MPI_Test_cancelled(&status, &cancelled);
    }
    if (cancelled) {
        MPI_Request_free(&mpi->requests[at]);
        mpi->requests[at] = MPI_REQUEST_NULL;
        mpi->indices[0] = at;
        baton__mpi_close_holes(mpi, 1);
    }
    return cancelled != 0;
}

const baton_transport_t baton__mpi_transport = {
    .name = "mpi",
    .reserve = baton__mpi_reserve,
    .send = mpi_send,
    .recv = mpi_recv,
    .withdraw = mpi_withdraw,
    .poll = mpi_poll,
    .descriptor = baton__mpi_descriptor,
    .hush = baton__mpi_hush,
    .rest = baton__mpi_rest,
    .awake = baton__mpi_awake,
    .close = baton__mpi_close,
    .max_bytes = INT_MAX,
    .eager_bytes = EAGER_BYTES,
};
