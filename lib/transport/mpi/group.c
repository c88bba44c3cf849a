/* Groups of an MPI communicator's processes. */
#include <baton/engine.h>
#include <baton/mpi.h>
#include <baton/transport.h>

#include "base/error.h"
#include "transport/group.h"
#include "transport/mpi/endpoint.h"

static baton_status_t check_engine(const baton_engine_t *engine,
                                   baton_group_t **out)
{
    if (engine == NULL || out == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "baton_group_create_mpi: %s is NULL",
                            engine == NULL ? "engine" : "out");
    }
    return BATON_OK;
}

/* A thread of Baton's may call MPI, unless there is never a reason to. */
static baton_status_t check_level(const baton_engine_t *engine,
                                  baton__mpi_t *mpi)
{
    int level = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&level);
    if (baton_engine_progress(engine) == BATON_PROGRESS_MANUAL ||
        level == MPI_THREAD_MULTIPLE) {
        return BATON_OK;
    }
    mpi->keeps_off = mpi->far.peers == 0 && mpi->reads;
    return mpi->keeps_off
               ? BATON_OK
               : baton__error(BATON_ERR_STATE,
                              "mpi: a progress thread needs "
                              "MPI_THREAD_MULTIPLE, and MPI has a lower level: "
                              "call MPI_Init_thread(..., MPI_THREAD_MULTIPLE, "
                              "&level), or open the engine with "
                              "BATON_PROGRESS_MANUAL");
}

baton_status_t baton_group_create_mpi(baton_engine_t *engine, MPI_Comm comm,
                                      baton_group_t **out)
{
    const baton_transport_t *transport = NULL;
    void *endpoint = NULL;
    baton_status_t status =
        baton__mpi_open(comm, check_engine(engine, out), &transport, &endpoint);
    if (status != BATON_OK || endpoint == NULL) {
        return status;
    }
    baton__mpi_t *mpi = endpoint;
    baton_group_t *group = NULL;
    status = check_level(engine, mpi);
    if (status == BATON_OK) {
        status = baton_group_create(engine, transport, endpoint, mpi->rank,
                                    mpi->size, &group);
    }
    baton_status_t all = baton__mpi_agree(mpi->comm, status);
    if (status != BATON_OK) {
        transport->close(endpoint);
        return status;
    }
    if (all != BATON_OK) {
        (void)!baton_group_destroy(group); /* it is new, and empty */
        return all;
    }
    group->collective = true;
    *out = group;
    return BATON_OK;
}
