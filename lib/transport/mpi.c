/* The MPI transport: nonblocking messages of a communicator of its own.

   Which way a message goes: see mpi_post.c.

   What is in flight is a compact array of requests, polled with MPI_Testsome:
   a finished one is replaced by the last. MPI_Testsome either finds finished
   requests or makes progress, but does not look again after it has; so when the
   first call finds nothing a second one looks at what the first moved.

   Progress is what costs. With more ranks than processors Open MPI gives the
   processor away each time it finds nothing to do, and every rank that is ready
   to run gets its turn first: to no good, unless there is something to find. So
   a rank that rests makes progress only when its own line of the doorbells says
   that a peer has sent since the last time, or where nobody would tell (see
   `unrung`); else it looks at its requests alone, which takes 20 ns for a few.

   Requests are not persistent: MPI_Start of a receive saved 10 to 15 ns of 100
   over MPI_Irecv here (Open MPI 4.1.4), and a persistent send costs more than
   MPI_Isend, which has a path of its own for small messages.

   Sends are tested once as they are posted: nearly always they are over then,
   and never enter the array.

   Doorbells. A send rings its peer after MPI_Isend. But Open MPI keeps a
   message back while the way to a sleeping peer is full (after some 20 to 140
   small ones, measured), and puts it out in a later poll: so the peer is rung
   again when a send ends that was not over as it was posted, and from time to
   time while it is in flight. Who has received a body rings its sender, whose
   send ends then. */
#include "transport/mpi_internal.h"

#include "base/error.h"

#include <limits.h>
#include <string.h>
#include <time.h>

enum {
    SWEEP_POLLS = 32, /* quiet ones, of which one makes progress */
    NOTED_CALLS = 4,  /* of MPI's progress, to find what a note is about */
    MANY = 16         /* found by one: there may be more */
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

void baton__mpi_ring(baton__mpi_t *mpi, int peer)
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
    mpi->unrung = 0;
}

/* Takes `ended` from the `finished` indices: how many are left. */
static int drop_ended(baton__mpi_t *mpi, int finished)
{
    int kept = 0;
    for (int i = 0; i < finished; i++) {
        if (mpi->indices[i] == mpi->count) {
            mpi->looking = false;
        } else {
            mpi->indices[kept] = mpi->indices[i];
            mpi->statuses[kept++] = mpi->statuses[i];
        }
    }
    return kept;
}

/* One MPI_Testsome; moves what finished to the done list. Either it finds
   something finished or, if it may, makes progress, and does not look again. */
static void test_some(baton__mpi_t *mpi, bool progress)
{
    int count = mpi->count;
    int finished = 0;
    int code = MPI_SUCCESS;
    if (!progress) {
        if (!mpi->looking) {
            code = MPI_Start(&mpi->ended);
        }
        mpi->looking = true;
        mpi->requests[count++] = mpi->ended;
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Testsome(count, mpi->requests, &finished, mpi->indices,
                            mpi->statuses);
    }
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
        fail_all(mpi, code);
        return;
    }
    finished = finished == MPI_UNDEFINED ? 0 : drop_ended(mpi, finished);
    if (code != MPI_SUCCESS) {
        finished = baton__mpi_reap(mpi, finished);
    }
    for (int i = 0; i < finished; i++) {
        const baton__mpi_item_t *item = &mpi->items[mpi->indices[i]];
        if (!item->receive && item->unrung) {
            baton__mpi_ring(mpi, item->peer);
        }
    }
    finished = baton__mpi_settle(mpi, finished, code != MPI_SUCCESS);
    if (finished > 0) {
        baton__mpi_close_holes(mpi, finished);
    }
}

/* Whether progress would find nothing: no peer has done anything about this
   rank since the last time. Not to be relied on for ever: another thread in MPI
   may have kept the last progress from being made. */
static bool is_quiet(const baton__mpi_t *mpi)
{
    return mpi->swept && mpi->unrung == 0 &&
           baton__doorbell_is_silent(mpi->bell) &&
           mpi->quiet_polls < SWEEP_POLLS;
}

/* Makes progress. Open MPI takes up to some 30 messages at a time, so a call
   that found many, or none where a note says that there is one, is repeated. */
static void sweep(baton__mpi_t *mpi)
{
    bool noting = mpi->resting && mpi->all_reached && mpi->bell;
    bool fresh = noting && baton__doorbell_rest(mpi->bell);
    int calls = fresh || mpi->noted ? NOTED_CALLS : 1;
    mpi->quiet_polls = 1;
    mpi->noted = false;
    mpi->swept = false;
    for (; calls > 0 && mpi->done_count == 0; calls--) {
        test_some(mpi, true);
        if (mpi->done_count == 0) {
            test_some(mpi, false);
            mpi->swept = noting && mpi->done_count < MANY;
        }
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* See the top of this file. Senders again after an eighth of the time waited,
   so that a peer that is late for long isn't woken often for nothing; the
   sender of a body on its way each time, since both have to go on with it. */
static void ring_again(baton__mpi_t *mpi)
{
    uint64_t now = now_ns();
    if (mpi->idle_since_ns == 0) {
        mpi->idle_since_ns = now;
        mpi->ring_at_ns = now;
    }
    bool due = now >= mpi->ring_at_ns;
    if (due) {
        mpi->ring_at_ns = now + (now - mpi->idle_since_ns) / 8;
    }
    for (int i = 0; i < mpi->count; i++) {
        if (mpi->items[i].body || (due && mpi->items[i].unrung)) {
            baton__mpi_ring(mpi, mpi->items[i].peer);
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
        if (is_quiet(mpi)) {
            mpi->quiet_polls++;
            test_some(mpi, false);
        } else {
            sweep(mpi);
        }
        if (mpi->done_count == 0) {
            if (mpi->unrung > 0) {
                ring_again(mpi);
            }
            return 0;
        }
        mpi->idle_since_ns = 0;
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
    baton__mpi_item_t *item = &mpi->items[mpi->count];
    *item = (baton__mpi_item_t){
        .token = token, .bytes = bytes, .peer = peer, .tag = tag};
    int failed = MPI_SUCCESS;
    int code =
        baton__mpi_post(mpi, item, data, &mpi->requests[mpi->count], &failed);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Isend", code);
    }
    bool over =
        failed == MPI_SUCCESS && mpi->requests[mpi->count] == MPI_REQUEST_NULL;
    if (failed != MPI_SUCCESS) {
        item->unrung = false;
        baton__mpi_finish(mpi, mpi->count, MPI_STATUS_IGNORE, failed);
    } else if (!over) {
        mpi->unrung += item->unrung;
        mpi->count++;
    }
    baton__mpi_ring(mpi, peer);
    return over ? BATON_DONE : BATON_OK;
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
    .sleep = baton__mpi_sleep,
    .awake = baton__mpi_awake,
    .close = baton__mpi_close,
    .max_bytes = INT_MAX,
    .eager_bytes = BATON__MPI_INLINE_BYTES,
};
