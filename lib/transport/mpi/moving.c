/* Data that MPI moves: of messages to and from other hosts that are too long
   for a packet, and to near ranks where nothing else is left. */
#include "transport/mpi/endpoint.h"

static MPI_Request *add_moving(baton__far_t *far, baton__send_t *send,
                               baton__record_t *record)
{
    far->moving[far->count] = (baton__moving_t){send, record};
    far->requests[far->count] = MPI_REQUEST_NULL;
    return &far->requests[far->count++];
}

bool baton__far_send(baton__mpi_t *mpi, baton__send_t *send, uint32_t tag)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int over = 0;
    send->state = BATON__SEND_MOVING;
    if (!baton__far_enter(mpi)) {
        return true; /* it ends with its peer */
    }
    int code = MPI_Isend(send->data, (int)send->bytes, MPI_BYTE, send->peer,
                         (int)tag, mpi->comm, &request);
    if (code == MPI_SUCCESS) {
        code = MPI_Test(&request, &over, MPI_STATUS_IGNORE);
    }
    if (code != MPI_SUCCESS) {
        baton__far_fail(mpi, send->peer, code);
    } else if (!over) {
        *add_moving(&mpi->far, send, NULL) = request;
    }
    baton__far_leave(mpi);
    return !over;
}

void baton__far_send_nothing(baton__mpi_t *mpi, int peer, uint32_t tag)
{
    MPI_Request request;
    if (!baton__far_enter(mpi)) {
        return;
    }
    int code =
        MPI_Isend(NULL, 0, MPI_BYTE, peer, (int)tag, mpi->comm, &request);
    if (code == MPI_SUCCESS) {
        code = MPI_Request_free(&request); /* it ends by itself */
    }
    if (code != MPI_SUCCESS) {
        baton__far_fail(mpi, peer, code);
    }
    baton__far_leave(mpi);
}

void baton__far_receive(baton__mpi_t *mpi, baton__record_t *record,
                        void *target, uint32_t tag)
{
    MPI_Request *request = add_moving(&mpi->far, NULL, record);
    int peer = record->message.peer;
    if (!baton__far_enter(mpi)) {
        return;
    }
    int code = MPI_Irecv(target, (int)record->message.bytes, MPI_BYTE, peer,
                         (int)tag, mpi->comm, request);
    if (code != MPI_SUCCESS) {
        *request = MPI_REQUEST_NULL;
        baton__far_fail(mpi, peer, code);
    }
    baton__far_leave(mpi);
}

static void sink_next(baton__mpi_t *mpi)
{
    baton__far_t *far = &mpi->far;
    if (!far->sink_moves && far->sinking.head != NULL) {
        far->sink_moves = true;
        baton__far_receive(mpi, far->sinking.head, far->sink,
                           far->sinking.head->place);
    }
}

void baton__far_sink(baton__mpi_t *mpi, baton__record_t *record)
{
    baton__records_append(&mpi->far.sinking, record);
    sink_next(mpi);
}

/* Something has moved, or failed to. */
static void finish(baton__mpi_t *mpi, const baton__moving_t *moving,
                   const MPI_Status *status, int code, baton__events_t *events)
{
    baton__far_t *far = &mpi->far;
    int bytes = 0;
    const char *detail = NULL;
    baton_status_t outcome = BATON_OK;
    if (code == MPI_SUCCESS) {
        MPI_Get_count(status, MPI_BYTE, &bytes);
    } else {
        detail = baton__far_text(mpi, code);
        outcome = BATON_ERR_TRANSPORT;
    }
    if (moving->send != NULL) {
        baton__mpi_end_send(mpi, moving->send, outcome, detail, events);
    } else if (far->sink_moves && moving->record == far->sinking.head) {
        far->sink_moves = false;
        baton__mpi_sunk(mpi, baton__records_take(&far->sinking));
        sink_next(mpi);
    } else if (moving->record != NULL) {
        baton__mpi_received(mpi, moving->record, (size_t)bytes, outcome,
                            events);
    }
}

/* In MPI. */
bool baton__far_take_moved(baton__mpi_t *mpi, baton__events_t *events)
{
    baton__far_t *far = &mpi->far;
    bool any = false;
    while (far->count > 0 && !baton__events_are_full(events)) {
        MPI_Status status;
        int at = MPI_UNDEFINED;
        int done = 0;
        int code = MPI_Testany(far->count, far->requests, &at, &done, &status);
        if (at == MPI_UNDEFINED) {
            break; /* none has, or all requests are null */
        }
        baton__moving_t moving = far->moving[at];
        far->count--;
        far->requests[at] = far->requests[far->count];
        far->moving[at] = far->moving[far->count];
        finish(mpi, &moving, &status, code, events);
        any = true;
    }
    return any;
}

/* What is in motion stays so for MPI, but nobody hears of it any more. */
bool baton__far_end(baton__mpi_t *mpi, const baton__peer_t *peer,
                    baton__events_t *events)
{
    baton__far_t *far = &mpi->far;
    int rank = (int)(peer - mpi->peers);
    for (int i = 0; i < far->count; i++) {
        baton__record_t *record = far->moving[i].record;
        baton__send_t *send = far->moving[i].send;
        if (send != NULL && send->peer == rank) {
            far->moving[i].send = NULL; /* ended with all sends to it */
        }
        if (record == NULL || record->message.peer != rank) {
            continue;
        }
        if (record == far->sinking.head && far->sink_moves) {
            far->sink_moves = false;
            baton__mpi_give_record(mpi, baton__records_take(&far->sinking));
        } else if (baton__events_are_full(events)) {
            return false;
        } else {
            baton__events_add(events,
                              (baton_event_t){.kind = BATON_EVENT_RECEIVED,
                                              .status = BATON_ERR_TRANSPORT,
                                              .token = record->token,
                                              .detail = peer->detail});
            baton__mpi_give_record(mpi, record);
        }
        far->moving[i].record = NULL;
    }
    sink_next(mpi);
    return true;
}
