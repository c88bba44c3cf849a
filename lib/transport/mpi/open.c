/* How an MPI endpoint is made and ends: collectively, with one outcome. */
#include "transport/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "base/log.h"

#include <sched.h>

baton_status_t baton__mpi_error(const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
        length = 0;
    }
    return baton__error(BATON_ERR_TRANSPORT, "mpi: %s: %.*s", call, length,
                        text);
}

baton_status_t baton__mpi_agree(MPI_Comm comm, baton_status_t local)
{
    int mine = local;
    int worst = local;
    int code = MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MIN, comm);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Allreduce", code);
    }
    if (local == BATON_OK && worst != BATON_OK) {
        return baton__error((baton_status_t)worst,
                            "mpi: the group could not be made on another rank "
                            "(%s), whose message says more",
                            baton_status_text((baton_status_t)worst));
    }
    return local;
}

/* ---- MPI_Finalize ----------------------------------------------------- */

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF first. From here on the
   endpoint calls MPI no more; see enter(), far.c. */
static int on_finalize(MPI_Comm comm, int keyval, void *value, void *extra)
{
    baton__mpi_t *mpi = value;
    (void)comm;
    (void)keyval;
    (void)extra;
    if (mpi->far.leaves) {
        return MPI_SUCCESS; /* baton__mpi_close has taken it away */
    }
    baton__log(BATON_LOG_ERROR,
               "mpi: rank %d of %d: MPI_Finalize was called while there is a "
               "group; destroy it before",
               mpi->rank, mpi->size);
    atomic_store_explicit(&mpi->far.over, true, memory_order_seq_cst);
    while (atomic_load_explicit(&mpi->far.inside, memory_order_seq_cst) > 0) {
        (void)sched_yield();
    }
    return MPI_SUCCESS;
}

static baton_status_t watch_finalize(baton__mpi_t *mpi)
{
    int code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize,
                                      &mpi->far.keyval, NULL);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_set_attr(MPI_COMM_SELF, mpi->far.keyval, mpi);
    }
    return code == MPI_SUCCESS ? BATON_OK
                               : baton__mpi_error("MPI_Comm_set_attr", code);
}

static void unwatch_finalize(baton__mpi_t *mpi)
{
    if (mpi->far.keyval != MPI_KEYVAL_INVALID) {
        (void)MPI_Comm_delete_attr(MPI_COMM_SELF, mpi->far.keyval);
        (void)MPI_Comm_free_keyval(&mpi->far.keyval);
    }
}

/* ---- open, close ------------------------------------------------------ */

static void free_endpoint(baton__mpi_t *mpi)
{
    baton__far_close(mpi);
    baton__host_close(&mpi->host);
    baton__mpi_free_pools(mpi);
    baton__free(mpi->peers);
    baton__free(mpi);
}

static void init_far(baton__far_t *far)
{
    for (int i = 0; i < BATON__MPI_PACKETS; i++) {
        far->arrivals[i] = MPI_REQUEST_NULL;
        far->departures[i] = MPI_REQUEST_NULL;
    }
    for (int i = 0; i < BATON__LINK_STRANGERS; i++) {
        far->links.strangers[i] = -1;
    }
    far->links.listener = -1;
    far->links.epoll = -1;
    far->keyval = MPI_KEYVAL_INVALID;
}

/* The endpoint before it meets others; not collective. */
static baton_status_t make_endpoint(MPI_Comm comm, baton__mpi_t **out)
{
    int size = 0;
    int rank = 0;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    baton__mpi_t *mpi = baton__alloc(1, sizeof *mpi);
    baton__peer_t *peers = baton__alloc((size_t)size, sizeof *peers);
    if (mpi == NULL || peers == NULL) {
        baton__free(mpi);
        baton__free(peers);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: no memory for a group of %d ranks", size);
    }
    mpi->transport = baton__mpi_transport;
    mpi->comm = comm;
    mpi->size = size;
    mpi->rank = rank;
    mpi->peers = peers;
    mpi->window = (uint32_t)baton__config_number(BATON__CONFIG_WINDOW);
    for (int i = 0; i < size; i++) {
        peers[i].near = -1;
        peers[i].notices.granted = BATON__MPI_NOTICES;
        peers[i].link.fd = -1;
    }
    init_far(&mpi->far);
    *out = mpi;
    return BATON_OK;
}

/* What no rank can disagree about, so that no one need be told. */
static baton_status_t check_comm(MPI_Comm comm)
{
    int yes = 0;
    MPI_Initialized(&yes);
    if (!yes) {
        return baton__error(BATON_ERR_STATE,
                            "mpi: MPI_Init has not been called");
    }
    MPI_Finalized(&yes);
    if (yes) {
        return baton__error(BATON_ERR_STATE,
                            "mpi: MPI_Finalize has been called already");
    }
    if (comm == MPI_COMM_NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "mpi: the communicator is MPI_COMM_NULL");
    }
    int code = MPI_Comm_test_inter(comm, &yes);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Comm_test_inter", code);
    }
    if (yes) {
        return baton__error(BATON_ERR_INVALID,
                            "mpi: an intercommunicator can't be a group; use "
                            "MPI_Intercomm_merge first");
    }
    return BATON_OK;
}

/* With what it has met: the rest that can fail on one rank alone. */
static baton_status_t complete(baton__mpi_t *mpi)
{
    baton_status_t status = baton__mpi_reserve_notices(mpi);
    if (status == BATON_OK) {
        status = baton__far_open(mpi);
    }
    return status == BATON_OK ? watch_finalize(mpi) : status;
}

baton_status_t baton__mpi_open(MPI_Comm comm, baton_status_t local,
                               const baton_transport_t **transport_out,
                               void **endpoint_out)
{
    baton_status_t status = check_comm(comm);
    if (status != BATON_OK) {
        return status;
    }
    MPI_Comm own;
    int code = MPI_Comm_dup(comm, &own);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Comm_dup", code);
    }
    (void)MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
    baton__mpi_t *mpi = NULL;
    status = local != BATON_OK ? local : make_endpoint(own, &mpi);
    status = baton__mpi_agree(own, status);
    if (status == BATON_OK && mpi != NULL) {
        status = baton__mpi_agree(own, baton__mpi_meet(mpi));
    }
    if (status == BATON_OK && mpi != NULL) {
        status = baton__mpi_agree(own, complete(mpi));
    }
    if (status != BATON_OK) {
        if (mpi != NULL) {
            mpi->far.leaves = true;
            unwatch_finalize(mpi);
            free_endpoint(mpi);
        }
        (void)MPI_Comm_free(&own);
        return status;
    }
    *transport_out = &mpi->transport;
    *endpoint_out = mpi;
    return BATON_OK;
}

void baton__mpi_close(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    MPI_Comm comm = mpi->comm;
    bool over = atomic_load_explicit(&mpi->far.over, memory_order_relaxed);
    if (!over) {
        uint64_t ms = (uint64_t)baton__config_number(BATON__CONFIG_DESTROY_MS);
        if (mpi->size > 1 && !mpi->lost_any) {
            baton__far_drain(mpi, baton__clock_ns() + ms * 1000000);
        }
        mpi->far.leaves = true;
        unwatch_finalize(mpi);
    }
    free_endpoint(mpi);
    if (!over) {
        (void)MPI_Comm_free(&comm);
    }
}
