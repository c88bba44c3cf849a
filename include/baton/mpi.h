/* Groups over MPI. The only public header that includes mpi.h. */
#ifndef BATON_MPI_H
#define BATON_MPI_H

#include <baton/baton.h>

/* Without the bindings for C++ of older MPIs, which need a library of theirs.
 */
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Collective over `comm` (an intracommunicator); blocks in MPI meanwhile. The
   group gets a communicator of its own, so that user traffic can't collide, and
   leaves the attributes of `comm` alone. The library calls MPI by its PMPI_
   names: programs that stand between an application and MPI see none of its
   calls. Destroy the group before MPI_Finalize: else that is logged, and the
   peers on other hosts are lost.

   Threads: with a progress thread MPI must have been initialised with
   MPI_THREAD_MULTIPLE. In manual mode MPI_THREAD_FUNNELED will do if the thread
   that initialised MPI makes all of Baton's calls. A process that forks must
   not use Baton in the child, as with MPI.

   Ranks of one host talk through shared memory, not through MPI, and wake each
   other by datagrams of AF_UNIX sockets. Of /dev/shm a group takes about 170
   KiB a rank, and 68 KiB for each of its BATON_SHM_BUFFERS (8), which are fewer
   where all of them would take more than 64 MiB or an eighth of what is free.
   Longer messages are read out of the sender's memory where the host permits
   that (process_vm_readv). Scratch of schedules, and what baton_memory_alloc
   gives (memory.h), lies in memory that the ranks share without taking any of
   /dev/shm (memfd_create), and is read without the kernel's help. What a host
   does not permit is found out here, and done without.

   Ranks of different hosts talk over MPI, and each two that have messages keep
   a TCP connection, by which one wakes the other. Where none can be made ranks
   look for messages now and then, at most BATON_SLEEP_US (10000) late. SIGPIPE
   is ignored from then on if its action was the default one: Open MPI would let
   it end the process once a rank is gone.

   A rank whose process has ended is lost to those of its host at once, and so
   it is to ranks on others that have messages with it; the rest learn of it
   when they wait for a rank that knows, in about a second. A rank that others
   wait for is also lost when it has not answered them for BATON_PEER_TIMEOUT_MS
   (30000; 0: never): because it is stopped, also in a debugger, or its host
   can't be reached. What answers, on a TCP port, is a thread that each group of
   several ranks has, also in manual mode; it calls neither MPI nor the
   application. So a rank that computes, or is busy in a call node, is not lost.
   One that was stopped for too long and goes on finds that the others have lost
   it. Ranks on other hosts of which none could be reached are never lost so.

   After a loss baton_group_shrink gives the survivors a group. With Open MPI
   4.1.4 mpirun must have been given --enable-recovery: else it ends the job
   when a rank dies. It then prints PMIX errors that mean nothing. MPI's own
   collectives must not be called any more. MPI_Finalize returns if all ranks
   are on one host, and hangs if the dead were on another: survivors end by
   _exit. So does mpirun itself in that case, until it is killed.

   BATON_ERR_STATE: MPI not initialised, or finalised, or its thread level too
   low. BATON_ERR_INVALID, _NO_MEMORY, _SYSTEM, _TRANSPORT. */
BATON_CHECKED baton_status_t baton_group_create_mpi(baton_engine_t *engine,
                                                    MPI_Comm comm,
                                                    baton_group_t **out);

#ifdef __cplusplus
}
#endif
#endif
