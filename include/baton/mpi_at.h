/* Groups over MPI for programs that have a communicator and no mpi.h, such as
   bindings of other languages. */
#ifndef BATON_MPI_AT_H
#define BATON_MPI_AT_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Like baton_group_create_mpi (mpi.h), but takes the address of an MPI_Comm,
   which the call only reads. In Python this is `MPI._addressof(comm)` of
   mpi4py. An MPI_Comm is a pointer in Open MPI and an integer in MPICH, so the
   program must use the MPI that the library was built with. BATON_ERR_INVALID:
   the address is NULL, or the communicator there is MPI_COMM_NULL or an
   intercommunicator. Other errors as for baton_group_create_mpi. */
BATON_CHECKED baton_status_t baton_group_create_mpi_at(baton_engine_t *engine,
                                                       const void *comm_address,
                                                       baton_group_t **out);

#ifdef __cplusplus
}
#endif
#endif
