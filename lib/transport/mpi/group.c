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
    int initialized = 0, finalized = 0;
    PMPI_Initialized(&initialized);
    PMPI_Finalized(&finalized);
    if (!initialized || finalized) {
        return BATON_OK; /* baton__mpi_open reports that */
    }
    int level = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&level);
    if (baton_engine_progress(engine) != BATON_PROGRESS_MANUAL &&
        level < MPI_THREAD_MULTIPLE) {
        return baton__error(
            BATON_ERR_STATE,
            "mpi: a progress thread needs MPI_THREAD_MULTIPLE, and MPI has a "
            "lower level: call MPI_Init_thread(..., MPI_THREAD_MULTIPLE, "
            "&level), or open the engine with BATON_PROGRESS_MANUAL");
    }
    return BATON_OK;
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
    const baton__mpi_t *mpi = endpoint;
    baton_group_t *group = NULL;
    status = baton_group_create(engine, transport, endpoint, mpi->rank,
                                mpi->size, &group);
    baton_status_t all = baton__mpi_agree(mpi->comm, status);
    if (all != BATON_OK && status == BATON_OK) {
        (void)!baton_group_destroy(group); /* it is new, and empty */
        return all;
    }
    if (all != BATON_OK) {
        transport->close(endpoint);
        return all;
    }
    group->collective = true;
    *out = group;
    return BATON_OK;
}
