/* Groups over MPI for programs that have a communicator and no mpi.h, such as
   bindings of other languages. */
#ifndef BATON_MPI_AT_H
#define BATON_MPI_AT_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As baton_group_create_mpi (mpi.h), with the address of an MPI_Comm, which is
   only read: in Python `MPI._addressof(comm)` of mpi4py. An MPI_Comm is a
   pointer in Open MPI and an integer in MPICH; the library reads what the MPI
   that it was built with has there, so the program must use that MPI.
   BATON_ERR_INVALID: the address is NULL, or the communicator there is
   MPI_COMM_NULL or an intercommunicator. Other errors as of
   baton_group_create_mpi. */
BATON_CHECKED baton_status_t baton_group_create_mpi_at(baton_engine_t *engine,
                                                       const void *comm_address,
                                                       baton_group_t **out);

#ifdef __cplusplus
}
#endif
#endif
