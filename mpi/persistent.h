/* Persistent requests; requests.h says how they are made. */
#pragma once

#include "mpi/entries.h"

/* Makes an operation's persistent request; the operation then has an entry of
   its own. */
int baton__mpi_op_persist(baton__mpi_op_t *op);

/* Starts or frees a persistent request. LEFT: the request is not the library's,
   and nothing has happened. */
int baton__mpi_start(const MPI_Request *request);
int baton__mpi_request_free(MPI_Request *request);
