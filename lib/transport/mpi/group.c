/* Creates a group of processes from a bootstrap (bootstrap.h). */
#include <baton/engine.h>
#include <baton/transport.h>

#include "base/error.h"
#include "transport/group.h"
#include "transport/mpi/endpoint.h"

/* Checks an endpoint that was opened. If it was kept from an earlier group, it
   may have lost a rank, and only this rank may know that. A progress thread
   needs MPI_THREAD_MULTIPLE, unless MPI is never called. */
static baton_status_t check_endpoint(const baton_engine_t *engine,
                                     const baton__mpi_t *mpi)
{
    if (mpi->first_lost > 0) {
        return baton__error(BATON_ERR_TRANSPORT,
                            "mpi: a rank of this host has ended: create the "
                            "group without it");
    }
    return baton_engine_progress(engine) == BATON_PROGRESS_MANUAL ||
                   mpi->keeps_off || mpi->wire->is_threaded
               ? BATON_OK
               : baton__error(BATON_ERR_STATE,
                              "mpi: a progress thread needs "
                              "MPI_THREAD_MULTIPLE, and MPI has a lower level: "
                              "call MPI_Init_thread(..., MPI_THREAD_MULTIPLE, "
                              "&level), or open the engine with "
                              "BATON_PROGRESS_MANUAL");
}

static baton_status_t mpi_group_create(baton_engine_t *engine,
                                       baton__exchange_t *exchange,
                                       baton_group_t **out)
{
    const char *function = exchange->bootstrap->function;
    const bool given = baton__is_given(engine, true, function, "engine") &&
                       baton__is_given(out, true, function, "out");
    baton__mpi_t *mpi = NULL;
    baton_group_t *group = NULL;
    baton_status_t status =
        baton__mpi_open(exchange, given ? BATON_OK : BATON_ERR_INVALID, &mpi);
    if (status != BATON_OK) {
        return status;
    }
    status = check_endpoint(engine, mpi);
    if (status == BATON_OK) {
        status = baton_group_create(engine, &mpi->transport, mpi, mpi->rank,
                                    mpi->size, &group);
    }
    baton_status_t all = baton__exchange_conclude(exchange, &mpi->host, status);
    if (status != BATON_OK) {
        mpi->transport.close(mpi);
        return status;
    }
    if (all != BATON_OK) {
        (void)!baton_group_destroy(group); /* the group is new and empty */
        return all;
    }
    /* Pairs with the load in baton__group_is_collective. */
    atomic_store_explicit(&group->collective, true, memory_order_relaxed);
    *out = group;
    return BATON_OK;
}

baton_status_t baton__mpi_create_group(baton_engine_t *engine,
                                       baton__bootstrap_t *bootstrap,
                                       baton_group_t **out)
{
    baton__exchange_t exchange;
    baton_status_t status = baton__exchange_begin(&exchange, bootstrap);
    if (status == BATON_OK) {
        status = mpi_group_create(engine, &exchange, out);
        baton__exchange_end(&exchange);
    }
    return status;
}
