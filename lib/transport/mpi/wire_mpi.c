/* MPI as a wire. */
#include "transport/mpi/over_mpi.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"

#include <stdio.h>

/* This header declares MPIX_Query_cuda_support and MPIX_Comm_failure_ack. */
#if defined(OPEN_MPI) && defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

/* The most requests that are passed to MPI_Testany at a time. */
enum { REQUESTS = 64 };

typedef struct wire_mpi {
    /* This field is first, since this file casts its address. */
    baton__wire_t shared;
    MPI_Comm comm;
    int keyval; /* the keyval of the attribute that MPI_Finalize deletes */
    void (*ended)(void *arg);
    void *arg;
} wire_mpi_t;

static const wire_mpi_t *mpi_of(const baton__wire_t *wire)
{
    return (const wire_mpi_t *)wire;
}

static baton__request_t wire_request_of(MPI_Request handle)
{
    return handle == MPI_REQUEST_NULL ? 0 : (baton__request_t)handle;
}

static MPI_Request handle_of(baton__request_t request)
{
    return request == 0 ? MPI_REQUEST_NULL : (MPI_Request)request;
}

baton_status_t baton__mpi_error(const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (code == MPI_SUCCESS) {
        return BATON_OK;
    }
    if (PMPI_Error_string(code, text, &length) != MPI_SUCCESS) {
        length = 0;
    }
    return baton__error(BATON_ERR_TRANSPORT, "mpi: %s: %.*s", call, length,
                        text);
}

/* ---- messages ------------------------------------------------------------ */

static int wire_mpi_send(baton__wire_t *self, const void *data, size_t bytes,
                         int to, int tag, baton__request_t *out)
{
    MPI_Request handle = MPI_REQUEST_NULL;
    int code = PMPI_Isend(data, (int)bytes, MPI_BYTE, to, tag,
                          mpi_of(self)->comm, &handle);
    *out = code == MPI_SUCCESS ? wire_request_of(handle) : 0;
    return code;
}

static int wire_mpi_receive(baton__wire_t *self, void *data, size_t bytes,
                            int from, int tag, baton__request_t *out)
{
    MPI_Request handle = MPI_REQUEST_NULL;
    int code = PMPI_Irecv(data, (int)bytes, MPI_BYTE,
                          from == BATON__WIRE_ANY ? MPI_ANY_SOURCE : from, tag,
                          mpi_of(self)->comm, &handle);
    *out = code == MPI_SUCCESS ? wire_request_of(handle) : 0;
    return code;
}

/* Tests up to REQUESTS requests. */
static int test_some(int count, baton__request_t *requests, int *at_out,
                     bool *ended_out, size_t *bytes_out)
{
    MPI_Request handles[REQUESTS];
    MPI_Status status;
    int at = MPI_UNDEFINED;
    int ended = 0;
    int bytes = 0;
    for (int i = 0; i < count; i++) {
        handles[i] = handle_of(requests[i]);
    }
    int code;
    if (count == 1) {
        code = PMPI_Test(handles, &ended, &status);
        at = ended || code != MPI_SUCCESS ? 0 : at;
    } else {
        code = PMPI_Testany(count, handles, &at, &ended, &status);
    }
    *at_out = at == MPI_UNDEFINED ? -1 : at;
    *ended_out = ended != 0;
    if (at != MPI_UNDEFINED) {
        if (code == MPI_SUCCESS && requests[at] != 0) {
            (void)PMPI_Get_count(&status, MPI_BYTE, &bytes);
        }
        requests[at] = wire_request_of(handles[at]);
    }
    *bytes_out = (size_t)bytes;
    return code;
}

static int wire_mpi_test(baton__wire_t *self, int count,
                         baton__request_t *requests, int *at_out,
                         bool *ended_out, size_t *bytes_out)
{
    int code = MPI_SUCCESS;
    *at_out = -1;
    (void)self;
    for (int begin = 0; begin < count && *at_out < 0 && code == MPI_SUCCESS;
         begin += REQUESTS) {
        int left = count - begin;
        code = test_some(left < REQUESTS ? left : REQUESTS, requests + begin,
                         at_out, ended_out, bytes_out);
        *at_out += *at_out < 0 ? 0 : begin;
    }
    return code;
}

static int wire_mpi_probe(baton__wire_t *self, int tag, bool *waits_out)
{
    int waits = 0;
    int code = PMPI_Iprobe(MPI_ANY_SOURCE, tag, mpi_of(self)->comm, &waits,
                           MPI_STATUS_IGNORE);
    *waits_out = code == MPI_SUCCESS && waits;
    return code;
}

static int wire_mpi_release(baton__wire_t *self, baton__request_t *request)
{
    MPI_Request handle = handle_of(*request);
    (void)self;
    *request = 0;
    return handle == MPI_REQUEST_NULL ? MPI_SUCCESS
                                      : PMPI_Request_free(&handle);
}

static void wire_mpi_cancel(baton__wire_t *self, baton__request_t *request)
{
    MPI_Request handle = handle_of(*request);
    if (handle != MPI_REQUEST_NULL) {
        (void)PMPI_Cancel(&handle);
        (void)wire_mpi_release(self, request);
    }
}

/* If Open MPI 5 runs with --with-ft ulfm, a receive from any source reports
   each death of a process until the death is acknowledged, and then goes on.
   Which rank has died is learnt from the links. */
static bool wire_mpi_goes_on(baton__wire_t *self, int code)
{
#if defined(MPIX_ERR_PROC_FAILED_PENDING)
    return code == MPIX_ERR_PROC_FAILED_PENDING &&
           PMPIX_Comm_failure_ack(mpi_of(self)->comm) == MPI_SUCCESS;
#else
    (void)self, (void)code;
    return false;
#endif
}

static void wire_mpi_text(int code, char out[BATON__WIRE_TEXT])
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    (void)PMPI_Error_string(code, text, &length);
    (void)snprintf(out, BATON__WIRE_TEXT, "%.*s", length, text);
}

static bool wire_mpi_takes_device(void)
{
    enum { NO, YES, AUTO }; /* the values of BATON_GPU_AWARE_MPI */
    int64_t word = baton__config_number(BATON__CONFIG_GPU_AWARE_MPI);
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return word == AUTO ? MPIX_Query_cuda_support() == 1 : word == YES;
#else
    return word == YES;
#endif
}

/* ---- MPI_Finalize, and closing ------------------------------------------- */

/* Called by MPI_Finalize, which first deletes the attributes of
   MPI_COMM_SELF. */
static int on_finalize(MPI_Comm comm, int keyval, void *value, void *extra)
{
    wire_mpi_t *self = value;
    void (*ended)(void *arg) = self->ended;
    (void)comm;
    (void)keyval;
    (void)extra;
    self->ended = NULL;
    if (ended != NULL) {
        ended(self->arg);
    }
    return MPI_SUCCESS;
}

static baton_status_t wire_mpi_watch(baton__wire_t *shared,
                                     void (*ended)(void *arg), void *arg)
{
    wire_mpi_t *self = (wire_mpi_t *)shared;
    int code = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize,
                                       &self->keyval, NULL);
    if (code == MPI_SUCCESS) {
        self->ended = ended;
        self->arg = arg;
        code = PMPI_Comm_set_attr(MPI_COMM_SELF, self->keyval, self);
    }
    return baton__mpi_error("MPI_Comm_set_attr", code);
}

static void wire_mpi_close(baton__wire_t *shared, bool in_use)
{
    wire_mpi_t *self = (wire_mpi_t *)shared;
    if (self->ended != NULL) {
        self->ended = NULL;
        (void)PMPI_Comm_delete_attr(MPI_COMM_SELF, self->keyval);
        (void)PMPI_Comm_free_keyval(&self->keyval);
    }
    if (self->comm != MPI_COMM_NULL && !in_use) {
        (void)PMPI_Comm_free(&self->comm);
    }
    baton__free(self);
}

baton_status_t baton__wire_open_mpi(MPI_Comm comm, baton__wire_t **out)
{
    wire_mpi_t *self = baton__alloc(1, sizeof *self);
    if (self == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "mpi: no memory for a group");
    }
    *self = (wire_mpi_t){.shared = {.send = wire_mpi_send,
                                    .receive = wire_mpi_receive,
                                    .test = wire_mpi_test,
                                    .probe = wire_mpi_probe,
                                    .release = wire_mpi_release,
                                    .cancel = wire_mpi_cancel,
                                    .goes_on = wire_mpi_goes_on,
                                    .text = wire_mpi_text,
                                    .takes_device = wire_mpi_takes_device(),
                                    .watch = wire_mpi_watch,
                                    .close = wire_mpi_close},
                         .comm = comm,
                         .keyval = MPI_KEYVAL_INVALID};
    *out = &self->shared;
    return BATON_OK;
}
