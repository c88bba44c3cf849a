/* How a message finishes; for tickets see mpi_post.c.

   Order within a tag: tickets meet receives in the order posted, and bodies are
   probed in the order sent, so bodies must be taken in the order of the
   receives' serial numbers, whatever order MPI_Testsome reports them in. A
   ticket of a slot says which, and has no need for that. */
#include "transport/mpi_internal.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

static const char TOO_LONG[] = "the message is longer than its receive";

baton_completion_t baton__mpi_outcome(baton__mpi_t *mpi,
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
        if (item->sink) {
            result.status = BATON_ERR_MISMATCH;
            result.detail = TOO_LONG;
        }
        return result;
    }
    int class = MPI_ERR_OTHER;
    MPI_Error_class(code, &class);
    if (class == MPI_ERR_TRUNCATE) {
        result.status = BATON_ERR_MISMATCH;
        result.detail = TOO_LONG;
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

void baton__mpi_close_holes(baton__mpi_t *mpi, int finished)
{
    for (int i = 0; i <= finished; i++) {
        while (mpi->count > 0 &&
               mpi->requests[mpi->count - 1] == MPI_REQUEST_NULL) {
            mpi->count--;
        }
        if (i < finished && mpi->indices[i] < mpi->count &&
            mpi->requests[mpi->indices[i]] == MPI_REQUEST_NULL) {
            int hole = mpi->indices[i];
            mpi->count--;
            mpi->requests[hole] = mpi->requests[mpi->count];
            mpi->items[hole] = mpi->items[mpi->count];
        }
    }
}

static void finish_as(baton__mpi_t *mpi, int at, const baton_completion_t *done)
{
    if (mpi->done_at > 0) { /* room is in front */
        mpi->done_count -= mpi->done_at;
        memmove(mpi->done, mpi->done + mpi->done_at,
                (size_t)mpi->done_count * sizeof *mpi->done);
        mpi->done_at = 0;
    }
    baton__mpi_item_t *item = &mpi->items[at];
    mpi->done[mpi->done_count++] = *done;
    mpi->unrung -= item->unrung;
    item->unrung = false;
    baton__free(item->sink);
    item->sink = NULL;
    if (item->body) {
        baton__mpi_ring(mpi, item->peer); /* its send has ended, too */
    }
    if (mpi->requests[at] != MPI_REQUEST_NULL) {
        MPI_Request_free(&mpi->requests[at]); /* a failed one may be left */
        mpi->requests[at] = MPI_REQUEST_NULL;
    }
}

void baton__mpi_finish(baton__mpi_t *mpi, int at, const MPI_Status *status,
                       int code)
{
    baton_completion_t done =
        baton__mpi_outcome(mpi, &mpi->items[at], status, code);
    finish_as(mpi, at, &done);
}

/* The length of the ticket that has come; 0: it is no ticket. */
static int ticket_of(const baton__mpi_t *mpi, const baton__mpi_item_t *item,
                     const MPI_Status *status, int code)
{
    int class = MPI_SUCCESS;
    int bytes = 0;
    int cancelled = 0;
    if (code != MPI_SUCCESS) {
        MPI_Error_class(code, &class);
    }
    if (!item->receive || item->body ||
        (class != MPI_SUCCESS && class != MPI_ERR_TRUNCATE)) {
        return 0;
    }
    if (item->cancelled) {
        MPI_Test_cancelled(status, &cancelled);
    }
    if (cancelled) {
        return 0;
    }
    MPI_Get_count(status, MPI_BYTE, &bytes);
    if (item->peer == mpi->rank) {
        return bytes > 0 || class == MPI_ERR_TRUNCATE ? BATON__MPI_BODY_TICKET
                                                      : 0;
    }
    return baton__mpi_is_ticket((size_t)bytes) ? bytes : 0;
}

static void take_slot(baton__mpi_t *mpi, int at, int length)
{
    const baton__mpi_item_t *item = &mpi->items[at];
    int slot = (length - BATON__MPI_SLOT_TICKET) / 2;
    size_t bytes = baton__slots_take(mpi->slots, mpi->bells[item->peer], slot,
                                     item->data, item->bytes);
    bool fits = bytes <= item->bytes;
    baton_completion_t done = {item->token,
                               fits ? BATON_OK : BATON_ERR_MISMATCH, bytes,
                               fits ? NULL : TOO_LONG};
    finish_as(mpi, at, &done);
}

/* The body was sent before the ticket that has come, so the probe, which is
   said to block, finds it at once. */
static void take_body(baton__mpi_t *mpi, int at)
{
    baton__mpi_item_t *item = &mpi->items[at];
    int tag = (int)(item->tag + mpi->transport.max_tag + 1);
    MPI_Message message;
    MPI_Status status;
    int bytes = 0;
    item->body = true;
    int code = MPI_Mprobe(item->peer, tag, mpi->comm, &message, &status);
    if (code != MPI_SUCCESS) {
        baton__mpi_finish(mpi, at, &status, code);
        return;
    }
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    void *memory = item->data;
    if ((size_t)bytes > item->bytes) {
        /* It has to go somewhere, or the sender waits for ever. */
        item->sink = baton__alloc((size_t)bytes, 1);
        memory = item->sink;
        if (!memory) {
            baton__mpi_finish(mpi, at, &status, MPI_ERR_TRUNCATE);
            return;
        }
    }
    code = MPI_Imrecv(memory, bytes, MPI_BYTE, &message, &mpi->requests[at]);
    int received = 0;
    if (code == MPI_SUCCESS) {
        /* Cross-memory attach has copied it by now. */
        code = MPI_Test(&mpi->requests[at], &received, &status);
    }
    if (received || code != MPI_SUCCESS) {
        baton__mpi_finish(mpi, at, &status, code);
    } else {
        item->unrung = true;
        mpi->unrung++;
    }
}

/* The first posted of the receives of items[at]'s peer and tag that were posted
   before it and whose ticket has not been seen; -1: none. */
static int find_earlier(const baton__mpi_t *mpi, int at)
{
    const baton__mpi_item_t *item = &mpi->items[at];
    uint32_t most = 0;
    int found = -1;
    for (int i = 0; i < mpi->count; i++) {
        const baton__mpi_item_t *other = &mpi->items[i];
        uint32_t before = item->serial - other->serial;
        if (other->receive && !other->body && !other->ticket &&
            other->peer == item->peer && other->tag == item->tag &&
            mpi->requests[i] != MPI_REQUEST_NULL && before < UINT32_MAX / 2 &&
            before > most) {
            most = before;
            found = i;
        }
    }
    return found;
}

/* Another thread inside MPI may complete two receives while MPI_Testsome looks
   from one to the other, and so it reports the later alone. The earlier has met
   its message too, then. */
static int settle_earlier(baton__mpi_t *mpi, int at, int finished)
{
    int earlier = find_earlier(mpi, at);
    while (earlier >= 0) {
        MPI_Status status;
        int done = 0;
        int code = MPI_SUCCESS;
        while (!done && code == MPI_SUCCESS) {
            code = MPI_Test(&mpi->requests[earlier], &done, &status);
        }
        mpi->indices[finished++] = earlier;
        int length = ticket_of(mpi, &mpi->items[earlier], &status, code);
        if (length == 0) {
            baton__mpi_finish(mpi, earlier, &status, code);
        } else if (length == BATON__MPI_BODY_TICKET) {
            take_body(mpi, earlier);
        } else {
            take_slot(mpi, earlier, length);
        }
        earlier = find_earlier(mpi, at);
    }
    return finished;
}

int baton__mpi_reap(baton__mpi_t *mpi, int finished)
{
    int reported = finished;
    for (int i = 0; i < mpi->count; i++) {
        bool known = mpi->requests[i] != MPI_REQUEST_NULL;
        for (int j = 0; j < reported && !known; j++) {
            known = mpi->indices[j] == i;
        }
        if (!known) {
            mpi->indices[finished] = i;
            mpi->statuses[finished++].MPI_ERROR = MPI_ERR_PENDING;
        }
    }
    return finished;
}

int baton__mpi_settle(baton__mpi_t *mpi, int finished, bool errors)
{
    int bodies = 0;
    for (int i = 0; i < finished; i++) {
        int at = mpi->indices[i];
        MPI_Status *status = &mpi->statuses[i];
        int code = errors ? status->MPI_ERROR : MPI_SUCCESS;
        int length = ticket_of(mpi, &mpi->items[at], status, code);
        if (length == 0) {
            baton__mpi_finish(mpi, at, status, code);
        } else if (length == BATON__MPI_BODY_TICKET) {
            mpi->items[at].ticket = true;
            bodies++;
        } else {
            take_slot(mpi, at, length);
        }
    }
    int reported = finished;
    for (; bodies > 0; bodies--) {
        int first = -1;
        for (int i = 0; i < reported; i++) {
            int at = mpi->indices[i];
            if (mpi->items[at].ticket && !mpi->items[at].body &&
                (first < 0 || mpi->items[first].serial - mpi->items[at].serial <
                                  UINT32_MAX / 2)) {
                first = at;
            }
        }
        finished = settle_earlier(mpi, first, finished);
        take_body(mpi, first);
    }
    return finished;
}
