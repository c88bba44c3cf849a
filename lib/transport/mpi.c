/* The MPI transport: nonblocking messages of a communicator of its own.

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
    /* Open MPI 4.1.4: 4096 less a header of 56 bytes between ranks of a host,
       1024 less 56 from a rank to itself, more over TCP. Measured: 4040 and
       968. */
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

/* ---- completion ------------------------------------------------------- */

/* What became of a finished message. `code` is MPI_SUCCESS unless the call that
   finished it said that the status has an error. */
static baton_completion_t outcome(baton__mpi_t *mpi,
                                  const baton__mpi_item_t *item,
                                  const MPI_Status *status, int code)
{
    baton_completion_t result = {item->token, BATON_OK, item->bytes, NULL};
    if (code == MPI_SUCCESS) {
        int bytes = 0;
        int cancelled = 0;
        if (item->cancelled) {
            MPI_Test_cancelled(status, &cancelled);
        }
        if (cancelled) {
            result.status = BATON_ERR_CANCELLED;
            result.bytes = 0;
        } else if (item->receive &&
                   MPI_Get_count(status, MPI_BYTE, &bytes) == MPI_SUCCESS) {
            result.bytes = (size_t)bytes;
        }
        return result;
    }
    int class = MPI_ERR_OTHER;
    MPI_Error_class(code, &class);
    if (class == MPI_ERR_TRUNCATE) {
        result.status = BATON_ERR_MISMATCH;
        result.detail = "the message is longer than its receive";
        return result;
    }
    int length = 0;
    if (MPI_Error_string(code, mpi->detail, &length) != MPI_SUCCESS) {
        strcpy(mpi->detail, "MPI gives no reason");
    }
    result.status = BATON_ERR_TRANSPORT;
    result.detail = mpi->detail;
    return result;
}

/* Fills the holes that finished requests left, from the end of the arrays. */
static void close_holes(baton__mpi_t *mpi, int finished)
{
    for (int i = 0; i <= finished; i++) {
        while (mpi->count > 0 &&
               mpi->requests[mpi->count - 1] == MPI_REQUEST_NULL) {
            mpi->count--;
        }
        if (i < finished && mpi->indices[i] < mpi->count) {
            int hole = mpi->indices[i];
            mpi->count--;
            mpi->requests[hole] = mpi->requests[mpi->count];
            mpi->items[hole] = mpi->items[mpi->count];
        }
    }
}

/* Moves requests[at], which has finished, to the done list. */
static void finish(baton__mpi_t *mpi, int at, const MPI_Status *status,
                   int code)
{
    if (mpi->done_at > 0) { /* room is in front */
        mpi->done_count -= mpi->done_at;
        memmove(mpi->done, mpi->done + mpi->done_at,
                (size_t)mpi->done_count * sizeof *mpi->done);
        mpi->done_at = 0;
    }
    const baton__mpi_item_t *item = &mpi->items[at];
    mpi->done[mpi->done_count++] = outcome(mpi, item, status, code);
    mpi->sends -= !item->receive;
    if (mpi->requests[at] != MPI_REQUEST_NULL) {
        MPI_Request_free(&mpi->requests[at]); /* a failed one may be left */
        mpi->requests[at] = MPI_REQUEST_NULL;
    }
}

/* MPI can't say any more what becomes of the messages: they all failed. */
static void fail_all(baton__mpi_t *mpi, int code)
{
    (void)baton__mpi_error("MPI_Testsome", code);
    for (int i = 0; i < mpi->count; i++) {
        mpi->done[mpi->done_count++] =
            outcome(mpi, &mpi->items[i], MPI_STATUS_IGNORE, code);
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
        int error =
            code == MPI_SUCCESS ? MPI_SUCCESS : mpi->statuses[i].MPI_ERROR;
        int at = mpi->indices[i];
        if (!mpi->items[at].receive) {
            ring(mpi, mpi->items[at].peer);
        }
        finish(mpi, at, &mpi->statuses[i], error);
    }
    if (finished > 0) {
        close_holes(mpi, finished);
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
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, (int)tag, mpi->comm,
                         request);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Isend", code);
    }
    int at = mpi->count++;
    mpi->items[at] =
        (baton__mpi_item_t){.token = token, .bytes = bytes, .peer = peer};
    mpi->sends++;
    if (bytes <= EAGER_BYTES) {
        int finished = 0;
        code = MPI_Test(request, &finished, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS || finished) {
            finish(mpi, at, MPI_STATUS_IGNORE, code);
            mpi->count--;
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
    mpi->items[mpi->count++] = (baton__mpi_item_t){
        .token = token, .bytes = bytes, .peer = peer, .receive = true};
    return BATON_OK;
}

/* Never blocks: where MPI does not finish a cancelled receive at once, its
   completion comes with a later poll. */
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
    MPI_Status status;
    int finished = 0;
    int cancelled = 0;
    int code = MPI_Cancel(&mpi->requests[at]);
    if (code == MPI_SUCCESS) {
        mpi->items[at].cancelled = true;
        code = MPI_Test(&mpi->requests[at], &finished, &status);
    }
    if (code == MPI_SUCCESS && !finished) {
        return false;
    }
    if (code == MPI_SUCCESS) {
        MPI_Test_cancelled(&status, &cancelled);
    }
    if (!cancelled) {
        finish(mpi, at, &status, code);
    }
    mpi->indices[0] = at;
    close_holes(mpi, 1);
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
