/* Calls that the library has taken (call.h), from their start to their end, and
   their requests.

   The request of a nonblocking call is a generalized request of MPI, so that
   the program can mix it with other requests in Wait, Test and the like. MPI's
   progress completes such a request inside the program's calls of MPI.
   Persistent requests can't be generalized. A persistent request is a receive
   from this process itself, on a separate communicator; at the end of the
   operation the library sends the empty message that the receive waits for. If
   the operation has failed, the message is a byte too long, so that the request
   fails with MPI_ERR_TRUNCATE. */
#pragma once

#include "mpi/call.h"

/* Starts a call, or makes the inactive request of a persistent call. `request`
   is complete when the call has ended. Returns LEFT or LEFT_FIRST (call.h), or
   an MPI error code, which was also passed to the communicator's error
   handler. */
int baton__mpi_begin(const baton__mpi_call_t *call, MPI_Request *request);

/* Starts a call and waits until it has ended. Returns the same as
   baton__mpi_begin. */
int baton__mpi_finish(const baton__mpi_call_t *call);

/* Waits until the operations of `requests` have ended. Uses Baton's wait, since
   MPI's own waits poll and would keep Baton's thread from running. A long wait
   also calls MPI's progress. Does not wait if `requests` is NULL, or if it
   holds several requests of which some are MPI's own. */
void baton__mpi_await(int count, const MPI_Request *requests);

/* Finds Open MPI's hooks for progress and the layout of its requests. Returns
   NULL, or the reason of a failure. */
const char *baton__mpi_find_request(void);

/* If `on`, makes MPI's progress call Baton's; otherwise ends that. The first
   call that is taken turns this on, so MPI's progress costs nothing more in
   programs of which no call is taken. If Baton has no thread, MPI_Init turns
   this on. */
void baton__mpi_drive(bool on);
