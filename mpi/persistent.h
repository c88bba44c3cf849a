/* Persistent requests; requests.h says how they are made. */
#pragma once

#include "mpi/entries.h"

/* Makes the persistent request of an operation, which becomes the only
   operation of its entry. */
int baton__mpi_op_persist(baton__mpi_op_t *op);

/* baton__mpi_start starts a persistent request. baton__mpi_request_free frees a
   persistent request, or a request of the first calls (comms.h). Both return
   LEFT if the request is of another kind: then nothing has happened. */
int baton__mpi_start(const MPI_Request *request);
int baton__mpi_request_free(MPI_Request *request);
