/* The two uses that Baton makes of MPI: a bootstrap, by which the ranks of a
   communicator exchange records while they make a group (bootstrap_mpi.c), and
   a wire, which carries messages between hosts (wire_mpi.c). No other file
   calls MPI. */
#pragma once

#include "transport/mpi/bootstrap.h"
#include "transport/mpi/wire.h"

#include <baton/mpi.h>

/* Returns BATON_OK for MPI_SUCCESS. Otherwise sets this thread's error, with
   MPI's text, and returns BATON_ERR_TRANSPORT. */
baton_status_t baton__mpi_error(const char *call, int code);

/* Makes a wire of a communicator that no other part of the program uses;
   `close` frees it. With MPI_COMM_NULL the wire can't send anything, and only
   reports that MPI ends (`watch` of wire.h). Returns BATON_ERR_NO_MEMORY if
   there is no memory. */
baton_status_t baton__wire_open_mpi(MPI_Comm comm, baton__wire_t **out);

typedef struct baton__bootstrap_mpi {
    /* This field is first, since bootstrap_mpi.c casts its address. */
    baton__bootstrap_t shared;
    MPI_Comm comm;          /* the application's communicator */
    MPI_Errhandler handler; /* the error handler that `comm` had before */
    MPI_Request request;    /* the exchange in progress */
    const char *called;     /* the MPI function that began the exchange */
    bool failed;            /* MPI has reported an error */
} baton__bootstrap_mpi_t;

/* Checks `comm`, and makes MPI return errors of calls on it instead of ending
   the program. After an error baton__bootstrap_close_mpi must not be called. */
baton_status_t baton__bootstrap_open_mpi(baton__bootstrap_mpi_t *self,
                                         MPI_Comm comm);
void baton__bootstrap_close_mpi(baton__bootstrap_mpi_t *self);
