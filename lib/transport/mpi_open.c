/* How an MPI endpoint is made and ends: collectively, with one outcome. */
#include "transport/mpi_internal.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/group.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

static baton_status_t grow(baton__mpi_t *mpi, int capacity)
{
    size_t count = (size_t)capacity + 1; /* see `ended` */
    MPI_Request *requests = baton__alloc(count, sizeof *requests);
    baton__mpi_item_t *items = baton__alloc(count, sizeof *items);
    baton_completion_t *done = baton__alloc(count, sizeof *done);
    int *indices = baton__alloc(count, sizeof *indices);
    MPI_Status *statuses = baton__alloc(count, sizeof *statuses);
    if (!requests || !items || !done || !indices || !statuses) {
        baton__free(requests);
        baton__free(items);
        baton__free(done);
        baton__free(indices);
        baton__free(statuses);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: no memory for %d messages in flight",
                            capacity);
    }
    if (mpi->capacity > 0) {
        size_t posted = (size_t)mpi->count;
        size_t left = (size_t)(mpi->done_count - mpi->done_at);
        memcpy(requests, mpi->requests, posted * sizeof *requests);
        memcpy(items, mpi->items, posted * sizeof *items);
        memcpy(done, mpi->done + mpi->done_at, left * sizeof *done);
        mpi->done_count -= mpi->done_at;
        mpi->done_at = 0;
    }
    baton__free(mpi->requests);
    baton__free(mpi->items);
    baton__free(mpi->done);
    baton__free(mpi->indices);
    baton__free(mpi->statuses);
    mpi->requests = requests;
    mpi->items = items;
    mpi->done = done;
    mpi->indices = indices;
    mpi->statuses = statuses;
    mpi->capacity = capacity;
    return BATON_OK;
}

baton_status_t baton__mpi_reserve(void *endpoint, int64_t messages)
{
    baton__mpi_t *mpi = endpoint;
    int64_t reserved = mpi->reserved + messages;
    assert(reserved >= 0);
    if (reserved > INT_MAX / 2) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: %lld messages in flight are too many",
                            (long long)reserved);
    }
    if (reserved > mpi->capacity) {
        int capacity = (int)reserved;
        if (capacity < mpi->capacity * 2) {
            capacity = mpi->capacity * 2;
        }
        baton_status_t status = grow(mpi, capacity);
        if (status) {
            return status;
        }
    }
    mpi->reserved = reserved;
    return BATON_OK;
}

/* ---- open, close ------------------------------------------------------ */

static void free_endpoint(baton__mpi_t *mpi)
{
    if (mpi->ended != MPI_REQUEST_NULL) {
        MPI_Request_free(&mpi->ended);
    }
    baton__doorbell_close(mpi->bell);
    baton__slots_close(mpi->slots);
    baton__free(mpi->requests);
    baton__free(mpi->items);
    baton__free(mpi->done);
    baton__free(mpi->indices);
    baton__free(mpi->statuses);
    baton__free(mpi->bells);
    baton__free(mpi);
}

/* The endpoint without its doorbell; not collective. */
static baton_status_t make_endpoint(MPI_Comm comm, baton__mpi_t **out)
{
    int size = 0;
    int rank = 0;
    int found = 0;
    int *limit = NULL;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
    baton__mpi_t *mpi = baton__alloc(1, sizeof *mpi);
    int *bells = baton__alloc((size_t)size, sizeof *bells);
    if (!mpi || !bells) {
        baton__free(mpi);
        baton__free(bells);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: no memory for a group of %d ranks", size);
    }
    mpi->transport = baton__mpi_transport;
    /* The upper half is for the bodies of large messages. */
    mpi->transport.max_tag = (found ? (uint32_t)*limit : 32767u) / 2;
    mpi->comm = comm;
    mpi->size = size;
    mpi->rank = rank;
    mpi->bells = bells;
    mpi->ended = MPI_REQUEST_NULL;
    int code =
        MPI_Send_init(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, comm, &mpi->ended);
    if (code != MPI_SUCCESS) {
        free_endpoint(mpi);
        return baton__mpi_error("MPI_Send_init", code);
    }
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

baton_status_t baton__mpi_open(MPI_Comm comm, baton_status_t local,
                               const baton_transport_t **transport_out,
                               void **endpoint_out)
{
    baton_status_t status = check_comm(comm);
    if (status) {
        return status;
    }
    MPI_Comm own;
    int code = MPI_Comm_dup(comm, &own);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Comm_dup", code);
    }
    MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
    baton__mpi_t *mpi = NULL;
    status = local ? local : make_endpoint(own, &mpi);
    status = baton__mpi_agree(own, status);
    if (!status) {
        status = baton__mpi_agree(own, baton__mpi_open_bells(mpi));
    }
    if (status) {
        if (mpi) {
            free_endpoint(mpi);
        }
        MPI_Comm_free(&own);
        return status;
    }
    *transport_out = &mpi->transport;
    *endpoint_out = mpi;
    return BATON_OK;
}

void baton__mpi_close(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    int finalized = 0;
    MPI_Finalized(&finalized);
    MPI_Comm comm = mpi->comm;
    if (finalized) {
        mpi->ended = MPI_REQUEST_NULL;
        baton__log(BATON_LOG_ERROR, "mpi: a group was destroyed after "
                                    "MPI_Finalize; destroy it before");
    }
    free_endpoint(mpi);
    if (!finalized) {
        MPI_Comm_free(&comm);
    }
}

/* ---- the public call -------------------------------------------------- */

static baton_status_t check_engine(const baton_engine_t *engine,
                                   baton_group_t **out)
{
    if (!engine || !out) {
        return baton__error(BATON_ERR_INVALID,
                            "baton_group_create_mpi: engine and out must not "
                            "be NULL");
    }
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (baton__engine_has_thread(engine) && level < MPI_THREAD_MULTIPLE) {
        return baton__error(
            BATON_ERR_STATE,
            "mpi: an engine with a progress thread needs "
            "MPI_THREAD_MULTIPLE, but MPI was initialised with a lower level; "
            "use MPI_Init_thread, or BATON_PROGRESS_MANUAL");
    }
    return BATON_OK;
}

baton_status_t baton_group_create_mpi(baton_engine_t *engine, MPI_Comm comm,
                                      baton_group_t **out)
{
    baton_status_t status = check_comm(comm);
    if (status) {
        return status;
    }
    const baton_transport_t *transport = NULL;
    void *endpoint = NULL;
    status =
        baton__mpi_open(comm, check_engine(engine, out), &transport, &endpoint);
    if (status != BATON_OK || endpoint == NULL) {
        return status;
    }
    const baton__mpi_t *mpi = endpoint;
    baton_group_t *group = NULL;
    status = baton_group_create(engine, transport, endpoint, mpi->rank,
                                mpi->size, &group);
    baton_status_t all = baton__mpi_agree(mpi->comm, status);
    if (all && !status) {
        if (baton_group_destroy(group)) {
            return all; /* can't be: it is new */
        }
        return all;
    }
    if (all) {
        transport->close(endpoint);
        return all;
    }
    *out = group;
    return BATON_OK;
}
