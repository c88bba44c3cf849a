/* Groups over MPI. The only public header that includes mpi.h. */
#ifndef BATON_MPI_H
#define BATON_MPI_H

#include <baton/engine.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Collective over `comm` (an intracommunicator), which is duplicated, so that
   user traffic can't collide; blocks in MPI while it is made. With a progress
   thread MPI must have been initialised with MPI_THREAD_MULTIPLE, in manual
   mode MPI_THREAD_FUNNELED will do when one thread makes all calls.

   Ranks that share a host wake each other through sockets, and pass messages of
   up to 68 KiB through shared memory: of /dev/shm a group takes 68 KiB times
   BATON_SLOTS (8) a rank, no more than 64 MiB or an eighth of what is free; see
   lib/README.md. Destroy the group (collective) before MPI_Finalize.

   BATON_ERR_STATE: MPI not initialised, or finalised, or its thread level too
   low. BATON_ERR_INVALID, _NO_MEMORY, _SYSTEM, _TRANSPORT. */
BATON_CHECKED baton_status_t baton_group_create_mpi(baton_engine_t *engine,
                                                    MPI_Comm comm,
                                                    baton_group_t **out);

#ifdef __cplusplus
}
#endif
#endif
