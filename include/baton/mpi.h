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

/* Collective over `comm` (an intracommunicator): blocks until all ranks have
   called it, and warns if some have not after BATON_STALL_MS. From then on a
   rank that ends, which those on its host tell all others, or has not answered
   for BATON_PEER_TIMEOUT_MS, is an error on all: BATON_ERR_TRANSPORT. Then
   ranks may have left an exchange on `comm` at different places: make no other
   group of it, and call none of MPI's collectives on it. User traffic can't
   collide: what MPI carries goes through a duplicate of `comm`, which is made
   where there is anything (see Threads). The library calls MPI by its PMPI_
   names, so tools that interpose MPI's symbols see none of its calls. Destroy
   the group before MPI_Finalize. If you do not, that is logged, and peers on
   other hosts are lost.

   Threads: with a progress thread MPI must have been initialised with
   MPI_THREAD_MULTIPLE, unless all ranks are on one host and can read each
   other's memory: then only creating and destroying a group calls MPI. In
   manual mode MPI_THREAD_FUNNELED is enough if the thread that initialised MPI
   makes all of Baton's calls. A process that forks must not use Baton in the
   child, as with MPI (engine.h).

   Ranks of one host use shared memory instead of MPI, and wake each other by
   datagrams of AF_UNIX sockets. A group takes about 170 KiB of /dev/shm for
   each rank, 1 KiB more for each rank of its host, and 68 KiB for each of its
   BATON_SHM_BUFFERS (8) once it is used. There are fewer buffers if all would
   take more than 64 MiB or an eighth of what is free. Longer messages are read
   out of the sender's memory, or written into the receiver's, if the host
   permits it (process_vm_readv, process_vm_writev); if it does not any more,
   the ranks copy them through shared memory. Scratch of schedules, and what
   baton_memory_alloc returns (memory.h), is in memory that the ranks share
   without using /dev/shm (memfd_create), and is read without the kernel's help.
   When all ranks of a group on one host have destroyed it, what they shared but
   that memory, and the thread that answers, are kept until the next group is
   created, which takes them over if it is of the same ranks, or MPI_Finalize.
   So dlclose does not unload libbaton.so; a plugin that contains libbaton.a is
   linked with -z nodelete.
   Features that the host lacks are detected, logged and not used.

   Ranks of different hosts use MPI. Each two that have messages keep a TCP
   connection, by which one wakes the other. If none can be made, ranks poll,
   and may notice a message up to BATON_SLEEP_US (10000) late. SIGPIPE is
   ignored from then on if its action was the default: otherwise Open MPI would
   let it end the process once a rank is gone.

   A rank whose process has ended is lost at once to the ranks of its host, and
   to those on others that have messages with it, unless their connection was
   reset; they tell all others. A rank that others wait for is also lost if it
   has not answered them for BATON_PEER_TIMEOUT_MS (30000; 0: never), as it is
   stopped (perhaps by a debugger), or its host can't be reached. A thread of
   each group of several ranks answers, on a TCP port, also in manual mode; it
   calls neither MPI nor the application. So a rank that computes, or is in a
   long call node, is not lost. One that was stopped for too long finds that the
   others have lost it.

   Where no connection can be made, which a firewall may refuse, drop or reset
   at any time, a rank is asked over MPI, too, and answers there when its engine
   makes progress: within half a second with a progress thread. One whose host
   refuses connections, and which does not answer over MPI for 2 s, is lost: its
   process has ended, as far as can be told if its connection was reset, too.
   Ranks of other hosts are never lost if none of them could be reached when the
   group was made.

   A rank out of reach may live, and go on with others behind a cut cable. So of
   two sides baton_group_shrink and on_loss let one go on: the one with more
   ranks, or, of two halves, with the lowest. On the other they fail for good,
   and say "partition", once a second has passed in
   which no end became known. Ranks count for neither that are known to have
   ended, or that a rank of their host has lost, as they are stopped: their host
   has told so, or the end of their connection. (In groups of more than 992
   ranks all lost ones are taken to live.) A host that loses its power is out of
   reach, so those that are too few without it stop. With BATON_MINORITY=1 each
   side goes on, and from then on there are two groups, with different results.

   After a loss baton_group_shrink gives the survivors a group. Start Open MPI 4
   with mpirun --enable-recovery, and Open MPI 5 with mpirun --with-ft ulfm:
   otherwise it ends the job when a rank dies, or (5, with --enable-recovery)
   the ranks that have a connection to it from another host. Errors of PMIX and
   PRTE that it then prints mean nothing. Open MPI 4.1.4 itself may end a rank
   that is sending to one on another host when that dies
   ("pml_ob1_sendreq.c:190 FATAL"), which is lost to the others, too; seldom a
   rank that connects to the dead one loops in MPI for good. It is lost, too,
   once its engine has been in that call for BATON_PEER_TIMEOUT_MS. Call none of
   MPI's own collectives any more. MPI_Finalize returns if all ranks are on one
   host, and hangs if a dead rank was on another; so survivors end by _exit.
   Mpirun itself hangs in that case, too, until it is killed.

   BATON_ERR_STATE: MPI not initialised, or finalised, or its thread level too
   low; or the program runs with Open MPI and Baton was built with another MPI,
   or the other way round. BATON_ERR_MISMATCH: ranks run several versions of
   Baton. BATON_ERR_INVALID, _NO_MEMORY, _SYSTEM, _TRANSPORT. */
BATON_CHECKED baton_status_t baton_group_create_mpi(baton_engine_t *engine,
                                                    MPI_Comm comm,
                                                    baton_group_t **out);

#ifdef __cplusplus
}
#endif
#endif
