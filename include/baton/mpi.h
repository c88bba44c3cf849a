/* Groups over MPI. The only public header that includes mpi.h. A program that
   includes it is linked with baton::mpi (CMake), with what `pkg-config --libs
   baton-mpi` prints, or with -lbaton_mpi_group -lbaton and MPI. */
#ifndef BATON_MPI_H
#define BATON_MPI_H

#include <baton/baton.h>

/* Omits the C++ bindings of older MPIs, which need a library of their own. */
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

/* Creates a group over `comm` (an intracommunicator). Collective: blocks until
   all ranks have called it, and warns if some ranks have not after
   BATON_STALL_MS. If a rank ends after all have called this function, all ranks
   get BATON_ERR_TRANSPORT, since the ranks on its host tell the others. (If a
   rank ends before that, only MPI could notice it.) All ranks also get
   BATON_ERR_TRANSPORT if a rank has not answered for BATON_PEER_TIMEOUT_MS
   after the warning. After this error ranks may have left an exchange on `comm`
   at different places: create no other group of `comm`, and call none of MPI's
   collectives on it. Baton's messages can't collide with those of the program:
   if any of Baton's messages go over MPI (see Threads), the library duplicates
   `comm` for them. The library calls MPI by its PMPI_ names, so tools that
   interpose MPI's symbols see none of its calls. Destroy the group before
   MPI_Finalize; otherwise a message is logged, and peers on other hosts are
   lost.

   Threads: with a progress thread MPI must have been initialised with
   MPI_THREAD_MULTIPLE, unless all ranks are on one host and can read each
   other's memory: then only create and destroy of a group call MPI. In manual
   mode MPI_THREAD_FUNNELED is enough if the thread that initialised MPI makes
   all of Baton's calls. A process that forks must not use Baton in the child,
   as with MPI (engine.h).

   Ranks of one host use shared memory instead of MPI, and wake each other by
   datagrams of AF_UNIX sockets. A group takes up to 250 KiB of /dev/shm for
   each rank, 1 KiB more for each rank of its host, and 68 KiB for each of its
   BATON_SHM_BUFFERS (8) once it is used. There are fewer buffers if this number
   would take more than 64 MiB or an eighth of the free space. Longer messages
   are read out of the sender's memory, or written into the receiver's, if the
   host permits that (process_vm_readv, process_vm_writev); otherwise the ranks
   copy them through shared memory. Scratch of schedules and memory of
   baton_memory_alloc (memory.h) is shared without /dev/shm (memfd_create), and
   peers read it without a system call. When all ranks on a host have destroyed
   the group, the library keeps the shared memory in /dev/shm and the thread
   that answers peers until MPI_Finalize, or until the next group is created; a
   group of the same ranks takes them over. So dlclose does not unload
   libbaton.so; link a plugin that contains libbaton.a with -z nodelete.
   Features that the host lacks are detected, logged and not used.

   Ranks of different hosts use MPI. Two ranks that exchange messages keep two
   TCP connections: over the first the ranks wake each other, and the end of the
   second shows each rank when the process of its peer ends. If no connection
   can be made, ranks poll, and may notice a message up to BATON_SLEEP_US
   (10000) late. The library ignores SIGPIPE if the action of the signal was the
   default: otherwise the signal would end the process when Open MPI writes to a
   lost rank.

   When a process ends, the ranks on its host notice that at once, and so do
   ranks on other hosts that exchange messages with it. These ranks tell all
   others. A rank that others wait for is also lost if it has not answered them
   for BATON_PEER_TIMEOUT_MS (30000; 0: never), because it is stopped (perhaps
   by a debugger), or its host can't be reached. In each group of several ranks
   a thread of each rank answers on a TCP port, also in manual mode; the thread
   calls neither MPI nor the application. So a rank that computes, or is in a
   long call node, is not lost. A rank that was stopped for too long finds that
   the others have lost it.

   A firewall may refuse, drop or reset connections at any time. If no
   connection can be made, a rank is asked over MPI, too, and answers when its
   engine makes progress: within half a second with a progress thread. Two ranks
   that have been connected learn at once when one of them ends, even if a
   firewall has reset their connection. Of two ranks that could never connect,
   one is lost to the other if its host refuses connections and it does not
   answer over MPI for 2 s: its process has probably ended. Ranks of other hosts
   are never lost if none of them could be reached when the group was created.

   A rank out of reach may live, and go on with others on its side of a broken
   network. So baton_group_shrink and on_loss let only one of two sides go on:
   the side with more ranks, or, of two halves, the one with the lowest rank. On
   the other side they fail for good, with "partition" in the message, after a
   second in which no rank became known to have ended. Ranks count for neither
   side if they are known to have ended, by their connection or from their host,
   or if another rank of their host has lost them, for example because they are
   stopped. (In groups of more than 992 ranks all lost ranks are assumed to
   live.) A host without power is out of reach, so its ranks count as ranks that
   may live, and the others go on only if they are the larger side. With
   BATON_MINORITY=1 both sides go on, as two groups with different results. If
   the network works again before the ranks have agreed, for which they need up
   to twice BATON_PEER_TIMEOUT_MS, some pairs of ranks have lost each other and
   others have not. Then it may be that no rank goes on, and all get
   BATON_ERR_TRANSPORT.

   After a loss baton_group_shrink creates a group of the survivors. For this
   start Open MPI 4 with mpirun --enable-recovery, and Open MPI 5 with mpirun
   --with-ft ulfm. Otherwise mpirun ends the job when a rank dies; and Open MPI
   5 with --enable-recovery ends the ranks that have a connection to the dead
   one from another host. Ignore the errors of PMIX and PRTE that are then
   printed. Open MPI 4.1.4 itself may end a rank that is sending to a rank on
   another host when that one dies ("pml_ob1_sendreq.c:190 FATAL"); the sender
   is then lost, too. In rare cases a rank that connects to the dead one loops
   in MPI for ever; the looping rank is lost once its engine has been in that
   call for BATON_PEER_TIMEOUT_MS. After a loss call none of MPI's own
   collectives. MPI_Finalize returns if all ranks are on one host, and hangs if
   a dead rank was on another host; so survivors end by _exit. If MPI_Finalize
   hangs, mpirun hangs, too, until it is killed.

   BATON_ERR_STATE: MPI is not initialised, or finalised, or its thread level is
   too low; or the program uses Open MPI and Baton was built with another MPI,
   or the reverse. BATON_ERR_MISMATCH: the ranks run different versions of
   Baton, or builds whose wire formats differ. BATON_ERR_INVALID, _NO_MEMORY,
   _SYSTEM, _TRANSPORT. */
BATON_CHECKED baton_status_t baton_group_create_mpi(baton_engine_t *engine,
                                                    MPI_Comm comm,
                                                    baton_group_t **out);

#ifdef __cplusplus
}
#endif
#endif
